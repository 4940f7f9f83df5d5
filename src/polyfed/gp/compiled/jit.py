"""How functions of this room are compiled: without the interpreter, without its lock, kept on disk (keeping.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cfunc, config, njit

# No division by zero is an error here: NaN is looked for where it matters. Sums may be taken in any order, but infinities and
# NaN keep their meaning.
SUMS = {"contract", "nsz", "arcp", "reassoc"}
EXACT = {"contract", "nsz"}


KEPT = bool(vars(config)["CACHE_DIR"])  # keeping.py: where there is a folder


# Who holds an array is counted, by atomic operations, wherever a view of it is made: only those that make arrays need that.
COUNTED = "_nrt"


def _made(function: Callable, sums: set[str], *, makes_arrays: bool) -> Any:
    options: Any = {"cache": KEPT, "nogil": True, "error_model": "numpy", "fastmath": sums, COUNTED: makes_arrays}
    return njit(**options)(function)


def jit(function: Callable) -> Any:
    """Loops whose sums may be reordered, so that they are done several numbers at a time. They make no arrays."""
    return _made(function, SUMS, makes_arrays=False)


def jit_exact(function: Callable) -> Any:
    """Elementwise loops and logic, in the order that is written. They make no arrays."""
    return _made(function, EXACT, makes_arrays=False)


def jit_allocating(function: Callable) -> Any:
    """The same for those that make arrays."""
    return _made(function, EXACT, makes_arrays=True)


def entry(signature: Any) -> Callable[[Callable], Any]:
    """What Python calls: compiled for these types alone, when it is defined."""
    return njit(signature, cache=KEPT, nogil=True, error_model="numpy")


def callback(signature: Any, *, sums: bool = False) -> Callable[[Callable], Any]:
    """What compiled code calls by its address, so that a new one does not make it compile again."""
    flags = SUMS if sums else EXACT
    return cfunc(signature, cache=KEPT, error_model="numpy", fastmath=flags)
