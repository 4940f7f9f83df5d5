"""The adapters pass scikit-learn's own contract suite and behave in its machinery."""

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_regression
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from polyfed import GPClassifier, GPRegressor


@parametrize_with_checks([GPRegressor(max_iterations=5), GPClassifier(max_iterations=5)])
def test_estimator_checks(estimator, check):
    check(estimator)


def test_regressor_agrees_with_scikit_learns_gp_where_both_learn_the_same_model():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (40, 1))
    y = 5.0 + 2.0 * np.sin(X[:, 0]) + 0.2 * rng.standard_normal(40)
    X_new = np.linspace(-2.5, 2.5, 7)[:, None]
    kernel = ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(0.1)
    theirs = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=2, random_state=0).fit(X, y)
    ours = GPRegressor(max_iterations=200).fit(X, y)
    # The optima agree; normalisation of y adds a constant to the evidence on neither side.
    assert ours.gp_.bound == pytest.approx(theirs.log_marginal_likelihood_value_, abs=1e-3)
    mean, std = ours.predict(X_new, return_std=True)
    their_mean, their_std = theirs.predict(X_new, return_std=True)
    np.testing.assert_allclose(mean, their_mean, atol=5e-3)
    np.testing.assert_allclose(std, their_std, atol=5e-3)


def test_several_targets_are_modelled_jointly():
    X, Y = make_regression(40, 3, n_targets=2, noise=1.0, random_state=0)
    mean, std = GPRegressor(max_iterations=30).fit(X, Y).predict(X[:5], return_std=True)
    assert mean.shape == std.shape == (5, 2)
    assert np.abs(mean - Y[:5]).max() < 0.2 * Y.std()


def test_string_classes_and_cross_validation():
    iris = load_iris()
    rows = np.random.default_rng(0).permutation(150)[:75]
    names = iris.target_names[iris.target]
    pipeline = make_pipeline(MinMaxScaler(), GPClassifier(max_iterations=15))
    assert cross_val_score(pipeline, iris.data[rows], names[rows], cv=3).mean() > 0.9
    clf = pipeline.fit(iris.data[rows], names[rows])
    proba = clf.predict_proba(iris.data)
    np.testing.assert_allclose(proba.sum(1), 1.0, atol=1e-9)
    assert set(clf.predict(iris.data)) <= set(iris.target_names)


def test_grid_search_over_kernels():
    X, y = make_regression(30, 2, noise=1.0, random_state=1)
    search = GridSearchCV(GPRegressor(max_iterations=10), {"kernel": ["rbf", "linear"]}, cv=2).fit(X, y)
    assert search.best_params_["kernel"] in {"rbf", "linear"}


def test_random_state_zero_is_a_seed_like_any_other():
    iris = load_iris()
    X, y = iris.data[::5], iris.target[::5]
    a, b, c = (GPClassifier(random_state=s, max_iterations=3).fit(X, y).predict_proba(X) for s in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert np.abs(a - c).max() > 1e-6
