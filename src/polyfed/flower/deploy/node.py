"""A node: Flower's SuperNode on the machine that has the data, started again when it ends unexpectedly."""

from __future__ import annotations

import signal
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from polyfed.data import DEPLOYED, Limits
from polyfed.data.table_files import load_table
from polyfed.errors import ConfigError, DataError, Interrupted, PolyfedError
from polyfed.flower.deploy.backoff import COPY_AUTHORITY, WRONG_AUTHORITY, Backoff
from polyfed.flower.deploy.certificates import read_certificate
from polyfed.flower.deploy.commands import Note, environment, node_config, program, shown
from polyfed.flower.deploy.keys import check_private_key
from polyfed.flower.deploy.layout import NodeFolder, check_code, split_address
from polyfed.flower.deploy.processes import Program, Signals

TOUCH = 10.0  # seconds between two signs of life in the node's folder


@dataclass(frozen=True)
class NodeWork:
    """What a node brings: its table, its client's name, where the state is that only it knows, what its owner allows."""

    data: Path
    client: str
    state: Path
    superlink: str
    limits: Limits = DEPLOYED
    allow_code: tuple[str, ...] = ()


def prepare(
    folder: NodeFolder,
    data: Path | None,
    client: str | None,
    state: Path | None,
    superlink: str | None,
    allow_code: Sequence[str] = (),
) -> NodeWork:
    """Check all that can be checked before anything is started."""
    given = data if data is not None else folder.data and folder.root / folder.data
    if not given:
        raise DataError("there is no table", where=str(folder.root), remedy="give --data FILE, or data in node.toml")
    table = given.absolute()
    load_table(table)
    read_certificate(folder.authority, remedy=COPY_AUTHORITY)
    check_private_key(folder.key)
    to = superlink or folder.superlink
    split_address(to)
    allowed = (*folder.allow_code, *(check_code(name, "--allow-code") for name in allow_code))
    own_state = (state or folder.state).absolute()
    work = NodeWork(table, client or folder.client or folder.name, own_state, to, folder.limits, allowed)
    try:
        for made in (work.state, folder.flower_home):
            made.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(
            f"cannot be made: {error.strerror}", where=str(error.filename), remedy="give --state DIR"
        ) from None
    return work


def supernode_command(folder: NodeFolder, work: NodeWork, port: int) -> list[str]:
    """What Flower is started with; the port is for the node's own processes on this machine."""
    told: dict[str, str | int | float] = {"data": str(work.data), "client": work.client, "state": str(work.state)}
    told |= {"min-rows": work.limits.min_rows, "min-count": work.limits.min_count}
    if work.allow_code:
        told["allow-code"] = ",".join(work.allow_code)
    return [
        program("flower-supernode"),
        *("--superlink", work.superlink),
        *("--root-certificates", str(folder.authority)),
        *("--auth-supernode-private-key", str(folder.key)),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--node-config", node_config(told)),
    ]


def supervise(folder: NodeFolder, work: NodeWork, note: Note, *, retry: bool = True) -> None:
    """Run the node in the foreground until a signal comes; an error if it cannot go on."""
    backoff = Backoff(_seconds_since(folder.alive))
    note(_owners_choice(work))
    with Signals() as signals:
        while signals.received is None:
            note(_look_at_server(folder, work.superlink))
            code, said, seconds = _run_once(folder, work, note, signals)
            if signals.received is not None:
                break
            wait = backoff.after(said, code=code, seconds=seconds)
            if not retry:
                raise PolyfedError(f"the node ended by itself with code {code}", remedy="its log above says more")
            note(
                f"The node ended by itself with code {code} after {seconds:.0f} s; it is started again in {wait:.0f} s"
            )
            signals.sleep(wait)
    note("The node has left")
    if signals.received == signal.SIGINT:
        raise Interrupted("interrupted")


def _owners_choice(work: NodeWork) -> str:
    """What leaves this node, and what may run on it, in a line."""
    told = f"Nothing leaves of a task with fewer than {work.limits.min_rows} training labels here"
    told += f", and no text or class that fewer than {work.limits.min_count} rows have"
    if work.limits.at_least(DEPLOYED) != work.limits:
        told += f" (lowered in node.toml; {DEPLOYED.min_rows} and {DEPLOYED.min_count} are usual)"
    return told + (f"; code that studies may run: {', '.join(work.allow_code)}" if work.allow_code else "")


def _run_once(folder: NodeFolder, work: NodeWork, note: Note, signals: Signals) -> tuple[int, str, float]:
    command = supernode_command(folder, work, _free_port())
    note(shown(command, folder.flower_home))
    node = Program(command, environment(folder.flower_home), folder.root, note)
    connected, touched = False, 0.0
    try:
        while (code := node.code) is None and not signals.sleep(0.5):
            connected = connected or any("SuperNode ID" in line for line in list(node.said))
            if connected and time.monotonic() - touched > TOUCH:
                folder.alive.touch()
                touched = time.monotonic()
    finally:
        node.stop()
    code = node.code if code is None else code
    if code == 0:  # it said goodbye, so it may come back at once
        folder.alive.unlink(missing_ok=True)
    said = node.text() + ("\nSuperNode ID" if connected else "")  # the line may have gone by
    return code or 0, said, node.seconds


def _look_at_server(folder: NodeFolder, superlink: str) -> str:
    """A first handshake: Flower tries for ever, and does not say why."""
    host, port = split_address(superlink)
    trust = ssl.create_default_context(cafile=str(folder.authority))
    try:
        with socket.create_connection((host, port), timeout=5) as plain, trust.wrap_socket(plain, server_hostname=host):
            return f"The server answers at {superlink}, with a certificate that is trusted here"
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in (62, 64):  # of OpenSSL: a name, an address that the certificate does not have
            what = f"the certificate of the server is not for {host!r}"
            raise PolyfedError(what, remedy="use the name that was given to polyfed deploy init") from None
        if error.verify_code == 10:
            raise PolyfedError(
                "the certificate of the server has expired", remedy="polyfed deploy renew there"
            ) from None
        raise PolyfedError(WRONG_AUTHORITY, remedy=COPY_AUTHORITY) from None
    except OSError as error:
        reason = error.strerror or str(error)
        return f"The server does not answer at {superlink} ({reason}); the node goes on trying"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _seconds_since(path: Path) -> float | None:
    try:
        return max(0.0, time.time() - path.stat().st_mtime)
    except OSError:
        return None
