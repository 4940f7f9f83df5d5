"""The inner loop compiled: covariance, E-step and gradient of small and large clients close to what LAPACK alone takes.

Everything here repeats, number by number, what torch does in linalg.py, dense.py, lmc.py and meanfield.py, which stay the
reference: `POLYFED_COMPILED=0`, or no numba at all, and torch does it, with the same results. A likelihood that brings no
compiled form, and a model that is not exact, always go that way.

This is the only room that knows numba, numpy and scipy's LAPACK. It is entered through `solver()` alone, when first needed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from types import ModuleType

log = logging.getLogger("polyfed")
SWITCH = "POLYFED_COMPILED"
_by_torch: ContextVar[bool] = ContextVar("by_torch", default=False)


def solver() -> ModuleType | None:
    """polyfed.gp.compiled.inference, compiled if need be; None if torch is to do it."""
    return None if _by_torch.get() or os.environ.get(SWITCH, "1") == "0" else load()


@contextmanager
def by_torch() -> Iterator[None]:
    """Torch does it here: loading compiled code takes half a second, which a few small clients never give back."""
    before = _by_torch.set(True)
    try:
        yield
    finally:
        _by_torch.reset(before)


@cache
def load() -> ModuleType | None:
    """The same, without a look at the switch."""
    try:
        from polyfed.gp.compiled.keeping import kept
    except ImportError as error:
        if error.name != "numba":
            raise
        log.warning("numba is not installed: Gaussian processes take about three times as long; pip install numba")
        return None
    try:
        with kept(log):
            return import_module("polyfed.gp.compiled.inference")
    except Exception as error:  # a full disk, a damaged cache, an unknown processor: none of it is the end
        sent = " ".join(f"{type(error).__name__}: {error}".split())
        log.warning("the inner loop cannot be compiled (%s): torch does it, about three times as slow", sent)
        return None
