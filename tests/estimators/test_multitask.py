"""MultiTaskGP as users call it: every kind of task, every kind of input, and what each mistake is answered with."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import polyfed as pf
from polyfed.errors import UnknownNameError

KINDS = ("regression", "robust", "binary", "multiclass", "proportion", "count")


def labels_of(kind: str, f: np.ndarray, rng: np.random.Generator):
    """Labels of a kind that follow the function f, as users have them."""
    rate = 1 / (1 + np.exp(-f))
    return {
        "regression": lambda: 100 + 20 * f + rng.normal(0, 1, len(f)),
        "robust": lambda: 5 - f + 0.1 * rng.standard_t(3, len(f)),
        "binary": lambda: np.where(rng.random(len(f)) < rate, "yes", "no"),
        "multiclass": lambda: np.digitize(f, [-0.5, 0.5]),
        "proportion": lambda: np.stack([rng.binomial(20, rate), np.full(len(f), 20)], 1),
        "count": lambda: rng.poisson(30 * np.exp(0.5 * f)),
    }[kind]()


@pytest.fixture(scope="module")
def everything():
    """One task of every kind over one input, fitted jointly."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 6, (25, 1)), 0)
    f = 1.5 * np.sin(X[:, 0])
    data = {kind: (X, labels_of(kind, f, rng)) for kind in KINDS}
    gp = pf.MultiTaskGP({kind: kind for kind in KINDS}, n_latents=1, max_iterations=25).fit(data)
    x_new = np.linspace(0.5, 5.5, 11)[:, None]
    return gp, gp.predict(x_new), 1.5 * np.sin(x_new[:, 0]), data


def test_every_kind_follows_its_function(everything):
    _, p, f, _ = everything
    rate = 1 / (1 + np.exp(-f))
    assert np.abs(p["regression"].mean - (100 + 20 * f)).max() < 3
    assert np.abs(p["robust"].mean - (5 - f)).max() < 0.3
    assert np.abs(p["proportion"].mean - rate).max() < 0.1
    assert np.abs(p["count"].mean / (30 * np.exp(0.5 * f)) - 1).max() < 0.25
    assert np.corrcoef(p["binary"].proba, rate)[0, 1] > 0.95
    clear = np.abs(np.abs(f) - 0.5) > 0.3
    np.testing.assert_array_equal(p["multiclass"].label[clear], np.digitize(f, [-0.5, 0.5])[clear])


def test_the_names_of_the_public_face(everything):
    _, p, f, _ = everything
    for kind in ("regression", "robust", "proportion", "count"):
        lower, upper = p[kind].interval(0.9)
        assert (lower <= upper).all()
        assert p[kind].mean.shape == p[kind].std.shape == f.shape
    assert p["binary"].proba.shape == f.shape
    assert set(p["binary"].label) <= {"no", "yes"}
    assert p["multiclass"].proba.shape == (len(f), 3)
    for kind in KINDS:
        assert np.isfinite(p[kind].latent_mean).all()
        assert (p[kind].latent_std >= 0).all()
    assert len(p.to_frame()) == len(f)


def test_targets_in_other_units_give_predictions_in_other_units():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(20, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=20)
    one = pf.MultiTaskGP({"y": "regression"}, 1).fit({"y": (X, y)}).predict(X)["y"]
    other = pf.MultiTaskGP({"y": "regression"}, 1).fit({"y": (1e9 * X, 3 - 1e6 * y)}).predict(1e9 * X)["y"]
    np.testing.assert_allclose(other.mean, 3 - 1e6 * one.mean, rtol=1e-4, atol=10)
    np.testing.assert_allclose(other.std, 1e6 * one.std, rtol=1e-3)
    np.testing.assert_allclose(other.latent_std, 1e6 * one.latent_std, rtol=1e-3)


