"""Federated methods, one file each, on one small contract (`base`).

>>> method("pfed-mul", n_latents=3).n_latents
3
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from polyfed.errors import ConfigError, nearest
from polyfed.methods.base import ClientResult, Job, Method, Predictor
from polyfed.methods.bayesian_heads.pfedgp import PFedGP
from polyfed.methods.bayesian_heads.pfedvem import PFedVEM
from polyfed.methods.gp.pfed_hier import PFedHier
from polyfed.methods.gp.pfed_mul import PFedMul
from polyfed.methods.gp.yardsticks import Local, PFedSt, Pooled
from polyfed.methods.messages import ClientUpdate, State
from polyfed.methods.neural.ditto import Ditto
from polyfed.methods.neural.fed3r import Fed3R
from polyfed.methods.neural.fedavg import FedAvg, FedAvgFT, FedBABU
from polyfed.methods.neural.fedpac import FedPAC
from polyfed.methods.neural.fedper import FedPer
from polyfed.methods.neural.fedrod import FedRoD
from polyfed.methods.neural.pfedfda import PFedFDA
from polyfed.methods.neural.pfedme import PFedMe
from polyfed.methods.neural.scaffold import Scaffold
from polyfed.methods.rivals import RIVALS
from polyfed.plugins import registered

METHODS: dict[str, type[Method]] = {
    made.name: made
    for made in (
        PFedMul,
        PFedHier,
        PFedSt,
        Local,
        Pooled,
        FedAvg,
        FedPer,
        Scaffold,
        PFedMe,
        FedPAC,
        PFedGP,
        PFedVEM,
        FedAvgFT,
        Ditto,
        FedBABU,
        FedRoD,
        PFedFDA,
        Fed3R,
        *RIVALS,  # what users would pick instead, as yardsticks
    )
}


def known_methods() -> dict[str, type[Method]]:
    """The methods of polyfed, and those that other packages registered under the entry point `polyfed.methods`."""
    return registered("methods", "method") | METHODS


def method(name: str, **options: object) -> Method:
    """The method of this name with these options."""
    methods = METHODS if name in METHODS else known_methods()
    if name not in methods:
        raise ConfigError(f"method {name!r} is unknown", remedy=nearest(name, methods))
    chosen = methods[name]
    known = [option.name for option in fields(chosen)] if is_dataclass(chosen) else []
    for option in options:
        if option not in known:
            raise ConfigError(f"method {name!r} has no option {option!r}", remedy=nearest(option, known))
    return chosen(**options)


__all__ = [
    "METHODS",
    "ClientResult",
    "ClientUpdate",
    "Ditto",
    "Fed3R",
    "FedAvg",
    "FedAvgFT",
    "FedBABU",
    "FedPAC",
    "FedPer",
    "FedRoD",
    "Job",
    "Local",
    "Method",
    "PFedFDA",
    "PFedGP",
    "PFedHier",
    "PFedMe",
    "PFedMul",
    "PFedSt",
    "PFedVEM",
    "Pooled",
    "Predictor",
    "Scaffold",
    "State",
    "known_methods",
    "method",
]
