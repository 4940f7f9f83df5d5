"""Code by name: polyfed's own runs, anything else only by permission."""

import pytest

from polyfed.errors import ConfigError
from polyfed.nets.permission import is_own, reject_code


@pytest.mark.parametrize(
    "text",
    [
        "os:system",
        "..:x",
        "polyfed.nets.vision:embed",
        "polyfed.nets.vision:os:system",
        "polyfed.nets.vision:resnet18:x",
        "polyfed.nets.network:importlib",
        "polyfed.nets.visionx:resnet18",
        " polyfed.nets.vision:resnet18",
        "subprocess:run?cut=layer3",
        ":",
    ],
)
def test_foreign_code_is_rejected(text):
    for options in ({"network": text}, {"other": [1, {"deep": text}]}, {"deep": {"a": {text: 1}}}):
        with pytest.raises(ConfigError, match="names code, which is not run unasked"):
            reject_code(options, where="there")
    reject_code({"network": text}, [text], where="there")
    with pytest.raises(ConfigError):
        reject_code({"network": text}, [text + "x"], where="there")


@pytest.mark.parametrize("text", ["resnet18", "resnet18?cut=layer3&train=last", "efficientnet-b2?weights=random"])
def test_polyfeds_own_networks_need_no_permission(text):
    reject_code({"network": f"polyfed.nets.vision:{text}", "hidden": [64], "n": 3, "none": None}, where="there")
    assert is_own(f"polyfed.nets.vision:{text}", paths=False)


@pytest.mark.parametrize(
    "text", ["resnet18?weights=/etc/shadow", "resnet18?weights_dir=/", "resnet18?cut=a&weights=x.pth"]
)
def test_a_server_names_no_file_of_weights(text):
    assert is_own(f"polyfed.nets.vision:{text}")
    with pytest.raises(ConfigError):
        reject_code({"network": f"polyfed.nets.vision:{text}"}, where="there", paths=False)


def test_long_names_are_cut():
    with pytest.raises(ConfigError) as caught:
        reject_code({"network": "a:" + "x" * 10**6}, where="there")
    assert len(str(caught.value)) < 400