def test_numpy_torch_pandas_and_lists_are_the_same(everything):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(12, 2))
    y, z = X[:, 0], X[:, 1] > 0
    tasks = {"y": "regression", "z": "binary"}
    frame = pd.DataFrame(X, columns=["a", "b"])
    reference = pf.MultiTaskGP(tasks, 1, max_iterations=5).fit(X, {"y": y, "z": z}).predict(X[:3])["y"].mean
    for features, labels in [
        (torch.from_numpy(X), {"y": torch.from_numpy(y), "z": torch.from_numpy(z)}),
        (frame, pd.DataFrame({"y": y, "z": z, "unrelated": "text"})),
        (X.tolist(), {"y": y.tolist(), "z": z.tolist()}),
    ]:
        gp = pf.MultiTaskGP(tasks, 1, max_iterations=5).fit(features, labels)
        np.testing.assert_allclose(gp.predict(features[:3])["y"].mean, reference, atol=1e-9)
    gp = pf.MultiTaskGP(tasks, 1, max_iterations=5).fit(frame, {"y": y, "z": z})
    np.testing.assert_allclose(gp.predict(frame[["b", "a"]][:3])["y"].mean, reference, atol=1e-9)


def test_missing_labels_are_rows_that_do_not_exist():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(10, 1))
    y, z = np.sin(X[:, 0]), (X[:, 0] > 0).astype(object)
    y_gaps, z_gaps = y.copy(), z.copy()
    y_gaps[6:], z_gaps[:5] = np.nan, None
    tasks = {"y": "regression", "z": "binary"}
    one = pf.MultiTaskGP(tasks, 2, scale=False).fit(X, {"y": y_gaps, "z": z_gaps}, learn=False)
    two = pf.MultiTaskGP(tasks, 2, scale=False, prior=one.prior).fit(
        {"y": (X[:6], y[:6]), "z": (X[5:], z[5:])}, learn=False
    )
    assert one.bound == pytest.approx(two.bound, abs=1e-9)
    np.testing.assert_allclose(one.predict(X)["z"].proba, two.predict(X)["z"].proba, atol=1e-9)


def test_a_task_without_a_label_is_predicted_through_the_others():
    x = np.linspace(0, 6, 20)[:, None]
    gp = pf.MultiTaskGP({"seen": "regression", "unseen": "regression"}, 1).fit({"seen": (x, np.sin(x[:, 0]))})
    p = gp.predict(x)
    ratio = (gp.prior.W_of("unseen") / gp.prior.W_of("seen")).item()
    shift, scale = gp.observations.codecs["seen"].shift, gp.observations.codecs["seen"].scale
    np.testing.assert_allclose(p["unseen"].mean, ratio * (p["seen"].mean - shift) / scale, atol=1e-8)


def test_labels_of_one_task_sharpen_another():
    rng = np.random.default_rng(4)
    X = rng.uniform(0, 10, (60, 1))
    f = 2 * np.sin(X[:, 0])
    sick = (f > 0).astype(object)
    sick[10:] = None
    joint = pf.MultiTaskGP({"pulse": "regression", "sick": "binary"}, 1).fit(X, {"pulse": f, "sick": sick})
    alone = pf.MultiTaskGP({"sick": "binary"}, 1).fit(X, {"sick": sick})
    truth = (f > 0).astype(float)
    briers = [np.mean((gp.predict(X)["sick"].proba - truth) ** 2) for gp in (joint, alone)]
    assert briers[0] < 0.5 * briers[1]


def test_learning_raises_the_bound_and_learn_false_leaves_the_prior():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(15, 1))
    data = {"y": (X, np.sin(3 * X[:, 0]))}
    fixed = pf.MultiTaskGP({"y": "regression"}, 1).fit(data, learn=False)
    learned = pf.MultiTaskGP({"y": "regression"}, 1).fit(data)
    assert learned.bound > fixed.bound + 1
    assert fixed.learning is None
    assert learned.learning is not None
    assert learned.learning.bound == pytest.approx(learned.bound, abs=1e-4)
    before = learned.prior.state()
    again = pf.MultiTaskGP({"y": "regression"}, 1, prior=learned.prior).fit(data, learn=["noise"])
    for name, value in again.prior.state().items():
        assert torch.equal(value, before[name]) or name == "noise.y"
    assert all(torch.equal(value, before[name]) for name, value in learned.prior.state().items())


