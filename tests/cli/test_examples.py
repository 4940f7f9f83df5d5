"""The tables of the documentation, written where a reader wants them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from polyfed.cli.app import app
from polyfed.cli.begin import TABLES

SHIPPED = Path(__file__).resolve().parents[2] / "examples"


def test_the_tables_are_those_of_the_repository_and_none_is_forgotten(tmp_path):
    done = CliRunner().invoke(app, ["examples", str(tmp_path / "new" / "folder")])
    assert done.exit_code == 0, done.output
    written = {path.name: path.read_bytes() for path in (tmp_path / "new" / "folder").iterdir()}
    assert written == {path.name: path.read_bytes() for path in SHIPPED.glob("*.csv")}
    assert set(TABLES) == set(written)
    again = CliRunner().invoke(app, ["examples", str(tmp_path / "new" / "folder")])
    assert again.exit_code == 0


@pytest.mark.parametrize("name", list(TABLES))
def test_a_file_of_somebody_else_is_kept(tmp_path, name):
    (tmp_path / name).write_text("mine")
    done = CliRunner().invoke(app, ["examples", str(tmp_path)])
    assert "another file of this name is there; name another folder" in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_the_wheel_brings_the_tables():
    import tomllib

    build = tomllib.loads((SHIPPED.parent / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert build["force-include"] == {f"examples/{name}": f"polyfed/examples/{name}" for name in TABLES}
