"""Studies before they are sent, runs while they are followed; the tests stand in for `flwr`."""

from __future__ import annotations

import json
import tomllib

import pytest

pytest.importorskip("flwr", reason="deployments need Flower: pip install 'polyfed[flower]'")

from polyfed.cli import main
from polyfed.cli.deploy_documents import DEPLOY_DOCUMENTS
from polyfed.flower.deploy import runs, server
from polyfed.flower.deploy.making import make_deployment
from polyfed.folders.documents import write_document

STUDY = '[data]\nsource = "mine.csv"\n[data.tasks]\nregression = ["pulse"]\n[method]\nname = "pfed-mul"\n[run]\nrounds = 4\n'


@pytest.fixture
def deployment(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    return make_deployment(tmp_path / "d", "127.0.0.1", ["basel", "bern"])


class Flwr:
    """Answers as Flower 1.41 does, and remembers what it was asked."""

    def __init__(self, statuses=("running", "finished:completed"), on_status=None):
        self.asked, self.statuses, self.on_status = [], list(statuses), on_status
        self.sent = {}

    def __call__(self, deployment, *arguments, note=None):
        self.asked.append(arguments)
        if arguments[0] == "run":
            self.sent = tomllib.loads((deployment.flower_home / "run.toml").read_text())
            return {"success": True, "run-id": "77"}
        if arguments[0] == "list":
            status = self.statuses.pop(0)
            if self.on_status is not None:
                self.on_status(status)
            traffic = {"total-bytes": 5000}
            run = {"run-id": "77", "status": status, "running-at": "now", "elapsed": 3.25, "network-traffic": traffic}
            return {"success": True, "runs": [run]}
        if arguments[:2] == ("supernode", "list"):
            times = {"online-at": "noon", "offline-at": "N/A"}
            return {"success": True, "nodes": [{"node-id": "11", "status": "online", **times}]}
        assert arguments[:2] == ("supernode", "register")
        return {"success": True, "node-id": 12}


@pytest.fixture
def flwr(monkeypatch):
    def install(fake):
        monkeypatch.setattr(runs, "ask", fake)
        monkeypatch.setattr(server, "ask", fake)
        monkeypatch.setattr(runs, "POLL", 0.0)
        monkeypatch.setattr(runs, "LOOK", 0.01)
        return fake

    return install


def test_a_run_is_sent_and_followed(deployment, tmp_path, flwr, capsys):
    folder = deployment.root / "runs" / "study-pfed-mul-0"

    def advance(status):
        folder.mkdir(exist_ok=True)
        event = {"event": "round", "round": 1, "sampled": ["basel", "bern"], "rejected": {"bern": "NaN"}, "used": True}
        event |= {"bytes_up": 1, "bytes_down": 2, "metrics": {}}
        if status == "running":
            (folder / "events.jsonl").write_text(json.dumps(event) + "\n")

    fake = flwr(Flwr(on_status=advance))
    argv = ["deploy", "run", str(deployment.root), str(tmp_path / "study.toml"), "--rounds", "2", "--timeout", "30"]
    assert main([*argv, "--json"]) == 0
    printed = capsys.readouterr()
    document = DEPLOY_DOCUMENTS["deploy run"].model_validate_json(printed.out).model_dump()
    assert (document["run"], document["completed"], document["folder"]) == ("77", True, str(folder))
    assert "Round 1: 1 of 2 nodes, rejected bern (NaN)" in printed.err
    sent = fake.sent
    assert (sent["nodes"], sent["timeout"], sent["folder"]) == (2, 30.0, str(folder))
    assert "wait" not in sent  # the app has a default
    study = tomllib.loads(sent["study"])
    assert study["run"]["rounds"] == 2
    assert "source" not in study["data"]
    assert main(argv) == 2  # the folder has a run in it
    assert "is not empty; go on with polyfed deploy resume" in capsys.readouterr().err


def test_a_run_that_fails_says_why(deployment, tmp_path, flwr, capsys, monkeypatch):
    flwr(Flwr(["running", "finished:failed"]))
    log = "INFO : x\nTraceback (most recent call last):\n  File\npolyfed.errors.PolyfedError: not one round counted.\n"
    monkeypatch.setattr(runs, "log_of", lambda deployment, run_id: log)
    assert main(["deploy", "run", str(deployment.root), str(tmp_path / "study.toml")]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "run 77 ended as finished:failed: PolyfedError: not one round counted; see flwr log 77" in printed.err


@pytest.mark.parametrize(
    ("old", "new", "code", "sentence"),
    [
        ("rounds = 4", "rouns = 4", 3, "run.rouns: is no key of [run]; did you mean 'rounds'?"),
        ('"pfed-mul"', '"pfed-mull"', 3, "did you mean 'pfed-mul'?"),
        ('source = "mine.csv"', 'dataset = "penguins"', 3, "a deployment has no data set"),
        ('regression = ["pulse"]', "", 3, "there are no targets"),
        ("rounds = 4", "rounds = 0.5", 3, "give a whole number"),
    ],
)
def test_a_study_is_checked_before_it_is_sent(deployment, tmp_path, flwr, capsys, old, new, code, sentence):
    fake = flwr(Flwr())
    (tmp_path / "study.toml").write_text(STUDY.replace(old, new))
    assert main(["deploy", "run", str(deployment.root), str(tmp_path / "study.toml")]) == code
    assert sentence in capsys.readouterr().err
    assert fake.asked == []


def test_from_another_machine_the_folder_must_be_told(deployment, tmp_path, flwr, capsys):
    flwr(Flwr())
    deployment.key.unlink()  # as in a copy for those who start runs
    argv = ["deploy", "run", str(deployment.root), str(tmp_path / "study.toml")]
    assert main(argv) == 2
    assert "give --folder with an absolute path on the server" in capsys.readouterr().err
    assert main([*argv, "--folder", "/srv/runs/1"]) == 0


def test_resume_takes_the_settings_of_the_run(deployment, flwr, capsys):
    folder = deployment.root / "runs" / "old"
    folder.mkdir()
    assert main(["deploy", "resume", str(deployment.root), str(folder)]) == 4
    assert "there is no run in it" in capsys.readouterr().err
    (folder / "run.json").write_text("{}")
    (folder / "config.toml").write_text(STUDY)
    fake = flwr(Flwr())
    assert main(["deploy", "resume", str(deployment.root), str(folder), "--rounds", "9"]) == 0
    assert fake.sent["folder"] == str(folder)
    assert tomllib.loads(fake.sent["study"])["run"]["rounds"] == 9


def test_only_nodes_that_the_server_does_not_know_are_registered(deployment, flwr):
    fake = flwr(Flwr())
    (deployment.server / "nodes.json").write_text('{"basel": "11", "bern": "10"}')  # 10 is of a database that is gone
    assert server.register(deployment, lambda line: None) == ["bern"]
    assert [a[2] for a in fake.asked if a[1] == "register"] == [str(deployment.public_key("bern"))]
    assert server.node_numbers(deployment) == {"basel": "11", "bern": "12"}


def test_the_status(deployment, flwr, capsys):
    flwr(Flwr(["running", "running"]))
    (deployment.server / "nodes.json").write_text('{"basel": "11"}')
    assert main(["deploy", "status", str(deployment.root), "--json"]) == 0
    document = DEPLOY_DOCUMENTS["deploy status"].model_validate_json(capsys.readouterr().out).model_dump()
    assert [(n["name"], n["state"], n["since"]) for n in document["nodes"]] == [
        ("basel", "online", "noon"),
        ("bern", "not registered", None),
    ]
    assert document["runs"] == [{"number": "77", "status": "running", "began": "now", "seconds": 3.2, "bytes": 5000}]
    assert main(["deploy", "status", str(deployment.root)]) == 0
    assert "not registered" in capsys.readouterr().out


def test_a_server_that_does_not_answer_is_one_sentence(deployment, capsys, monkeypatch):
    from subprocess import CompletedProcess

    from polyfed.flower.deploy import commands

    message = "Using SuperLink: polyfed (127.0.0.1:8000)\n\nConnection to the SuperLink is unavailable."
    answer = json.dumps({"success": False, "error-message": message})
    monkeypatch.setattr(commands, "_run", lambda command, deployment: CompletedProcess(command, 0, answer, ""))
    assert main(["deploy", "status", str(deployment.root)]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: flwr supernode: Connection to the SuperLink is unavailable; is the server up?")


def test_resuming_a_run_that_is_over_needs_a_number_of_rounds(deployment, flwr, capsys):
    fake, folder = flwr(Flwr()), deployment.root / "runs" / "a"
    (folder / "checkpoints").mkdir(parents=True)
    write_document(folder / "run.json", {"method": "local", "options": {}, "settings": {"rounds": 4, "seed": 0}})
    (folder / "config.toml").write_text(STUDY)
    (folder / "checkpoints" / "000004.json").write_text("{}")
    assert main(["deploy", "resume", str(deployment.root), str(folder)]) == 2
    assert "4 rounds are completed already; to go on give --rounds with a number above 4" in capsys.readouterr().err
    assert fake.asked == []  # nothing was sent
