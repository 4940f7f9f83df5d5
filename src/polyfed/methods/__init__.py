"""Federated methods, one file each, on one small contract (`base`).

>>> method("pfed-mul", n_latents=3).n_latents
3
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from polyfed.errors import ConfigError, nearest
from polyfed.methods.base import Job, Method, Outcome, Predictor
from polyfed.methods.ends import Local, Pooled
from polyfed.methods.fedavg import FedAvg
from polyfed.methods.fedper import FedPer
from polyfed.methods.messages import ClientUpdate, State
from polyfed.methods.pfed_mul import PFedMul
from polyfed.methods.pfed_st import PFedSt
from polyfed.methods.pfedme import PFedMe
from polyfed.methods.scaffold import Scaffold

METHODS: dict[str, type[Method]] = {
    made.name: made for made in (PFedMul, PFedSt, Local, Pooled, FedAvg, FedPer, Scaffold, PFedMe)
}


def method(name: str, **options: Any) -> Method:
    """The method of this name with these options."""
    if name not in METHODS:
        raise ConfigError(f"method {name!r} is unknown", remedy=nearest(name, METHODS))
    chosen = METHODS[name]
    known = [option.name for option in fields(chosen)] if is_dataclass(chosen) else []
    for option in options:
        if option not in known:
            raise ConfigError(f"method {name!r} has no option {option!r}", remedy=nearest(option, known))
    return chosen(**options)


__all__ = [
    "METHODS",
    "ClientUpdate",
    "FedAvg",
    "FedPer",
    "Job",
    "Local",
    "Method",
    "Outcome",
    "PFedMe",
    "PFedMul",
    "PFedSt",
    "Pooled",
    "Predictor",
    "Scaffold",
    "State",
    "method",
]