def test_the_gaussian_bound_is_tighter(everything):
    *_, data = everything
    tasks = {kind: kind for kind in ("binary", "count", "proportion", "multiclass")}
    data = {kind: data[kind] for kind in tasks}
    loose = pf.MultiTaskGP(tasks, 1).fit(data, learn=False)
    tight = pf.MultiTaskGP(tasks, 1, bound="gaussian").fit(data, learn=False)
    assert tight.bound > loose.bound + 0.01


def test_options_of_tasks_reach_their_likelihoods():
    x = np.linspace(0, 1, 9)[:, None]
    y = np.repeat([0, 1, 2], 3)
    tasks = {
        "plain": pf.Task("y", "multiclass"),
        "tempered": pf.Task("y", "multiclass", power="2/K"),
        "logistic": pf.Task("y", "multiclass", likelihood="logistic-softmax", temperature=0.5),
    }
    bounds = {name: pf.MultiTaskGP([task], 2).fit({"y": (x, y)}, learn=False).bound for name, task in tasks.items()}
    assert len({round(bound, 3) for bound in bounds.values()}) == 3
    gp = pf.MultiTaskGP([tasks["tempered"]], 2).fit({"y": (x, y)}, learn=False)
    assert gp.likelihoods["y"].power == pytest.approx(2 / 3)


# ---- hard data: finite numbers or a clear error ----------------------------------------------------------------

X5 = np.linspace(-1, 1, 5)[:, None]
HARD = {
    "one row": ({"a": "regression", "b": "binary"}, {"a": (X5[:1], [3.0]), "b": (X5[:1], [1])}),
    "one task empty": ({"a": "regression", "b": "binary"}, {"a": (X5, X5[:, 0]), "b": (X5[:0], [])}),
    "one class only": ({"b": "binary"}, {"b": (X5, np.ones(5))}),
    "constant targets": ({"a": "regression"}, {"a": (X5, np.full(5, 7.0))}),
    "constant counts": ({"a": "count"}, {"a": (X5, np.zeros(5))}),
    "all inputs identical": (
        {"a": "regression", "b": "binary"},
        {"a": (0 * X5, X5[:, 0]), "b": (0 * X5, [0, 1, 0, 1, 1])},
    ),
    "near-duplicates": ({"a": "regression"}, {"a": (1e-9 * X5, X5[:, 0])}),
    "columns of scale 1e9": ({"a": "regression"}, {"a": (np.hstack([1e9 * X5, X5, 1e-9 * X5]), X5[:, 0])}),
    "targets of scale 1e12": ({"a": "regression"}, {"a": (X5, 1e12 * X5[:, 0])}),
    "outlier": ({"a": "robust"}, {"a": (X5, [0.0, 0.1, 1e9, 0.2, 0.1])}),
    "huge counts": ({"a": "count"}, {"a": (X5, [0, 1, 10**7, 3, 10**6])}),
    "proportion of many": (
        {"a": "proportion"},
        {"a": (X5, np.array([[0, 10**6], [10**6, 10**6], [5, 10], [1, 1], [0, 1]]))},
    ),
    "separable classes": ({"b": "binary"}, {"b": (np.repeat(X5, 20, 0), np.repeat(X5[:, 0] > 0, 20))}),
}


