"""A way to the server that is not a good one: requests come late, are cut off, or arrive twice.

Of some kinds of requests each may come a second time, when the next of its kind is through: an old update in a new round.
It ends TLS with the server's own certificate and passes each request on; who owns that key can do so, and nobody else.
"""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from copy import copy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class BadNetwork:
    """Listens at `port` and passes requests to the server at another. As it is made, it does no harm."""

    def __init__(self, certificate: Path, key: Path, authority: Path, to: int) -> None:
        self.delay = 0.0  # seconds, before each request
        self.cut_every = 0  # each n-th request has no answer: by turns it does not arrive, or its answer does not
        self.repeat: tuple[str, ...] = ()  # of requests whose path ends so, each comes again after the next of its kind
        self.n_requests = self.n_cut = self.n_repeated = 0
        self._to, self._trust = to, ssl.create_default_context(cafile=str(authority))
        self._lock = threading.Lock()
        self._before: dict[str, tuple[BaseHTTPRequestHandler, bytes]] = {}
        network = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                network._pass_on(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def good(self) -> None:
        self.delay, self.cut_every, self.repeat = 0.0, 0, ()

    def _pass_on(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("content-length", 0)))
        with self._lock:
            self.n_requests += 1
            cut = bool(self.cut_every) and self.n_requests % self.cut_every == 0
            self.n_cut += cut
        time.sleep(self.delay)
        if cut and self.n_cut % 2:
            request.close_connection = True
            return
        try:
            status, headers, answer = self._asked(request, body)
            if request.path.endswith(self.repeat):
                self._repeat(request, body)
        except OSError:
            cut = True
        if cut:
            request.close_connection = True
            return
        request.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                request.send_header(name, value)
        request.send_header("content-length", str(len(answer)))
        request.end_headers()
        request.wfile.write(answer)

    def _repeat(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        """Send again what came before this, with its own headers and signature."""
        with self._lock:
            before = self._before.get(request.path)
            self._before[request.path] = (copy(request), body)
        if before is not None:
            self.n_repeated += 1
            self._asked(*before)

    def _asked(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPSConnection("127.0.0.1", self._to, timeout=30, context=self._trust)
        try:
            connection.request("POST", request.path, body, dict(request.headers))
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()
