"""A real deployment on this machine: a server and three nodes as processes of their own, with TLS and node keys."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

if importlib.util.find_spec("flwr") is None:
    collect_ignore_glob = ["test_*.py"]

    def pytest_report_header():
        return "Flower is not installed (pip install 'polyfed[flower]'): its tests are left out"
else:
    from flower_playing import NAMES, TASKS, write_tables

LONG = 400.0  # seconds that any one thing may take on a busy machine


class Machines:
    """The commands that users give, each in a process of its own; all end with the tests."""

    def __init__(self, root: Path) -> None:
        self.root, self.tables = root, write_tables(root / "tables")
        self.folder, self.processes = root / "deployment", dict[str, subprocess.Popen[bytes]]()

    def polyfed(self, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "polyfed", *map(str, arguments)], capture_output=True, text=True, timeout=LONG
        )
        assert not check or done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def start(self, name: str, *arguments: object) -> None:
        """A command that stays; what it says goes to <name>.log."""
        with (self.root / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-u", "-m", "polyfed", "deploy", *map(str, arguments)]
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def log(self, name: str) -> str:
        return (self.root / f"{name}.log").read_text()

    def begin(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.polyfed(
            "deploy", "init", self.folder, "--host", "127.0.0.1", "--port", self.port, "--nodes", ",".join(NAMES)
        )
        for name in NAMES:  # of small tables, whose owners know
            with (self.folder / "nodes" / name / "node.toml").open("a") as file:
                file.write("min_rows = 1\nmin_count = 1\n")
        self.server()
        for name in NAMES:
            self.node(name)
        self.wait(lambda: self.online() == set(NAMES), "the nodes to be online", pause=2.0)

    def server(self) -> None:
        self.start("server", "server", self.folder)
        said = self.log("server").count("Ready for")
        self.wait(lambda: self.log("server").count("Ready for") > said, "the server to be ready")

    def node(self, name: str) -> None:
        self.start(name, "node", self.folder / "nodes" / name, "--data", self.tables / f"{name}.csv")

    def online(self) -> set[str]:
        told = json.loads(self.polyfed("deploy", "status", self.folder, "--json").stdout)
        return {node["name"] for node in told["nodes"] if node["state"] == "online"}

    def study(self, name: str, **run: object) -> Path:
        """A file with a study; `scheme` K keeps parameters on the clients, so that a lost state shows."""
        lines = ["[data]", "test = 0.25", *("[[data.tasks]]\n" + _toml(task) for task in TASKS)]
        lines += ["[method]", _toml({"name": "pfed-mul", "scheme": "K"})]
        lines += ["[run]", _toml({"evaluate_every": 0, **run})]
        (self.root / f"{name}.toml").write_text("\n".join(lines))
        return self.root / f"{name}.toml"

    def app(self, text: str | None) -> None:
        """Ship this client app, or polyfed's own, with the runs that follow."""
        path = self.folder / "app" / "polyfed_app" / "client_app.py"
        own = path.with_suffix(".own")
        if not own.exists():
            shutil.copy(path, own)
        path.write_text(own.read_text() if text is None else text)

    def wait(self, done, what: str, pause: float = 0.3) -> None:
        end = time.monotonic() + LONG
        while not done():
            assert time.monotonic() < end, f"waited in vain for {what}"
            time.sleep(pause)

    def kill(self, name: str) -> None:
        """SIGKILL to a process and all that it started."""
        process = self.processes.pop(name)
        for pid in _family(process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.wait()

    def end(self) -> None:
        families = [pid for process in self.processes.values() for pid in _family(process.pid)]
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
        for pid in families:  # a client that hangs is nobody's child any more
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


@pytest.fixture(scope="session")
def machines(tmp_path_factory):
    made = Machines(tmp_path_factory.mktemp("machines"))
    try:
        made.begin()
        yield made
    finally:
        made.end()


def _toml(values) -> str:
    return "\n".join(f"{key} = {json.dumps(value)}" for key, value in values.items())


def _family(pid: int) -> list[int]:
    """A process and its descendants."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    family = [pid]
    for member in family:
        family += parents.get(member, [])
    return family
