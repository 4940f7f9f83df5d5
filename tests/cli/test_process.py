"""The command as a program of its own: what it imports, how it ends, what it does with signals and pipes."""

from __future__ import annotations

import json
import os
import re
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


@pytest.fixture
def start():
    """Starts the command; whatever a failed test leaves behind is ended."""
    started = []

    def begin(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
        # Where these tests run in the background of a shell, Ctrl-C is ignored, and a child would inherit that.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        process = subprocess.Popen(
            [sys.executable, "-m", "polyfed", *arguments],
            cwd=cwd,
            env=ENVIRONMENT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        signal.signal(signal.SIGINT, before)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("threads", ["1", "2"])
def test_doctor_finds_nothing_wrong_with_any_number_of_threads(tmp_path, threads):
    """With two, a run that was stored and loaded predicts the same but for the last bits."""
    command, env = [sys.executable, "-m", "polyfed", "doctor"], {**ENVIRONMENT, "OMP_NUM_THREADS": threads}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


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


def test_predictions_of_a_few_rows_do_not_wait_for_the_compiler(home, run):
    (home / "one.csv").write_text("age\n40\n")
    code = (
        "import sys\n"
        "from polyfed.cli import main\n"
        "code = main(['predict', sys.argv[1], 'one.csv', '--client', 'bern'])\n"
        "heavy = {'numba', 'scipy.optimize', 'scipy.stats', 'sklearn', 'flwr'} & sys.modules.keys()\n"
        "sys.exit(f'{code} {sorted(heavy)}' if code or heavy else 0)"
    )
    arguments = [sys.executable, "-c", code, str(run)]
    done = subprocess.run(arguments, capture_output=True, text=True, env=ENVIRONMENT, cwd=home)
    assert done.returncode == 0, done.stderr


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


def test_an_error_is_an_exit_code(start, home):
    out, err = start("run", "--data", "no.csv", "--client", "a", "--binary", "b", cwd=home).communicate(timeout=120)
    assert out == ""
    assert err.endswith("error: no.csv: there is no such file; correct the path.\n")  # a slow start is reported before


def test_ctrl_c_stores_the_run_and_says_how_to_go_on(start, home):
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
    assert "error: long: stopped after round " in err
    assert err.endswith("; go on with: polyfed run --resume long.\n")


def test_the_live_page_is_there_until_ctrl_c(start, home, run):
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


def on_terminal(*arguments: str, cwd: Path) -> str:
    """What the command draws on a terminal."""
    ours, theirs = os.openpty()
    environment = {**ENVIRONMENT, "POLYFED_CACHE": str(cwd / "cache"), "TERM": "xterm", "COLUMNS": "100"}
    argv = [sys.executable, "-m", "polyfed", *arguments]
    running = subprocess.Popen(argv, cwd=cwd, env=environment, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    drawn = b""
    try:
        while piece := os.read(ours, 4096):
            drawn += piece
    except OSError:  # how Linux says that nobody draws any more
        pass
    os.close(ours)
    assert running.wait() == 0, drawn.decode()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.decode())  # without colours and moves of the cursor


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_bar_while_a_network_sees_images_and_none_if_it_has_seen_them(command, tmp_path):
    pytest.importorskip("PIL", reason="images are opened by Pillow")
    from polyfed.data.images import make_images

    make_images(tmp_path / "celeba", 60, layout="celeba")
    (tmp_path / "study.toml").write_text(
        "[data]\ndataset = 'celeba'\noptions = { folder = 'celeba', shots = 5, n_clients = 2, n_test = 10 }\n"
        "[data.images]\nbackbone = 'torch.nn:Identity'\ncut = 'layer1'\ngrid = 2\nsize = 32\n"
        "[run]\nrounds = 1\n[compare]\nmethods = ['local']\nseeds = [0]\n"
    )
    drawn = on_terminal(command, "study.toml", "--out", "first", "--no-report", cwd=tmp_path)
    assert re.search(r"images +━+ +\d+/30 ", drawn)  # two clients with two tasks of five shots, and ten for testing
    again = on_terminal(command, "study.toml", "--out", "second", "--no-report", cwd=tmp_path)
    assert "images" not in again
    assert "1/1" in again  # the bar of the rounds is there


def test_without_a_terminal_a_line_says_how_far_it_is(capsys):
    from polyfed.cli.progress import Lines

    with Lines(20, 0, "pfed-hier", every=0.01) as lines:
        lines({"event": "round", "round": 3})
        deadline = time.monotonic() + 30
        while "3 of 20" not in (told := capsys.readouterr().err) and time.monotonic() < deadline:
            time.sleep(0.005)
    assert "pfed-hier: 3 of 20 rounds after 1 second, about" in told
    assert lines.line(30.0) == "pfed-hier: 3 of 20 rounds after 30 seconds, about 3 minutes left"
    assert Lines(20, 5, "").line(30.0) == "5 of 20 rounds after 30 seconds"
    with Lines(2, 0, ""):
        pass  # over before the first line
    assert capsys.readouterr().err == ""
