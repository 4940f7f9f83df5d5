"""Looking after a deployment: who is late, what is not well, keys that count no more, logs that rotate."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

pytest.importorskip("flwr", reason="deployments need Flower: pip install 'polyfed[flower]'")

from polyfed.cli import main
from polyfed.cli.deploy_documents import DEPLOY_DOCUMENTS
from polyfed.flower.deploy import checkup, processes, runs, server
from polyfed.flower.deploy.layout import read_deployment
from polyfed.flower.deploy.making import make_deployment
from polyfed.folders.documents import write_document


class Flwr:
    """A server that knows two nodes."""

    def __init__(self):
        self.numbers, self.asked = {"basel": "11", "bern": "12"}, []

    def __call__(self, deployment, *arguments, note=None):
        self.asked.append(arguments)
        if arguments[:2] == ("supernode", "list"):
            times = {"online-at": "noon", "offline-at": "N/A"}
            return {"nodes": [{"node-id": n, "status": "online", **times} for n in self.numbers.values()]}
        if arguments[:2] == ("supernode", "register"):
            return {"node-id": 99}
        if arguments[:2] == ("supernode", "unregister"):
            self.numbers = {name: n for name, n in self.numbers.items() if n != arguments[2]}
            return {}
        assert arguments == ("list",)
        return {"runs": []}


@pytest.fixture
def deployment(tmp_path):
    made = make_deployment(tmp_path / "d", "127.0.0.1", ["basel", "bern"])
    (made.server / "nodes.json").write_text(json.dumps({"basel": "11", "bern": "12"}))
    return made


@pytest.fixture
def flwr(monkeypatch):
    fake = Flwr()
    for module in (runs, server):
        monkeypatch.setattr(module, "ask", fake)
    monkeypatch.setattr(server, "answers", lambda deployment: True)
    monkeypatch.setattr(checkup, "answers", lambda deployment: True)
    return fake


def test_a_revoked_node_is_unknown_to_the_server_and_to_the_folder(deployment, flwr, capsys):
    assert main(["deploy", "revoke", str(deployment.root), "bern"]) == 0
    assert "bern is no node any more" in capsys.readouterr().out
    assert ("supernode", "unregister", "12") in flwr.asked
    left = read_deployment(deployment.root)
    assert left.nodes == ("basel",)
    assert server.node_numbers(left) == {"basel": "11"}
    assert not left.public_key("bern").exists()  # so no later start of the server registers it again
    assert main(["deploy", "revoke", str(deployment.root), "bern"]) == 2
    assert "there is no node 'bern'; its nodes are basel" in capsys.readouterr().err


def test_a_new_key_takes_the_place_of_the_old(deployment, flwr, capsys):
    before = {path: path.read_bytes() for path in (deployment.node("bern") / "node.key", deployment.public_key("bern"))}
    assert main(["deploy", "renew", str(deployment.root), "--node", "bern"]) == 0
    assert "node.key goes to its machine" in capsys.readouterr().out
    assert all(path.read_bytes() != content for path, content in before.items())
    assert (deployment.node("bern") / "node.key").stat().st_mode & 0o777 == 0o600
    assert flwr.asked[0][:3] == ("supernode", "unregister", "12")
    assert server.node_numbers(deployment) == {"basel": "11", "bern": "99"}


@pytest.mark.parametrize("argv", [["revoke", "bern"], ["renew", "--node", "bern"]])
def test_keys_are_the_servers_business_and_it_must_be_up(deployment, capsys, monkeypatch, argv):
    monkeypatch.setattr(server, "answers", lambda deployment: False)
    assert main(["deploy", argv[0], str(deployment.root), *argv[1:]]) == 2
    assert "it alone can make a key invalid; start it with polyfed deploy server" in capsys.readouterr().err
    assert read_deployment(deployment.root).nodes == ("basel", "bern")


def test_status_says_how_far_a_study_is_and_who_is_late(deployment, flwr, capsys):
    folder = deployment.root / "runs" / "hearts"
    folder.mkdir()
    late = {"bern": "NoAnswer: none within 60 s", "basel": "its update is not finite"}
    event = {"event": "round", "round": 1, "sampled": ["basel", "bern"], "rejected": late, "used": False}
    (folder / "events.jsonl").write_text(json.dumps(event | {"bytes_up": 1, "bytes_down": 2, "metrics": {}}) + "\n")
    assert main(["deploy", "status", str(deployment.root), "--json"]) == 0
    document = DEPLOY_DOCUMENTS["deploy status"].model_validate_json(capsys.readouterr().out).model_dump()
    study = document["studies"][0]
    assert (study["folder"], study["round"], study["late"]) == (str(folder), 1, ["bern"])
    assert [node["name"] for node in document["nodes"]] == ["basel", "bern"]


def test_watching_goes_on_until_it_is_interrupted(deployment, flwr, capsys, monkeypatch):
    from polyfed.cli import deploy

    looks = []

    def sleep(seconds):
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(deploy.time, "sleep", sleep)
    assert main(["deploy", "status", str(deployment.root), "--watch"]) == 130
    assert capsys.readouterr().out.count("Nodes of") == 3
    assert main(["deploy", "status", str(deployment.root), "--watch", "--json"]) == 2


def test_versions_of_nodes_are_those_that_they_reported_to_the_last_study(deployment, flwr, capsys):
    from importlib.metadata import version

    from polyfed import __version__

    versions = {"polyfed": __version__, "flwr": version("flwr")}
    write_study(deployment, "old", {"11": versions, "12": versions}, at=1.0)
    assert main(["deploy", "doctor", str(deployment.root), "--json"]) == 0
    assert "as here: basel, bern" in capsys.readouterr().out
    write_study(deployment, "new", {"12": {"polyfed": "0.0.1", "flwr": "1.40.3"}}, at=2.0)
    assert main(["deploy", "status", str(deployment.root), "--json"]) == 0
    nodes = json.loads(capsys.readouterr().out)["nodes"]
    assert [node["versions"] for node in nodes] == [versions, {"polyfed": "0.0.1", "flwr": "1.40.3"}]
    assert main(["deploy", "status", str(deployment.root)]) == 0
    shown = capsys.readouterr().out
    assert f"has polyfed {__version__}" in shown
    assert "1.40.3" in shown
    assert main(["deploy", "doctor", str(deployment.root)]) == 1
    assert "bern has polyfed 0.0.1, bern has flwr 1.40.3; install the same on all machines" in capsys.readouterr().err


def write_study(deployment, name, nodes, *, at):
    folder = deployment.root / "runs" / name
    folder.mkdir()
    write_document(folder / "flower.json", {"study": "x", "nodes": nodes})
    os.utime(folder / "flower.json", (at, at))


def test_the_doctor_of_a_server(deployment, flwr, capsys):
    assert main(["deploy", "doctor", str(deployment.root), "--json"]) == 0
    document = DEPLOY_DOCUMENTS["deploy doctor"].model_validate_json(capsys.readouterr().out).model_dump()
    found = {check["name"]: check["detail"] for check in document["checks"]}
    assert found["certificate"] == "valid for 364 days"
    assert found["authority"] == "valid for 3649 days"
    assert found["nodes"] == "2 nodes, all registered"
    assert "put it away" in found["key of the authority"]
    deployment.key.chmod(0o644)
    assert main(["deploy", "doctor", str(deployment.root)]) == 1
    assert "server.key is private is not as it must be: mode 644; chmod 600" in capsys.readouterr().err


def test_the_doctor_of_a_node(deployment, capsys, tmp_path):
    folder = deployment.node("basel")
    (folder / "own.csv").write_text("age,pulse\n30,60\n31,70\n")
    with (folder / "node.toml").open("a") as file:
        file.write('data = "own.csv"\n')
    assert main(["deploy", "doctor", str(folder), "--json"]) == 1  # nobody is there
    document = json.loads(capsys.readouterr().out)
    found = {check["name"]: (check["ok"], check["detail"]) for check in document["checks"]}
    assert found["table"] == (True, f"{folder / 'own.csv'} has 2 rows")
    assert found["server"][0] is False
    assert all(ok for name, (ok, _) in found.items() if name != "server")


class Answer:
    """Of a server."""

    def __init__(self, headers, content=b""):
        self.headers, self.content = headers, content

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def read(self, n):
        return self.content[:n]


@pytest.mark.parametrize(
    ("content", "fine", "text"),
    [
        (b'{"info": {"version": "1.41.7"}}', True, "1.41.7"),
        (b'{"info": {"version": "1.44.0"}}', False, "1.44.0; install the same on both machines"),
        (b'{"info": []}', True, "the server does not report it"),
        (b"<html>", True, "the server does not report it"),
    ],
)
def test_the_flower_of_the_server_is_seen_from_a_node(deployment, monkeypatch, content, fine, text):
    monkeypatch.setattr(server.urllib.request, "urlopen", lambda *_, **__: Answer({}, content))
    from polyfed.flower.deploy.layout import read_node

    found = {check.name: check for check in checkup.check_node(read_node(deployment.node("basel")))}
    assert (found["flwr of the server"].ok, found["flwr of the server"].detail) == (fine, text)


@pytest.mark.parametrize(
    ("seconds", "fine", "text"),
    [
        (0, True, "of the server's"),
        (-200, True, "behind"),
        (-400, False, "set it"),
        (20, False, "ahead of the server's; set it"),
    ],
)
def test_a_clock_that_the_server_would_not_believe(deployment, monkeypatch, seconds, fine, text):
    from datetime import UTC, datetime, timedelta
    from email.utils import format_datetime

    date = format_datetime(datetime.now(UTC) - timedelta(seconds=seconds), usegmt=True)
    monkeypatch.setattr(server.urllib.request, "urlopen", lambda *_, **__: Answer({"date": date}))
    from polyfed.flower.deploy.layout import read_node

    clock = next(check for check in checkup.check_node(read_node(deployment.node("basel"))) if check.name == "clock")
    assert clock.ok is fine
    assert text in clock.detail


def test_a_log_rotates(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "LARGEST", 1000)
    write = processes.rotating(tmp_path / "logs" / "node.log")
    for i in range(200):
        write(f"line {i}")
    found = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert found == ["node.log", *(f"node.log.{i}" for i in range(1, 6))]
    assert all(path.stat().st_size <= 1000 for path in (tmp_path / "logs").iterdir())
    assert "line 199" in (tmp_path / "logs" / "node.log").read_text()


def test_a_log_that_cannot_be_written(deployment, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    argv = ["deploy", "server", str(deployment.root), "--log", str(tmp_path / "file" / "x.log")]
    assert main(argv) == 2
    assert "choose another file for --log" in capsys.readouterr().err


def test_containers_start_what_a_shell_would(deployment):
    from polyfed import __version__

    for folder, command in ((deployment.root, "server"), (deployment.node("basel"), "node")):
        assert f'command: ["{command}", "."' in (folder / "compose.yaml").read_text()
        assert f"polyfed[flower]=={__version__}" in (folder / "Containerfile").read_text()
        assert (folder / ".dockerignore").read_text() == "*\n"  # keys are no part of what an image is built of


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is not there")
def test_compose_takes_its_files(deployment):
    env = {"PATH": os.environ["PATH"], "TABLE": "/data/t.csv"}
    for folder, command in ((deployment.root, "server"), (deployment.node("basel"), "node")):
        read = subprocess.run(["docker-compose", "config"], cwd=folder, capture_output=True, text=True, env=env)
        assert read.returncode == 0, read.stderr
        assert f"- {command}\n" in read.stdout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not there")
def test_systemd_takes_the_units(deployment, tmp_path):
    for path in (*deployment.server.glob("*.service"), *deployment.node("basel").glob("*.service")):
        text = path.read_text().replace("User=polyfed", "User=root")
        (tmp_path / path.name).write_text(text)
        done = subprocess.run(["systemd-analyze", "verify", str(tmp_path / path.name)], capture_output=True, text=True)
        complaints = [line for line in done.stderr.splitlines() if path.name in line]
        assert not complaints, complaints
