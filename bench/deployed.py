"""A deployment on this machine for measurements: the commands that users give, as processes, and what they cost."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

TICKS = os.sysconf("SC_CLK_TCK")


class Deployed:
    """A server and nodes on 127.0.0.1, with TLS and node keys; all end with the `with`.

    The server may be at another `host` of this machine; what stands in `inside` starts a node where it shall be. With `forks`
    nodes are forks of this process (`deploy_forks`).
    """

    def __init__(
        self,
        root: Path,
        tables: Mapping[str, Path],
        options: Sequence[str] = (),
        *,
        host: str = "127.0.0.1",
        inside: Sequence[str] = (),
        forks: bool = False,
    ) -> None:
        self.root, self.tables, self.options, self.inside = root, dict(tables), list(options), list(inside)
        self.folder, self.processes = root / "deployment", dict[str, subprocess.Popen[bytes]]()
        self.forks, self.forked = forks, dict[str, int]()
        root.mkdir(parents=True)
        with socket.socket() as probe:
            probe.bind((host, 0))
            port = str(probe.getsockname()[1])
        arguments = ["--host", host, "--bind", host, "--port", port, "--nodes", ",".join(tables)]
        self.polyfed("init", self.folder, *arguments)

    def __enter__(self) -> Deployed:
        try:
            self.start("server", "server", self.folder)
            self.wait(lambda: "Ready for" in self.log("server"))
            for name in self.tables:
                self.node(name)
            self.wait(lambda: all(self.is_online(name) for name in self.tables))
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    def polyfed(self, *arguments: object) -> str:
        """A command of `polyfed deploy` that ends; what it prints."""
        command = [sys.executable, "-m", "polyfed", "deploy", *map(str, arguments)]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout

    def start(self, name: str, *arguments: object, inside: Sequence[str] = ()) -> None:
        with (self.root / f"{name}.log").open("ab") as log:
            command = [*inside, sys.executable, "-u", "-m", "polyfed", "deploy", *map(str, arguments)]
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def node(self, name: str) -> None:
        if self.forks:
            from .deploy_forks import fork_node

            self.forked[name] = fork_node(self.folder / "nodes" / name, self.tables[name], self.root / f"{name}.log")
            return
        options = ["--data", self.tables[name], *self.options]
        self.start(name, "node", self.folder / "nodes" / name, *options, inside=self.inside)

    def log(self, name: str) -> str:
        path = self.root / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def is_online(self, name: str) -> bool:
        return "Online as node" in self.log(name) or "SuperNode ID" in self.log(name)

    def wait(self, done, seconds: float = 900.0) -> None:
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                raise TimeoutError(f"waited {seconds:.0f} s; the logs are in {self.root}")
            time.sleep(0.2)

    def kill(self, name: str) -> None:
        """SIGKILL, with all that it started."""
        if name in self.forked:
            pid = self.forked.pop(name)
            _signal(pid)
            os.waitpid(pid, 0)
            return
        process = self.processes.pop(name)
        for pid in family(process.pid):
            _signal(pid)
        process.wait()

    def end(self) -> None:
        for name in list(self.forked):
            self.kill(name)
        families = [pid for process in self.processes.values() for pid in family(process.pid)]
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
        for pid in families:
            _signal(pid)

    def costs(self, name: str) -> Cost:
        """Of a command and all that it started, until now."""
        return Cost.of(family(self.forked[name] if name in self.forked else self.processes[name].pid))


class Cost:
    """Processor seconds, megabytes and open files of some processes."""

    def __init__(self, seconds: float, megabytes: float, files: int) -> None:
        self.seconds, self.megabytes, self.files = seconds, megabytes, files

    @classmethod
    def of(cls, pids: Sequence[int]) -> Cost:
        seconds = megabytes = 0.0
        files = 0
        for pid in pids:
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                # Its own, and those of children that it has waited for.
                seconds += sum(map(int, fields[11:15])) / TICKS
                megabytes += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6
                files += sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
            except OSError:
                continue
        return cls(seconds, megabytes, files)


def open_files(pids: Sequence[int]) -> dict[str, int]:
    """How many files of each kind some processes have open: those of a database, sockets, pipes, others."""
    found = Counter[str]()
    for pid in pids:
        with suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):  # closed meanwhile
                    target = str(entry.readlink())
                    kind = target.partition(":")[0] if target.startswith(("socket:", "pipe:")) else "other"
                    found["database" if ".db" in Path(target).suffix else kind] += 1
    return dict(sorted(found.items()))


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for member in found:
        found += children.get(member, [])
    return found


def rounds_of(folder: Path) -> list[dict]:
    """The rounds that a run has had."""
    path = folder / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [event for event in map(json.loads, lines) if event["event"] == "round"]


def seconds_of(folder: Path) -> list[float]:
    """How long each of them took."""
    lines = map(json.loads, (folder / "timing.jsonl").read_text().splitlines())
    return [line["seconds"] for line in lines if "seconds" in line]


def _signal(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
