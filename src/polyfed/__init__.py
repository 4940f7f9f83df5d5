"""polyfed: personalised Bayesian learning for several correlated tasks of different kinds.

Regression, classification and counts are modelled jointly by one multi-output Gaussian process, so that a
task with few labels borrows strength from its neighbours, and every prediction says how sure it is.

    import polyfed as pf

    tasks = [pf.Task("heart_rate", "regression"), pf.Task("sick", "binary")]
    gp = pf.MultiTaskGP(tasks, n_latents=2)
    gp.fit({"heart_rate": (X1, y1), "sick": (X2, y2)})  # the tasks need not share their inputs

    p = gp.predict(X_new)
    p["heart_rate"].mean, p["heart_rate"].std, p["heart_rate"].interval(0.95)
    p["sick"].proba, p["sick"].label

The names below are imported at their first use: `import polyfed` itself is quick, torch is not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what type checkers and editors see
    from polyfed.data import Federation, Split, Task, load_dataset
    from polyfed.engine import Run, load, load_model, simulate
    from polyfed.errors import (
        ConfigError,
        DataError,
        MissingExtraError,
        NumericalError,
        PolyfedError,
        UnknownNameError,
        UsageError,
    )
    from polyfed.estimators import GPClassifier, GPRegressor, MultiTaskGP
    from polyfed.gp import Prior
    from polyfed.kinds import Kind, LabelForm, add_kind
    from polyfed.methods import ClientUpdate, Method
    from polyfed.methods.checks import check_method

__version__ = "0.2.0"

__all__ = [
    "ClientUpdate",
    "ConfigError",
    "DataError",
    "Federation",
    "GPClassifier",
    "GPRegressor",
    "Kind",
    "LabelForm",
    "Method",
    "MissingExtraError",
    "MultiTaskGP",
    "NumericalError",
    "PolyfedError",
    "Prior",
    "Run",
    "Split",
    "Task",
    "UnknownNameError",
    "UsageError",
    "add_kind",
    "check_method",
    "load",
    "load_dataset",
    "load_model",
    "simulate",
]

_ROOMS = {
    "polyfed.data": ("Federation", "Split", "Task", "load_dataset"),
    "polyfed.engine": ("Run", "load", "load_model", "simulate"),
    "polyfed.estimators": ("GPClassifier", "GPRegressor", "MultiTaskGP"),
    "polyfed.gp": ("Prior",),
    "polyfed.kinds": ("Kind", "LabelForm", "add_kind"),
    "polyfed.methods": ("ClientUpdate", "Method"),
    "polyfed.methods.checks": ("check_method",),
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in __all__:
        from polyfed.errors import nearest

        raise AttributeError(f"module 'polyfed' has no attribute {name!r}; {nearest(name, __all__)}.")
    room = next((room for room, names in _ROOMS.items() if name in names), "polyfed.errors")
    value = getattr(importlib.import_module(room), name)
    globals()[name] = value  # so that the second use does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
