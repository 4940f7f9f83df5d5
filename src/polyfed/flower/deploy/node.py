"""A node on the machine that has the data: what is checked before it starts, how it runs (warm, or as Flower's own SuperNode),
and what happens when it ends unexpectedly."""

from __future__ import annotations

import signal
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from polyfed.data import DEPLOYED
from polyfed.data.tables.files import load_table
from polyfed.errors import ConfigError, DataError, Interrupted, PolyfedError
from polyfed.flower.deploy.certificates import COPY_AUTHORITY, WRONG_AUTHORITY, check_private_key, read_certificate
from polyfed.flower.deploy.commands import Note, environment, node_config, program, shown
from polyfed.flower.deploy.layout import NodeFolder, check_code, split_address
from polyfed.flower.deploy.processes import Program, Signals
from polyfed.flower.deploy.restarts import RestartPolicy
from polyfed.folders.lock import owned

TOUCH = 10.0  # seconds between two signs of life of Flower's own SuperNode in the node's folder
# Why a node ended by itself, and how long to wait until it is started again.
End = tuple[str, Callable[["RestartPolicy"], float]]
NODE_LOCK = ".node.lock"  # two processes with one key would each take the other's messages


def prepare(
    folder: NodeFolder,
    data: Path | None,
    client: str | None,
    state: Path | None,
    superlink: str | None,
    allow_code: Sequence[str] = (),
) -> NodeFolder:
    """The folder with what was given on the command line, once all is checked that can be before anything is started."""
    table = data if data is not None else folder.data
    if table is None:
        raise DataError("there is no table", where=folder.root, remedy="give --data FILE, or data in node.toml")
    node = replace(
        folder,
        data=table.absolute(),
        client=client or folder.client,
        state=(state or folder.state).absolute(),
        superlink=superlink or folder.superlink,
        allow_code=(*folder.allow_code, *(check_code(name, "--allow-code") for name in allow_code)),
    )
    load_table(table)
    read_certificate(node.authority, remedy=COPY_AUTHORITY)
    check_private_key(node.key)
    split_address(node.superlink)
    try:
        for made in (node.state, node.flower_home):
            made.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        what = f"cannot be made: {error.strerror}"
        raise ConfigError(what, where=error.filename, remedy="give --state DIR") from None
    return node


def supervise(node: NodeFolder, note: Note, *, retry: bool = True, stock: bool = False) -> None:
    alive = max(0.0, time.time() - node.alive.stat().st_mtime) if node.alive.exists() else None
    policy = RestartPolicy(alive)
    note(_owners_choice(node))
    with owned(node.root, NODE_LOCK), Signals() as signals:
        while signals.received is None:
            note(_look_at_server(node))
            what, wait_by = (_run_stock if stock else _run_warm)(node, note, signals)
            if signals.received is not None:
                break
            wait = wait_by(policy)
            if not retry:
                raise PolyfedError(f"the node ended by itself: {what}", remedy="its log above says more")
            note(f"The node ended by itself ({what}); it is started again in {wait:.0f} s")
            signals.sleep(wait)
    note("The node has left")
    if signals.received == signal.SIGINT:
        raise Interrupted("interrupted")


def supernode_command(node: NodeFolder, port: int) -> list[str]:
    """What Flower is started with; the port is for the node's own processes on this machine."""
    return [
        program("flower-supernode"),
        *("--superlink", node.superlink),
        *("--root-certificates", str(node.authority)),
        *("--auth-supernode-private-key", str(node.key)),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--node-config", node_config(node.config())),
    ]


def _run_stock(node: NodeFolder, note: Note, signals: Signals) -> End:
    """Flower's own SuperNode, which starts a process for each message: `polyfed deploy node --stock`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        command = supernode_command(node, probe.getsockname()[1])
    note(shown(command, node.flower_home))
    link, began = Program(command, environment(node.flower_home), node.root, note), time.monotonic()
    connected, touched = False, 0.0
    try:
        while (code := link.code) is None and not signals.sleep(0.5):
            connected = connected or any("SuperNode ID" in line for line in list(link.said))
            if connected and time.monotonic() - touched > TOUCH:
                node.alive.touch()
                touched = time.monotonic()
    finally:
        link.stop()
    code = link.code if code is None else code
    if code == 0:  # it said goodbye, so it may come back at once
        node.alive.unlink(missing_ok=True)
    said = "\n".join([*link.said, "SuperNode ID"] if connected else link.said)  # the line may have gone by
    code, seconds = code or 0, time.monotonic() - began
    return f"code {code} after {seconds:.0f} s", lambda policy: policy.after(said, code=code, seconds=seconds)


def _run_warm(node: NodeFolder, note: Note, signals: Signals) -> End:
    """A node in this process, with its work in another that is kept."""
    from polyfed.flower.internals import FleetRequests, reject_other_versions
    from polyfed.flower.warm import Forgotten, Rejected, WarmNode
    from polyfed.flower.worker import Worker

    reject_other_versions()
    requests, began = FleetRequests(node.superlink, node.authority, node.key), time.monotonic()
    try:
        warm = WarmNode(requests, node.alive, signals, note)
        warm.run(lambda number: Worker(number, node.config(), node.flower_home, note))
        return "", lambda policy: 0.0
    except Rejected:
        return "the server does not take its key", RestartPolicy.after_rejection
    except Forgotten:
        what, seconds = "the server does not know it any more", time.monotonic() - began
        return what, lambda policy: policy.after_end(connected=False, code=1, seconds=seconds)
    finally:
        requests.close()


def _owners_choice(node: NodeFolder) -> str:
    """What leaves this node, and what may run on it, in a line."""
    line = f"Nothing leaves of a task with fewer than {node.limits.min_rows} training labels here"
    line += f", and no text or class that fewer than {node.limits.min_count} rows have"
    if node.limits.at_least(DEPLOYED) != node.limits:
        line += f" (lowered in node.toml; {DEPLOYED.min_rows} and {DEPLOYED.min_count} are usual)"
    return line + (f"; code that studies may run: {', '.join(node.allow_code)}" if node.allow_code else "")


def _look_at_server(node: NodeFolder) -> str:
    """A first handshake: Flower retries for ever, and does not report why."""
    host, port = split_address(node.superlink)
    trust = ssl.create_default_context(cafile=str(node.authority))
    try:
        with socket.create_connection((host, port), timeout=5) as plain, trust.wrap_socket(plain, server_hostname=host):
            return f"The server answers at {node.superlink}, with a certificate that is trusted here"
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
        return f"The server does not answer at {node.superlink} ({reason}); the node goes on trying"
