"""The command line as a function, and tables that it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

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


def people(wards=("a", "b"), n=12, sexes=("f", "m"), classes=("no", "yes")) -> str:
    """Rows of age, sex and ward; the old are of the second class."""
    rng = np.random.default_rng(0)
    lines = ["ward,age,sex,sick"]
    for i in range(n * len(wards)):
        age = round(float(rng.uniform(20, 80)), 3)
        lines.append(f"{wards[i % len(wards)]},{age},{sexes[i // len(wards) % len(sexes)]},{classes[int(age > 50)]}")
    return "\n".join(lines) + "\n"


RUN = ["run", "--data", "t.csv", "--client", "ward", "--rounds", "1", "--no-report", "--out", "r"]  # t.csv: people


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


@pytest.fixture
def polyfed(capfd: pytest.CaptureFixture[str]) -> Command:
    """The command line in this process: what it returned and printed."""
    from polyfed.cli import main  # after conftest.py has put its checks into the modules of gp

    def command(*arguments: str | Path) -> Done:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        return Done(code, *capfd.readouterr())

    return command


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with `hospitals.csv` in it, where the command is given."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hospitals.csv").write_text(hospitals())
    return tmp_path
