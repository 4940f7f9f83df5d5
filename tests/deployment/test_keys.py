"""Who is let in, with which key and certificate, and what becomes of a study when these change in the middle of it."""

from __future__ import annotations

import shutil
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from bench.deployed import rounds_of

from deployed_rounds import assert_right
from flower_runs import NAMES
from polyfed.flower.deploy.certificates import make_server_certificate

pytestmark = pytest.mark.skipif("not __import__('sys').platform.startswith('linux')", reason="looks into /proc")


def test_unknown_keys_and_certificates_are_rejected(machines, tmp_path):
    """Three nodes at once, each of which should end by itself."""
    for name in ("authority", "key", "expired"):
        machines.polyfed("deploy", "init", tmp_path / name, "--host", "127.0.0.1", "--nodes", "zug")
    ca = machines.folder / "ca"
    for name in ("key", "expired"):
        shutil.copy(ca / "ca.crt", tmp_path / name / "nodes" / "zug" / "ca.crt")

    def rejected(name, port):
        options = ["--data", machines.tables / "bern.csv", "--superlink", f"127.0.0.1:{port}", *machines.kind]
        ended = machines.polyfed("deploy", "node", tmp_path / name / "nodes" / "zug", *options, check=False)
        assert ended.returncode == 1
        assert "Traceback" not in ended.stderr
        return ended.stderr

    with _tls_server(tmp_path, ca, days=-2) as port, ThreadPoolExecutor(3) as pool:
        places = {"authority": machines.port, "key": machines.port, "expired": port}
        said = dict(zip(places, pool.map(rejected, *zip(*places.items(), strict=True)), strict=True))
    assert "a certificate that ca.crt did not sign" in said["authority"]
    assert "the server rejects this node's key" in said["key"]
    assert "the certificate of the server has expired" in said["expired"]
    assert machines.online() == set(NAMES)


def test_two_nodes_with_one_folder_are_one_too_many(machines):
    data = machines.tables / "bern.csv"
    again = machines.polyfed(
        "deploy", "node", machines.folder / "nodes" / "bern", "--data", data, *machines.kind, check=False
    )
    assert again.returncode == 2
    assert "has been at work on it since" in again.stderr


def test_the_server_is_killed_gets_a_new_certificate_and_the_study_is_resumed(machines):
    presented = machines.certificate()
    with machines.running("server", rounds=4, timeout=300, wait=300, check=False) as folder:
        machines.polyfed("deploy", "renew", machines.folder, "--days", 90)
        assert machines.certificate() == presented  # until no run is going on, or it is started again
        machines.kill("server")
        machines.go_on()
        machines.server()
    assert machines.ended.returncode == 1  # the run was cut off, and is said to be
    assert "Traceback" not in machines.ended.stderr
    assert machines.certificate() != presented
    machines.polyfed("deploy", "resume", machines.folder, folder, "--timeout", 300, "--wait", 300)
    assert [(event["round"], event["rejected"]) for event in rounds_of(folder)] == [(r, {}) for r in range(1, 5)]
    assert_right(machines, folder)


def test_a_node_gets_a_new_key_and_another_is_revoked_while_a_study_goes_on(machines):
    machines.polyfed("deploy", "add", machines.folder, "zug")
    shutil.copy(machines.tables / "bern.csv", machines.tables / "zug.csv")
    machines.open_limits("zug")
    machines.node("zug")
    machines.wait(lambda: machines.arrivals("zug"), "zug to be online")
    before, presented, starts = machines.arrivals("bern"), machines.certificate(), machines.starts()
    with machines.running("renewed", rounds=4, quorum=0.7, timeout=100, wait=300) as folder:  # three of the four
        machines.polyfed("deploy", "renew", machines.folder, "--days", 80)
        machines.polyfed("deploy", "revoke", machines.folder, "zug")
        machines.polyfed("deploy", "renew", machines.folder, "--node", "bern")
        machines.go_on()
    assert machines.arrivals("bern") == before + 1
    rounds = rounds_of(folder)
    assert rounds[0]["rejected"] == {}
    assert rounds[-1]["used"]
    assert "zug" in rounds[-1]["rejected"]
    assert "bern" not in rounds[-1]["rejected"]
    machines.wait(lambda: machines.processes["zug"].poll() is not None, "zug to give up")
    assert machines.processes.pop("zug").returncode == 1
    assert "the server rejects this node's key" in machines.log("zug")
    assert_right(machines, folder)
    # The run is over, and was not cut off: now the server takes its new certificate, and the nodes stay with it.
    machines.wait(lambda: machines.starts() > starts, "the server to be ready again")
    assert machines.certificate() != presented
    again = machines.run("after", rounds=1, timeout=300, wait=300)
    assert rounds_of(again)[0]["rejected"] == {}


class _tls_server:
    """Somebody who answers with a certificate of so many days."""

    def __init__(self, place, ca, *, days):
        authority, key = (ca / "ca.crt").read_bytes(), (ca / "ca.key").read_bytes()
        pair = make_server_certificate(authority, key, names=["127.0.0.1"], days=days)
        (place / "x.crt").write_bytes(pair.certificate)
        (place / "x.key").write_bytes(pair.key)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(place / "x.crt", place / "x.key")

    def __enter__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()
        return self.socket.getsockname()[1]

    def __exit__(self, *_):
        self.socket.close()

    def _accept(self):
        while True:
            try:
                with self.context.wrap_socket(self.socket.accept()[0], server_side=True):
                    pass
            except ssl.SSLError:
                continue
            except OSError:
                return
