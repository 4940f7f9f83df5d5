"""A node on the machine that has the data: what is checked before it starts, and what happens when it ends unexpectedly."""

from __future__ import annotations

import signal
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from polyfed.data import DEPLOYED
from polyfed.data.tables.files import load_table
from polyfed.errors import ConfigError, DataError, Interrupted, PolyfedError
from polyfed.flower.deploy.certificates import read_certificate
from polyfed.flower.deploy.commands import Note
from polyfed.flower.deploy.keys import check_private_key
from polyfed.flower.deploy.layout import NodeFolder, NodeWork, check_code, split_address
from polyfed.flower.deploy.processes import Signals
from polyfed.flower.deploy.restarts import COPY_AUTHORITY, WRONG_AUTHORITY, RestartPolicy
from polyfed.flower.deploy.stock import run_supernode
from polyfed.flower.deploy.worker import Worker
from polyfed.folders.lock import owned

NODE_LOCK = ".node.lock"  # two processes with one key would each take the other's messages


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
        raise DataError("there is no table", where=folder.root, remedy="give --data FILE, or data in node.toml")
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
        what = f"cannot be made: {error.strerror}"
        raise ConfigError(what, where=error.filename, remedy="give --state DIR") from None
    return work


def supervise(folder: NodeFolder, work: NodeWork, note: Note, *, retry: bool = True, stock: bool = False) -> None:
    """Run the node in the foreground until a signal comes; an error if it cannot go on."""
    policy = RestartPolicy(_seconds_since(folder.alive))
    note(_owners_choice(work))
    with owned(folder.root, NODE_LOCK), Signals() as signals:
        while signals.received is None:
            note(_look_at_server(folder, work.superlink))
            end = _run_stock(folder, work, note, signals) if stock else _run_warm(folder, work, note, signals)
            if signals.received is not None:
                break
            wait = end.wait(policy)
            if not retry:
                raise PolyfedError(f"the node ended by itself: {end.what}", remedy="its log above says more")
            note(f"The node ended by itself ({end.what}); it is started again in {wait:.0f} s")
            signals.sleep(wait)
    note("The node has left")
    if signals.received == signal.SIGINT:
        raise Interrupted("interrupted")


class End(NamedTuple):
    """Why a node ended by itself, and how long to wait until it is started again."""

    what: str
    wait: Callable[[RestartPolicy], float]


def _run_stock(folder: NodeFolder, work: NodeWork, note: Note, signals: Signals) -> End:
    """Flower's own SuperNode, which starts a process for each message."""
    code, said, seconds = run_supernode(folder, work, note, signals)
    return End(f"code {code} after {seconds:.0f} s", lambda policy: policy.after(said, code=code, seconds=seconds))


def _run_warm(folder: NodeFolder, work: NodeWork, note: Note, signals: Signals) -> End:
    """A node in this process, with its work in another that is kept."""
    from polyfed.flower.internals import FleetRequests, reject_other_versions
    from polyfed.flower.warm import Forgotten, Rejected, WarmNode

    reject_other_versions()
    requests, began = FleetRequests(work.superlink, folder.authority, folder.key), time.monotonic()
    node = WarmNode(requests, folder.alive, signals, note)
    try:
        node.run(lambda number: Worker(number, work.config(), folder.flower_home, note))
        return End("", lambda policy: 0.0)
    except Rejected:
        return End("the server does not take its key", RestartPolicy.after_rejection)
    except Forgotten:
        what, seconds = "the server does not know it any more", time.monotonic() - began
        return End(what, lambda policy: policy.after_end(connected=False, code=1, seconds=seconds))
    finally:
        requests.close()


def _owners_choice(work: NodeWork) -> str:
    """What leaves this node, and what may run on it, in a line."""
    line = f"Nothing leaves of a task with fewer than {work.limits.min_rows} training labels here"
    line += f", and no text or class that fewer than {work.limits.min_count} rows have"
    if work.limits.at_least(DEPLOYED) != work.limits:
        line += f" (lowered in node.toml; {DEPLOYED.min_rows} and {DEPLOYED.min_count} are usual)"
    return line + (f"; code that studies may run: {', '.join(work.allow_code)}" if work.allow_code else "")


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
            what = "the certificate of the server has expired"
            raise PolyfedError(what, remedy="polyfed deploy renew there") from None
        raise PolyfedError(WRONG_AUTHORITY, remedy=COPY_AUTHORITY) from None
    except OSError as error:
        reason = error.strerror or str(error)
        return f"The server does not answer at {superlink} ({reason}); the node goes on trying"


def _seconds_since(path: Path) -> float | None:
    try:
        return max(0.0, time.time() - path.stat().st_mtime)
    except OSError:
        return None
