"""Where things lie: the folder of a deployment, and the folder of one node that is copied to its machine.

All that is in them is named relative to them, so they work wherever they are copied.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from polyfed.data import DEPLOYED, Limits
from polyfed.errors import ConfigError, UsageError
from polyfed.experiments.toml_text import to_toml
from polyfed.files import write_whole

PORT = 8000  # Flower's own
CODE = re.compile(r"[A-Za-z_][\w.]*:[^\s,\"'\\]+")


class _Below:
    """A path below `root` of the folder it belongs to."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __get__(self, owner: Deployment | NodeFolder, kind: type | None = None) -> Path:
        return owner.root / self._path


@dataclass(frozen=True)
class Deployment:
    """A server and its nodes; `root` is absolute."""

    root: Path
    host: str
    port: int
    bind: str
    nodes: tuple[str, ...]

    authority, authority_key = _Below("ca/ca.crt"), _Below("ca/ca.key")
    server, certificate, key = _Below("server"), _Below("server/server.crt"), _Below("server/server.key")
    database, numbers = _Below("server/superlink.db"), _Below("server/nodes.json")
    restarting = _Below("server/.restarting")  # there while the server takes a new certificate, and answers nobody
    flower_home, app = _Below("flower"), _Below("app")

    @property
    def is_server(self) -> bool:
        """Whether this is the server's copy of the folder, and not one from which runs are started from elsewhere."""
        return self.key.is_file()

    @property
    def address(self) -> str:
        """HOST:PORT for the commands that speak to the server; on its own machine its public name may lead nowhere."""
        here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.bind, self.bind)
        return address(here if self.is_server else self.host, self.port)

    def public_key(self, name: str) -> Path:
        return self.server / "keys" / f"{name}.pub"

    def node(self, name: str) -> Path:
        return self.root / "nodes" / name

    def write(self) -> None:
        given = {"host": self.host, "port": self.port, "bind": self.bind, "nodes": list(self.nodes)}
        write_whole(self.root / "deploy.toml", to_toml(given).encode())

    def write_flower_config(self) -> None:
        """Write the address for `flwr`, which wants the certificate's path absolute; folders move, hence each time."""
        connection = {"address": self.address, "root-certificates": str(self.authority)}
        given = {"superlink": {"default": "polyfed", "polyfed": connection}}
        self.flower_home.mkdir(exist_ok=True)
        write_whole(self.flower_home / "config.toml", to_toml(given).encode())


@dataclass(frozen=True)
class NodeFolder:
    """One node, on its own machine, and what its owner chose; all paths are absolute."""

    root: Path
    superlink: str
    data: Path | None  # its table, which may be given only when it is started
    client: str
    state: Path  # what only this node knows of the studies
    limits: Limits = DEPLOYED
    allow_code: tuple[str, ...] = ()

    authority, key, flower_home = _Below("ca.crt"), _Below("node.key"), _Below("flower")
    alive = _Below(".alive")  # touched while the node is connected; it goes when the node leaves in order

    def config(self) -> dict[str, str | int | float]:
        """As polyfed's client app reads it (`OwnConfig.of`)."""
        config: dict[str, str | int | float] = {"data": str(self.data), "client": self.client, "state": str(self.state)}
        config |= {"min-rows": self.limits.min_rows, "min-count": self.limits.min_count}
        return config | ({"allow-code": ",".join(self.allow_code)} if self.allow_code else {})


def read_deployment(folder: Path) -> Deployment:
    how = f"make one with polyfed deploy init {folder} --host NAME"
    given = _read(folder / "deploy.toml", "deployment", how, {"host": str, "port": int, "bind": str, "nodes": list}, {})
    return Deployment(folder.absolute(), given["host"], given["port"], given["bind"], tuple(map(str, given["nodes"])))


def read_node(folder: Path) -> NodeFolder:
    path, how = folder / "node.toml", "give the node's folder, such as nodes/basel"
    optional = {"data": str, "client": str, "min_rows": int, "min_count": int, "allow_code": list}
    given = _read(path, "node", how, {"name": str, "superlink": str}, optional)
    allowed = tuple(check_code(name, str(path)) for name in given.get("allow_code", ()))
    least = {key: given[key] for key in ("min_rows", "min_count") if key in given}
    try:
        limits = replace(DEPLOYED, **least)
    except ConfigError as error:
        raise ConfigError(error.what, where=path, remedy=error.remedy) from None
    root, data, client = folder.absolute(), given.get("data"), given.get("client") or given["name"]
    return NodeFolder(root, given["superlink"], root / data if data else None, client, root / "state", limits, allowed)


def check_code(name: object, where: str) -> str:
    """The name of code that studies may run on a node.

    >>> check_code("my.networks:small", "node.toml")
    'my.networks:small'
    """
    if not isinstance(name, str) or not CODE.fullmatch(name):
        raise ConfigError(f"{name!r} names no code", where=where, remedy="write it as package.module:factory")
    return name


def address(host: str, port: int) -> str:
    """As Flower writes it.

    >>> address("::1", 8000), address("server.example.org", 8000)
    ('[::1]:8000', 'server.example.org:8000')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"{text!r} is not HOST:PORT", remedy="write for example server.example.org:8000")
    return host, int(port)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read(path: Path, what: str, how: str, required: dict[str, type], optional: dict[str, type]) -> dict[str, Any]:
    if not path.is_file():
        problem = f"there is no {what} in it" if path.parent.is_dir() else "there is no such folder"
        raise UsageError(problem, where=path.parent, remedy=how)
    remedy = "restore the file as polyfed deploy wrote it"
    try:
        given = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot be read ({error})", where=path, remedy=remedy) from None
    known = required | optional
    for key in required:
        if key not in given:
            raise ConfigError(f"{key} is missing", where=path, remedy=remedy)
    for key, value in given.items():
        if key not in known or not isinstance(value, known[key]):
            raise ConfigError(f"{key} = {value!r} is not understood", where=path, remedy=remedy)
    return given
