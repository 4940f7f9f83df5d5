"""Randomness that depends on what it is for, never on who asked first.

One seed rules a run. Each purpose, round and client has a stream of its own, keyed by name, so the same seed gives the
same result in any order, in any number of processes, and after a resume.

>>> a = Stream(7, "sampling", round=3).numpy().integers(1000)
>>> b = Stream(7, "sampling", round=3).numpy().integers(1000)
>>> bool(a == b), bool(Stream(7, "sampling", round=4).numpy().integers(1000) == a)
(True, False)
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Stream:
    """The source of random numbers for one purpose; nothing is drawn until somebody asks."""

    seed: int
    purpose: str
    round: int = 0
    client: str = ""

    def sequence(self) -> np.random.SeedSequence:
        # Names go in as digests: Python's own hash of a text changes from process to process.
        names = [hashlib.sha256(name.encode()).digest()[:8] for name in (self.purpose, self.client)]
        keys = [int.from_bytes(digest, "little") for digest in names]
        return np.random.SeedSequence([self.seed, keys[0], self.round, keys[1]])

    def numpy(self) -> np.random.Generator:
        """A generator at the beginning of this stream."""
        return np.random.default_rng(self.sequence())

    def integer(self) -> int:
        """A seed for other libraries' generators."""
        return int(self.sequence().generate_state(1, np.uint64)[0] >> np.uint64(1))  # they want it below 2⁶³
