"""torchmetrics imports torchvision where it is installed, which does not load beside every torch: our door opens it first."""

from contextlib import suppress

from polyfed.errors import MissingExtraError
from polyfed.nets.vision.torchvision_door import torchvision_models

with suppress(MissingExtraError):
    torchvision_models()
