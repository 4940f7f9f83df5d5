"""How many threads the algebra may use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

SMALL = 1000  # rows below which a second thread costs more in waiting than it brings


@contextmanager
def threads_for(n_rows: int) -> Iterator[None]:
    """One thread for small matrices, the user's own setting for large ones; it is put back afterwards.

    Inference on a few hundred rows is thousands of short calls. On a machine with anything else to do, threads that
    wait for each other between them make a fit ten times slower.
    """
    before = torch.get_num_threads()
    try:
        if n_rows < SMALL:
            torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(before)