@pytest.mark.parametrize("case", HARD)
@pytest.mark.parametrize("learn", [True, False])
def test_hard_data_end_in_finite_numbers(case, learn):
    tasks, data = HARD[case]
    gp = pf.MultiTaskGP(tasks, 2, max_iterations=30).fit(data, learn=learn)
    width = next(iter(data.values()))[0].shape[1]
    p = gp.predict(np.vstack([np.zeros((1, width)), np.full((1, width), 1e6)]))
    assert np.isfinite(gp.bound)
    for name in tasks:
        for column, values in p[name].columns().items():
            assert column == "label" or np.isfinite(values).all(), (name, column, values)


def test_ten_classes_on_two_latents_and_a_class_never_seen():
    x = np.linspace(0, 9, 40)[:, None]
    task = pf.Task("digit", "multiclass", classes=tuple(range(11)))
    p = pf.MultiTaskGP([task], 2, max_iterations=10).fit({"digit": (x, x[:, 0].round().astype(int))}).predict(x)
    assert p["digit"].proba.shape == (40, 11)
    np.testing.assert_allclose(p["digit"].proba.sum(1), 1, atol=1e-6)


def test_no_rows_at_all_predicts_the_prior():
    gp = pf.MultiTaskGP({"a": "regression", "b": "binary"}, 1).fit({"a": (X5[:0], [])}, learn=False)
    p = gp.predict(X5)
    np.testing.assert_array_equal(p["a"].mean, np.zeros(5))
    np.testing.assert_allclose(p["b"].proba, 0.5, atol=1e-12)


# ---- mistakes ---------------------------------------------------------------------------------------------------

