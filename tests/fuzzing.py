"""How fuzzers run: the same cases at every run, or fresh ones where POLYFED_FUZZ_SEED gives a seed (`make fuzz`).

POLYFED_FUZZ_TIMES=10 makes ten times as many of them.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, seed, settings

SEED = os.environ.get("POLYFED_FUZZ_SEED")
TIMES = int(os.environ.get("POLYFED_FUZZ_TIMES", "1"))


def fuzz(cases: int):
    """A decorator for tests with `@given`: so many cases."""

    def decorate(test):
        made = settings(
            max_examples=TIMES * cases,
            deadline=None,
            derandomize=SEED is None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )(test)
        return pytest.mark.fuzz(made if SEED is None else seed(int(SEED))(made))

    return decorate
