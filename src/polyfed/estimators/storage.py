"""A fitted MultiTaskGP on disk: `model.json` (what it is) and `model.safetensors` (its numbers). Never pickle."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as read_tensors
from safetensors.torch import save as tensor_bytes

from polyfed import __version__
from polyfed.data import ClientData, Encoder, FeatureScaler, LabelCodec, Task
from polyfed.data.features.matrix import at
from polyfed.data.schema.negotiation import Column
from polyfed.errors import DataError
from polyfed.files import write_whole
from polyfed.gp.kernels import text_of

if TYPE_CHECKING:
    from polyfed.estimators.multitask import MultiTaskGP

FORMAT = 2
OPTIONS = (
    *("n_latents", "per_dimension", "scale", "inducing", "inducing_method", "inducing_tolerance"),
    *("tolerance", "max_steps", "max_iterations", "seed"),
)


def save(gp: MultiTaskGP, folder: Path) -> Path:
    seen = gp.observations.labels
    tensors = {
        "x": torch.from_numpy(gp.observations.x),
        "scaler.mean": torch.from_numpy(gp.encoder.scaler.mean),
        "scaler.scale": torch.from_numpy(gp.encoder.scaler.scale),
        **({} if gp.inducing_inputs is None else {"Z": gp.inducing_inputs}),
        **dict(zip(("site.h", "site.r"), gp.sites, strict=True)),
        **{f"seen.{name}": torch.from_numpy(at) for name, (at, _) in seen.items()},
        **{f"label.{name}": torch.from_numpy(y) for name, (_, y) in seen.items()},
        **{f"prior.{name}": value for name, value in gp.prior.state().items()},
    }
    described = {
        "format": FORMAT,
        "polyfed": __version__,
        "model": "MultiTaskGP",
        "options": {name: getattr(gp, name) for name in OPTIONS} | {"bound": gp.bound_name},
        "kernels": [text_of(kernel) for kernel in gp.kernels],
        "tasks": [task.to_dict() for task in gp.tasks],
        "codecs": {name: codec.to_dict() for name, codec in gp.observations.codecs.items()},
        "columns": [column.to_dict() for column in gp.encoder.columns],
        "bound": gp.bound,
        "converged": gp.converged,
    }
    folder.mkdir(parents=True, exist_ok=True)
    # Contiguous copies: safetensors rejects tensors that share memory.
    numbers = tensor_bytes({name: value.detach().contiguous().clone() for name, value in tensors.items()})
    # A process killed between the two files leaves a pair that does not belong together, which the digest shows.
    described["sha256"] = hashlib.sha256(numbers).hexdigest()
    write_whole(folder / "model.safetensors", numbers)
    write_whole(folder / "model.json", json.dumps(described, indent=2).encode())
    return folder


def load(cls: type[MultiTaskGP], folder: Path) -> MultiTaskGP:
    with at(str(folder)):
        described, tensors = _read(folder)
    try:
        gp = cls(
            [Task.from_dict(task) for task in described["tasks"]],
            kernel=described["kernels"],
            **described["options"],
        )
        codecs = {name: LabelCodec.from_dict(codec) for name, codec in described["codecs"].items()}
        columns = tuple(Column.from_dict(column) for column in described["columns"])
        scaler = FeatureScaler(tensors["scaler.mean"].numpy(), tensors["scaler.scale"].numpy())
        seen = {
            name: (tensors[f"seen.{name}"].numpy(), tensors[f"label.{name}"].numpy())
            for name in codecs
            if f"seen.{name}" in tensors
        }
        return gp.restore(
            ClientData(tensors["x"].numpy(), seen, codecs),
            Encoder(columns, scaler),
            {k.removeprefix("prior."): value for k, value in tensors.items() if k.startswith("prior.")},
            tensors.get("Z"),
            (tensors["site.h"], tensors["site.r"]),
            bound=described["bound"],
            converged=described["converged"],
        )
    except (KeyError, TypeError) as error:
        what = f"{error} does not fit a saved model"
        raise DataError(what, where=str(folder / "model.json"), remedy="save it again") from error


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    for name in ("model.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise DataError(f"there is no {name}", remedy="give the folder that MultiTaskGP.save wrote")
    try:
        described = json.loads((folder / "model.json").read_bytes())
        numbers = (folder / "model.safetensors").read_bytes()
        tensors = read_tensors(numbers)
    except (ValueError, SafetensorError) as error:
        raise DataError(f"cannot be read ({error})", remedy="save the model again") from error
    if not isinstance(described, dict) or described.get("format") != FORMAT:
        found = described.get("format") if isinstance(described, dict) else None
        what = f"format {found!r} is not {FORMAT}"
        raise DataError(what, where=str(folder / "model.json"), remedy="save it with this version")
    digest = hashlib.sha256(numbers).hexdigest()
    if described.get("sha256", digest) != digest:
        raise DataError("model.json and model.safetensors are not of one model", remedy="save the model again")
    return described, tensors