TASKS = {"pulse": "regression", "sick": "binary", "visits": "count", "share": "proportion"}
MISTAKES = {
    "unknown task": (
        lambda gp: gp.fit({"puls": (X5, X5[:, 0])}),
        UnknownNameError,
        "fit: task 'puls' is unknown; did you mean 'pulse'? known are 'pulse', 'sick', 'visits', 'share'.",
    ),
    "too few labels": (
        lambda gp: gp.fit({"pulse": (X5, [1.0, 2.0])}),
        pf.DataError,
        "task 'pulse': 2 labels for 5 rows of features; give a label for each row, and NaN or None where it is missing.",
    ),
    "no labels": (
        lambda gp: gp.fit({"pulse": (X5, [np.nan] * 5)}),
        pf.DataError,
        "fit: no label in any task; give some, or pass learn=False.",
    ),
    "empty": (lambda gp: gp.fit({}), pf.DataError, "fit: no features at all; give at least one task as (X, y)."),
    "not a pair": (lambda gp: gp.fit({"pulse": X5}), pf.DataError, "fit, task 'pulse': is not a pair; give (X, y)."),
    "no labels argument": (
        lambda gp: gp.fit(X5),
        pf.DataError,
        "fit: fit got ndarray and no labels; pass {task: (X, y)}, or X and {task: y}.",
    ),
    "different widths": (
        lambda gp: gp.fit({"pulse": (X5, X5[:, 0]), "sick": (np.hstack([X5, X5]), [0, 1, 0, 1, 0])}),
        pf.DataError,
        "fit: has 2 columns, not 1; give the columns 'x0' in this order.",
    ),
    "predict too early": (
        lambda gp: gp.predict(X5),
        pf.UsageError,
        "predict: this MultiTaskGP is not fitted yet; call fit first.",
    ),
    "save too early": (
        lambda gp: gp.save("nowhere"),
        pf.UsageError,
        "save: this MultiTaskGP is not fitted yet; call fit first.",
    ),
    "unknown group": (
        lambda gp: gp.fit({"pulse": (X5, X5[:, 0])}, learn=["kernel"]),
        pf.ConfigError,
        "group 'kernel' is unknown; did you mean 'kernels'? known are 'features', 'kernels', 'mixing', 'noise'.",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_with_one_clear_sentence(mistake):
    call, kind, text = MISTAKES[mistake]
    with pytest.raises(kind) as caught:
        call(pf.MultiTaskGP(TASKS))
    assert str(caught.value) == text


PLACES = {
    "infinite feature": ({"pulse": ([[0.0], [np.inf]], [1.0, 2.0])}, ["'pulse'", "row 1", "inf"]),
    "three labels": ({"sick": (X5, ["a", "b", "a", "c", "b"])}, ["'sick'", "row 3", "'c'", "multiclass"]),
    "negative count": ({"visits": (X5, [1, 2, -3, 0, 0])}, ["'visits'", "row 2", "-3"]),
    "fraction of a count": ({"visits": (X5, [1, 2.5, 3, 0, 0])}, ["'visits'", "row 1", "2.5"]),
    "k > n": ({"share": (X5, [[1, 2], [3, 2], [0, 1], [0, 1], [0, 1]])}, ["'share'", "row 1", "3", "2"]),
    "text target": ({"pulse": (X5, [1, 2, "high", 3, 4])}, ["'pulse'", "row 2", "'high'"]),
    "one-dimensional features": ({"pulse": (X5[:, 0], X5[:, 0])}, ["'pulse'", "reshape"]),
}


@pytest.mark.parametrize("case", PLACES)
def test_bad_data_are_named_with_value_and_place(case):
    data, parts = PLACES[case]
    with pytest.raises(pf.DataError) as caught:
        pf.MultiTaskGP(TASKS).fit(data)
    for part in parts:
        assert part in str(caught.value)
    assert caught.value.exit_code == 4


def test_bad_options_are_named():
    for call, text in [
        (lambda: pf.MultiTaskGP(TASKS, 0), "n_latents is 0; use at least one latent function."),
        (lambda: pf.MultiTaskGP(TASKS, kernel="rfb"), "kernel 'rfb' is unknown; did you mean 'rbf'?"),
        (
            lambda: pf.MultiTaskGP(TASKS, 2, kernel=["rbf"]),
            "1 kernels for 2 latents; give one kernel, or one for each.",
        ),
        (lambda: pf.MultiTaskGP(TASKS, bound="gauss"), "bound 'gauss' is unknown; did you mean 'gaussian'?"),
    ]:
        with pytest.raises(pf.ConfigError) as caught:
            call()
        assert str(caught.value).startswith(text)


def test_bad_data_leave_an_earlier_fit_as_it_was(monkeypatch):
    gp = pf.MultiTaskGP({"pulse": "regression"}, 1).fit({"pulse": (X5, X5[:, 0])}, learn=False)
    before = gp.predict(X5)["pulse"].mean
    for bad in ({"pulse": (X5, [np.nan] * 5)}, {"pulse": (X5, [1, 2, "x", 3, 4])}, {"puls": (X5, X5[:, 0])}):
        with pytest.raises(pf.PolyfedError):
            gp.fit(bad)
        np.testing.assert_array_equal(gp.predict(X5)["pulse"].mean, before)

    def broken(*args, **kwargs):
        raise pf.NumericalError("broken")

    monkeypatch.setattr("polyfed.estimators.multitask.maximise_bound", broken)
    with pytest.raises(pf.NumericalError):
        gp.fit({"pulse": (X5, 5 * X5[:, 0])})
    with pytest.raises(pf.UsageError, match="not fitted yet"):  # neither the old model nor half of the new one
        gp.predict(X5)


def test_predict_checks_its_features_and_tasks():
    gp = pf.MultiTaskGP(TASKS).fit({"pulse": (X5, X5[:, 0])}, learn=False)
    with pytest.raises(pf.DataError, match="has 2 columns, not 1"):
        gp.predict(np.zeros((1, 2)))
    with pytest.raises(UnknownNameError, match="did you mean 'pulse'"):
        gp.predict(X5, tasks=["pulze"])
    assert list(gp.predict(X5, tasks=["sick"])) == ["sick"]
    assert len(gp.predict(X5[:0])["pulse"].mean) == 0
