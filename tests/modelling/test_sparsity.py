"""Large clients: the sparse model behind MultiTaskGP(inducing=...)."""

import numpy as np
import pytest

import polyfed as pf

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0, 10, (160, 1)), 0)
Y = 50 + 10 * np.sin(X[:, 0]) + RNG.normal(0, 1, 160)
Z = (np.sin(X[:, 0]) > 0).astype(object)
Z[::2] = None
TASKS = {"y": "regression", "z": "binary"}
NEW = np.linspace(0.5, 9.5, 13)[:, None]


@pytest.fixture(scope="module")
def exact():
    return pf.MultiTaskGP(TASKS, 2, max_iterations=25).fit(X, {"y": Y, "z": Z})


def refit(exact, **options):
    return pf.MultiTaskGP(TASKS, prior=exact.prior, **options).fit(X, {"y": Y, "z": Z}, learn=False)


@pytest.mark.parametrize("method", ["greedy", "uniform", "kmeans"])
def test_all_inputs_give_the_exact_model(exact, method):
    sparse = refit(exact, inducing=1000, inducing_method=method)
    assert sparse.n_inducing is not None
    assert sparse.n_inducing <= 160
    assert sparse.bound == pytest.approx(exact.bound, abs=0.05)  # the jitter on k(Z, Z) costs something
    np.testing.assert_allclose(sparse.predict(NEW)["y"].mean, exact.predict(NEW)["y"].mean, atol=0.05)


def test_fewer_give_a_lower_bound(exact):
    bounds = [refit(exact, inducing=M).bound for M in (3, 6, 12, 40)]
    assert bounds == sorted(bounds)
    assert bounds[-1] <= exact.bound + 1e-6


def test_auto_says_how_many_it_took(exact):
    loose = refit(exact, inducing="auto", inducing_tolerance=1.0)
    tight = refit(exact, inducing="auto", inducing_tolerance=1e-7)
    assert loose.n_inducing <= tight.n_inducing
    assert f"n_inducing={tight.n_inducing}" in repr(tight)
    assert exact.bound - tight.bound < 1e-2
    assert exact.n_inducing is None


def test_the_papers_own_variant(exact):
    paper = refit(exact, inducing=40, inducing_method="paper")
    assert paper.n_inducing == 40
    truth = 50 + 10 * np.sin(NEW[:, 0])
    assert np.abs(paper.predict(NEW)["y"].mean - truth).max() < 2
    # No residual variance: far from Z it is too sure of itself, which is why it is not the default.
    far = [[1000.0]]
    assert paper.predict(far)["y"].latent_std[0] < 0.1 * exact.predict(far)["y"].latent_std[0]


def test_learning_with_inducing_inputs(exact):
    sparse = pf.MultiTaskGP(TASKS, 2, inducing=25, max_iterations=25).fit(X, {"y": Y, "z": Z})
    assert sparse.learning.bound > sparse.learning.first_bound
    truth = 50 + 10 * np.sin(NEW[:, 0])
    assert np.abs(sparse.predict(NEW)["y"].mean - truth).max() < 2


def test_a_sparse_model_is_saved_and_loaded(exact, tmp_path):
    sparse = refit(exact, inducing=15)
    again = pf.MultiTaskGP.load(sparse.save(tmp_path / "sparse"))
    assert again.n_inducing == 15
    np.testing.assert_array_equal(again.predict(NEW)["z"].proba, sparse.predict(NEW)["z"].proba)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"inducing": 0}, "inducing is 0; use at least one, 'auto', 'exact' or None."),
        ({"inducing": "many"}, "inducing is 'many'; use a number, 'auto', 'exact' or None."),
        ({"inducing": 5, "inducing_method": "gredy"}, "inducing_method 'gredy' is unknown; did you mean 'greedy'?"),
    ],
)
def test_bad_options_are_named(options, text):
    with pytest.raises(pf.ConfigError) as caught:
        pf.MultiTaskGP(TASKS, **options)
    assert str(caught.value).startswith(text)
