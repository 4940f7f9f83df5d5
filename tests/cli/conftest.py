"""A small table of three hospitals, a run on it, and the command line as a function."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from polyfed.cli import main

Command = Callable[..., "Done"]

HEADER = "ward,age,pulse,sick,visits,cured,treated"


def hospitals(rows: int = 8) -> str:
    """Basel, Bern and Thun: pulse rises with age, the old are sick."""
    lines = [HEADER]
    for i in range(3 * rows):
        ward, age = ("basel", "bern", "thun")[i % 3], 30 + 7 * i % 50
        treated = 3 + i % 4
        lines.append(f"{ward},{age},{60 + age / 2},{'yes' if age > 55 else 'no'},{i % 5},{i % 3},{treated}")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


@pytest.fixture
def polyfed(capfd: pytest.CaptureFixture[str]) -> Command:
    """The command line in this process: what it returned and printed."""

    def command(*arguments: str | Path) -> Done:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        return Done(code, *capfd.readouterr())

    return command


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
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with `hospitals.csv` in it, where the command is given."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hospitals.csv").write_text(hospitals())
    return tmp_path


@pytest.fixture
def run(finished_once: Path, home: Path) -> Path:
    """A copy of the finished run, which may be changed."""
    shutil.copytree(finished_once / "run", home / "run")
    config = home / "run" / "config.toml"
    config.write_text(config.read_text().replace(str(finished_once), str(home)))
    return Path("run")
