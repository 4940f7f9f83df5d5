"""Rivals are what their libraries make of the same rows; what polyfed adds is derived by hand."""

from __future__ import annotations

import sys
from inspect import signature

import numpy as np
import pytest
from scipy import special
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import BayesianRidge, LogisticRegression, PoissonRegressor
from sklearn.preprocessing import StandardScaler

import polyfed as pf
from federations import START, codecs_of
from polyfed.data import ClientData, FederationSpec
from polyfed.errors import ConfigError, MissingExtraError
from polyfed.methods import method
from polyfed.methods.rivals import RIVALS
from polyfed.methods.rivals.reading import MOST, Clients, Inputs, folds

QUICK = {
    "sklearn-hgb-pooled": {"iterations": 20},
    "catboost-pooled": {"iterations": 30},
    "sklearn-rf-local": {"trees": 10},
}
NAMES = [rival.name for rival in RIVALS]
POOLED = [rival.name for rival in RIVALS if rival.needs_client]
RNG = np.random.default_rng(3)
N, C = 60, 4
FEATURES, OWNER = RNG.standard_normal((N, 3)), np.repeat(np.arange(C), N // C)
F = FEATURES[:, 0] + 1.5 * (OWNER - 1.5)
KINDS = ("regression", "robust", "binary", "multiclass", "count", "proportion")
LABELS = {
    "regression": F + 0.3 * RNG.standard_normal(N),
    "robust": F + 0.3 * RNG.standard_t(4, N),
    "binary": np.where(F + RNG.logistic(size=N) > 0, 1.0, -1.0),
    "multiclass": np.digitize(F + 0.5 * RNG.standard_normal(N), [-1.0, 1.0]).astype(float),
    "count": RNG.poisson(2 * np.exp(0.4 * F)).astype(float),
    "proportion": np.column_stack([RNG.binomial(5, special.expit(F)), np.full(N, 5)]).astype(float),
}


def of_kinds(*kinds, rows=slice(None), x=None):
    x = np.column_stack([FEATURES, OWNER])[rows] if x is None else x
    return ClientData(x, {kind: (np.arange(len(x)), LABELS[kind][rows]) for kind in kinds}, codecs_of(kinds))


def fitted(name, data, **options):
    made = method(name, **QUICK.get(name, {}) | options)
    server = made.init(FederationSpec(tuple(c.task for c in data.codecs.values()), 3, ("all",), data.codecs), START)
    return made.predictor(server, None, data), int(server["seed"])


def served(name):
    kinds = method(name).kinds
    return KINDS if kinds is None else kinds


NEW = np.column_stack([RNG.standard_normal((7, 3)), [0, 1, 2, 3, 0, 1, 2]])
STRANGER = np.column_stack([NEW[:, :3], np.full(7, 9.0)])


def dummies(x):
    return np.column_stack([(x[:, 3:] == np.arange(C)).astype(float), x[:, :3]])


# ---- the same as the libraries themselves ------------------------------------------------------------------------------


@pytest.mark.parametrize("new", [NEW, STRANGER], ids=["member", "stranger"])
def test_linear_models_are_scikit_learns_with_an_indicator_of_each_client(new):
    data = of_kinds("regression", "count", "proportion")
    predictions = fitted("sklearn-linear-pooled", data)[0](new)
    scaler = StandardScaler().fit(dummies(data.x))
    asked, old, new = new, scaler.transform(dummies(data.x)), scaler.transform(dummies(new))
    mean, std = BayesianRidge().fit(old, LABELS["regression"]).predict(new, return_std=True)
    np.testing.assert_allclose(predictions["regression"].mean, mean, atol=1e-10)
    np.testing.assert_allclose(predictions["regression"].std, std, atol=1e-10)
    rate = PoissonRegressor(alpha=1.0, max_iter=1000).fit(old, LABELS["count"]).predict(new)
    np.testing.assert_allclose(predictions["count"].mean, rate, rtol=1e-10)
    # Each trial as a row of its own is the same likelihood; then one more label, at the frequency of successes.
    k, n = LABELS["proportion"].T.astype(int)
    rows = np.repeat(np.arange(N), n)
    trials = np.concatenate([np.arange(5) < successes for successes in k]).astype(int)
    sides = np.repeat(np.arange(N), (k > 0).astype(int) + (k < n))  # a row for each side that occurs, in their units
    scaler = StandardScaler().fit(dummies(data.x)[sides])
    model = LogisticRegression(max_iter=1000).fit(scaler.transform(dummies(data.x)[rows]), trials)
    p = model.predict_proba(scaler.transform(dummies(asked)))[:, 1]
    often = (k.sum() + 0.5) / (n.sum() + 1)
    np.testing.assert_allclose(predictions["proportion"].mean, (n.sum() * p + often) / (n.sum() + 1), atol=2e-4)


def test_boosted_trees_are_scikit_learns_with_the_client_as_a_category():
    data = of_kinds("regression", "multiclass")
    predict, seed = fitted("sklearn-hgb-pooled", data)
    turned = [3, 0, 1, 2]
    options = {"max_iter": 20, "categorical_features": [0], "random_state": seed}
    number = HistGradientBoostingRegressor(**options).fit(data.x[:, turned], LABELS["regression"])
    np.testing.assert_allclose(predict(NEW)["regression"].mean, number.predict(NEW[:, turned]), atol=1e-12)
    classes = HistGradientBoostingClassifier(**options).fit(data.x[:, turned], LABELS["multiclass"])
    often = (np.bincount(LABELS["multiclass"].astype(int)) + 0.5) / (N + 1.5)
    wanted = (N * classes.predict_proba(NEW[:, turned]) + often) / (N + 1)
    np.testing.assert_allclose(predict(NEW)["multiclass"].proba, wanted, atol=1e-12)


@pytest.mark.parametrize("new", [NEW, STRANGER], ids=["member", "stranger"])
def test_catboost_is_catboosts_with_the_client_as_a_category(new):
    catboost = pytest.importorskip("catboost")
    data = of_kinds("regression", "binary")
    predict, seed = fitted("catboost-pooled", data)

    def table(x):  # numbers and words side by side, as users give them
        return [[*map(float, row[:3]), f"{row[3]:.0f}"] for row in x.astype(np.float32)]

    common = {"iterations": 30, "depth": 4, "border_count": 64, "random_seed": seed, "thread_count": 1}
    common |= {"verbose": False, "allow_writing_files": False, "cat_features": [3]}
    number = catboost.CatBoostRegressor(**common).fit(table(data.x), LABELS["regression"])
    np.testing.assert_allclose(predict(new)["regression"].mean, number.predict(table(new)), atol=1e-10)
    sides = catboost.CatBoostClassifier(**common).fit(table(data.x), (LABELS["binary"] > 0).astype(int))
    often = (np.sum(LABELS["binary"] > 0) + 0.5) / (N + 1)
    wanted = (N * sides.predict_proba(table(new))[:, 1] + often) / (N + 1)
    np.testing.assert_allclose(predict(new)["binary"].proba, wanted, atol=1e-10)


def test_a_forest_and_a_process_of_ones_own_rows():
    data = of_kinds("regression", rows=slice(0, 15), x=FEATURES[:15])
    y, new = LABELS["regression"][:15], NEW[:, :3]
    predict, seed = fitted("sklearn-rf-local", data, trees=30)
    forest = RandomForestRegressor(30, min_samples_leaf=2, oob_score=True, random_state=seed).fit(data.x, y)
    np.testing.assert_allclose(predict(new)["regression"].mean, forest.predict(new), atol=1e-12)
    wanted = np.sqrt(np.mean((y - forest.oob_prediction_) ** 2))
    np.testing.assert_allclose(predict(new)["regression"].std, wanted, rtol=1e-12)
    kernel = ConstantKernel(1.0, (1e-2, 1e2)) * RBF(np.sqrt(3), (0.1, 100.0)) + WhiteKernel(0.3, (1e-3, 10.0))
    process = GaussianProcessRegressor(kernel, normalize_y=True).fit(data.x, y)
    mean, std = process.predict(new, return_std=True)
    predicted = fitted("sklearn-gp-local", data)[0](new)["regression"]
    np.testing.assert_allclose(predicted.mean, mean, atol=1e-3)
    np.testing.assert_allclose(predicted.std, std, atol=1e-3)


# ---- mixed effects by hand ---------------------------------------------------------------------------------------------


def test_random_intercepts_of_equal_groups_are_the_analysis_of_variance():
    """Without features and with n labels in each of C clients: σ² = MSW, τ² = (MSB − MSW)/n, and means are shrunk."""
    y, n = LABELS["regression"], N // C
    x = np.column_stack([np.zeros(N), OWNER])
    data = ClientData(x, {"regression": (np.arange(N), y)}, codecs_of(("regression",)))
    means = y.reshape(C, n).mean(1)
    within = np.sum((y.reshape(C, n) - means[:, None]) ** 2) / (N - C)
    tau2 = (n * means.var(ddof=1) - within) / n
    shrink = n * tau2 / (n * tau2 + within)
    of_mean = (n * tau2 + within) / N
    asked = np.column_stack([np.zeros(5), [0, 1, 2, 3, 8]])
    predicted = fitted("mixed-effects", data)[0](asked)["regression"]
    wanted = [*(y.mean() + shrink * (means - y.mean())), y.mean()]
    np.testing.assert_allclose(predicted.mean, wanted, rtol=1e-4)
    known = within + tau2 * within / (within + n * tau2) + of_mean
    np.testing.assert_allclose(predicted.std**2, [known] * 4 + [within + tau2 + of_mean], rtol=1e-3)


def test_the_logistic_model_is_at_the_mode_of_its_posterior():
    """There Σ(y − p) of a client is its intercept over τ², and Aᵀ(y − p) the fixed effects over 2²."""
    from statsmodels.genmod.bayes_mixed_glm import BinomialBayesMixedGLM

    from polyfed.methods.rivals.mixed_effects import MixedEffects, _design

    x = Inputs.of(of_kinds("binary").x, named=True)
    y, A, one_hot = (LABELS["binary"] + 1) / 2, _design(x, 5)(x), Clients.of(x).one_hot(x)
    found = MixedEffects()._logistic(y, A, one_hot)
    fixed, own = found[: A.shape[1]], found[A.shape[1] :]
    left = y - special.expit(A @ fixed + one_hot @ own)
    np.testing.assert_allclose(A.T @ left, fixed / 4, atol=1e-3)
    tau2 = own / (one_hot.T @ left)
    np.testing.assert_allclose(tau2, tau2.mean(), rtol=1e-2)
    assert np.ptp(own) > 1  # the clients do differ
    if "rng" in signature(BinomialBayesMixedGLM.fit_map).parameters:
        np.testing.assert_array_equal(MixedEffects()._logistic(y, A, one_hot), found)


def test_components_stand_for_features_where_labels_are_few():
    from polyfed.methods.rivals.mixed_effects import _design

    few = Inputs(FEATURES[:12], OWNER[:12])
    A = _design(few, 5)(few)
    assert A.shape == (12, 3)  # a constant, and 12 // 5 components
    np.testing.assert_allclose(A.T @ A, 12 * np.eye(3), atol=1e-9)
    scaled = StandardScaler().fit_transform(FEATURES[:12])
    values, vectors = np.linalg.eigh(scaled.T @ scaled)
    for i in (1, 2):
        assert abs(scaled @ vectors[:, -i] @ A[:, i]) == pytest.approx(np.sqrt(12 * values[-i]))


# ---- what polyfed adds ---------------------------------------------------------------------------------------------------


def test_every_row_is_left_out_once():
    parts = folds(11, seed=5)
    assert sorted(np.concatenate([out for _, out in parts])) == list(range(11))
    assert all(sorted([*learn, *out]) == list(range(11)) for learn, out in parts)


def test_the_spread_is_of_rows_that_were_left_out():
    """Trees that may not split predict the mean of what they have seen, so the residuals can be told by hand."""
    data = of_kinds("regression", "count")
    predict, seed = fitted("sklearn-hgb-pooled", data, min_samples_leaf=N)
    y, counts = LABELS["regression"], LABELS["count"]
    left = np.concatenate([y[out] - y[learn].mean() for learn, out in folds(N, seed)])
    np.testing.assert_allclose(predict(NEW)["regression"].std, np.sqrt(np.mean(left**2)), rtol=1e-10)
    rates = np.empty(N)
    for learn, out in folds(N, seed):
        rates[out] = counts[learn].mean()
    excess = np.sum((counts - rates) ** 2 - rates) / np.sum(rates**2)
    np.testing.assert_allclose(predict(NEW)["count"].dispersion, 1 / excess, rtol=1e-4)


@pytest.mark.parametrize("name", POOLED)
def test_pooled_rivals_tell_clients_apart_that_differ_in_nothing_else(name):
    x = np.column_stack([np.zeros((N, 3)), OWNER])
    data = ClientData(x, {"regression": (np.arange(N), LABELS["regression"])}, codecs_of(("regression",)))
    options = {"sklearn-hgb-pooled": {"min_samples_leaf": 5, "iterations": 100}, "catboost-pooled": {"iterations": 300}}
    asked = np.column_stack([np.zeros((C, 3)), np.arange(C)])
    mean = fitted(name, data, **options.get(name, {}))[0](asked)["regression"].mean
    assert np.all(mean[2:] - mean[:2] > 2.0)  # they are 3 apart; CatBoost may take neighbours for one


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 5])
def test_any_number_of_labels_will_do(name, rows):
    """And one class of them, and features that do not vary."""
    kinds = served(name)
    for x in (np.column_stack([FEATURES, OWNER])[:rows], np.zeros((rows, 4))):
        seen = {kind: (np.arange(rows), LABELS[kind][:rows]) for kind in kinds}
        predictions = fitted(name, ClientData(x, seen, codecs_of(kinds)))[0](NEW)
        for kind in kinds:
            said = predictions[kind]
            values = said.class_proba if hasattr(said, "class_proba") else np.stack([said.mean, said.std])
            assert np.isfinite(values).all()
            assert (values > 0).all() or kind not in ("binary", "multiclass")
        if not rows:
            np.testing.assert_allclose(predictions["regression"].mean, 0)
            np.testing.assert_allclose(predictions["regression"].std, 1)
            np.testing.assert_allclose(predictions["binary"].proba, 0.5)


