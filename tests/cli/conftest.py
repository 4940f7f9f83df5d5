"""A run on a small table of three hospitals."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from command_line import hospitals
from polyfed.cli import main


@pytest.fixture(scope="session")
def finished_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two rounds, made once, in a folder with its table; not to be changed."""
    home = tmp_path_factory.mktemp("finished")
    (home / "hospitals.csv").write_text(hospitals())
    argv = ["run", "--data", home / "hospitals.csv", "--client", "ward", "--regression", "pulse", "--binary", "sick"]
    argv += ["--features", "age", "--rounds", "2", "--out", home / "run", "--no-report", "--quiet"]
    assert main([str(argument) for argument in argv]) == 0
    return home


@pytest.fixture
def run(finished_once: Path, home: Path) -> Path:
    """A copy of the finished run, which may be changed."""
    shutil.copytree(finished_once / "run", home / "run")
    config = home / "run" / "config.toml"
    config.write_text(config.read_text().replace(str(finished_once), str(home)))
    return Path("run")
