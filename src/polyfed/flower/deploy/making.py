"""Making a deployment and its nodes. What fails half-way leaves nothing behind."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from polyfed.data import DEPLOYED
from polyfed.errors import ConfigError, UsageError
from polyfed.experiments.toml_text import to_toml
from polyfed.files import write_whole
from polyfed.flower.deploy import certificates, texts
from polyfed.flower.deploy.certificates import check_names, make_keys
from polyfed.flower.deploy.layout import PORT, Deployment, address, is_loopback

AUTHORITY_DAYS = 3650  # longer than the server's, so that this can be renewed without a visit to the nodes
ANY = ("0.0.0.0", "::")


def make_deployment(
    root: Path, host: str, nodes: Sequence[str], *, port: int = PORT, bind: str | None = None, days: int = 365
) -> Deployment:
    host, names = certificates.check_host(host), check_names(nodes)
    if days < 1:
        raise ConfigError(f"{days} days are none", where="--days", remedy="give at least 1")
    bind = certificates.check_host(bind) if bind else "127.0.0.1" if is_loopback(host) else "0.0.0.0"
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        what = "is not empty" if root.is_dir() else "is a file"
        raise UsageError(what, where=root, remedy="give a new folder, or add a node with polyfed deploy add")
    with _appearing_at(root) as made:
        deployment = Deployment(made, host, port, bind, tuple(names))
        for folder in ("ca", "server", "server/keys", "nodes", "runs", "flower"):
            (made / folder).mkdir(mode=0o700)
        authority = certificates.make_authority(max(days, AUTHORITY_DAYS))
        _write(made / "ca", {"ca.crt": authority.certificate, "ca.key": authority.key})
        _write(made, texts.files_of_all(deployment))
        renew(deployment, days)
        for name in names:
            _make_node(deployment, name)
        deployment.write()
    return Deployment(root.absolute(), host, port, bind, tuple(names))


def add_node(deployment: Deployment, name: str) -> Deployment:
    check_names([name], deployment.nodes)
    if deployment.node(name).exists():
        raise UsageError("is there already", where=str(deployment.node(name)), remedy="remove it, or use another name")
    grown = replace(deployment, nodes=(*deployment.nodes, name))
    with _writing_to(deployment.root):
        _make_node(grown, name)
        grown.write()
    return grown


def remove_node(deployment: Deployment, name: str) -> None:
    """Remove a node. Its folder here stays: the server no longer accepts its key."""
    check_is_node(deployment, name)  # a name is a path: no other file may go
    replace(deployment, nodes=tuple(node for node in deployment.nodes if node != name)).write()
    deployment.public_key(name).unlink(missing_ok=True)


def renew_key(deployment: Deployment, name: str) -> Path:
    """A new key for a node; the file that goes to its machine, in place of the one there."""
    check_is_node(deployment, name)
    private, public = make_keys(name)
    folder = deployment.node(name)
    with _writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(folder, {"node.pub": public, "node.key": private})
        write_whole(deployment.public_key(name), public)
    return folder / "node.key"


def check_is_node(deployment: Deployment, name: str) -> None:
    if name not in deployment.nodes:
        known = ", ".join(deployment.nodes) or "none"
        raise UsageError(f"there is no node {name!r}", where=deployment.root, remedy=f"its nodes are {known}")


def renew(deployment: Deployment, days: int) -> None:
    """A new certificate for the server, signed by the same authority, so that the nodes need nothing new."""
    certificates.read_certificate(deployment.authority, remedy="restore it, or make a new deployment")
    try:
        authority_key = deployment.authority_key.read_bytes()
    except OSError as error:
        remedy = "put the key of the authority back for this command"
        raise ConfigError(f"cannot be read: {error.strerror}", where=deployment.authority_key, remedy=remedy) from None
    bound = [] if deployment.bind in ANY else [deployment.bind]
    authority, names = deployment.authority.read_bytes(), [deployment.host, *bound, *certificates.LOOPBACK]
    pair = certificates.make_server_certificate(authority, authority_key, names=names, days=days)
    _write(deployment.server, {deployment.key.name: pair.key, deployment.certificate.name: pair.certificate})


_REMARKS = f"""\
# data = "table.csv"  # the table, if it is not given by --data; relative to this folder
# min_rows = {DEPLOYED.min_rows}  # training labels of a task below which nothing of it leaves; fewer reveal more of each row
# min_count = {DEPLOYED.min_count}  # rows that must hold a text or class for it to be named
# allow_code = ["package.module:factory"]  # networks of your own that a study may run here; none by default
"""


def _make_node(deployment: Deployment, name: str) -> None:
    deployment.node(name).parent.mkdir(mode=0o700, exist_ok=True)
    deployment.public_key(name).parent.mkdir(mode=0o700, exist_ok=True, parents=True)
    private, public = make_keys(name)
    with _appearing_at(deployment.node(name)) as folder:
        described = to_toml({"name": name, "superlink": address(deployment.host, deployment.port)}) + _REMARKS
        authority = deployment.authority.read_bytes()
        _write(folder, {"node.toml": described, "ca.crt": authority, "node.pub": public, "node.key": private})
        _write(folder, texts.node_files(name))
    write_whole(deployment.public_key(name), public)


def _write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files; a key is readable by its owner alone."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = {".key": 0o600, ".sh": 0o755}.get(path.suffix, 0o644)
        write_whole(path, content.encode() if isinstance(content, str) else content, mode)


@contextmanager
def _appearing_at(folder: Path) -> Iterator[Path]:
    """A folder to fill, which takes its place when it is full, or goes away."""
    with _writing_to(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            yield making
            making.replace(folder)
        except BaseException:
            shutil.rmtree(making, ignore_errors=True)
            raise


@contextmanager
def _writing_to(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", where=folder, remedy="choose another folder") from None
