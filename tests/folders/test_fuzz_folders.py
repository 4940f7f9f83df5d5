"""Whatever becomes of the files of a run folder: every use of it ends well or with one sentence."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from hypothesis import given
from hypothesis import strategies as st

from folder_files import reseal_arrays, reseal_events
from folder_uses import KINDS, READING, USES, Folder, made, rejections
from fuzzing import fuzz
from polyfed.folders.documents import digest
from polyfed.methods.messages import from_bytes, to_bytes

DOCUMENTS = ("run.json", "prepared.json", "late_clients.json", "results.json", "checkpoints/000003.json")
ARRAYS = ("prepared.safetensors", "late_clients-*.safetensors", "checkpoints/000003.safetensors")
LINES = ("events.jsonl", "timing.jsonl")
FILES = (*DOCUMENTS, *ARRAYS, *LINES, "config.toml", "run.log", ".lock", ".late_clients.lock", ".making", "flower.json")
NAMES = ("²³.json", "000099.json", "999999999999.json", "00004.json", "-00001.json", "000003.json.json", "000004")

JUNK = st.sampled_from(
    [
        b"",
        b"\0" * 100,
        b"\xff\xfe",
        b"null",
        b"[]",
        b"{}",
        b"5",
        b'"x"',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"NaN",
        b"1e400",
        b"9" * 10_000,
        b'{"digest": "' + b"0" * 64 + b'", }',
        b'{"format": 1}',
        b'{"format": 1e400}',
        b"\n\n\n",
        b"a = " + b"[" * 5000,
    ]
)
# What may stand in a document in the place of something else; some numbers JSON has no word for, but Python writes them.
ODD = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        1,
        1.5,
        -1e308,
        float("nan"),
        float("inf"),
        "@1e400",
        10**400,
        -(10**20),
        "",
        "x" * 100_000,
        "\ud800",
        "\0",
        "../../x",
        "os:system",
        [],
        [[]],
        [None],
        {},
        {"x": 1},
        [0.5] * 3,
        ["a", "a"],
    ]
)


def setup_module():
    """Before hypothesis looks: the runs themselves are no part of a case."""
    for kind in KINDS:
        made(kind)


def places(value, path=()):
    """The paths to all parts of a document."""
    if path:
        yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


@st.composite
def changed(draw, document):
    """The document with up to three of its parts replaced, removed, doubled or exchanged."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        known = sorted(places(document), key=str) if isinstance(document, (dict, list)) else []
        if not known:
            return document
        path = draw(st.sampled_from(known))
        at = document
        for key in path[:-1]:
            at = at[key]
        how = draw(st.sampled_from(["odd", "odd", "odd", "gone", "twice", "other"]))
        if how == "odd":
            at[path[-1]] = copy.deepcopy(draw(ODD))
        elif how == "gone":
            del at[path[-1]]
        elif how == "twice" and isinstance(at, list):
            at.append(copy.deepcopy(at[path[-1]]))
        else:
            other = document
            for key in draw(st.sampled_from(known)):
                other = other[key]
            at[path[-1]] = copy.deepcopy(other)
    return document


def written(document) -> bytes:
    return json.dumps(document).replace('"@1e400"', "1e400").encode()


def resealed(path: Path, document) -> None:
    """With the digest that it then has, as one would write it who knows how."""
    body = written(document)
    path.write_bytes(b'{"digest": "' + digest(body).encode() + b'", ' + body[1:])


def unsealed(path: Path):
    document = json.loads(path.read_bytes())
    document.pop("digest", None)
    return document


NUMBERS = st.sampled_from([float("nan"), float("inf"), -float("inf"), 0.0, -1.0, 1.5, 1e300, -1e300, 1e30, 7.0])


