"""The one place that imports torchvision.

Its wheels are built for one build of torch. Beside another (CUDA's torchvision, CPU's torch) its compiled part does not load,
and the import stops because operators for boxes are not declared. Networks need no boxes: a declaration is enough.
"""

from __future__ import annotations

import importlib
from types import ModuleType

import torch

from polyfed.errors import MissingExtraError

# As torchvision itself declares them; they get no implementation, so that calling one still fails.
_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_declared: list[torch.library.Library] = []  # a declaration lives as long as its library


def torchvision_models() -> ModuleType:
    try:
        # First as it is: a compiled part that does load would collide with declarations of ours.
        return importlib.import_module("torchvision.models")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "torchvision":
            raise  # torchvision is there, and something that it needs is not
        raise MissingExtraError("torchvision is not installed", remedy="pip install 'polyfed[vision]'") from None
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    _declare()
    try:
        return importlib.import_module("torchvision.models")
    except RuntimeError as error:
        what = f"torchvision does not work with torch {torch.__version__} ({error})"
        raise MissingExtraError(what, remedy="install the torchvision that was built for it") from error


def _declare() -> None:
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name, schema in _SCHEMAS.items():
        if not hasattr(torch.ops.torchvision, name):
            library.define(schema)
    _declared.append(library)
