"""Keys by which the server knows its nodes: elliptic curve P-384 in OpenSSH's format, which is what Flower reads.

>>> private, public = make_keys("basel")
>>> public.split()[0], public.split()[2]
(b'ecdsa-sha2-nistp384', b'basel')
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from polyfed.errors import ConfigError

CURVE, PLAIN = ec.SECP384R1(), serialization.NoEncryption()


def make_keys(name: str) -> tuple[bytes, bytes]:
    """A private and a public key; the name is a remark in the public one."""
    key = ec.generate_private_key(CURVE)
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, PLAIN)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private, public + b" " + name.encode() + b"\n"


def check_private_key(path: Path) -> None:
    """An error unless the file is a key that Flower would take."""
    remedy = "copy the node's folder again, or make another with polyfed deploy add"
    content = read_key_file(path, "the node's private key is missing", remedy)
    try:
        key = serialization.load_ssh_private_key(content, None)
    except Exception:  # besides ValueError, cryptography raises errors of its own for keys that it does not support
        raise ConfigError("is not a private key in OpenSSH's format", where=path, remedy=remedy) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError("is not a key of an elliptic curve", where=path, remedy=remedy)


def read_key_file(path: Path, missing: str, remedy: str) -> bytes:
    """The file of a key or a certificate; an error if it is missing or may not be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(missing, where=path, remedy=remedy) from None
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise ConfigError(what, where=path, remedy="check its permissions") from None


def check_names(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Names of nodes: they are names of folders too, so they are plain, and each is there once.

    >>> check_names(["basel", "bern"])
    ['basel', 'bern']
    """
    names, seen = list(names), {name.lower() for name in taken}
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", name):
            remedy = "use letters, digits, - and _ alone; --client of polyfed deploy node may be any text"
            raise ConfigError(f"{name!r} cannot be the name of a node", remedy=remedy)
        if name.lower() in seen:  # case is no difference in the file systems of some machines
            raise ConfigError(f"there is a node {name!r} already", remedy="choose another name")
        seen.add(name.lower())
    return names
