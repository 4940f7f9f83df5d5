"""The page that follows a run while it goes on: what is known of the run at this moment (where it is, whether it still moves,
when it will end), and a small server, for this machine only, and only for pages that come from it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from statistics import fmean
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from polyfed.counting import in_bytes
from polyfed.errors import DataError, UsageError
from polyfed.folders.lines import EVENTS_FILE, TIMING_FILE, Event, parse_events, parse_timing
from polyfed.report.charts import scores
from polyfed.report.details import MOST_REJECTIONS, duration
from polyfed.report.folders import History, durations, read_summary
from polyfed.report.templates import figures_of, render

QUIET = 30.0  # seconds without an event after which a run counts as stopped ...
PATIENCE = 5  # ... or this many of its own rounds, if these take longer
RECENT = 20  # rounds by which the time that is left is judged
SENTENCES = {
    "waiting": "The run has not begun.",
    "running": "The run goes on.",
    "stopped": "Nothing has happened for a while: the run was stopped, or is stuck.",
    "finished": "The run is finished.",
}
ADDRESS = "127.0.0.1"
OWN_NAMES = (ADDRESS, "localhost")
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
BREATH = 0.2  # seconds between two looks at `stop_when`


@dataclass(frozen=True)
class Look:
    state: str  # "waiting", "running", "stopped" or "finished"
    method: str
    seed: int | None
    n_rounds: int  # wanted in all
    history: History
    seconds_left: float | None  # None if nothing is known of it
    warnings: list[str]


class Tail:
    """A file of JSON lines that someone else writes, read on from where one was.

    A run that is resumed cuts its events back to its last checkpoint and may write as much again before the next look, so
    the size alone does not show it; what was read last must still stand where it stood.
    """

    def __init__(self, path: Path, parse: Callable[[bytes, Path, int], Iterator[Event]]) -> None:
        self.path, self._parse = path, parse
        self._fresh = False  # what came before is to be forgotten, which nobody has heard of yet
        self._begin()

    def _begin(self) -> None:
        self.offset, self.n_lines, self.last_line = 0, 0, b""

    def read(self) -> tuple[bool, list[Event]]:
        """Whether to forget what came before, and the whole lines that are new."""
        try:
            fresh, content = self._content()
        except FileNotFoundError:
            fresh, content = self.offset > 0, b""
            self._begin()
        except OSError as error:
            raise DataError(f"cannot be read ({error.strerror})", where=self.path, remedy="restore it") from error
        self._fresh |= fresh  # a line that cannot be read must not make it forgotten
        content = content[: content.rfind(b"\n") + 1]  # the rest is still being written
        lines = list(self._parse(content, self.path, self.n_lines + 1))
        if content:
            self.offset += len(content)
            self.n_lines += content.count(b"\n")
            self.last_line = content[content.rfind(b"\n", 0, -1) + 1 :]
        fresh, self._fresh = self._fresh, False
        return fresh, lines

    def _content(self) -> tuple[bool, bytes]:
        if self.path.exists() and not self.path.is_file():
            raise DataError("is not a file", where=self.path, remedy="restore it")
        with self.path.open("rb") as file:
            file.seek(self.offset - len(self.last_line))
            fresh = file.read(len(self.last_line)) != self.last_line
            if fresh:
                self._begin()
            file.seek(self.offset)
            return fresh, file.read()


class Watcher:
    """Reads on in a run folder at each look; the folder need not be there yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._events, self._timing = Tail(folder / EVENTS_FILE, parse_events), Tail(folder / TIMING_FILE, parse_timing)
        self._history, self._times = History(), list[Event]()

    def look(self) -> Look:
        described = read_summary(self.folder)
        fresh, events = self._events.read()
        if fresh:
            self._history = History()
        for event in events:
            self._history.add(event)
        fresh, times = self._timing.read()
        self._times = times if fresh else self._times + times
        warnings = [entry["warning"] for entry in self._times if "warning" in entry]
        if described is None:
            return Look("waiting", "", None, 0, self._history, None, warnings)
        n_rounds, seed = described["settings"]["rounds"], described["settings"]["seed"]
        recent = durations(self._times)[-RECENT:]
        state = "finished"
        if self._history.round < n_rounds:
            files = (self.folder / name for name in (EVENTS_FILE, TIMING_FILE, "run.json"))
            silence = time.time() - max((file.stat().st_mtime for file in files if file.is_file()), default=0.0)
            state = "stopped" if silence > max(QUIET, PATIENCE * max(recent, default=0.0)) else "running"
        left = fmean(recent) * (n_rounds - self._history.round) if recent and state == "running" else None
        return Look(state, described["method"], seed, n_rounds, self._history, left, warnings)


