"""A node before it starts, and after it has ended: what is checked, how long is waited, when it is given up."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="deployments need Flower: pip install 'polyfed[flower]'")

from polyfed.cli import main
from polyfed.data import DEPLOYED, Limits
from polyfed.errors import ConfigError, PolyfedError
from polyfed.flower.deploy import node as nodes
from polyfed.flower.deploy.commands import node_config
from polyfed.flower.deploy.layout import read_node
from polyfed.flower.deploy.making import make_deployment
from polyfed.flower.deploy.restarts import RestartPolicy
from polyfed.flower.own_config import OwnConfig

# What Flower 1.41 prints when the server does not know the key, and also when it takes the node for alive.
REJECTED = """ERROR :     Exit Code: 305
Failed to initialize the connection to the SuperLink.
[code: 2004] Failed to activate SuperNode."""
CONNECTED = "INFO :      SuperNode ID: 14237039924117601768"


@pytest.fixture
def folder(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]  # nobody will be there
    (tmp_path / "my table.csv").write_text("age,pulse\n30,60\n40,71\n")
    return make_deployment(tmp_path / "d d", "127.0.0.1", ["basel"], port=port).node("basel")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(None, "there is no such file"), ("", "has no header"), ("age,pulse\n", "has no rows")],
)
def test_a_table_that_cannot_be_used(folder, tmp_path, capsys, content, sentence):
    if content is not None:
        (tmp_path / "t.csv").write_text(content)
    assert main(["deploy", "node", str(folder), "--data", str(tmp_path / "t.csv")]) == 4
    assert sentence in capsys.readouterr().err


def test_no_table_at_all(folder, capsys):
    assert main(["deploy", "node", str(folder)]) == 4
    assert "there is no table; give --data FILE, or data in node.toml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("ca.crt", None, "the certificate is missing"),
        ("ca.crt", "nonsense", "is not a certificate"),
        ("node.key", None, "the node's private key is missing"),
        ("node.key", "nonsense", "is not a private key"),
        ("node.toml", 'name = "basel"\n', "superlink is missing"),
        ("node.toml", 'name = "basel"\nsuperlink = "server"\n', "'server' is not HOST:PORT"),
    ],
)
def test_a_folder_that_is_not_whole(folder, tmp_path, capsys, name, content, sentence):
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    assert main(["deploy", "node", str(folder), "--data", str(tmp_path / "my table.csv")]) == 3
    assert sentence in capsys.readouterr().err


def test_node_toml_may_name_the_table(folder, tmp_path):
    (folder / "own.csv").write_text("age,pulse\n30,60\n")
    with (folder / "node.toml").open("a") as file:
        file.write('data = "own.csv"\nclient = "Basel, Petersgraben"\n')
    work = nodes.prepare(read_node(folder), None, None, None, None)
    assert (work.data, work.client, work.state) == (folder / "own.csv", "Basel, Petersgraben", folder / "state")
    given = nodes.prepare(read_node(folder), tmp_path / "my table.csv", "b", tmp_path / "s", "other:1")
    assert (given.data, given.client, given.state) == (tmp_path / "my table.csv", "b", tmp_path / "s")
    assert given.superlink == "other:1"


def test_node_toml_has_the_owners_limits_and_the_code_that_studies_may_run(folder, tmp_path):
    plain = nodes.prepare(read_node(folder), tmp_path / "my table.csv", None, None, None)
    assert (plain.limits, plain.allow_code) == (DEPLOYED, ())
    assert nodes._owners_choice(plain) == (
        "Nothing leaves of a task with fewer than 10 training labels here, "
        "and no text or class that fewer than 5 rows have"
    )
    with (folder / "node.toml").open("a") as file:
        file.write('min_rows = 3\nallow_code = ["mine.nets:small"]\n')
    work = nodes.prepare(read_node(folder), tmp_path / "my table.csv", None, None, None, ["mine:other"])
    assert (work.limits, work.allow_code) == (Limits(3, 5), ("mine.nets:small", "mine:other"))
    said = nodes._owners_choice(work)
    assert said.endswith(
        "(lowered in node.toml; 10 and 5 are usual); code that studies may run: mine.nets:small, mine:other"
    )
    from flwr.common.config import parse_config_args

    command = nodes.supernode_command(work, 1234)
    own = OwnConfig.of(parse_config_args([command[command.index("--node-config") + 1]]))
    assert (own.limits, own.allowed) == (work.limits, work.allow_code)
    assert (own.data, own.state, own.client) == (work.data, work.state, work.client)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("min_rows = 0", "min_rows is 0; give a whole number from 1 up"),
        ("min_count = true", "min_count is True; give a whole number from 1 up"),
        ('min_rows = "3"', "min_rows = '3' is not understood"),
        ('allow_code = "a:b"', "allow_code = 'a:b' is not understood"),
        ('allow_code = ["os"]', "'os' names no code; write it as package.module:factory"),
        ("allow_code = [1]", "1 names no code; write it as package.module:factory"),
    ],
)
def test_an_owner_who_slips(folder, tmp_path, capsys, line, sentence):
    with (folder / "node.toml").open("a") as file:
        file.write(line + "\n")
    assert main(["deploy", "node", str(folder), "--data", str(tmp_path / "my table.csv")]) == 3
    said = capsys.readouterr().err
    assert f"node.toml: {sentence}" in said


def test_code_that_is_none_on_the_command_line(folder, tmp_path, capsys):
    argv = ["deploy", "node", str(folder), "--data", str(tmp_path / "my table.csv"), "--allow-code", "a b:c"]
    assert main(argv) == 3
    assert "--allow-code: 'a b:c' names no code" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["/my tables/a.csv", "it's", 'a "b" c', "a=b c='d", "C:\\x\\n.csv", "Zürich\tWest", ""]
)
def test_flower_reads_texts_as_they_are(text):
    from flwr.common.config import parse_config_args

    values = {"data": text, "client": "basel", "n": 3}
    assert parse_config_args([node_config(values)]) == values


def test_a_key_that_nobody_knows_is_given_up():
    policy = RestartPolicy()
    waits = [policy.after(REJECTED, code=1, seconds=3) for _ in range(2)]
    assert sum(waits) <= 30
    with pytest.raises(PolyfedError, match="rejects this node's key: it is not registered there") as raised:
        policy.after(REJECTED, code=1, seconds=3)
    assert raised.value.exit_code == 1


def test_a_node_that_was_alive_a_moment_ago_waits_until_it_is_forgotten():
    policy = RestartPolicy(alive=5.0)
    assert policy.after(REJECTED, code=1, seconds=3) >= 60
    assert policy.after(REJECTED, code=1, seconds=3) < 60  # from here on it is a key that nobody knows
    policy.after(REJECTED, code=1, seconds=3)
    with pytest.raises(PolyfedError, match="rejects"):
        policy.after(REJECTED, code=1, seconds=3)
    assert RestartPolicy(alive=3600.0).after(REJECTED, code=1, seconds=3) < 60


def test_a_node_that_was_killed_waits_a_minute_and_one_that_left_does_not():
    assert RestartPolicy().after(CONNECTED, code=-9, seconds=500) >= 60
    assert RestartPolicy().after(CONNECTED, code=0, seconds=500) < 60


def test_waits_grow_and_end_growing():
    policy = RestartPolicy()
    waits = [policy.after("RuntimeError", code=1, seconds=2) for _ in range(9)]
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert policy.after("RuntimeError", code=1, seconds=4000) == 5  # it ran well in between


@pytest.mark.parametrize(
    ("said", "kind", "sentence"),
    [
        ("Exit Code: 305\n[SSL: CERTIFICATE_VERIFY_FAILED]", PolyfedError, "did not sign"),
        ("Exit Code: 302", ConfigError, "does not take node.key"),
        ("Exit Code: 606", ConfigError, "another version of Flower"),
    ],
)
def test_what_another_start_would_not_mend(said, kind, sentence):
    with pytest.raises(kind, match=sentence):
        RestartPolicy().after(said, code=1, seconds=2)


def test_a_stand_in_is_started_again_and_ends_with_us(folder, tmp_path, monkeypatch):
    """The whole command with a program in Flower's place that ends once and then stays."""
    stand_in = tmp_path / "bin" / "flower-supernode"
    stand_in.parent.mkdir()
    stand_in.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, signal, sys, time\n"
        f"count = pathlib.Path({str(tmp_path / 'count')!r})\n"
        "n = len(count.read_text()) if count.exists() else 0\n"
        "count.write_text('x' * (n + 1))\n"
        f"pathlib.Path({str(tmp_path / 'argv')!r}).write_text('\\n'.join(sys.argv[1:]))\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('bye', flush=True), sys.exit(0)))\n"
        "if n == 0: sys.exit(7)\n"
        "print('SuperNode ID: 1', flush=True)\n"
        "time.sleep(600)\n"
    )
    stand_in.chmod(0o755)
    script = (
        "import sys; from polyfed.flower.deploy import node; node.FIRST = 0.2;"
        f"node.program = lambda name: {str(stand_in)!r};"
        "from polyfed.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    argv = [
        sys.executable,
        "-c",
        script,
        "deploy",
        "node",
        str(folder),
        "--data",
        str(tmp_path / "my table.csv"),
        "--stock",
    ]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    try:
        _until(lambda: (folder / ".alive").exists())
    finally:
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=300)[1]
    assert process.returncode == 0, said
    assert "ended by itself (code 7 after" in said
    assert "bye" in said
    assert "The node has left" in said
    assert (tmp_path / "count").read_text() == "xx"
    assert not (folder / ".alive").exists()
    given = (tmp_path / "argv").read_text().split("\n")
    assert given[given.index("--node-config") + 1].startswith(f'data="{tmp_path}/my table.csv" client="basel" state=')
    assert given[given.index("--auth-supernode-private-key") + 1] == str(folder / "node.key")


def test_without_retry_it_ends(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(nodes, "program", lambda name: "/bin/false")
    argv = ["deploy", "node", str(folder), "--data", str(tmp_path / "my table.csv"), "--stock", "--no-retry"]
    assert main(argv) == 1
    assert "the node ended by itself: code 1 after" in capsys.readouterr().err


def test_flower_is_not_installed(tmp_path):
    block = "import sys; sys.modules['flwr'] = None; from polyfed.cli import main; sys.exit(main(sys.argv[1:]))"
    argv = [sys.executable, "-c", block, "deploy", "init", str(tmp_path / "new"), "--host", "localhost"]
    done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 6
    assert "pip install 'polyfed[flower]'" in done.stderr
    assert not (tmp_path / "new").exists()


def _until(true, seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"waited for {seconds} s in {Path.cwd()}"
        time.sleep(0.05)
