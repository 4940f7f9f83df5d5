"""A damaged part of a run folder is named, and only what needs it is rejected."""

from __future__ import annotations

import json
import warnings

import pytest
import torch

import polyfed as pf
from folder_files import contents, reseal, reseal_arrays, reseal_events
from folder_uses import READING, USES, Folder, rejections
from polyfed.cli import main
from polyfed.folders.documents import digest
from polyfed.methods.messages import from_bytes, to_bytes
from polyfed.report.document import report_html
from polyfed.report.folders import read_run

MODEL = {"load", "scores", "predict", "predict for who joined", "join", "resume"}
NEEDS = {  # who cannot do without a file
    "run.json": set(USES),
    "prepared.json": MODEL,
    "prepared.safetensors": MODEL,
    "late_clients.json": {"predict for who joined", "join"},
    "late_clients-*.safetensors": {"predict for who joined", "join"},
    "events.jsonl": {"scores", "report", "resume"},
    "config.toml": {"predict", "predict for who joined", "join", "resume"},
    "results.json": set(),
    "timing.jsonl": set(),
    "run.log": set(),
    "checkpoints/000003.json": set(),
    "checkpoints/000003.safetensors": set(),
}


@pytest.fixture
def folder(tmp_path):
    return Folder.copied("pfed-mul", tmp_path / "run")


def path_of(folder, name):
    (path,) = folder.path.glob(name)
    return path


