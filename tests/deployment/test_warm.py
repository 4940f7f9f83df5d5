"""A server and three warm nodes as processes, and what happens when they misbehave or die."""

from __future__ import annotations

import socket
import ssl
import threading

import pytest

from deployed_rounds import assert_right, refused_in, rounds_of
from flower_playing import NAMES
from polyfed.flower.deploy.certificates import make_server_certificate

pytestmark = pytest.mark.skipif("not __import__('sys').platform.startswith('linux')", reason="looks into /proc")


def test_the_same_numbers_as_in_one_process(machines):
    folder = machines.run("equal", rounds=3, timeout=300)
    assert refused_in(folder) == [{}, {}, {}]
    said = machines.log("bern")
    assert "fewer than 1 training labels here" in said
    assert "(lowered in node.toml; 10 and 5 are usual)" in said
    assert said.count("train: answered") == 3
    assert_right(machines, folder)


def test_clients_that_raise_send_rubbish_or_exit(machines):
    machines.faults(bern_1="raise", basel_1="nan", thun_2="shape", bern_2="exit")
    folder = machines.run("faults", rounds=3, quorum=0.3, timeout=150)
    refused = refused_in(folder)
    assert [sorted(names) for names in refused[:2]] == [["basel", "bern"], ["bern", "thun"]]
    assert refused[2] == {}
    assert "is not finite" in refused[0]["basel"]
    assert "has shape (7,)" in refused[1]["thun"]
    assert "ended with code 3" in refused[1]["bern"]
    assert "RuntimeError: deliberate" in machines.log("bern")  # the whole story stays there
    assert "deliberate" not in refused[0]["bern"]
    log = (folder / "run.log").read_text()
    assert all(f"refused {client}" in log for client in NAMES)
    assert_right(machines, folder)


def test_a_client_that_hangs_costs_one_timeout_and_its_node_works_on(machines):
    machines.faults(bern_1="hang")
    folder = machines.run("hang", rounds=4, timeout=40)
    first, second, third, _ = refused_in(folder)
    assert first == {"bern": "NoAnswer: none within 40 s"}
    assert second == {"bern": "NoAnswer: it did not answer before and is asked again later"}
    assert third == {}
    assert "the work was not done within 45 s, and was ended" in machines.log("bern")
    assert_right(machines, folder)


def test_a_node_is_killed_and_comes_back_with_its_state(machines):
    folder = machines.root / "run-node"

    def kill_bern():
        machines.wait(lambda: len(rounds_of(folder)) >= 2, "a round")
        machines.kill("bern")
        machines.node("bern")

    killer = threading.Thread(target=kill_bern)
    killer.start()
    machines.run("node", rounds=12, quorum=1.0, timeout=100, wait=300)  # nobody goes on without bern
    killer.join()
    assert machines.log("bern").count("Online as node") == 2
    rounds = rounds_of(folder)
    assert rounds[0]["used"]
    assert rounds[-1]["used"]
    assert_right(machines, folder)


def test_the_server_is_killed_and_the_study_resumed(machines):
    folder, study = machines.root / "run-server", machines.study("server", rounds=12)
    ended = []
    command = ["deploy", "run", machines.folder, study, "--folder", folder, "--timeout", 300, "--wait", 300]
    following = threading.Thread(target=lambda: ended.append(machines.polyfed(*command, check=False)))
    following.start()
    machines.wait(lambda: len(rounds_of(folder)) >= 1, "a round")
    machines.kill("server")
    machines.server()
    following.join()
    assert ended[0].returncode == 1  # the run was cut off, and is said to be
    assert "Traceback" not in ended[0].stderr
    machines.wait(lambda: machines.online() == set(NAMES), "the nodes to find the new server", pause=2.0)
    machines.polyfed("deploy", "resume", machines.folder, folder, "--timeout", 300, "--wait", 300)
    assert [(event["round"], event["refused"]) for event in rounds_of(folder)] == [(r, {}) for r in range(1, 13)]
    assert_right(machines, folder)


@pytest.mark.parametrize("what", ["push-messages", "push-object"])
def test_old_messages_that_are_sent_again_do_not_count(machines, what):
    """With their signatures, which Flower takes for five minutes, by somebody who is inside of TLS."""
    machines.network.repeat, before = f"/{what}", machines.network.n_repeated
    folder = machines.run(what, rounds=4, timeout=100)
    assert machines.network.n_repeated - before >= 4
    assert refused_in(folder) == [{}, {}, {}, {}]
    assert_right(machines, folder)


def test_rounds_go_on_over_a_network_that_delays_and_cuts(machines):
    machines.network.delay, machines.network.cut_every = 0.05, 23
    folder = machines.run("network", rounds=8, quorum=0.6, timeout=30)
    assert machines.network.n_cut >= 3
    rounds = rounds_of(folder)
    assert len(rounds) == 8
    assert all(event["used"] for event in rounds)
    lost = [set(event["refused"]) for event in rounds]
    assert all(names <= {"thun"} for names in lost)  # a message that was handed out and cut off is not handed out again
    assert any(not names for names in lost)
    assert_right(machines, folder, nodes=("basel", "bern"))


def test_a_node_of_another_version_is_told_and_the_others_go_on(machines):
    machines.faults(bern_0="version")
    folder = machines.run("version", rounds=1, quorum=0.5, timeout=200)
    start = (folder / "events.jsonl").read_text().splitlines()[0]
    assert "this client 99; install the same version of polyfed on both" in start
    assert sorted(rounds_of(folder)[0]["sampled"]) == ["basel", "thun"]


def test_unknown_keys_and_certificates_are_refused(machines, tmp_path):
    other = tmp_path / "other"
    machines.polyfed("deploy", "init", other, "--host", "127.0.0.1", "--nodes", "zug")
    node, data = other / "nodes" / "zug", machines.tables / "bern.csv"
    superlink = f"127.0.0.1:{machines.port}"
    wrong = machines.polyfed("deploy", "node", node, "--data", data, "--superlink", superlink, check=False)
    assert wrong.returncode == 1
    assert "a certificate that ca.crt did not sign" in wrong.stderr
    ca = machines.folder / "ca"
    (node / "ca.crt").write_bytes((ca / "ca.crt").read_bytes())
    unknown = machines.polyfed("deploy", "node", node, "--data", data, "--superlink", superlink, check=False)
    assert unknown.returncode == 1
    assert "the server refuses this node's key" in unknown.stderr
    with _tls_server(tmp_path, (ca / "ca.crt").read_bytes(), (ca / "ca.key").read_bytes(), days=-2) as port:
        expired = machines.polyfed(
            "deploy", "node", node, "--data", data, "--superlink", f"127.0.0.1:{port}", check=False
        )
    assert expired.returncode == 1
    assert "the certificate of the server has expired" in expired.stderr
    assert machines.online() <= set(NAMES)


def test_two_nodes_with_one_folder_are_one_too_many(machines):
    again = machines.polyfed(
        "deploy", "node", machines.folder / "nodes" / "bern", "--data", machines.tables / "bern.csv", check=False
    )
    assert again.returncode == 2
    assert "has been at work on it since" in again.stderr


class _tls_server:
    """Somebody who answers with a certificate of so many days."""

    def __init__(self, place, certificate, key, *, days):
        pair = make_server_certificate(certificate, key, names=["127.0.0.1"], days=days)
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
