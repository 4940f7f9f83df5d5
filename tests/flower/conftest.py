"""A small study as three tables, one for each client, and ways to run it in this process and on Flower."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path

import pytest

if importlib.util.find_spec("flwr") is None:
    collect_ignore_glob = ["test_*.py", "deploy"]

    def pytest_report_header():
        return "Flower is not installed (pip install 'polyfed[flower]'): its tests are left out"
else:
    from flower_runs import write_tables


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
