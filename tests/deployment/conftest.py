"""A real deployment on this machine: a server and three nodes as processes of their own, with TLS and node keys."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench.deployed import family, rounds_of

if importlib.util.find_spec("flwr") is None:
    collect_ignore_glob = ["test_*.py"]

    def pytest_report_header():
        return "Flower is not installed (pip install 'polyfed[flower]'): its tests are left out"
else:
    from bad_network import BadNetwork
    from flower_runs import NAMES, TASKS, write_tables

HERE = Path(__file__).parent
LONG = 400.0  # seconds that any one thing may take on a busy machine


class Machines:
    """The commands that users give, each in a process of its own; all end with the tests.

    The node of thun comes over a network that can be made a bad one. Clients do what `faults` says.
    """

    def __init__(self, root: Path, *, stock: bool = False) -> None:
        self.root, self.tables, self.stock = root, write_tables(root / "tables"), stock
        self.folder, self.processes = root / "deployment", dict[str, subprocess.Popen[bytes]]()
        self.faults()
        before = [str(HERE), os.environ.get("PYTHONPATH", "")]
        self.env = {**os.environ, "POLYFED_FAULTS": str(root / "faults.json"), "PYTHONPATH": os.pathsep.join(before)}

    def polyfed(self, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "polyfed", *map(str, arguments)], capture_output=True, text=True, timeout=LONG
        )
        assert not check or done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def start(self, name: str, *arguments: object) -> None:
        """A command that stays; what it says goes to <name>.log."""
        with (self.root / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-u", str(HERE / "faulty_node.py"), "deploy", *map(str, arguments)]
            self.processes[name] = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, env=self.env
            )

    def log(self, name: str) -> str:
        path = self.root / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def begin(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.polyfed(
            "deploy", "init", self.folder, "--host", "127.0.0.1", "--port", self.port, "--nodes", ",".join(NAMES)
        )
        for name in NAMES:
            self.open_limits(name)
        if self.stock:  # which runs the app that a run brings
            shipped = 'from faulty_app import app\n\n__all__ = ["app"]\n'
            (self.folder / "app" / "polyfed_app" / "client_app.py").write_text(shipped)
        self.server()
        server = self.folder / "server"
        self.network = BadNetwork(
            server / "server.crt", server / "server.key", self.folder / "ca" / "ca.crt", self.port
        )
        for name in NAMES:
            self.node(name)
        self.wait(lambda: all(self.arrivals(name) for name in NAMES), "the nodes to be online")

    def open_limits(self, name: str) -> None:
        """Of a small table, whose owner knows."""
        with (self.folder / "nodes" / name / "node.toml").open("a") as file:
            file.write("min_rows = 1\nmin_count = 1\n")

    def server(self) -> None:
        before = self.starts()
        self.start("server", "server", self.folder)
        self.wait(lambda: self.starts() > before, "the server to be ready")

    def starts(self) -> int:
        """How often the server became ready."""
        return self.log("server").count("Ready for")

    def certificate(self) -> str:
        """What the server presents to whoever connects."""
        return ssl.get_server_certificate(("127.0.0.1", self.port))

    def node(self, name: str, *, table: str | None = None) -> None:
        options = ["--data", self.tables / f"{table or name}.csv", *self.kind]
        if name == "thun":
            options += ["--superlink", f"127.0.0.1:{self.network.port}"]
        self.start(name, "node", self.folder / "nodes" / name, *options)

    @property
    def kind(self) -> list[str]:
        return ["--stock"] if self.stock else []

    def arrivals(self, name: str) -> int:
        """How often a node came online."""
        said = self.log(name)
        return said.count("Online as node") + said.count("SuperNode ID")

    def online(self) -> set[str]:
        status = json.loads(self.polyfed("deploy", "status", self.folder, "--json").stdout)
        return {node["name"] for node in status["nodes"] if node["state"] == "online"}

    def study(self, name: str, **run: object) -> Path:
        """A file with a study; `scheme` K keeps parameters on the clients, so that a lost state shows."""
        lines = ["[data]", "test = 0.25", *("[[data.tasks]]\n" + _toml(task) for task in TASKS)]
        lines += ["[method]", _toml({"name": "pfed-mul", "scheme": "K"})]
        lines += ["[run]", _toml({"evaluate_every": 0, **run})]
        (self.root / f"{name}.toml").write_text("\n".join(lines))
        return self.root / f"{name}.toml"

    def faults(self, **faults: str) -> None:
        """What happens to clients from now on: `bern_1="raise"` is in round 1; nothing if nothing is given."""
        places = {"/".join(reversed(key.rsplit("_", 1))): what for key, what in faults.items()}
        (self.root / "faults.json").write_text(json.dumps(places))

    def run(self, name: str, *, check: bool = True, **run: object) -> Path:
        """Run a study to its end; the folder of the run. How the command ended is in `ended`."""
        limits = [f"--{key}={run.pop(key)}" for key in ("timeout", "wait") if key in run]
        folder = self.root / f"run-{name}"
        self.ended = self.polyfed(
            "deploy", "run", self.folder, self.study(name, **run), "--folder", folder, *limits, check=check
        )
        return folder

    @contextmanager
    def running(self, name: str, **run: object):
        """A study that is under way, and its folder; in round 2 it waits for bern until `go_on`."""
        self.faults(bern_2="wait")
        folder = self.root / f"run-{name}"
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(self.run, name, **run)
            try:
                self.wait(lambda: rounds_of(folder) or ended.done(), "the first round")
                time.sleep(1.0)
                yield folder
            finally:
                self.faults()
            ended.result()

    def go_on(self) -> None:
        self.faults()

    def wait(self, done, what: str, pause: float = 0.3) -> None:
        end = time.monotonic() + LONG
        while not done():
            assert time.monotonic() < end, f"waited in vain for {what}"
            time.sleep(pause)

    def kill(self, name: str) -> None:
        """SIGKILL to a process and all that it started."""
        process = self.processes.pop(name)
        for pid in family(process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.wait()

    def end(self) -> None:
        if hasattr(self, "network"):
            self.network.close()
        families = [pid for process in self.processes.values() for pid in family(process.pid)]
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


@pytest.fixture(scope="session", params=["warm", "stock"])
def machines(request, tmp_path_factory):
    """One server for all tests with warm nodes, and one for the same tests with Flower's own (`-k warm`, `-k stock`)."""
    made = Machines(tmp_path_factory.mktemp("machines"), stock=request.param == "stock")
    try:
        made.begin()
        yield made
    finally:
        made.end()


@pytest.fixture(autouse=True)
def no_faults_left(machines):
    yield
    machines.faults()
    machines.network.good()
    (machines.tables / "zug.csv").unlink(missing_ok=True)  # of a node that one test adds


def _toml(values) -> str:
    return "\n".join(f"{key} = {json.dumps(value)}" for key, value in values.items())