def test_a_class_that_is_never_seen_is_not_impossible():
    y = np.zeros(9)
    data = ClientData(np.zeros((9, 4)), {"multiclass": (np.arange(9), y)}, codecs_of(("multiclass",)))
    proba = fitted("sklearn-rf-local", data)[0](NEW)["multiclass"].proba
    np.testing.assert_allclose(proba, np.tile([9.5 / 10.5, 0.5 / 10.5, 0.5 / 10.5], (7, 1)))


def test_more_clients_than_trees_can_tell_apart():
    owner = np.concatenate([np.arange(MOST + 50), np.arange(MOST)])  # the last fifty have one row, the others two
    x = Inputs(np.zeros((len(owner), 1)), owner.astype(float))
    at = Clients.of(x).positions(x)
    assert np.array_equal(at[:MOST], np.arange(MOST))
    assert np.isnan(at[MOST : MOST + 50]).all()
    data = ClientData(
        np.column_stack([owner % 7, owner]),
        {"regression": (np.arange(len(owner)), owner % 7.0)},
        codecs_of(("regression",)),
    )
    for name in POOLED:
        assert np.isfinite(fitted(name, data)[0](data.x)["regression"].mean).all()


# ---- as users meet them ----------------------------------------------------------------------------------------------------


def small_federation(**options):
    rng = np.random.default_rng(0)
    clients = {}
    for i, name in enumerate(("ann", "bob", "cem")):
        x = rng.standard_normal((30, 2))
        f = x[:, 0] + 2.0 * i
        clients[name] = (x, {"height": f + 0.1 * rng.standard_normal(30), "tall": np.where(f > 2, "yes", "no")})
    return pf.Federation.from_clients(clients, {"height": "regression", "tall": "binary"}, **options)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_stored_loaded_and_joined(name, tmp_path):
    options = QUICK.get(name, {})
    run = pf.simulate(name, small_federation(), rounds=2, seed=0, folder=tmp_path / "run", **options)
    x = np.array([[0.5, 0.0], [-1.0, 1.0]])
    again = pf.load(tmp_path / "run")
    for client in ("ann", "cem"):
        first, second = (one.client(client).predict(x)["height"] for one in (run, again))
        np.testing.assert_array_equal(first.mean, second.mean)
    unlabelled = run.join("dan", (np.zeros((4, 2)), {"tall": [None] * 4}))
    assert np.isfinite(unlabelled.predict(x)["height"].mean).all()
    assert np.isfinite(unlabelled.predict(x)["tall"].proba).all()


