"""How laws and fuzzers draw their cases: the same ones at every run, or fresh ones with `--hypothesis-profile=fresh` and
a `--hypothesis-seed` (`make fuzz`). POLYFED_FUZZ_TIMES=10 makes ten times as many of a fuzzer.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("POLYFED_FUZZ_TIMES", "1"))

# A build that was green stays green, and a busy machine is no failure. Fresh cases print how to meet them again.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("fresh", derandomize=False, deadline=None, database=None, print_blob=True)


def fuzz(cases: int):
    """A decorator for tests with `@given`: so many cases."""

    def decorate(test):
        made = settings(max_examples=TIMES * cases, database=None, suppress_health_check=list(HealthCheck))(test)
        return pytest.mark.fuzz(made)

    return decorate
