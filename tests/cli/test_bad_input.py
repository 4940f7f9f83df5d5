"""Bad input is rejected in one exact sentence with its exit code, and leaves nothing behind.

`bad_input.txt` (options, tables), `bad_tables.txt` (kinds of files, dates, splits), `bad_config.txt` (settings), and with a run
`bad_run.txt` and `bad_predict.txt`, hold the cases:

    # its name
    $ polyfed the command
    < a file that is there = its text, with \\n for a new line ("latin-1" or "base64" before the name: in it)
    3 the exit code and the sentence; one that ends in ... is only the beginning, and {HOME} is where we are
"""

from __future__ import annotations

import shlex
from base64 import b64decode
from pathlib import Path
from typing import NamedTuple

import pytest

WORDS = {
    "{RUN}": "run --data hospitals.csv --client ward --features age --regression pulse",
    "{T}": "run --data t.csv --client ward --features age",
    "{HEADER}": "ward,age,pulse,sick,visits,cured,treated\n",
    "{ROWS}": "a,50,80,no,1,2,3\nb,60,90,yes,0,1,3\n",
    "{D400}": "9" * 400,
    "{D5000}": "9" * 5000,
    "{X300}": "x" * 300,
    "{DEEP}": "[" * 2000 + "]" * 2000,
    "{NUL}": "\0",
    "{COLUMNS}": "known are 'ward', 'age', 'pulse', 'sick', 'visits', 'cured', 'treated'.",
}


class Case(NamedTuple):
    name: str
    command: str
    files: dict[str, bytes]
    code: int
    sentence: str


def read_cases(name: str) -> list[Case]:
    text = Path(__file__).with_name(name).read_text()
    for word, meaning in WORDS.items():
        text = text.replace(word, meaning.replace("\n", "\\n"))
    return [_case(block.splitlines()) for block in text.strip().split("\n\n")]


def _case(lines: list[str]) -> Case:
    title, command, *given, outcome = lines
    assert title.startswith("# "), title
    assert command.startswith("$ polyfed"), command
    files = {}
    for line in given:
        name, _, text = line.removeprefix("< ").partition(" = ")
        encoding, name = name.split(" ", 1) if name.startswith(("latin-1 ", "base64 ")) else ("utf-8", name)
        files[name] = b64decode(text) if encoding == "base64" else text.replace("\\n", "\n").encode(encoding)
    code, _, sentence = outcome.partition(" ")
    return Case(title.removeprefix("# "), command.removeprefix("$ polyfed").strip(), files, int(code), sentence)


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def check(polyfed, here: Path, case: Case) -> None:
    for name, text in case.files.items():
        path = here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    before = contents(here)
    done = polyfed(*shlex.split(case.command))
    assert done.out == ""
    told = done.err.replace(str(here), "{HOME}")
    if case.sentence.endswith(" ..."):
        assert told.startswith(f"error: {case.sentence.removesuffix(' ...')}")
        assert told.count("\n") == 1
    else:
        assert told == f"error: {case.sentence}\n"
    assert done.code == case.code
    assert contents(here) == before, "something was changed or left behind"


NEW = [*read_cases("bad_input.txt"), *read_cases("bad_tables.txt"), *read_cases("bad_config.txt")]
OLD = [*read_cases("bad_run.txt"), *read_cases("bad_predict.txt")]


def test_there_are_enough_cases():
    names = [case.name for case in (*NEW, *OLD)]
    assert len(set(names)) == len(names) >= 260


@pytest.mark.parametrize("case", NEW, ids=[case.name for case in NEW])
def test_bad_input_is_rejected(case, polyfed, home):
    check(polyfed, home, case)


@pytest.mark.parametrize("case", OLD, ids=[case.name for case in OLD])
def test_bad_use_of_a_run_is_rejected(case, polyfed, home, run):
    """With a finished run of two rounds in the folder `run`."""
    check(polyfed, home, case)
