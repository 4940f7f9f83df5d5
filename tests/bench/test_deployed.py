"""What the benchmarks of a deployment count is what the processes have; how fast a round is, is for `make bench-deploy`."""

import os
import socket
import sqlite3
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


def test_costs_are_those_of_a_process_and_what_it_started():
    from bench.deployed import Cost, family

    work = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
    stay = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}]); print('done', flush=True); input()"
    )
    command = [sys.executable, "-c", stay]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        assert process.pid in family(os.getpid())
        cost = Cost.of(family(process.pid))
        assert cost.seconds >= 0.3  # of a child that has ended
        assert 1 < cost.megabytes < 1000
        assert cost.files >= 3
        process.communicate("\n")
    assert Cost.of([process.pid]).files == 0


def test_open_files_are_counted_by_kind(tmp_path):
    from bench.deployed import open_files

    before = open_files([os.getpid()])
    with socket.socket(), sqlite3.connect(tmp_path / "x.db") as database, (tmp_path / "x.txt").open("w"):
        database.execute("create table t (x)")
        after = open_files([os.getpid()])
    database.close()
    assert {kind: after[kind] - before.get(kind, 0) for kind in ("socket", "database", "other")} == {
        "socket": 1,
        "database": 1,
        "other": 1,
    }


def test_rounds_and_their_seconds_are_read_from_a_run(tmp_path):
    from bench.deployed import rounds_of, seconds_of

    assert rounds_of(tmp_path) == []
    (tmp_path / "events.jsonl").write_text('{"event": "start"}\n{"event": "round", "round": 1}\n')
    (tmp_path / "timing.jsonl").write_text('{"round": 1, "seconds": 0.5}\n{"warning": "x"}\n')
    assert [event["round"] for event in rounds_of(tmp_path)] == [1]
    assert seconds_of(tmp_path) == [0.5]


def test_an_engine_that_plays_the_same_rounds_has_the_same_numbers(tmp_path, monkeypatch):
    from bench.deploy_limits import TASKS, difference, write_tables
    from bench.deployed import rounds_of

    import polyfed as pf
    from bench import deploy_limits

    write_tables(tmp_path / "tables", 3)
    federation = pf.Federation.from_table(tmp_path / "tables", tasks=TASKS, split=pf.Split(test=0.25))
    run = pf.simulate("pfed-mul", federation, rounds=2, seed=0, scheme="K", evaluate_every=0)
    run.save(tmp_path / "run")
    assert difference(tmp_path / "tables", tmp_path / "run") < 1e-12
    monkeypatch.setattr(deploy_limits, "rounds_of", lambda folder: rounds_of(folder)[:1])
    assert difference(tmp_path / "tables", tmp_path / "run") > 1e-6  # a round that nobody counted shows


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_a_line_delays_and_loses_packets_and_bytes_arrive_all_the_same(loss):
    from bench.deploy_link import HERE, Link, is_possible

    if not is_possible():
        pytest.skip("a network of its own needs root and /dev/net/tun")
    sent = (
        "import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); s.sendall(bytes(100_000))"
    )
    with Link(0.05, loss) as link, socket.create_server((HERE, 0)) as server:
        command = [*link.inside, sys.executable, "-c", sent, HERE, str(server.getsockname()[1])]
        with subprocess.Popen(command):
            connection, _ = server.accept()
            with connection:
                began = time.monotonic()
                received = b"".join(iter(lambda: connection.recv(65536), b""))
                assert time.monotonic() - began > 0.05
    assert received == bytes(100_000)
    assert (link.n_lost > 0) is (loss > 0)
