"""A small study as three tables, one for each client, and ways to play it in this process and on Flower."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'polyfed[flower]'")

from flower_playing import write_tables


@pytest.fixture(autouse=True)
def _quiet():
    log = logging.getLogger("flwr")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)


@pytest.fixture(scope="session")
def tables(tmp_path_factory) -> Path:
    return write_tables(tmp_path_factory.mktemp("tables"))
