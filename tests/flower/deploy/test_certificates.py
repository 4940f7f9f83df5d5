"""Certificates are judged by Python's ssl, as a node judges them: in a handshake on this machine."""

from __future__ import annotations

import socket
import ssl
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("flwr", reason="deployments need Flower: pip install 'polyfed[flower]'")

from polyfed.cli import main
from polyfed.errors import ConfigError, PolyfedError
from polyfed.flower.deploy import certificates, node, server
from polyfed.flower.deploy.layout import read_deployment, read_node
from polyfed.flower.deploy.making import make_deployment


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    return make_deployment(tmp_path_factory.mktemp("tls") / "d", "server.example.org", ["basel"], bind="127.0.0.1")


@pytest.fixture
def port(deployment):
    """A server that shakes hands with whoever comes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(deployment.certificate, deployment.key)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.1)
    ended = threading.Event()

    def shake():
        while not ended.is_set():
            try:
                plain, _ = listener.accept()
                with plain, context.wrap_socket(plain, server_side=True):
                    pass
            except OSError:  # ssl's errors too: that the client rejects is what is tested
                continue

    thread = threading.Thread(target=shake)
    thread.start()
    yield listener.getsockname()[1]
    ended.set()
    thread.join()
    listener.close()


def handshake(port, authority, name):
    trust = ssl.create_default_context(cafile=str(authority))
    trust.verify_flags |= ssl.VERIFY_X509_STRICT  # the default of later versions of Python
    with socket.create_connection(("127.0.0.1", port)) as plain, trust.wrap_socket(plain, server_hostname=name) as safe:
        return safe.version()


@pytest.mark.parametrize("name", ["server.example.org", "localhost", "127.0.0.1", "::1"])
def test_the_server_is_trusted_under_its_names(deployment, port, name):
    assert handshake(port, deployment.authority, name) == "TLSv1.3"
    assert handshake(port, deployment.node("basel") / "ca.crt", name) == "TLSv1.3"


def test_and_under_no_other_name(deployment, port):
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(port, deployment.authority, "other.example.org")


def test_another_authority_does_not_trust_it(deployment, port, tmp_path):
    other = make_deployment(tmp_path / "other", "server.example.org", [])
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(port, other.authority, "localhost")


def test_a_node_says_what_is_wrong_in_a_sentence(deployment, port, tmp_path, monkeypatch):
    mine = replace(read_node(deployment.node("basel")), superlink=f"localhost:{port}")
    assert "trusted" in node._look_at_server(mine)
    other = read_node(make_deployment(tmp_path / "other", "localhost", ["basel"]).node("basel"))
    with pytest.raises(PolyfedError, match=r"a certificate that ca\.crt did not sign; copy ca/ca\.crt of the server"):
        node._look_at_server(replace(other, superlink=f"localhost:{port}"))
    really = socket.create_connection
    monkeypatch.setattr(socket, "create_connection", lambda address, timeout: really(("127.0.0.1", port), timeout))
    for name in ("other.example.org", "10.0.0.5"):  # that lead to this server
        with pytest.raises(PolyfedError, match=f"the certificate of the server is not for '{name}'"):
            node._look_at_server(replace(mine, superlink=f"{name}:{port}"))


def test_a_server_that_is_not_there_yet_is_waited_for(deployment):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    said = node._look_at_server(replace(read_node(deployment.node("basel")), superlink=f"127.0.0.1:{free}"))
    assert "does not answer" in said
    assert "goes on trying" in said


def check(deployment, host=None):
    return certificates.check_server_certificate(replace(deployment, host=host or deployment.host), renew="renew it")


def test_the_days_that_are_left(deployment):
    assert check(deployment) in (364, 365)


def test_an_expired_certificate_is_rejected_and_renewed(tmp_path, monkeypatch, capsys):
    made = make_deployment(tmp_path / "d", "127.0.0.1", ["basel"], days=10)

    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(UTC) + timedelta(days=20)

    node_certificate = (made.node("basel") / "ca.crt").read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(certificates, "datetime", Later)
        assert main(["deploy", "server", str(made.root)]) == 3
        said = capsys.readouterr().err
        assert "server.crt: the certificate expired on" in said
        assert f"make one with polyfed deploy renew {made.root}" in said
        assert main(["deploy", "renew", str(made.root), "--days", "30"]) == 0
        assert check(made) in (29, 30)
    assert (made.node("basel") / "ca.crt").read_bytes() == made.authority.read_bytes() == node_certificate


def test_renewing_needs_the_key_of_the_authority(tmp_path, capsys):
    made = make_deployment(tmp_path / "d", "127.0.0.1", [])
    before = made.certificate.read_bytes()
    made.authority_key.unlink()
    assert main(["deploy", "renew", str(made.root)]) == 3
    assert "ca.key: cannot be read: No such file or directory; put the key" in capsys.readouterr().err
    assert made.certificate.read_bytes() == before


def test_what_does_not_fit_together_is_rejected(tmp_path, deployment):
    other = make_deployment(tmp_path / "other", "server.example.org", [])
    mixed = make_deployment(tmp_path / "mixed", "server.example.org", [])
    with pytest.raises(ConfigError, match=r"is for server\.example\.org, .*, not for 'else\.example\.org'; renew it"):
        check(mixed, "else.example.org")
    mixed.key.write_bytes(other.key.read_bytes())
    with pytest.raises(ConfigError, match=r"server\.key: is not the key of server\.crt"):
        check(mixed)
    mixed.certificate.write_bytes(other.certificate.read_bytes())
    with pytest.raises(ConfigError, match="is not signed by"):
        check(mixed)
    mixed.certificate.write_text("nonsense")
    with pytest.raises(ConfigError, match="is not a certificate in PEM"):
        check(mixed)
    mixed.certificate.unlink()
    with pytest.raises(ConfigError, match="the certificate is missing; renew it"):
        check(mixed)


def test_a_port_that_is_taken_is_told_before_anything_starts(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(server, "Program", None)  # would fail if it were called
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        made = make_deployment(tmp_path / "d", "127.0.0.1", [], port=port)
        assert main(["deploy", "server", str(made.root)]) == 1
    assert f"port {port} of 127.0.0.1 cannot be used: Address already in use" in capsys.readouterr().err
    server.reject_port_in_use("127.0.0.1", port)  # it is free again
    assert read_deployment(made.root).port == port


def test_a_server_that_ends_by_itself_is_an_error(tmp_path, capsys, monkeypatch):
    stand_in = tmp_path / "superlink"
    stand_in.write_text("#!/bin/sh\necho the database is of another version\nexit 9\n")
    stand_in.chmod(0o755)
    monkeypatch.setattr(server, "program", lambda name: str(stand_in))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    made = make_deployment(tmp_path / "d", "127.0.0.1", [], port=port)
    assert main(["deploy", "server", str(made.root)]) == 1
    said = capsys.readouterr().err
    assert "ended by itself with code 9; its last words: the database is of another version" in said
    assert f"--database {made.root}/server/superlink.db --enable-supernode-auth" in said  # Flower's command is shown
