"""`polyfed deploy init`, `add` and `renew`: which files there are, who may read them, and what is rejected."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="deployments need Flower: pip install 'polyfed[flower]'")

from polyfed.cli import main
from polyfed.cli.deploy_documents import DEPLOY_DOCUMENTS
from polyfed.errors import UsageError
from polyfed.flower.deploy import making
from polyfed.flower.deploy.layout import read_deployment, read_node


def init(folder: Path, *more: str) -> int:
    return main(["deploy", "init", str(folder), "--host", "127.0.0.1", "--nodes", "basel,bern", *more])


def modes(folder: Path) -> dict[str, int]:
    return {str(p.relative_to(folder)): stat.S_IMODE(p.stat().st_mode) for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "my deployment"  # with a space, as folders of users have
    assert init(made) == 0
    return made


def test_the_files_and_who_may_read_them(folder):
    found = modes(folder)
    for private in ("ca/ca.key", "server/server.key", "nodes/basel/node.key", "nodes/bern/node.key"):
        assert found.pop(private) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for script in ("server/start.sh", "nodes/basel/start.sh"):
        assert found[script] & 0o100
    for path in ("README.md", "study.toml", "deploy.toml", "app/pyproject.toml", "server/polyfed-server.service"):
        assert path in found
    for path in ("ca.crt", "node.pub", "node.toml", "polyfed-node-basel.service"):
        assert f"nodes/basel/{path}" in found
    held = [path for path in found if b"PRIVATE KEY" in (folder / path).read_bytes()]
    assert held == []  # in no file but those four


def test_every_node_has_a_key_of_its_own_and_the_server_has_the_public_ones(folder):
    keys = {name: (folder / "nodes" / name / "node.key").read_bytes() for name in ("basel", "bern")}
    assert keys["basel"] != keys["bern"]
    for name in keys:
        public = (folder / "server" / "keys" / f"{name}.pub").read_text()
        assert public == (folder / "nodes" / name / "node.pub").read_text()
        assert public.startswith("ecdsa-sha2-nistp384 ")
        assert public.split()[2] == name
        assert name in (folder / "README.md").read_text()


def test_flower_reads_the_keys(folder):
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    from flwr.cli.supernode.register import try_load_public_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    private = load_ssh_private_key((folder / "nodes/basel/node.key").read_bytes(), None)
    assert try_load_public_key(folder / "server/keys/basel.pub") == public_key_to_bytes(private.public_key())


def test_flower_takes_the_app(folder):
    from flwr.common.config import get_fused_config_from_dir, get_project_config

    project = get_project_config(folder / "app")
    assert project["tool"]["flwr"]["app"]["components"]["serverapp"] == "polyfed_app.server_app:app"
    fused = get_fused_config_from_dir(folder / "app", {"study": "x", "nodes": 3})
    assert set(fused) == {"study", "folder", "nodes", "timeout", "wait", "lost"}
    assert (fused["study"], fused["nodes"]) == ("x", 3)


def test_the_example_is_the_app_that_is_written():
    example = Path(__file__).resolve().parents[3] / "examples" / "flower"
    from polyfed.flower.deploy.texts import app_files

    for name, text in app_files().items():
        assert (example / name).read_text() == text, name


def test_no_file_of_a_node_names_the_folder_it_was_made_in(folder):
    for path in (folder / "nodes" / "basel").rglob("*"):
        if path.is_file():
            assert str(folder).encode() not in path.read_bytes()


def test_a_script_finds_its_folder_wherever_it_was_copied(folder, tmp_path):
    moved = tmp_path / "else where"
    shutil.copytree(folder / "nodes" / "basel", moved)
    fake = tmp_path / "polyfed"
    fake.write_text('#!/bin/sh\nfor a in "$@"; do echo "<$a>"; done\n')
    fake.chmod(0o755)
    env = {**os.environ, "POLYFED": str(fake)}
    done = subprocess.run(
        ["sh", str(moved / "start.sh"), "--data", "my table.csv"], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.split("\n")[:5] == ["<deploy>", "<node>", f"<{moved}>", "<--data>", "<my table.csv>"]
    server = subprocess.run(
        ["sh", str(folder / "server/start.sh")], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert server.stdout.split() == ["<deploy>", "<server>", "<.>"]


def test_what_was_written_is_read_again(folder):
    deployment = read_deployment(folder)
    assert (deployment.host, deployment.port, deployment.bind) == ("127.0.0.1", 8000, "127.0.0.1")
    assert deployment.nodes == ("basel", "bern")
    assert read_node(folder / "nodes" / "bern").superlink == "127.0.0.1:8000"


def test_a_server_with_a_public_name_listens_everywhere(tmp_path):
    made = tmp_path / "new"
    assert main(["deploy", "init", str(made), "--host", "Server.Example.org", "--port", "9000"]) == 0
    deployment = read_deployment(made)
    assert (deployment.host, deployment.bind, deployment.address) == ("server.example.org", "0.0.0.0", "127.0.0.1:9000")


def test_flower_is_told_where_the_server_is(folder):
    deployment = read_deployment(folder)
    deployment.write_flower_config()
    document = tomllib.loads((folder / "flower" / "config.toml").read_text())["superlink"]
    assert document[document["default"]] == {
        "address": "127.0.0.1:8000",
        "root-certificates": str(folder / "ca" / "ca.crt"),
    }


def test_a_node_that_comes_later(folder, capsys):
    before = (folder / "nodes/basel/node.key").read_bytes()
    capsys.readouterr()
    assert main(["deploy", "add", str(folder), "zug", "--json"]) == 0
    document = DEPLOY_DOCUMENTS["deploy add"].model_validate_json(capsys.readouterr().out).model_dump()
    assert document["nodes"] == {"zug": str(folder / "nodes" / "zug")}
    assert read_deployment(folder).nodes == ("basel", "bern", "zug")
    assert (folder / "server" / "keys" / "zug.pub").is_file()
    assert modes(folder)["nodes/zug/node.key"] == 0o600
    assert (folder / "nodes/basel/node.key").read_bytes() == before
    assert main(["deploy", "add", str(folder), "Zug"]) == 3
    assert "there is a node 'Zug' already" in capsys.readouterr().err


def test_a_name_that_is_no_node_changes_no_file(folder):
    deployment, other = read_deployment(folder), folder / "other.pub"
    other.write_text("not yours")
    for change in (making.remove_node, making.renew_key):
        with pytest.raises(UsageError, match="there is no node"):
            change(deployment, "../../other")
    assert other.read_text() == "not yours"
    assert read_deployment(folder) == deployment


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    assert init(tmp_path / "full") == 2
    assert "full: is not empty; give a new folder" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine.txt"]
    (tmp_path / "empty").mkdir()
    assert init(tmp_path / "empty") == 0


@pytest.mark.parametrize(
    ("option", "value", "code", "sentence"),
    [
        ("--host", "https://server", 3, "'https://server' is no name or address of a machine"),
        ("--host", "server:8000", 3, "without a port"),
        ("--nodes", "../basel", 3, "'../basel' cannot be the name of a node"),
        ("--nodes", "a,b,A", 3, "there is a node 'A' already"),
        ("--days", "0", 3, "0 days are none"),
        ("--days", "99999999", 3, "end after the calendar"),
        ("--port", "70000", 2, "70000"),
    ],
)
def test_what_makes_no_sense_leaves_nothing(tmp_path, capsys, option, value, code, sentence):
    given = {"--host": "127.0.0.1", "--nodes": "basel", option: value}
    assert main(["deploy", "init", str(tmp_path / "new"), *(word for pair in given.items() for word in pair)]) == code
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_failure_half_way_leaves_nothing(tmp_path, capsys, monkeypatch):
    def full(name):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(making, "make_keys", full)
    assert init(tmp_path / "new") == 2
    assert "cannot be written: No space left on device" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_a_deployment(tmp_path, capsys):
    assert main(["deploy", "server", str(tmp_path)]) == 2
    assert "there is no deployment in it; make one with polyfed deploy init" in capsys.readouterr().err
    assert main(["deploy", "node", str(tmp_path), "--data", "x.csv"]) == 2
    assert "there is no node in it" in capsys.readouterr().err


def test_the_schemas_are_printed(capsys):
    assert main(["schema", "deploy status"]) == 0
    assert set(json.loads(capsys.readouterr().out)["properties"]) == {
        *("command", "server", "version", "nodes", "runs", "studies")
    }


def test_deploy_alone_is_answered_with_a_sentence(capsys):
    assert main(["deploy"]) == 2
    assert capsys.readouterr().err == "error: missing command; see polyfed deploy --help.\n"
