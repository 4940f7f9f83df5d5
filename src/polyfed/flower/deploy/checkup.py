"""Is a machine of a deployment as it must be? Certificates, clocks, ports, versions, room on the disk: one line each."""

from __future__ import annotations

import json
import platform
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from polyfed import __version__
from polyfed.data.tables.files import load_table
from polyfed.errors import PolyfedError
from polyfed.flower.deploy.certificates import check_private_key, check_server_certificate, read_certificate
from polyfed.flower.deploy.layout import Deployment, NodeFolder
from polyfed.flower.deploy.server import SOON, answers, get, node_numbers, reject_port_in_use, versions_of

# Seconds that a node's clock may differ from the server's: Flower rejects its signature else.
AHEAD, BEHIND = 5.0, 300.0
ROOM = 1e9  # bytes
LONGEST = 5_000_000  # bytes of an answer that is read


class Check(NamedTuple):
    """What was looked at, whether it is well, and the figure or the remedy."""

    name: str
    ok: bool
    detail: str


def check_server(deployment: Deployment) -> Iterator[Check]:
    yield from _versions()
    renew = f"polyfed deploy renew {deployment.root}"
    yield _tried("certificate", lambda: _days(check_server_certificate(deployment, renew=renew), renew))
    yield _tried("authority", lambda: _days_of(deployment.authority, "polyfed deploy init, for all machines anew"))
    yield _private(deployment.key)
    secret = deployment.authority_key
    detail = f"{secret} is needed for renew alone: put it away" if secret.exists() else "is not here, as it should be"
    yield Check("key of the authority", True, detail)
    up = answers(deployment)
    free = f"{deployment.port} of {deployment.bind} is free; the server does not run"
    seen = f"the server answers at {deployment.address}" if up else free
    yield _tried("port", lambda: None if up else reject_port_in_use(deployment.bind, deployment.port), seen)
    numbers = node_numbers(deployment)
    absent = [name for name in deployment.nodes if name not in numbers]
    registered = f"not registered yet: {', '.join(absent)}" if absent else "all registered"
    yield Check("nodes", not (up and absent), f"{len(deployment.nodes)} nodes, {registered}")
    yield _versions_of_nodes(deployment, numbers)
    yield _room(deployment.root)


def check_node(folder: NodeFolder) -> Iterator[Check]:
    yield from _versions()
    yield _tried("authority", lambda: _days_of(folder.authority, "copy ca/ca.crt of the server"))
    yield _tried("key", lambda: check_private_key(folder.key), "can be read")
    yield _private(folder.key)
    given_later = "is given when the node is started, by --data"
    table = folder.data
    yield _tried("table", lambda: f"{table} has {len(load_table(table).frame)} rows" if table else given_later)
    yield from _server_of(folder)
    yield _room(folder.root)


def _versions() -> Iterator[Check]:
    yield Check("python", True, platform.python_version())
    yield Check("polyfed", True, f"{__version__}; the same on all machines")
    for name in ("flwr", "torch"):
        found = _installed(name)
        yield Check(name, bool(found), found or "is not installed; pip install 'polyfed[flower]'")
    from polyfed.flower.internals import SUPPORTED, reject_other_versions

    yield _tried("warm nodes", reject_other_versions, f"speak Flower {SUPPORTED}, as it is installed")


def _versions_of_nodes(deployment: Deployment, numbers: Mapping[str, str]) -> Check:
    """Those that nodes reported to the last study, beside those of this machine."""
    here, known, odd = {"polyfed": __version__, "flwr": _release(_installed("flwr"))}, versions_of(deployment), []
    reported = {name: known[number] for name, number in numbers.items() if known.get(number)}
    for name, found in reported.items():
        theirs = {**found, "flwr": _release(found.get("flwr", ""))}
        odd += [f"{name} has {what} {found.get(what, '?')}" for what in here if theirs.get(what) != here[what]]
    detail = f"as here: {', '.join(reported)}" if reported else "no node has reported any yet"
    return _judged("versions of nodes", not odd, ", ".join(odd) or detail, "install the same on all machines")


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _release(text: str) -> str:
    """Flower's nodes and servers understand each other if these two numbers are the same."""
    return ".".join(text.split(".")[:2])


def _server_of(folder: NodeFolder) -> Iterator[Check]:
    """Whether the server can be reached and trusted from here, and has the same time."""
    try:
        with get(folder.superlink, "health", folder.authority) as answer:
            date = answer.headers.get("date")
    except (OSError, ValueError) as error:
        yield Check("server", False, f"{folder.superlink} does not answer, or is not trusted ({_line(error)})")
        return
    yield Check("server", True, f"{folder.superlink} answers, with a certificate that is trusted here")
    try:
        with get(folder.superlink, "openapi.json", folder.authority) as answer:
            found = str(json.loads(answer.read(LONGEST))["info"]["version"])[:40]
    except (OSError, ValueError, KeyError, TypeError):
        yield Check("flwr of the server", True, "the server does not report it")
    else:
        fine = _release(found) == _release(_installed("flwr"))
        yield _judged("flwr of the server", fine, ascii(found)[1:-1], "install the same on both machines")
    if date is None:
        yield Check("clock", True, "the server does not report its time")
        return
    ahead = (datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds()
    fine = -BEHIND < ahead - 1.0 < AHEAD  # it reports whole seconds
    detail = f"{abs(ahead):.0f} s {'ahead of' if ahead >= 0 else 'behind'} the server's"
    yield _judged("clock", fine, detail, "set it: the server rejects this node's signatures")


def _private(path: Path) -> Check:
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0
    return _judged(f"{path.name} is private", not mode & 0o077, f"mode {mode:o}", f"chmod 600 {path}")


def _room(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    return _judged("disk", free >= ROOM, f"{free / 1e9:.1f} GB free", "make room")


def _judged(name: str, fine: bool, detail: str, remedy: str) -> Check:
    return Check(name, fine, detail if fine else f"{detail}; {remedy}")


def _days_of(path: Path, remedy: str) -> str:
    return _days((read_certificate(path, remedy=remedy).not_valid_after_utc - datetime.now(UTC)).days, remedy)


def _days(days: int, remedy: str) -> str:
    return f"valid for {days} days" + (f"; renew it soon: {remedy}" if days < SOON else "")


def _tried(name: str, look: Callable[[], str | None], detail: str = "") -> Check:
    try:
        return Check(name, True, look() or detail)
    except PolyfedError as error:
        return Check(name, False, _line(error))


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
