"""Data sets of images in a config file: features as columns, images that are corrupted, and what goes wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest

from polyfed.cli import main
from polyfed.data.images import make_images
from polyfed.errors import ConfigError
from polyfed.experiments.building import build_federation, corrupted, image_federation
from polyfed.experiments.reading import check, read_document

STUDY = """
[data]
dataset = "celeba"
options = { folder = "faces", shots = 4, n_clients = 2, n_test = 6 }
images = { backbone = "torch.nn:Identity", cut = "layer1", grid = 4, size = 32, cache = "cache" }

[method]
name = "pfed-mul"
projection = 3

[run]
rounds = 1
"""


@pytest.fixture
def study(tmp_path):
    pytest.importorskip("PIL", reason="images are opened by Pillow")
    make_images(tmp_path / "faces", 40, layout="celeba")
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path / "study.toml"


def data_of(study):
    return check(read_document(study), "study.toml").data


def test_the_features_are_columns(study):
    federation = build_federation(data_of(study), "study.toml")
    assert [len(raw) for raw in federation.raw.values()] == [4 + 4 + 6] * 2
    assert federation.prepare(0).spec.n_features == 3 * 4 * 4
    assert (study.parent / "cache").is_dir()  # beside the file, not where the command is given


def test_a_run_on_images(study, tmp_path, capfd):
    assert main(["run", str(study), "--out", str(tmp_path / "run"), "--json", "--no-report"]) == 0
    scores = json.loads(capfd.readouterr().out)["scores"]
    assert set(scores) == {"Smiling", "rightmouth_x"}


def test_spoilt_test_images_leave_the_training_rows_alone(study):
    data = data_of(study)
    plain, masked = (image_federation(data, kind).prepare(0) for kind in (None, "masked"))
    for client in plain.clients:
        assert np.array_equal(plain.clients[client].train.x, masked.clients[client].train.x)
        assert not np.allclose(plain.clients[client].test.x, masked.clients[client].test.x)


def test_what_spoiling_does_to_pixels(study, tmp_path):
    Image = pytest.importorskip("PIL.Image")
    path = next((tmp_path / "faces").rglob("*.png"))
    before = np.asarray(Image.open(path), dtype=float)
    made = [corrupted(path, kind, tmp_path / "corrupted") for kind in ("masked", "blurred")]
    masked, blurred = (np.asarray(Image.open(one), dtype=float) for one in made)
    black = (masked == 0).all(axis=2)
    assert black.sum() == 30 * 30  # 0.95 of 32 pixels
    assert np.array_equal(masked[~black], before[~black])
    assert blurred.std() < before.std()
    assert blurred.mean() == pytest.approx(before.mean(), abs=3)


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (
            {"dataset": "penguins", "images": {}},
            "x: data.images is given, but data set 'penguins' has none; leave it out",
        ),
        (
            {"dataset": "celeba", "images": {"bakbone": "a"}},
            r"data.images.bakbone: is no key of \[data.images\]; did you",
        ),
        ({"source": "a.csv", "images": {"grid": 2}}, "data.images is given beside a source"),
    ],
)
def test_settings_that_make_no_sense(document, sentence):
    with pytest.raises(ConfigError, match=sentence):
        build_federation(check({"data": document}, "x").data, "x")
