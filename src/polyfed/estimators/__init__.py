"""The model of one client, as users call it: `MultiTaskGP`, and scikit-learn adapters.

They are imported at their first use: methods need other parts of this room, and scikit-learn takes a second.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polyfed.estimators.multitask import MultiTaskGP
    from polyfed.estimators.scikit import GPClassifier, GPRegressor

__all__ = ["GPClassifier", "GPRegressor", "MultiTaskGP"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    file = "multitask" if name == "MultiTaskGP" else "scikit"
    return getattr(importlib.import_module(f"{__name__}.{file}"), name)