def test_a_pooled_rival_knows_whose_row_is_predicted():
    run = pf.simulate("sklearn-linear-pooled", small_federation(), rounds=1)
    heights = [run.client(name).predict([[0.0, 0.0]])["height"].mean[0] for name in ("ann", "bob", "cem")]
    np.testing.assert_allclose(heights, [0.0, 2.0, 4.0], atol=0.2)
    moved = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.5]] * 5)
    late_client = run.join("dan", (moved, {"height": moved[:, 0] + 10.0}))
    assert late_client.predict([[0.0, 0.0]])["height"].mean[0] == pytest.approx(10.0, abs=0.5)


def test_rivals_that_pool_reject_units_of_each_clients_own():
    with pytest.raises(ConfigError, match="puts all data together, but each client scales its own"):
        pf.simulate("sklearn-hgb-pooled", small_federation(scaling="local"), rounds=1)


@pytest.mark.parametrize(("name", "library"), [("catboost-pooled", "catboost"), ("mixed-effects", "statsmodels")])
def test_a_library_that_is_missing_is_told_before_anything_is_trained(name, library, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError) as caught:
        pf.simulate(name, small_federation(), rounds=1, folder=tmp_path / "run")
    assert str(caught.value) == f"method '{name}': {library} is not installed; pip install 'polyfed[rivals]'."
    assert caught.value.exit_code == 6
    assert not (tmp_path / "run").exists()


