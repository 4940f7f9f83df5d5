"""A saved model predicts the same to the last bit, and a damaged one says so."""

import json

import numpy as np
import pytest

import polyfed as pf
from polyfed.gp.kernels import Periodic, rbf

X = np.linspace(0, 5, 14)[:, None]


@pytest.fixture
def saved(tmp_path):
    tasks = [
        pf.Task("pulse", "regression"),
        pf.Task("stage", "multiclass", classes=("i", "ii", "iii"), power="2/K"),
        pf.Task("visits", "count"),
        pf.Task("unseen", "binary"),
    ]
    labels = {
        "pulse": 70 + np.sin(X[:, 0]),
        "stage": np.array(["i", "ii"])[(X[:, 0] > 2).astype(int)],
        "visits": np.arange(14),
    }
    gp = pf.MultiTaskGP(tasks, 2, kernel=["rbf", "matern32"], per_dimension=True, max_iterations=4).fit(X, labels)
    return gp, gp.save(tmp_path / "model")


def test_a_round_trip_changes_no_prediction(saved):
    gp, folder = saved
    again = pf.MultiTaskGP.load(folder)
    assert again.bound == gp.bound
    assert again.tasks == gp.tasks
    new = np.linspace(-1, 6, 9)[:, None]
    for name, prediction in gp.predict(new).items():
        for column, values in prediction.columns().items():
            found = again.predict(new)[name].columns()[column]
            if (
                values.dtype.kind == "f"
            ):  # the posterior is solved again, elsewhere in memory: its last digits may differ
                np.testing.assert_allclose(found, values, rtol=1e-11)
            else:
                np.testing.assert_array_equal(found, values)


def test_a_loaded_model_can_be_saved_and_loaded_again(saved, tmp_path):
    _, folder = saved
    twice = pf.MultiTaskGP.load(pf.MultiTaskGP.load(folder).save(tmp_path / "again"))
    assert json.loads((folder / "model.json").read_text()) == json.loads((tmp_path / "again/model.json").read_text())
    assert twice.predict(X)["pulse"].mean.shape == (14,)


def test_there_is_no_pickle_in_the_folder(saved):
    _, folder = saved
    assert sorted(path.name for path in folder.iterdir()) == ["model.json", "model.safetensors"]


def test_two_halves_of_two_models_are_noticed(saved, tmp_path):
    gp, folder = saved
    other = pf.MultiTaskGP(gp.tasks, prior=gp.prior).fit(X, {"pulse": X[:, 0]}, learn=False).save(tmp_path / "other")
    (other / "model.safetensors").replace(folder / "model.safetensors")  # as if killed between the two writes
    with pytest.raises(pf.DataError, match="are not of one model; save the model again"):
        pf.MultiTaskGP.load(folder)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda f: (f / "model.json").unlink(), "there is no model.json"),
        (lambda f: (f / "model.json").write_text("{"), "cannot be read"),
        (lambda f: (f / "model.json").write_text("[]"), "format None is not 2"),
        (lambda f: (f / "model.json").write_text('{"format": 2}'), "does not fit a saved model"),
        (lambda f: (f / "model.safetensors").write_bytes(b"123"), "cannot be read"),
    ],
)
def test_a_damaged_folder_is_named(saved, damage, text):
    _, folder = saved
    damage(folder)
    with pytest.raises(pf.DataError) as caught:
        pf.MultiTaskGP.load(folder)
    assert text in str(caught.value)
    assert str(folder) in str(caught.value)


def test_kernels_are_kept_as_text_and_checked_when_they_are_read(tmp_path):
    kernels = [rbf + Periodic(2.0), "linear * (matern52 + affine)"]
    gp = pf.MultiTaskGP({"pulse": "regression"}, 2, kernel=kernels, max_iterations=3).fit(X, {"pulse": np.sin(X[:, 0])})
    folder = gp.save(tmp_path / "model")
    described = json.loads((folder / "model.json").read_text())
    assert described["kernels"] == ["rbf + periodic(period=2.0)", "linear * (matern52 + affine)"]
    again = pf.MultiTaskGP.load(folder)
    assert again.kernels == gp.kernels
    np.testing.assert_allclose(again.predict(X)["pulse"].mean, gp.predict(X)["pulse"].mean, rtol=1e-11)
    for text, says in (("rbf + os:system", "has ':' in it"), ("rbf + unheard", "kernel 'unheard' is unknown")):
        (folder / "model.json").write_text(json.dumps(described | {"kernels": [text, "rbf"]}))
        with pytest.raises(pf.ConfigError, match=says):
            pf.MultiTaskGP.load(folder)


def test_a_kernel_without_a_name_serves_a_fit_and_is_not_stored(tmp_path):
    class Nameless(type(rbf)):
        name = "nameless"

    own = Nameless(**vars(rbf) | {"name": "nameless"})
    gp = pf.MultiTaskGP({"pulse": "regression"}, 1, kernel=own, max_iterations=3).fit(X, {"pulse": np.sin(X[:, 0])})
    same = pf.MultiTaskGP({"pulse": "regression"}, 1, max_iterations=3).fit(X, {"pulse": np.sin(X[:, 0])})
    assert gp.bound == same.bound
    with pytest.raises(pf.ConfigError, match="kernel 'nameless' is not known by its name, and could not be stored"):
        gp.save(tmp_path / "model")
