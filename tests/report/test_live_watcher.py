"""What is known of a run while it goes on, is cut short, resumed, or done."""

from __future__ import annotations

import json
import os
import re
import time

import pytest
from run_folders import evaluation_event, make_run, round_event, start_event, write_lines

from polyfed.errors import DataError
from polyfed.folders.documents import write_document
from polyfed.report.live import QUIET, Tail, Watcher, snapshot


def as_they_are(content, path, first):
    return (json.loads(line) for line in content.splitlines())


def age(folder, seconds):
    """As if nothing had been written for so long."""
    then = time.time() - seconds
    for path in folder.iterdir():
        os.utime(path, (then, then))


def test_a_file_is_read_on_from_where_one_was(tmp_path):
    tail = Tail(tmp_path / "events.jsonl", as_they_are)
    assert tail.read() == (False, [])
    write_lines(tail.path, [{"n": 1}, {"n": 2}])
    assert tail.read() == (False, [{"n": 1}, {"n": 2}])
    with tail.path.open("a") as file:
        file.write('{"n": 3}\n{"n": ')
    assert tail.read() == (False, [{"n": 3}])
    with tail.path.open("a") as file:
        file.write("4}\n")
    assert tail.read() == (False, [{"n": 4}])
    assert tail.read() == (False, [])


@pytest.mark.parametrize("after", [[{"n": 1}], [{"n": 1}, {"n": 7}], [{"n": 1}, {"n": 7}, {"n": 8}, {"n": 9}]])
def test_a_file_that_was_cut_back_is_read_anew_also_if_it_has_grown_again(tmp_path, after):
    tail = Tail(tmp_path / "events.jsonl", as_they_are)
    write_lines(tail.path, [{"n": 1}, {"n": 2}])
    tail.read()
    write_lines(tail.path, after)
    assert tail.read() == (True, after)


def test_a_file_that_is_gone_is_forgotten(tmp_path):
    tail = Tail(tmp_path / "events.jsonl", as_they_are)
    write_lines(tail.path, [{"n": 1}])
    tail.read()
    tail.path.unlink()
    assert tail.read() == (True, [])
    assert tail.read() == (False, [])


def test_a_run_that_has_not_begun_is_waited_for(tmp_path):
    watcher = Watcher(tmp_path / "later")
    assert watcher.look().state == "waiting"
    assert snapshot(watcher.look())["title"] == "A run that has not begun"
    make_run(tmp_path / "later", completed=0, found=None)
    assert watcher.look().state == "running"


def test_the_time_left_is_that_of_the_rounds_left(tmp_path):
    folder = make_run(tmp_path / "a", rounds=10, completed=4, found=None)
    look = Watcher(folder).look()
    assert (look.state, look.history.round, look.n_rounds) == ("running", 4, 10)
    assert look.seconds_left == pytest.approx(6 * 3.0)  # two seconds of learning and one of evaluation each


def test_a_quiet_run_is_stopped_and_a_finished_one_finished(tmp_path):
    cut, done = make_run(tmp_path / "cut", completed=2, found=None), make_run(tmp_path / "done")
    for folder in (cut, done):
        age(folder, QUIET + 5)
    assert Watcher(cut).look().state == "stopped"
    assert Watcher(done).look().state == "finished"


def test_a_run_with_long_rounds_has_more_patience(tmp_path):
    folder = make_run(tmp_path / "a", completed=2, found=None)
    write_lines(folder / "timing.jsonl", [{"time": 0, "round": 1, "seconds": 50.0, "evaluation_seconds": 10.0}])
    age(folder, 299)
    assert Watcher(folder).look().state == "running"
    age(folder, 301)
    assert Watcher(folder).look().state == "stopped"


def test_a_killed_and_resumed_run_is_followed(tmp_path):
    folder = make_run(tmp_path / "a", completed=3, found=None)
    watcher = Watcher(folder)
    assert watcher.look().history.round == 3
    write_lines(folder / "events.jsonl", [start_event(), round_event(1)])  # cut back to the last checkpoint
    assert watcher.look().history.round == 1
    write_lines(folder / "events.jsonl", [round_event(2), evaluation_event(2)], mode="a")
    look = watcher.look()
    assert [one.round for one in look.history.rounds] == [1, 2], "no round counts twice"
    assert list(look.history.curve("height", "rmse", part="test")) == [2]


def test_a_finished_run_that_is_asked_for_more_rounds_runs_again(tmp_path):
    folder = make_run(tmp_path / "a")
    watcher = Watcher(folder)
    assert watcher.look().state == "finished"
    described = json.loads((folder / "run.json").read_text())
    described["settings"]["rounds"] = 9
    write_document(folder / "run.json", {key: value for key, value in described.items() if key != "digest"})
    assert watcher.look().state == "running"


def test_the_snapshot_says_what_the_page_shows(tmp_path):
    folder = make_run(tmp_path / "a", rounds=10, completed=4, found=None, rejected={3: {"<b>": "too large"}})
    found = snapshot(Watcher(folder).look())
    facts = " ".join(found["facts"].replace("</dt><dd>", ": ").split())
    assert "Round: 4 of 10" in facts
    assert "Time left: ≈ 18 s" in facts
    assert "Used in last round: 3 of 3" in facts
    assert "Rejected so far: 1" in facts
    assert "Sent down: 7.2 kB" in facts  # 4 rounds, 3 clients, 600 bytes
    assert "Sent up: 11.0 kB" in facts  # one of the twelve was rejected
    assert "&lt;b&gt;" in found["rejections"]
    assert "<b>" not in found["rejections"]
    assert set(found["figures"]) == {"live-curve-0", "live-curve-1", "live-training", "live-bytes"}


def test_the_version_changes_with_the_content_only(tmp_path):
    folder = make_run(tmp_path / "a", completed=2, found=None)
    watcher = Watcher(folder)
    first, second = snapshot(watcher.look()), snapshot(watcher.look())
    assert first == second
    write_lines(folder / "events.jsonl", [round_event(3)], mode="a")
    assert snapshot(watcher.look())["version"] != first["version"]


@pytest.mark.parametrize("line", ["[]", "3", "null", '{"event": 1}', '{"event": "round"}', "[" * 100_000, "\x00", "{"])
def test_a_line_that_is_no_event_is_a_sentence_and_may_be_mended(tmp_path, line):
    folder = make_run(tmp_path / "a", completed=2, found=None)
    whole = (folder / "events.jsonl").read_text()
    watcher = Watcher(folder)
    watcher.look()
    (folder / "events.jsonl").write_text(f"{whole}{line}\n")
    where = f"events.jsonl, line {whole.count(chr(10)) + 1}: cannot be read"
    for _ in range(2):
        with pytest.raises(DataError, match=re.escape(where)):
            watcher.look()
    (folder / "events.jsonl").write_text(whole + json.dumps(round_event(3)) + "\n")
    assert watcher.look().history.round == 3
    assert [one.round for one in watcher.look().history.rounds] == [1, 2, 3]


@pytest.mark.parametrize("line", ["[]", "{", '{"seconds": "long"}', '{"warning": 5}', '{"seconds": 1e400}'])
def test_odd_times_are_a_warning(tmp_path, line):
    folder = make_run(tmp_path / "a", completed=2, found=None)
    with (folder / "timing.jsonl").open("a") as file:
        file.write(f"{line}\n")
    look = Watcher(folder).look()
    assert look.seconds_left == pytest.approx(2 * 3.0)
    (warning,) = look.warnings
    assert warning.startswith("timing.jsonl, line 3: cannot be read")
    assert snapshot(look)["state"] == "running"
