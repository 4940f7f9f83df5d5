"""A program beside us ends in order, by force if it must, and with us if we are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("flwr", reason="deployments need Flower: pip install 'polyfed[flower]'")

from polyfed.flower.deploy import processes
from polyfed.flower.deploy.commands import environment
from polyfed.flower.deploy.processes import Program, Signals

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


def start(code, tmp_path, heard):
    return Program([sys.executable, "-c", code], os.environ, tmp_path, heard.append)


def until(true, seconds=60.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_what_it_says_is_passed_on_without_colours(tmp_path):
    heard = []
    program = start(r"print('\x1b[92mINFO\x1b[0m here'); print(); raise SystemExit(3)", tmp_path, heard)
    until(lambda: program.code is not None)
    assert program.code == 3
    assert heard == ["INFO here"]


def test_one_that_does_not_listen_is_ended_by_force(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "GRACE", 0.3)
    heard = []
    program = start(STUBBORN, tmp_path, heard)
    until(lambda: heard == ["up"])
    program.stop()
    assert program.code == -signal.SIGKILL


def test_a_signal_wakes_a_sleeper():
    before = signal.getsignal(signal.SIGTERM)
    with Signals() as signals:
        assert not signals.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.sleep(60)
        assert signals.received == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals a child that its parent was killed")
def test_a_child_of_one_that_was_killed_ends_too(tmp_path):
    child = (
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path('left').touch(), sys.exit(0)))\n"
        "pathlib.Path('up').touch()\n"
        "time.sleep(60)\n"
    )
    parent = (
        "import os, pathlib, sys, time\n"
        "from polyfed.flower.deploy.processes import Program\n"
        f"Program([sys.executable, '-c', {child!r}], os.environ, pathlib.Path('.'), print)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], cwd=tmp_path)
    until((tmp_path / "up").exists)
    process.kill()
    process.wait()
    until((tmp_path / "left").exists)


def test_compiled_code_is_kept_where_a_user_without_a_home_can_write(tmp_path, monkeypatch):
    """The package of another user, and no home, as in a container and for a user of systemd."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    asked = (
        "from polyfed.gp.compiled import keeping\n"
        "keeping.HERE = keeping.Path('/dev/null')\n"
        "keeping.digest = lambda: 'x'\n"
        "print(keeping.folder())\n"
    )
    env = {k: v for k, v in environment(tmp_path / "flower").items() if k != "NUMBA_CACHE_DIR"} | {"HOME": "/dev/null"}
    printed = subprocess.run([sys.executable, "-c", asked], env=env, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == str(tmp_path / "flower" / "cache" / "polyfed" / "compiled-x")