def flipped(content):
    return content[: len(content) // 2] + bytes([content[len(content) // 2] ^ 0x81]) + content[len(content) // 2 + 1 :]


DAMAGES = {
    "a byte": flipped,
    "cut off": lambda content: content[: len(content) // 3],
    "[ × 100,000": lambda content: b"[" * 100_000 + b"\n",
    "no object": lambda content: b"5\n",
}


@pytest.mark.parametrize("name", NEEDS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_only_what_needs_a_damaged_file_is_rejected(folder, name, damage):
    path = path_of(folder, name)
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    uses = set(USES) if damage == "a byte" else set(READING)  # those that write take their time
    with_path_in_errors = rejections(folder, [use for use in USES if use in uses])
    hidden = {"watch"} if name == "events.jsonl" else set()  # it shows what it can read, until there is something else
    assert set(with_path_in_errors) - hidden == NEEDS[name] & uses
    assert all(path.name in sentence for sentence in with_path_in_errors.values()), with_path_in_errors


@pytest.mark.parametrize("name", [name for name in NEEDS if name != "run.log"])
def test_only_what_needs_a_missing_file_is_rejected(folder, name):
    path = path_of(folder, name)
    path.unlink()
    with_path_in_errors = rejections(folder)
    optional = ("config.toml", "late_clients.json")  # a run from Python has none, and most have no late_clients
    wanted = {"predict for who joined"} if name == "late_clients.json" else NEEDS[name]
    assert set(with_path_in_errors) - {"watch"} == (set() if name == "config.toml" else wanted - {"watch"})
    assert name in optional or all(
        path.name in sentence or "run.json" in sentence for sentence in with_path_in_errors.values()
    ), with_path_in_errors


def test_replaced_labels_do_not_pass(folder):
    """Sound files of the same form, with other labels: nothing but a digest can tell."""
    for name in ("late_clients-*.safetensors", "prepared.safetensors"):
        path = path_of(folder, name)
        arrays = from_bytes(path.read_bytes())
        for key in [key for key in arrays if key.endswith("/y")]:
            arrays[key] = arrays[key].flip(0)
        path.write_bytes(to_bytes(arrays))
        with_path_in_errors = rejections(folder, ["predict for who joined"])
        assert with_path_in_errors["predict for who joined"].startswith(f"{path}: is damaged (its digest does not fit)")


def test_no_byte_of_what_is_read_back_may_change(folder):
    """Every 61st byte of every file with a digest, one after the other."""
    names = [
        "run.json",
        "prepared.json",
        "prepared.safetensors",
        "late_clients.json",
        "late_clients-*.safetensors",
        "events.jsonl",
    ]
    for path in [path_of(folder, name) for name in (*names, "results.json")]:
        content = path.read_bytes()
        for at in range(0, len(content), 61):
            path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            assert _is_noticed(folder), (path.name, at)
        path.write_bytes(content)
    assert not _is_noticed(folder)


def _is_noticed(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return bool(pf.load(folder.path).troubles or read_run(folder.path).trouble)
        except pf.DataError:
            return True


# ---- whoever changes a file may know how to give it a digest -----------------------------------------------------------


def change_checkpoints(folder, raw, **others):
    """Each of them with this in place of the size of the events, and other entries."""
    for path in (folder.path / "checkpoints").glob("*.json"):
        document = json.loads(path.read_bytes())
        del document["digest"]
        document |= {f"events_{what}": value for what, value in others.items()} | {"events_size": "@"}
        body = json.dumps(document).replace('"@"', raw).encode()
        path.write_bytes(b'{"digest": "' + digest(body).encode() + b'", ' + body[1:])


@pytest.mark.parametrize("size", ["-1", "1e400", "1e3", "null", '"7"', "9" * 400, "NaN", "99999999", "[]"])
def test_odd_sizes_of_the_events(folder, size):
    change_checkpoints(folder, size)
    with_path_in_errors = rejections(folder)
    if size == "99999999":
        assert set(with_path_in_errors) == {"scores", "report", "resume"}
        assert all("events.jsonl: has" in sentence for sentence in with_path_in_errors.values())
    else:
        assert set(with_path_in_errors) >= MODEL
        assert all("there is no checkpoint that can be read" in with_path_in_errors[use] for use in MODEL)


@pytest.mark.parametrize("name", ["²³.json", "٣٣٣٣٣٣.json", "00004.json", "999999999999.json", "000009.json.x"])
def test_odd_names_among_the_checkpoints(folder, name):
    (folder.path / "checkpoints" / name).write_bytes(b"[" * 100_000)
    assert rejections(folder) == {}


def test_an_index_out_of_range(folder):
    for name, uses in (
        ("late_clients-*.safetensors", {"predict for who joined", "join"}),
        ("prepared.safetensors", MODEL),
    ):
        path = path_of(folder, name)
        arrays = from_bytes(path.read_bytes())
        key = next(key for key in arrays if key.endswith("/at"))
        arrays[key] = arrays[key] + 10**6
        path = reseal_arrays(folder.path, path, to_bytes(arrays))
        with_path_in_errors = rejections(folder)
        assert set(with_path_in_errors) == uses
        assert all(
            path.name in sentence and "at rows that are not there" in sentence
            for sentence in with_path_in_errors.values()
        )


def test_a_client_that_is_not_there_in_a_checkpoint(folder):
    for path in (folder.path / "checkpoints").glob("*.safetensors"):
        arrays = from_bytes(path.read_bytes())
        reseal_arrays(folder.path, path, to_bytes({**arrays, "client/99/x": torch.zeros(1)}))
    with_path_in_errors = rejections(folder)
    assert all("there is no checkpoint that can be read" in with_path_in_errors[use] for use in MODEL)


def test_a_state_that_a_method_cannot_use_is_told_whenever_it_is_met(tmp_path):
    """The client's own work fails in the round, which goes on without it; the evaluation meets its state again."""
    folder = Folder.copied("one feature", tmp_path / "run")
    for path in (folder.path / "checkpoints").glob("*.safetensors"):
        arrays = from_bytes(path.read_bytes())
        odd = {name: torch.zeros(3, 4) for name in arrays if name.startswith("client/0/personal/kernels")}
        reseal_arrays(folder.path, path, to_bytes({**arrays, **odd}))
    with_path_in_errors = rejections(folder, ["predict", "resume", "predict for who joined"])
    assert set(with_path_in_errors) == {"predict", "resume"}
    assert all(
        sentence.startswith(f"{folder.path}: what is stored does not fit") for sentence in with_path_in_errors.values()
    )


def test_a_value_of_a_megabyte_is_told_in_a_few_words(folder):
    reseal(folder.path / "run.json", lambda d: d["settings"].update(aggregation="x" * 10**6))
    assert "aggregation 'xxxxxxxxxxxx...xxxxxxxxxxxxx' is unknown; known are" in rejections(folder, ["load"])["load"]
    assert len(str(pf.DataError("x" * 10**6, where="here", remedy="mend it"))) < 1000


def test_a_link_that_leads_nowhere_is_damage(folder):
    (folder.path / "late_clients.json").unlink()
    (folder.path / "late_clients.json").symlink_to("late_clients.json")
    with_path_in_errors = rejections(folder)
    assert set(with_path_in_errors) == {"predict for who joined", "join"}
    assert all("late_clients.json" in sentence for sentence in with_path_in_errors.values())


@pytest.mark.parametrize("name", ["events.jsonl", "timing.jsonl", "run.log", "checkpoints"])
def test_a_link_in_a_folder_does_not_lead_a_writer_elsewhere(folder, tmp_path, name):
    """A run of others with a link to a file of mine: neither is that file cut nor added to."""
    mine, path = tmp_path / "mine", folder.path / name
    if name == "checkpoints":
        path.rename(mine)
    else:
        mine.write_bytes(b"mine")
        path.unlink()
    path.symlink_to(mine)
    if name == "events.jsonl":
        change_checkpoints(folder, "0", sha256=digest(b""))
    before = contents(mine) if mine.is_dir() else mine.read_bytes()
    with_path_in_errors = rejections(folder)
    assert (contents(mine) if mine.is_dir() else mine.read_bytes()) == before
    assert name == "run.log" or f"{path}: " in with_path_in_errors["resume"]


ODD_RESULTS = [
    lambda d: d.update(round=-1),
    lambda d: d.update(round="7"),
    lambda d: d.update(predictions=5),
    lambda d: d.update(predictions={"a": {"pulse": {"y": [1.0], "mean": []}}}),
    lambda d: d.update(predictions={"a": {"sick": {"y": [5], "proba": [[0.5, 0.5]]}}}),
    lambda d: d.update(tasks={"pulse": {"kind": "mood", "classes": None}}),
    lambda d: d.update(latents={"a": {"pulse": {"x": []}}}),
    lambda d: d.update(model={"task_correlation": {"names": ["a"], "matrix": []}}),
]


@pytest.mark.parametrize("change", ODD_RESULTS)
def test_odd_results_are_told_in_the_report_and_written_anew(folder, change):
    reseal(folder.path / "results.json", change)
    assert "results.json cannot be read (" in read_run(folder.path).trouble
    assert "results.json cannot be read (" in report_html([read_run(folder.path)])
    assert rejections(folder) == {}  # a resume among them
    assert read_run(folder.path).trouble == ""


@pytest.mark.parametrize(
    "line",
    [
        b"5",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"event": 5}',
        b'{"event": "round", "round": 1e400}',
        b'{"event": "round"}',
        b"\xff",
        b'{"event": "start", "tasks": 5}',
    ],
)
def test_odd_lines_among_the_events(folder, line):
    content = (folder.path / "events.jsonl").read_bytes()
    reseal_events(folder.path, content + line + b"\n")
    with_path_in_errors = rejections(folder)
    assert set(with_path_in_errors) == {"scores", "report", "resume", "watch"}
    n = content.count(b"\n") + 1
    assert all(f"events.jsonl, line {n}: " in sentence for sentence in with_path_in_errors.values()), (
        with_path_in_errors
    )


def test_what_an_event_may_leave_out_is_not_missed(folder):
    """Clients of a start, and numbers that JSON has no word for."""
    events = [json.loads(line) for line in (folder.path / "events.jsonl").read_bytes().splitlines()]
    del events[0]["clients"]
    for event in events:
        for metrics in event.get("metrics", {}).values():
            metrics["bound"] = None
    reseal_events(folder.path, b"".join(json.dumps(event).encode() + b"\n" for event in events))
    assert rejections(folder) == {}


def test_the_command_line_says_it_in_one_line(folder, capfd):
    path_of(folder, "late_clients-*.safetensors").write_bytes(b"")
    before = contents(folder.path)
    for client, code in (("late", 4), ("a", 0)):
        assert main(["predict", str(folder.path), str(folder.rows), "--client", client, "--json"]) == code
    with_path_in_errors = capfd.readouterr().err.splitlines()
    assert [line.split(": ")[0] for line in with_path_in_errors] == [
        "warning",
        "error",
        "warning",
    ]  # each names the file
    assert all("is damaged (its digest does not fit); remove late_clients.json" in line for line in with_path_in_errors)
    assert main(["join", str(folder.path), str(folder.rows), "--name", "new"]) == 4
    assert contents(folder.path) == before
    (folder.path / "late_clients.json").unlink()  # the remedy
    assert main(["join", str(folder.path), str(folder.rows), "--name", "new"]) == 0
    assert main(["predict", str(folder.path), str(folder.rows), "--client", "new", "--json"]) == 0
