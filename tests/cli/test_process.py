"""The command as a program of its own: what it imports, how it ends, what it does with signals and pipes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from rich.markup import render

import polyfed
from polyfed.cli.app import command

COMMANDS = sorted(command().commands)
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(polyfed.__file__).parents[1]), "OMP_NUM_THREADS": "1"}


def start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "polyfed", *arguments],
        cwd=cwd,
        env=ENVIRONMENT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_help_and_version_do_not_wait_for_libraries(tmp_path):
    asked = [["--version"], ["--help"], [], *([name, "--help"] for name in COMMANDS)]
    code = (
        "import sys, io, contextlib\nfrom polyfed.cli import main\n"
        f"for asked in {asked}:\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):\n"
        "        main(asked)\n"
        "    assert len(out.getvalue()) > 10, asked\n"
        "print(sorted({'torch', 'pandas', 'scipy', 'sklearn', 'numpy', 'plotly', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT, cwd=tmp_path)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name, polyfed):
    for parameter in command().commands[name].params:
        told = getattr(parameter, "help", None)
        assert told, f"{name} {parameter.name}"
        assert render(told).plain == told  # what stands in brackets would be taken for a colour, and not be shown
    assert polyfed(name, "--help").code == 0


def test_no_command_is_answered_with_the_help(polyfed):
    done = polyfed()
    assert (done.code, done.err) == (0, "")
    assert done.out == polyfed("--help").out


def test_an_error_is_an_exit_code(home):
    out, err = start("run", "--data", "no.csv", "--client", "a", "--binary", "b", cwd=home).communicate(timeout=120)
    assert (out, err) == ("", "error: no.csv: there is no such file; correct the path.\n")


def test_ctrl_c_stores_the_run_and_says_how_to_go_on(home):
    argv = ["--data", "hospitals.csv", "--client", "ward", "--regression", "pulse", "--features", "age"]
    process = start("run", *argv, "--rounds", "100000", "--out", "long", "--no-report", cwd=home)
    waited = time.monotonic()
    while not list((home / "long" / "checkpoints").glob("00000[1-9].json")) and process.poll() is None:
        assert time.monotonic() - waited < 300
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert out == ""
    assert err.startswith("error: long: stopped after round ")
    assert err.endswith("; go on with: polyfed run --resume long.\n")


def test_the_live_page_is_there_until_ctrl_c(home, run):
    pytest.importorskip("polyfed.report", reason="the report room is not there")
    process = start("watch", str(run), "--port", "0", "--json", cwd=home)
    text = ""
    while not text.rstrip().endswith("}"):
        line = process.stdout.readline()
        assert line, process.stderr.read()
        text += line
    document = json.loads(text)
    assert document["run"] == "run"
    with urllib.request.urlopen(document["url"], timeout=30) as page:
        assert b"<html" in page.read()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")


def test_a_port_in_use_is_one_sentence(polyfed, home, run):
    pytest.importorskip("polyfed.report", reason="the report room is not there")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = polyfed("watch", run, "--port", str(port))
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert str(port) in done.err
    assert "--port" in done.err
    assert done.err.count("\n") == 1


def test_a_missing_extra_names_it(polyfed, home, monkeypatch):
    monkeypatch.setitem(sys.modules, "palmerpenguins", None)
    for argv in (["demo"], ["run", "--dataset", "penguins"]):
        done = polyfed(*argv, "--quiet")
        assert done.code == 6
        assert done.err == (
            "error: data set 'penguins': the data lies in the package palmerpenguins, which is not installed; "
            "pip install 'polyfed[demo]'.\n"
        )
    assert not (home / "runs").exists()


def test_a_folder_that_cannot_be_made(polyfed, home):
    """Below a file; unlike a locked folder, this stops root too."""
    (home / "taken").write_text("a file")
    argv = ["run", "--data", "hospitals.csv", "--client", "ward", "--regression", "pulse", "--out", "taken/run"]
    done = polyfed(*argv)
    assert done.code == 2
    assert done.err == "error: taken/run: cannot be written: Not a directory; choose another folder with --out.\n"


def test_a_folder_that_cannot_be_written(polyfed, home):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (home / "locked").mkdir(mode=0o500)
    argv = ["run", "--data", "hospitals.csv", "--client", "ward", "--regression", "pulse", "--out", "locked/run"]
    done = polyfed(*argv)
    assert done.code == 2
    assert done.err == "error: locked/run: cannot be written: Permission denied; choose another folder with --out.\n"
