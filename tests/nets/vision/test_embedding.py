"""Features of images: computed once, kept by content, and never trusted when damaged."""

import shutil

import numpy as np
import pytest

from polyfed.errors import ConfigError, DataError, MissingExtraError
from polyfed.nets import vision

pytestmark = pytest.mark.usefixtures("tiny")


@pytest.fixture
def counted(tiny):
    tiny.Counted.seen = 0
    net = vision.backbone("tiny:Counted", size=8)
    tiny.Counted.seen = 0
    return tiny.Counted, net


def stored(folder):
    return sorted(folder.rglob("*.safetensors"))


def test_features_are_those_of_the_images_in_the_order_of_the_paths(pictures, tmp_path):
    paths = pictures(5)[::-1]
    features = vision.embed(paths, "tiny:Counted", size=8, batch=2, cache_dir=tmp_path / "c")
    by_hand = [[10 * i / 255, 0.2, 1.0] for i in (4, 3, 2, 1, 0)]
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, by_hand, atol=1e-6)


def test_a_second_call_computes_nothing(counted, pictures, tmp_path):
    count, net = counted
    paths, told = pictures(5), []
    first = vision.embed(paths, net, batch=2, cache_dir=tmp_path / "c", progress=lambda *at: told.append(at))
    assert count.seen == 5
    assert told == [(0, 5), (2, 5), (4, 5), (5, 5)]
    told.clear()
    again = vision.embed(paths, net, cache_dir=tmp_path / "c", progress=lambda *at: told.append(at))
    assert count.seen == 5
    assert told == [(5, 5)]
    np.testing.assert_array_equal(first, again)


def test_only_new_images_are_computed_and_a_new_name_is_no_new_image(counted, pictures, tmp_path):
    count, net = counted
    paths = pictures(3)
    vision.embed(paths[:2], net, cache_dir=tmp_path / "c")
    twin = shutil.copy(paths[0], tmp_path / "twin.png")
    features = vision.embed([*paths, twin, twin], net, cache_dir=tmp_path / "c")
    assert count.seen == 3
    np.testing.assert_allclose(features[:, 0] * 255, [0, 10, 20, 0, 0], atol=1e-4)


def test_an_image_that_changed_is_computed_again(counted, pictures, tmp_path):
    count, net = counted
    paths = pictures(2)
    vision.embed(paths, net, cache_dir=tmp_path / "c")
    shutil.copy(paths[1], paths[0])
    features = vision.embed(paths, net, cache_dir=tmp_path / "c")
    np.testing.assert_allclose(features[0] * 255, [10, 51, 255], atol=1e-4)
    assert count.seen == 2


@pytest.mark.parametrize("other", [{"size": 4}, {"fit": "stretch"}, {"cut": "0"}, {"cut": "0", "grid": 2}])
def test_features_of_another_kind_are_other_features(pictures, tmp_path, other):
    paths = pictures(2)
    vision.embed(paths, "tiny:halves", size=8, cache_dir=tmp_path / "c")
    before = stored(tmp_path)
    vision.embed(paths, "tiny:halves", **{"size": 8, "cache_dir": tmp_path / "c"} | other)
    assert len(stored(tmp_path)) == len(before) + 1


def test_other_weights_are_other_features(tiny, pictures, tmp_path):
    paths = pictures(1)
    first = vision.embed(paths, "tiny:halves", size=8, cache_dir=tmp_path / "c")
    net = tiny.halves()
    net[1][0].bias.data += 1
    tiny.halves = lambda: net
    second = vision.embed(paths, "tiny:halves", size=8, cache_dir=tmp_path / "c")
    assert np.abs(second - first).max() > 0.1


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "other"])
def test_a_damaged_entry_is_computed_again(counted, pictures, tmp_path, damage):
    count, net = counted
    paths = pictures(3)
    whole = vision.embed(paths, net, cache_dir=tmp_path / "c")
    (file,) = stored(tmp_path)
    content = file.read_bytes()
    flipped = content[:-1] + bytes([content[-1] ^ 1])
    file.write_bytes({"cut": content[:-5], "flip": flipped, "empty": b"", "other": b"not features" * 9}[damage])
    np.testing.assert_array_equal(vision.embed(paths, net, cache_dir=tmp_path / "c"), whole)
    assert count.seen == 6
    vision.embed(paths, net, cache_dir=tmp_path / "c")
    assert count.seen == 6  # it was mended


def test_what_was_done_before_a_broken_image_is_kept(counted, pictures, tmp_path):
    count, net = counted
    paths = pictures(4)
    paths[3].write_bytes(paths[3].read_bytes()[:40])
    with pytest.raises(
        DataError, match=r"3\.png: the image cannot be decoded \(.+\); replace the file or leave it out\."
    ):
        vision.embed(paths, net, batch=2, cache_dir=tmp_path / "c")
    vision.embed(paths[:2], net, cache_dir=tmp_path / "c")
    assert count.seen == 2