@st.composite
def changed_arrays(draw, arrays):
    """Arrays of which one has other values, another form or another name, or is not there."""
    arrays = dict(arrays)
    name = draw(st.sampled_from(sorted(arrays)))
    value = arrays[name]
    how = draw(st.sampled_from(["filled", "filled", "first", "form", "form", "name", "gone"]))
    if how in ("filled", "first"):
        number = torch.tensor(draw(NUMBERS), dtype=torch.float64)
        number = number if value.is_floating_point() else torch.tensor(draw(st.sampled_from([-1, 0, 10**6, 2**62])))
        value = value.clone()
        (value if how == "filled" else value.flatten()[:1]).copy_(number)
        arrays[name] = value
    elif how == "form":
        forms = [value[None], value.flatten()[:0], value.flatten()[:1], value.float(), value.to(torch.int64)]
        arrays[name] = draw(st.sampled_from([*forms, value.bool(), torch.zeros(3, 4), torch.zeros(())]))
    elif how == "name":
        arrays[draw(st.sampled_from(["", "x", "client/²/x", "client/9/x", "server/", f"{name}x"]))] = arrays.pop(name)
    else:
        del arrays[name]
    return arrays


@st.composite
def cases(draw):
    """A kind of run, a file of its folder, and what to do to it."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    folder = made(kind)
    how = draw(st.sampled_from(["raw", "raw", "document", "document", "document", "arrays", "arrays", "lines", "name"]))
    if how == "raw":
        name = draw(st.sampled_from(FILES))
        what = draw(st.sampled_from(["flip", "flip", "cut", "junk", "gone", "folder", "pipe", "loop", "longer"]))
        return kind, how, name, (what, draw(st.integers(0, 2**30)), draw(JUNK))
    if how == "document":
        name = draw(st.sampled_from(DOCUMENTS))
        return kind, how, name, draw(changed(unsealed(folder / name)))
    if how == "arrays":
        name = draw(st.sampled_from(ARRAYS))
        content = next(folder.glob(name)).read_bytes()
        if draw(st.integers(0, 3)) == 0:
            at, bit = draw(st.integers(0, len(content) - 1)), draw(st.integers(0, 7))
            return kind, how, name, content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
        return kind, how, name, to_bytes(draw(changed_arrays(from_bytes(content))))
    if how == "lines":
        name = draw(st.sampled_from(LINES))
        lines = (folder / name).read_bytes().splitlines()
        at = draw(st.integers(0, len(lines) - 1))
        lines[at] = draw(JUNK) if draw(st.integers(0, 3)) == 0 else written(draw(changed(json.loads(lines[at]))))
        return kind, how, name, b"\n".join(lines) + b"\n"
    return kind, how, f"checkpoints/{draw(st.sampled_from(NAMES))}", draw(st.one_of(JUNK, st.just(b"a copy")))


def damage(folder: Path, how: str, name: str, what) -> None:
    path = next(folder.glob(name), folder / name)
    if how == "raw":
        damage_file(path, *what)
    elif how == "document":
        resealed(path, what)
    elif how == "arrays":
        reseal_arrays(folder, path, what)
    elif how == "lines" and name == "events.jsonl":
        reseal_events(folder, what)
    elif how == "name" and what == b"a copy":
        shutil.copy(folder / "checkpoints" / "000003.json", path)
    else:
        path.write_bytes(what)


def damage_file(path: Path, how: str, number: int, junk: bytes) -> None:
    content = path.read_bytes() if path.is_file() else b"{}"
    if how in ("gone", "folder", "pipe", "loop"):
        path.unlink(missing_ok=True)
    if how == "folder":
        path.mkdir()
    elif how == "pipe":
        os.mkfifo(path)
    elif how == "loop":
        path.symlink_to(path.name)
    elif how == "flip":
        at = number % max(len(content), 1)
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << number % 8]) + content[at + 1 :])
    elif how == "cut":
        path.write_bytes(content[: number % max(len(content), 1)])
    elif how == "longer":
        path.write_bytes(content + junk)
    elif how == "junk":
        path.write_bytes(junk)


@fuzz(150)
@given(cases(), st.sampled_from([READING, READING, READING, (*READING, "join"), tuple(USES)]))
def test_no_damage_to_a_run_folder_ends_in_a_raw_error(case, uses):
    kind, how, name, what = case
    with TemporaryDirectory() as home:
        folder = Folder.copied(kind, Path(home) / "run")
        damage(folder.path, how, name, what)
        with_path_in_errors = rejections(folder, uses)
    if how == "raw" and what[0] != "gone":  # what is rejected is rejected for the part that is damaged
        part = re.escape(name).replace(r"\*", "[0-9a-f]+") + "|checkpoints|completed on many machines"
        for use, sentence in with_path_in_errors.items():
            assert re.search(part, sentence), (use, sentence)
