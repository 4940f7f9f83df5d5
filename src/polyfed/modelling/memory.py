"""How many rows an exact posterior may have on this machine, and how long arithmetic takes here.

What counts is how much memory there is and not how much is free, so that a run does not depend on what else goes on.
"""

from __future__ import annotations

import os
import time
from functools import lru_cache
from pathlib import Path

import torch

SHARE = 0.5  # of the memory for one client's matrices; the rest is for data, libraries and everyone else
MOST_ROWS = 4096  # of a client whose exact posterior is worth waiting for: a round of such a one takes some seconds
_GROUPS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@lru_cache(maxsize=1)
def memory() -> int:
    """Bytes that this process may use: those of the machine, of its container, or of `ulimit -v`, whichever are fewest."""
    known = [_machine(), _address_space(), *map(_container, _GROUPS)]
    return min(found for found in known if found is not None)


def holds(n_bytes: float) -> bool:
    return n_bytes <= SHARE * memory()


def is_soon_done(n_rows: int) -> bool:
    """Whether the exact posterior of `n_rows` rows takes seconds a round, and not minutes; the same on every machine."""
    return n_rows <= MOST_ROWS


def too_long(n_rows: int) -> str:
    """Why the exact posterior of more than `n_rows` rows is not waited for."""
    return f"of more than {n_rows:,} rows would take long (inducing='exact' waits for it)"


def exact_bytes(n_rows: int, n_latents: int) -> float:
    """The most bytes that the exact posterior of `n_rows` rows takes with its gradient.

    Measured on 1,200 to 4,800 rows: 9 to 12 matrices with two latents that share their distances, 22 with four that do
    not (a length-scale for each feature).
    """
    return 8.0 * n_rows**2 * (8 + 4 * n_latents)


def speed() -> float:
    """Floating-point operations a second, measured in a moment with as many threads as torch has now."""
    a = torch.ones(768, 768, dtype=torch.float64)
    best = float("inf")
    for _ in range(3):  # the first may have to wake threads up
        began = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - began)
    return 2.0 * len(a) ** 3 / best


def _machine() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not a POSIX system
        return 2**33


def _address_space() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def _container(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # no such limit; "max" means none
        return None