def test_a_missing_image_is_named(counted, tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.jpg: the image cannot be read \(No such file"):
        vision.embed([tmp_path / "nowhere.jpg"], counted[1])


def test_the_default_folder_is_the_environments(counted, pictures, tmp_path):
    vision.embed(pictures(1), counted[1])
    assert len(stored(tmp_path / "default cache" / "features")) == 1


def test_a_cache_that_cannot_be_written_says_so(counted, pictures, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(
        ConfigError, match=r"features cannot be stored in .*name another folder by cache_dir or POLYFED_CACHE"
    ):
        vision.embed(pictures(1), counted[1], cache_dir=tmp_path / "file")


def test_features_that_are_not_finite_are_neither_returned_nor_kept(tiny, pictures, tmp_path):
    tiny.broken = lambda: tiny.halves().apply(lambda layer: [p.data.fill_(float("nan")) for p in layer.parameters()])
    with pytest.raises(DataError, match=r"0\.png: backbone 'tiny:broken' made features that are not finite"):
        vision.embed(pictures(2), "tiny:broken", size=8, cache_dir=tmp_path / "c")
    assert not stored(tmp_path)


def test_no_images_have_no_features(counted, tmp_path):
    assert vision.embed([], counted[1], cache_dir=tmp_path).shape == (0, 3)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ({"batch": 0}, "batch is 0"),
        ({"fit": "squeeze"}, "fit 'squeeze' is unknown; known are 'crop', 'stretch'"),
        ({"paths": "a.png"}, "paths is one path, 'a.png'; give a list"),
        ({"cut": "0"}, "the backbone is made already"),
    ],
)
def test_calls_that_make_no_sense(counted, call, says):
    with pytest.raises(ConfigError, match=says):
        vision.embed(**{"paths": [], "backbone": counted[1]} | call)


def test_crop_keeps_the_middle_and_stretch_keeps_all(tmp_path):
    Image = pytest.importorskip("PIL.Image", reason="images are read by Pillow (the extra vision)")
    pixels = np.zeros((4, 12, 3), dtype=np.uint8)
    pixels[:, 4:8] = 255  # a white square in the middle of a black band
    Image.fromarray(pixels).save(tmp_path / "band.png")
    (cropped,) = vision.read_images([tmp_path / "band.png"], 4)
    (stretched,) = vision.read_images([tmp_path / "band.png"], 6, fit="stretch")
    assert cropped.dtype == np.float32
    np.testing.assert_array_equal(cropped, np.ones((3, 4, 4)))
    assert stretched[:, :, 0].max() == 0
    assert stretched[:, :, 2:4].min() > 0.7


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1", "I;16", "CMYK"])
def test_images_of_every_kind_become_colours(tmp_path, mode):
    Image = pytest.importorskip("PIL.Image", reason="images are read by Pillow (the extra vision)")
    if mode == "I;16":
        image = Image.fromarray(np.full((8, 8), 65535, dtype=np.uint16))
    else:
        image = Image.new("RGB", (8, 8), "white").convert(mode)
    image.save(tmp_path / "white.tif")
    np.testing.assert_allclose(vision.read_images([tmp_path / "white.tif"], 4), np.ones((1, 3, 4, 4)), atol=0.01)


def test_a_camera_that_was_held_on_its_side(tmp_path):
    Image = pytest.importorskip("PIL.Image", reason="images are read by Pillow (the extra vision)")
    pixels = np.zeros((8, 8, 3), dtype=np.uint8)
    pixels[:, :4] = 255  # white on the left …
    exif = Image.Exif()
    exif[0x0112] = 6  # … of a camera turned by a quarter: the left belongs to the top
    Image.fromarray(pixels).save(tmp_path / "held.png", exif=exif)
    (seen,) = vision.read_images([tmp_path / "held.png"], 8)
    assert seen[0, :4].min() == 1
    assert seen[0, 4:].max() == 0


def test_without_pillow_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(MissingExtraError, match=r"Pillow is not installed; pip install 'polyfed\[vision\]'") as caught:
        vision.read_images([tmp_path / "a.png"], 4)
    assert caught.value.exit_code == 6


def test_a_file_that_is_no_image_is_told_without_an_address_in_memory(counted, pictures, tmp_path):
    paths = pictures(1)
    paths[0].write_text("not an image")
    with pytest.raises(
        DataError, match=r"0\.png: the image cannot be decoded \(its content is of no format that is known\);"
    ):
        vision.embed(paths, counted[1], cache_dir=tmp_path / "c")