def test_a_kind_that_a_rival_does_not_serve():
    federation = pf.Federation.from_clients({"ann": ([[0.0], [1.0]] * 3, {"visits": [1, 2] * 3})}, {"visits": "count"})
    with pytest.raises(
        ConfigError, match="method 'sklearn-gp-local': task 'visits' is of kind 'count', which it does not"
    ):
        pf.simulate("sklearn-gp-local", federation, rounds=1)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("catboost-pooled", {"depth": 17}, "depth is 17; give a whole number from 1 up and below 17."),
        ("sklearn-rf-local", {"trees": 0}, "trees is 0; give a whole number from 1 up."),
        ("sklearn-linear-pooled", {"strength": 0}, "strength is 0; give a number above 0."),
        ("sklearn-gp-local", {"max_rows": 1}, "max_rows is 1; give a whole number from 10 up."),
        ("mixed-effects", {"labels_per_effect": 0}, "labels_per_effect is 0; give a whole number from 1 up."),
    ],
)
def test_wrong_options(name, options, said):
    with pytest.raises(ConfigError) as caught:
        method(name, **options)
    assert str(caught.value) == said


def test_a_process_learns_from_some_rows_where_there_are_too_many():
    data = of_kinds("binary", x=FEATURES)
    rare = np.full(N, -1.0)
    rare[7] = 1.0
    data = ClientData(FEATURES, {"binary": (np.arange(N), rare)}, data.codecs)
    proba = fitted("sklearn-gp-local", data, max_rows=10)[0](FEATURES)["binary"].proba  # with the one of its class
    assert np.isfinite(proba).all()
    assert proba.std() > 0