def snapshot(look: Look) -> dict[str, Any]:
    """One look as JSON: pieces of the page, and figures for its charts; a page that has this version gets nothing more."""
    history = look.history
    extra = (scores.trained("live", history), scores.traffic("live", history))
    shown = [*scores.evaluated("live", history), *(chart for chart in extra if chart)]
    last, n = history.rejections[-MOST_REJECTIONS:], len(history.rejections)
    content = {
        "state": look.state,
        "sentence": SENTENCES[look.state],
        "title": f"{look.method}, seed {look.seed}" if look.method else "A run that has not begun",
        "round": history.round,
        "rounds": look.n_rounds,
        "facts": render("live_facts.html", facts=_facts(look)),
        "charts": render("live_charts.html", charts=shown),
        "rejections": render("live_rejections.html", rejections=last, n_rejections=n, warnings=look.warnings),
        "figures": figures_of(shown),
    }
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return {"version": digest[:16], **content}


def _facts(look: Look) -> dict[str, str]:
    history = look.history
    if look.state == "waiting":
        return {"Round": "–"}
    facts = {"Round": f"{history.round} of {look.n_rounds}"}
    if look.state == "running":
        facts["Time left"] = "–" if look.seconds_left is None else f"≈ {duration(look.seconds_left)}"
    facts["Clients"] = f"{len(history.clients):,}"
    if history.rounds:
        last = history.rounds[-1]
        n_used = last.n_sampled - last.n_rejected if last.used else 0
        facts["Used in last round"] = f"{n_used:,} of {last.n_sampled:,}"
    facts["Rejected so far"] = f"{len(history.rejections):,}"
    facts["Sent down"] = in_bytes(sum(round.bytes_down for round in history.rounds), "bytes")
    facts["Sent up"] = in_bytes(sum(round.bytes_up for round in history.rounds), "bytes")
    return facts


def serve(
    folder: Path,
    port: int = 8765,
    *,
    on_ready: Callable[[str], None] | None = None,
    stop_when: Callable[[], bool] | None = None,
) -> None:
    """Show the run in a folder as it goes on, until Ctrl-C. The run may be finished, or not have begun.

    Port 0 takes any that is free; `on_ready` is called with the address of the page, and `stop_when` is asked several times
    a second whether to end.
    """
    if not 0 <= port <= 65535:
        raise UsageError(f"port {port} does not exist", remedy="choose one from 1024 to 65535 with --port")
    try:
        server = _Server(Path(folder), port)
    except OSError as error:
        what = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be opened ({error.strerror})"
        raise UsageError(f"port {port} {what}", remedy="choose another one with --port") from error
    with server:
        if on_ready:
            on_ready(f"http://{ADDRESS}:{server.server_port}/")
        try:
            while not (stop_when and stop_when()):
                server.handle_request()
        except KeyboardInterrupt:
            return


class _Server(ThreadingHTTPServer):
    # Elsewhere than on POSIX, "reuse" would let two servers share one port in silence.
    allow_reuse_address = os.name == "posix"
    allow_reuse_port = False
    daemon_threads = True
    timeout = BREATH

    def __init__(self, folder: Path, port: int) -> None:
        self.watcher, self.lock = Watcher(folder), Lock()
        super().__init__((ADDRESS, port), _Handler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer would ask the name service who 127.0.0.1 is, which may take seconds
        self.server_name, self.server_port = ADDRESS, self.socket.getsockname()[1]

    def data(self) -> dict[str, Any]:
        """What is known now; one reader at a time, for the watcher remembers where it is."""
        with self.lock:
            return snapshot(self.watcher.look())


class _Handler(BaseHTTPRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]
    server_version = "polyfed"
    sys_version = ""

    def do_GET(self) -> None:
        host = self.headers.get("Host", "")
        if (host.rpartition(":")[0] if ":" in host else host) not in OWN_NAMES:
            # A foreign page whose name leads here (DNS rebinding) must not read the run.
            self._send(HTTPStatus.FORBIDDEN, "text/plain", f"Use http://{ADDRESS}:{self.server.server_port}/\n")
            return
        address = urlsplit(self.path)
        if address.path == "/":
            self._send(HTTPStatus.OK, "text/html", render("live.html"))
        elif address.path == "/data":
            version = parse_qs(address.query).get("version", [""])[0]
            try:
                found = self.server.data()
            except DataError as error:  # a damaged file is said on the page; it may be mended while one looks
                found = {"version": "", "trouble": str(error)}
            if version and version == found["version"]:
                found = {"version": version}
            self._send(HTTPStatus.OK, "application/json", json.dumps(found, allow_nan=False))
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "There is / and /data.\n")

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        try:
            self.wfile.write(content)
        except ConnectionError:
            return  # the page was closed meanwhile

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a line for every second is of no use to anyone."""
