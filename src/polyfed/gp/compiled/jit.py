"""How functions of this room are compiled: without the interpreter, without its lock, kept on disk (keeping.py)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from numba import cfunc, config, njit

# No division by zero is an error here: NaN is looked for where it matters. Sums may be taken in any order, but infinities and
# NaN keep their meaning.
SUMS = {"contract", "nsz", "arcp", "reassoc"}
EXACT = {"contract", "nsz"}
KEPT = bool(vars(config)["CACHE_DIR"])  # keeping.py: where there is a folder

# What Python calls: compiled for the types of a signature alone, when it is defined.
entry: Any = partial(njit, cache=KEPT, nogil=True, error_model="numpy")
# Loops whose sums may be reordered, so that they are done several numbers at a time; elementwise loops and logic, in the order
# that is written; and the same for functions that make arrays. Who holds an array is counted (`_nrt`), by atomic operations,
# wherever a view of it is made: only functions that make arrays need that.
jit = entry(fastmath=SUMS, _nrt=False)
jit_exact = entry(fastmath=EXACT, _nrt=False)
jit_allocating = entry(fastmath=EXACT, _nrt=True)


def callback(signature: Any, *, sums: bool = False) -> Callable[[Callable], Any]:
    """What compiled code calls by its address, so that a new one does not make it compile again."""
    return cfunc(signature, cache=KEPT, error_model="numpy", fastmath=SUMS if sums else EXACT)
