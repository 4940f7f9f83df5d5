"""Every command on the page about the command line runs as it stands there."""

from __future__ import annotations

import re
import shlex
import sqlite3
from contextlib import closing
from itertools import chain
from pathlib import Path

import pandas as pd
import pytest

from polyfed.cli.app import PANELS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"


@pytest.mark.slow
def test_the_commands_of_the_page_run(polyfed, home):
    pytest.importorskip("palmerpenguins", reason="the demo's data is the package palmerpenguins")
    text = PAGE.read_text()
    (home / "study.toml").write_text(re.findall(r"```toml\n(.*?)```", text, re.S)[0])
    (home / "new.csv").write_text("age,sick\n40,no\n70,yes\n900,\n")
    (home / "chur.csv").write_text("age,pulse\n35,72\n50,90\n61,88\n")
    with closing(sqlite3.connect("visits.sqlite")) as connection:
        pd.read_csv("hospitals.csv").to_sql("visits", connection)
    commands = [line for block in re.findall(r"```console\n(.*?)```", text, re.S) for line in block.splitlines()]
    for line in commands:
        assert line.startswith("$ polyfed ")
        done = polyfed(*shlex.split(line.removeprefix("$ polyfed ")))
        assert done.code == 0, f"{line}\n{done.err}"
        assert "warning" not in done.err
    assert (home / "all.html").is_file()
    assert len(commands) >= 12


def test_every_command_is_on_the_page():
    text = PAGE.read_text()
    for name in chain(*PANELS.values()):
        assert f"polyfed {name}" in text, name
