"""Certificates: an authority of one's own, and one for the server that it signs. And keys by which the server knows its nodes:
elliptic curve P-384 in OpenSSH's format, which is what Flower reads.

>>> authority = make_authority(days=30)
>>> server = make_server_certificate(*authority, names=["server.example.org", "127.0.0.1"], days=30)
>>> server.certificate.startswith(b"-----BEGIN CERTIFICATE-----")
True
>>> private, public = make_keys("basel")
>>> public.split()[0], public.split()[2]
(b'ecdsa-sha2-nistp384', b'basel')
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from polyfed.errors import ConfigError, PolyfedError
from polyfed.flower.deploy.layout import Deployment

CURVE, PLAIN = ec.SECP384R1(), serialization.NoEncryption()
SKEW = timedelta(days=1)  # clocks of other machines may be behind
WRONG_AUTHORITY = "the server shows a certificate that ca.crt did not sign"
COPY_AUTHORITY = "copy ca/ca.crt of the server to this node's folder, or check that --superlink is the right server"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Pair(NamedTuple):
    """A certificate and its private key, in PEM."""

    certificate: bytes
    key: bytes


def make_authority(days: int) -> Pair:
    constraints, usage = x509.BasicConstraints(ca=True, path_length=0), _usage(key_cert_sign=True, crl_sign=True)
    return _pair("polyfed authority", days, [(constraints, True), (usage, True)])


def make_server_certificate(certificate: bytes, key: bytes, *, names: Sequence[str], days: int) -> Pair:
    """A certificate for these host names and addresses, signed by the authority."""
    authority = x509.load_pem_x509_certificate(certificate)
    signing: Any = serialization.load_pem_private_key(key, None)
    known_as = x509.SubjectAlternativeName([_alternative(name) for name in dict.fromkeys(names)])
    extensions = [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(digital_signature=True), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), False),
        (known_as, False),
    ]
    return _pair("polyfed server", days, extensions, issuer=authority.subject, signing=signing)


def read_certificate(path: Path, *, remedy: str) -> x509.Certificate:
    """The certificate of a file; an error if it is missing, unreadable or not valid today."""
    content = _read_file(path, "the certificate is missing", remedy)
    try:
        found = x509.load_pem_x509_certificate(content)
    except ValueError:
        raise ConfigError("is not a certificate in PEM", where=path, remedy=remedy) from None
    now = datetime.now(UTC)
    if now > found.not_valid_after_utc:
        raise ConfigError(f"the certificate expired on {found.not_valid_after_utc:%d %B %Y}", where=path, remedy=remedy)
    if now < found.not_valid_before_utc:
        what = f"the certificate is valid from {found.not_valid_before_utc:%d %B %Y} on"
        raise ConfigError(what, where=path, remedy="set the clock of this machine")
    return found


def check_server_certificate(deployment: Deployment, *, renew: str) -> int:
    """How many days the server's certificate is still valid; an error if a client would reject it."""
    certificate, key, authority, host = deployment.certificate, deployment.key, deployment.authority, deployment.host
    above = read_certificate(authority, remedy="restore it: the nodes trust this one and no other")
    mine = read_certificate(certificate, remedy=renew)
    try:
        mine.verify_directly_issued_by(above)
    except Exception:  # cryptography has one error for each way in which it can be wrong
        raise ConfigError(f"the certificate is not signed by {authority}", where=certificate, remedy=renew) from None
    named = mine.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    known = [*named.get_values_for_type(x509.DNSName), *map(str, named.get_values_for_type(x509.IPAddress))]
    if host not in known:
        what = f"the certificate is for {', '.join(known)}, not for {host!r}"
        raise ConfigError(what, where=certificate, remedy=renew)
    try:
        fits = serialization.load_pem_private_key(key.read_bytes(), None).public_key() == mine.public_key()
    except (OSError, ValueError):
        raise ConfigError("there is no private key that can be read", where=key, remedy=renew) from None
    if not fits:
        raise ConfigError(f"is not the key of {certificate.name}", where=key, remedy=renew)
    return (mine.not_valid_after_utc - datetime.now(UTC)).days


def check_host(host: str) -> str:
    """A host name or an address as a certificate has it.

    >>> check_host("server.example.org"), check_host("0:0:0:0:0:0:0:1")
    ('server.example.org', '::1')
    """
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        part = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
        if len(host) < 254 and re.fullmatch(rf"{part}(\.{part})*", host) and not re.fullmatch(r"[\d.]+", host):
            return host.lower()
    remedy = "give a name such as server.example.org or an address such as 10.0.0.5, without a port"
    raise ConfigError(f"{host!r} is no name or address of a machine", where="--host", remedy=remedy)


def make_keys(name: str) -> tuple[bytes, bytes]:
    """A private and a public key; the name is a remark in the public one."""
    key = ec.generate_private_key(CURVE)
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, PLAIN)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private, public + b" " + name.encode() + b"\n"


def check_private_key(path: Path) -> None:
    """An error unless the file is a key that Flower would take."""
    remedy = "copy the node's folder again, or make another with polyfed deploy add"
    content = _read_file(path, "the node's private key is missing", remedy)
    try:
        key = serialization.load_ssh_private_key(content, None)
    except Exception:  # besides ValueError, cryptography raises errors of its own for keys that it does not support
        raise ConfigError("is not a private key in OpenSSH's format", where=path, remedy=remedy) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError("is not a key of an elliptic curve", where=path, remedy=remedy)


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


def _read_file(path: Path, missing: str, remedy: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(missing, where=path, remedy=remedy) from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=path, remedy="check its permissions") from None


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(**granted: bool) -> x509.KeyUsage:
    names = "digital_signature content_commitment key_encipherment data_encipherment key_agreement"
    every = dict.fromkeys(f"{names} key_cert_sign crl_sign encipher_only decipher_only".split(), False)
    return x509.KeyUsage(**(every | granted))


def _pair(
    name: str,
    days: int,
    extensions: Sequence[tuple[x509.ExtensionType, bool]],
    issuer: x509.Name | None = None,
    signing: Any = None,
) -> Pair:
    """A new key and its certificate, with these extensions (and whether each is critical), signed by itself or an authority."""
    now, key = datetime.now(UTC), ec.generate_private_key(CURVE)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    try:
        end = now + timedelta(days=days)
    except OverflowError:
        raise ConfigError(f"{days} days end after the calendar", where="--days", remedy="give fewer") from None
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, end) - SKEW)
        .not_valid_after(end)
    )
    for extension, critical in [(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False), *extensions]:
        built = built.add_extension(extension, critical=critical)
    try:
        certificate = built.sign(signing or key, hashes.SHA384())
    except ValueError as error:
        raise PolyfedError(f"the certificate cannot be made ({error})", remedy="look at --host and --days") from None
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return Pair(certificate.public_bytes(encoding), key.private_bytes(encoding, form, PLAIN))
