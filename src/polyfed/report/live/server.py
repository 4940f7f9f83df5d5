"""A small server for the live page: this machine only, and only for pages that come from it."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from polyfed.errors import DataError, UsageError
from polyfed.report.live.watcher import Watcher, snapshot
from polyfed.report.templates import render

ADDRESS = "127.0.0.1"
OWN_NAMES = (ADDRESS, "localhost")
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
BREATH = 0.2  # seconds between two looks at `stop_when`


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
            self._send_data(parse_qs(address.query).get("version", [""])[0])
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "There is / and /data.\n")

    def _send_data(self, version: str) -> None:
        try:
            found = self.server.data()
        except DataError as error:  # a damaged file is said on the page; it may be mended while one looks
            found = {"version": "", "trouble": str(error)}
        if version and version == found["version"]:
            found = {"version": version}
        self._send(HTTPStatus.OK, "application/json", json.dumps(found, allow_nan=False))

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
