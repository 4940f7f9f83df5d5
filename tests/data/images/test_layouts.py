"""CelebA and Dogcat: their layouts, the few-shot protocol, made-up images in their place, and the real ones if there."""

import os
import re
import zlib
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from polyfed.data import Split
from polyfed.data.datasets import IMAGE_DATASETS, load_images
from polyfed.data.images import LAYOUTS, make_images
from polyfed.errors import ConfigError, DataError, UsageError

SMALL = {"shots": 6, "n_clients": 5, "n_test": 20}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Layout → folder with 150 images: 90 for training, 30 for testing."""
    return {name: make_images(tmp_path_factory.mktemp(name), 150, layout=name) for name in LAYOUTS}


def load(folders, name, **options):
    return load_images(name.partition("-")[0], folder=folders[name], **(SMALL | options))


def shares(fed, *, test=False):
    """(client, task) → names of images."""
    return {
        (client, task.name): [path.name for path in fed.of(client, task.name, test=test)[0]]
        for client in fed.names
        for task in fed.tasks
    }


def read_png(path):
    """The pixels, by an independent reading of the format: chunks, then lines that begin with a filter."""
    data, chunks, at = path.read_bytes(), {}, 8
    while at < len(data):
        size, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        chunks[kind] = data[at + 8 : at + 8 + size]
        assert int.from_bytes(data[at + 8 + size : at + 12 + size], "big") == zlib.crc32(kind + chunks[kind])
        at += 12 + size
    width, height = (int.from_bytes(chunks[b"IHDR"][i : i + 4], "big") for i in (0, 4))
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), dtype=np.uint8).reshape(height, 1 + 3 * width)
    assert not lines[:, 0].any()
    return lines[:, 1:].reshape(height, width, 3)


# The protocol


@pytest.mark.parametrize("name", ["celeba", "dogcat", "dogcat-flat"])
def test_every_client_has_its_shots_on_images_of_its_own(folders, name):
    fed = load(folders, name)
    assert fed.names == tuple(f"client {i}" for i in range(1, 6))
    own = shares(fed)
    assert {len(names) for names in own.values()} == {6}
    assert len({image for names in own.values() for image in names}) == 6 * 5 * 2  # no image twice
    tested = shares(fed, test=True)
    assert {tuple(names) for names in tested.values()} == {tuple(tested["client 1", fed.tasks[0].name])}
    assert len(set(tested["client 1", fed.tasks[0].name])) == 20
    assert not {image for names in own.values() for image in names} & {i for names in tested.values() for i in names}


@pytest.mark.parametrize("name", ["celeba", "dogcat"])
def test_the_official_parts_are_kept(folders, name):
    fed = load(folders, name)

    def number(image):  # made-up images are for training, validation and testing by their number
        return int(image[:6]) - 1 if name == "celeba" else int(image.split(".")[1])

    train = {0, 1, 2} if name == "celeba" else {0, 1, 2, 3}  # Dogcat has no validation part
    assert {number(image) % 5 for names in shares(fed).values() for image in names} == train
    assert {number(image) % 5 for names in shares(fed, test=True).values() for image in names} == {4}


@pytest.mark.parametrize("name", ["celeba", "dogcat"])
def test_options_can_be_chosen_without_a_test_image(folders, name):
    usual, fed = load(folders, name), load(folders, name, tested_on="validation")
    assert shares(fed) == shares(usual)  # the clients have what they have
    seen = {image for names in shares(fed, test=True).values() for image in names}
    assert len(seen) == 20
    assert not seen & {image for names in shares(usual).values() for image in names}
    parts = {(int(image[:6]) - 1 if name == "celeba" else int(image.split(".")[1])) % 5 for image in seen}
    assert parts <= ({3} if name == "celeba" else {0, 1, 2, 3})  # none of the test part, which is 4
    with pytest.raises(ConfigError, match=f"{name}: tested_on is 'valid'; did you mean 'validation'"):
        load(folders, name, tested_on="valid")


def test_the_seed_decides_and_more_clients_change_nothing(folders):
    one, again, other = load(folders, "celeba"), load(folders, "celeba"), load(folders, "celeba", seed=1)
    assert shares(one) == shares(again) != shares(other)
    assert shares(one, test=True) != shares(other, test=True)
    for balanced in (False, True):
        few, many = (shares(load(folders, "celeba", n_clients=n, balanced=balanced)) for n in (2, 5))
        assert few.items() <= many.items()


@pytest.mark.parametrize("name", ["celeba", "dogcat", "dogcat-flat"])
def test_the_order_on_the_disk_does_not_matter(folders, name, tmp_path, monkeypatch):
    before = load(folders, name)
    if name == "celeba":
        for path in folders[name].glob("*.txt"):
            lines = path.read_text().splitlines()
            head = 0 if "partition" in path.name else 2
            (tmp_path / path.name).write_text("\n".join([*lines[:head], *reversed(lines[head:])]) + "\n")
        (tmp_path / "img_align_celeba").symlink_to(folders[name] / "img_align_celeba")
        after = load({name: tmp_path}, name)
    else:
        glob = Path.glob
        monkeypatch.setattr(Path, "glob", lambda self, pattern: reversed(list(glob(self, pattern))))
        after = load(folders, name)
    assert shares(before) == shares(after)
    for task in before.tasks:
        labels = [fed.of("client 3", task.name)[1].tolist() for fed in (before, after)]
        assert labels[0] == labels[1]


def test_balanced_shots(folders):
    for shots, sizes in ((6, {(3, 3)}), (5, {(2, 3), (3, 2)})):
        fed = load(folders, "celeba", shots=shots, balanced=True)
        smiles = [fed.of(client, "Smiling")[1] for client in fed.names]
        assert {(int((~s).sum()), int(s.sum())) for s in smiles} == sizes
        assert len({image for names in shares(fed).values() for image in names}) == shots * 5 * 2
    by_chance = load(folders, "celeba")
    assert {int(by_chance.of(client, "Smiling")[1].sum()) for client in by_chance.names} != {3}


def test_too_few_images(folders):
    with pytest.raises(ConfigError) as caught:
        load(folders, "celeba", shots=10)
    assert str(caught.value) == (
        "celeba: 10 shots × 5 clients × 2 tasks need 100 training images, and there are 90; lower shots or n_clients."
    )
    load(folders, "celeba", shots=9)  # takes them all
    with pytest.raises(ConfigError, match="celeba: n_test=31 needs 31 test images, and there are 30; lower n_test"):
        load(folders, "celeba", n_test=31)
    with pytest.raises(ConfigError, match=r"dogcat: 7 shots × 5 clients × 2 tasks need 70 .* and there are 69"):
        load(folders, "dogcat-flat", shots=7, n_test=81)  # test images are set aside first
    with pytest.raises(
        ConfigError, match=r"celeba, task 'Smiling': 9 balanced shots × 5 clients need .* images, and there are"
    ):
        load(folders, "celeba", shots=9, balanced=True)
    with pytest.raises(ConfigError, match="celeba: shots=0 is not a whole number that will do; give 1 or more"):
        load(folders, "celeba", shots=0)


# CelebA


def test_labels_of_faces_are_those_of_the_lists(folders):
    fed = load(folders, "celeba", regression=["rightmouth_x", "rightmouth_y"], shots=4)
    assert [(task.name, task.kind) for task in fed.tasks] == [
        ("Smiling", "binary"),
        ("rightmouth_x", "regression"),
        ("rightmouth_y", "regression"),
    ]
    rows = [line.split() for line in (folders["celeba"] / "list_attr_celeba.txt").read_text().splitlines()[2:]]
    smiles = {image: value == "1" for image, value in rows}
    places = (folders["celeba"] / "list_landmarks_align_celeba.txt").read_text().splitlines()[2:]
    height = {image: float(y) for image, _, y in map(str.split, places)}
    for test in (False, True):
        paths, labels = fed.of("client 2", "Smiling", test=test)
        assert labels.tolist() == [smiles[path.name] for path in paths]
        paths, labels = fed.of("client 2", "rightmouth_y", test=test)
        assert labels.tolist() == [height[path.name] for path in paths]


def test_lists_in_csv(folders, tmp_path):
    heads = {
        "partition": "image_id,partition",
        "attr": "image_id,Smiling",
        "landmarks": "image_id,rightmouth_x,rightmouth_y",
    }
    for path in folders["celeba"].glob("*.txt"):
        kind = next(kind for kind in heads if kind in path.name)
        rows = path.read_text().splitlines()[0 if kind == "partition" else 2 :]
        (tmp_path / f"{path.stem}.csv").write_text("\n".join([heads[kind], *(",".join(row.split()) for row in rows)]))
    (tmp_path / "img_align_celeba").mkdir()
    (tmp_path / "img_align_celeba" / "img_align_celeba").symlink_to(folders["celeba"] / "img_align_celeba")
    official, csv = load(folders, "celeba"), load({"celeba": tmp_path}, "celeba")
    assert shares(official) == shares(csv)
    assert official.of("client 1", "rightmouth_x")[1].tolist() == csv.of("client 1", "rightmouth_x")[1].tolist()
    assert all(path.is_file() for path in csv.of("client 1", "Smiling")[0])


def test_a_part_of_the_tasks_needs_a_part_of_the_lists(folders, tmp_path):
    for name in ("img_align_celeba", "list_eval_partition.txt", "list_attr_celeba.txt"):
        (tmp_path / name).symlink_to(folders["celeba"] / name)
    assert [task.name for task in load({"celeba": tmp_path}, "celeba", regression=()).tasks] == ["Smiling"]
    with pytest.raises(DataError) as caught:
        load({"celeba": tmp_path}, "celeba")
    text = str(caught.value)
    assert text.startswith(f"{tmp_path}: there is no list_landmarks_align_celeba.txt (or .csv); CelebA has img_align")
    assert text.endswith("get it from https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html.")


def test_names_that_are_not_in_the_lists(folders):
    with pytest.raises(ConfigError, match=r"list_attr_celeba\.txt: has no column 'smiling'; did you mean 'Smiling'"):
        load(folders, "celeba", binary="smiling")
    with pytest.raises(ConfigError, match="has no column 'rightmouth_z'; did you mean 'rightmouth_"):
        load(folders, "celeba", regression="rightmouth_z")
    with pytest.raises(ConfigError, match="there is no task"):
        load(folders, "celeba", binary=(), regression=())


@pytest.mark.parametrize(
    ("file", "old", "new", "text"),
    [
        (
            "list_attr_celeba",
            "000002.png",
            "000001.png",
            "line 4 of .*attr_celeba.txt: image 000001.png is listed twice",
        ),
        ("list_attr_celeba", "000002.png", "other.png", "attr_celeba.txt: has no row of image 000002.png"),
        ("list_eval_partition", "000003.png 0", "000003.png 7", "line 3 of .*partition.txt: partition 7 is no value"),
        (
            "list_landmarks_align_celeba",
            "000001.png ",
            "000001.png x",
            "line 3 of .*celeba.txt: rightmouth_x 'x.* is no",
        ),
    ],
)
def test_spoilt_lists(folders, tmp_path, file, old, new, text):
    for path in folders["celeba"].iterdir():
        if path.stem == file:
            assert old in path.read_text()
            (tmp_path / path.name).write_text(path.read_text().replace(old, new, 1))
        else:
            (tmp_path / path.name).symlink_to(path)
    with pytest.raises(DataError, match=text):
        load({"celeba": tmp_path}, "celeba")


def test_a_face_that_is_listed_but_not_there(folders, tmp_path):
    for path in folders["celeba"].glob("*.txt"):
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "img_align_celeba").mkdir()
    with pytest.raises(
        DataError, match=r"line \d+ of list_eval_partition.txt: there is no file .*/img_align_celeba/\d+.png \(80 such"
    ):
        load({"celeba": tmp_path}, "celeba").with_features(lambda paths: np.zeros((len(paths), 1)))


# Dogcat


@pytest.mark.parametrize("name", ["dogcat", "dogcat-flat"])
def test_cats_and_dogs(folders, name):
    fed = load(folders, name)
    paths, animals = fed.of("client 1", "animal", test=True)
    assert animals.tolist() == [path.name[:3] for path in paths]
    for seed in (0, 1):
        exact = load(folders, name, noise=0.0, seed=seed)
        paths, scores = exact.of("client 1", "score")
        assert scores.tolist() == [1.0 if path.name.startswith("dog") else -1.0 for path in paths]


def test_the_noise_of_the_score(folders):
    noises = []
    for seed in range(20):
        fed = load(folders, "dogcat", shots=9, seed=seed)
        for client in fed.names:
            paths, scores = fed.of(client, "score")
            noises.extend(
                score - (1 if path.name.startswith("dog") else -1) for path, score in zip(paths, scores, strict=True)
            )
    # 900 draws: the standard deviation is known to 2.4 %, the mean to 0.017; five times that is no accident.
    assert np.std(noises) == pytest.approx(0.5, rel=0.12)
    assert np.mean(noises) == pytest.approx(0.0, abs=0.085)


def test_a_flat_test_folder_with_labels(folders, tmp_path):
    for part, source in (("train", "train"), ("test", "test")):
        (tmp_path / part).mkdir()
        for path in (folders["dogcat"] / source).rglob("*.png"):
            (tmp_path / part / path.name).touch()
    (tmp_path / "test" / "17.png").touch()  # says not what it shows
    (tmp_path / "train" / "cat.txt").touch()
    flat, nested = load({"dogcat": tmp_path}, "dogcat"), load(folders, "dogcat")
    assert shares(flat) == shares(nested)
    assert shares(flat, test=True) == shares(nested, test=True)


def test_cats_alone(tmp_path):
    (tmp_path / "train" / "cats").mkdir(parents=True)
    (tmp_path / "train" / "cats" / "1.jpg").touch()
    with pytest.raises(
        DataError, match=r"there is no dog in train; put train/cats/.* there, from https://www.kaggle.com"
    ):
        load({"dogcat": tmp_path}, "dogcat")


@pytest.mark.parametrize("name", ["celeba", "dogcat"])
def test_a_missing_folder_says_what_belongs_there(name):
    first = {"celeba": "img_align_celeba/000001.jpg", "dogcat": "train/cats/\\*.jpg"}[name]
    with pytest.raises(
        DataError, match=f"data set '{name}': there is no folder of images; give folder=... with {first}"
    ):
        load_images(name)
    with pytest.raises(DataError, match=f"data set '{name}': there is no folder 'nowhere'; .* in it, from https://"):
        load_images(name, folder="nowhere")


def test_every_option_has_a_default_that_can_be_written_down():
    import inspect
    import json

    for made in IMAGE_DATASETS.values():
        json.dumps([option.default for option in inspect.signature(made).parameters.values()])
        assert (made.__doc__ or "").partition("\n")[0].endswith(".")


# Made-up images


def test_made_up_images_show_what_their_table_says(folders):
    lines = folders["table"].read_text().splitlines()[1:]
    assert len(lines) == 150
    discs, xs = [], []
    for line in lines:
        name, camera, shape, x, y = line.split(",")
        pixels = read_png(folders["table"].parent / name).astype(float)
        assert pixels.shape == (32, 32, 3)
        bright = pixels[:, :, 0] > 125
        down, right = np.nonzero(bright)
        assert abs(right.mean() - float(x)) < 0.6  # less than a pixel: whole pixels are inked
        assert abs(down.mean() - float(y)) < 0.6
        # A disc fills π/4 of its frame; a cross with arms of 3 pixels and a radius of at least 4 fills about half or less.
        filled = bright.sum() / (np.ptp(down) + 1) / (np.ptp(right) + 1)
        assert (filled > 0.66) == (shape == "disc")
        assert camera in {f"camera {i}" for i in range(1, 5)}
        discs.append(shape == "disc")
        xs.append(float(x))
    assert np.corrcoef(discs, xs)[0, 1] == pytest.approx(0.65, abs=0.2)  # 150 images: a std of 0.05


def test_made_up_images_are_the_same_every_time(folders, tmp_path):
    few, other = make_images(tmp_path / "few", 7), make_images(tmp_path / "other", 7, seed=1)
    assert few.read_text() == "".join(folders["table"].read_text().splitlines(keepends=True)[:8])
    for i in range(7):
        expected = (folders["table"].parent / f"images/{i}.png").read_bytes()
        assert (few.parent / f"images/{i}.png").read_bytes() == expected
        assert (other.parent / f"images/{i}.png").read_bytes() != expected
    for a, b in combinations(range(7), 2):
        assert (few.parent / f"images/{a}.png").read_bytes() != (few.parent / f"images/{b}.png").read_bytes()


def test_made_up_images_need_an_empty_folder_and_a_layout(tmp_path):
    with pytest.raises(ConfigError, match="make_images: layout 'celebA' is not known; did you mean 'celeba'"):
        make_images(tmp_path, 3, layout="celebA")
    (tmp_path / "mine.txt").touch()
    with pytest.raises(UsageError, match="is not empty; give a new folder"):
        make_images(tmp_path, 3)


def test_where_matters_to_the_methods(folders):
    """Pixels go all the way: a line through the pixels finds the place of the shape on test images."""

    def pixels(paths):
        return np.stack([read_png(path)[::2, ::2, 0].reshape(-1) for path in paths])

    fed = load(folders, "celeba", shots=40, n_clients=1).with_features(pixels)
    parts = fed.prepare(0).clients["client 1"]
    rows, y = parts.train.labels["rightmouth_x"]
    x = parts.train.x
    weights = x[rows].T @ np.linalg.solve(x[rows] @ x[rows].T + 50.0 * np.eye(len(rows)), y)
    rows, y = parts.test.labels["rightmouth_x"]
    assert np.corrcoef(parts.test.x[rows] @ weights, y)[0, 1] > 0.5


# The real ones


@pytest.mark.skipif("POLYFED_DATA" not in os.environ, reason="POLYFED_DATA names no folder with celeba/ and dogcat/")
@pytest.mark.parametrize("name", ["celeba", "dogcat"])
@pytest.mark.parametrize(("shots", "n_clients"), [(50, 10), (20, 15), (10, 20)])
def test_the_settings_of_the_paper(name, shots, n_clients):
    folder = Path(os.environ["POLYFED_DATA"]) / name
    if not folder.is_dir():
        pytest.skip(f"there is no {folder}")
    fed = load_images(name, folder=folder, shots=shots, n_clients=n_clients)
    own, tested = shares(fed), shares(fed, test=True)
    assert len(own) == 2 * n_clients
    assert {len(names) for names in own.values()} == {shots}
    assert len({image for names in own.values() for image in names}) == 2 * shots * n_clients
    assert {len(names) for names in tested.values()} == {200}
    made = fed.with_features(lambda paths: [[float(path.stat().st_size)] for path in paths])
    assert made.prepare(0).clients[fed.names[0]].train.n_labels == 2 * shots


# Validation, and the page


def test_shots_beside_validation_images(folders):
    """More images are dealt than are learned from: the split holds some back and keeps the shots."""
    fed = load(folders, "celeba", shots=8).with_features(lambda paths: [[float(path.stem)] for path in paths])
    study = fed.with_options(split=Split(validation=0.25, shots=5), scaling="none").prepare(0)
    for parts in study.clients.values():
        assert parts.train.counts() == {"Smiling": 5, "rightmouth_x": 5}
        assert parts.validation.n_labels >= 3
        assert not set(parts.train.x[:, 0]) & set(parts.validation.x[:, 0])
        assert parts.test.counts() == {"Smiling": 20, "rightmouth_x": 20}


def test_the_example_of_the_page_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[3] / "docs" / "images.md").read_text()
    section = page.split("\n## Data\n")[1].split("\n## ")[0]
    for code in re.findall(r"```python\n(.*?)```", section, re.S):
        exec(code, {})
    assert "Smiling" in capsys.readouterr().out
