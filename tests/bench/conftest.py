"""The benchmarks are no part of the package: their tests find them in the clone."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def bench_is_importable(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2])
