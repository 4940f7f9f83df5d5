"""The config file that `polyfed init` writes: guesses to be corrected, and the settings that matter most."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from polyfed.data.tables.servers import is_url
from polyfed.defaults import COMPARED, METHOD
from polyfed.experiments.guessing import Guess
from polyfed.experiments.toml_text import to_toml
from polyfed.kinds import KINDS


def config_text(guesses: Sequence[Guess], source: str | Path, out: Path, query: str | None = None) -> str:
    """A commented file; its source is found from where the file lies."""
    client = next((guess for guess in guesses if guess.role == "client"), None)
    by_kind = {kind: [guess for guess in guesses if guess.role == kind] for kind in KINDS}
    dropped = [guess.column for guess in guesses if guess.role == "drop"]
    lines = [
        "# Written by polyfed init. What follows a # is a remark: correct the guesses, then run",
        f"#   polyfed run {out.name}",
        "",
        "[data]",
        _setting("source", source if is_url(source) else os.path.relpath(source, out.parent)),
        *([] if query is None else [_setting("query", query)]),
    ]
    if client is not None:
        lines.append(f"{_setting('client', client.column)}  # {_remark(client.why)}")
    elif is_url(source) or not Path(source).is_dir():
        lines.append('# client = "..."  # no column was found that says whose row it is: name one')
    lines += [
        f"{_setting('drop', dropped)}  # neither inputs nor targets; all columns not named here are inputs",
        '# features = ["..."]  # only these are inputs',
        "test = 0.2  # the share of each client's rows that is kept for testing",
        '# scaling = "federated"  # or "local" (units of each client), "targets" (features as they are) or "none"',
        '# transform = "auto"  # let held-out rows choose the scale of skewed columns: as they are, logarithm or rank',
        '# split_by = "..."  # test on the latest rows by this column; or split_group (rows that stay together), split_column',
        "# shots = 10  # keep so many training labels of each task",
        "",
        f"[data.tasks]  # kinds: {', '.join(KINDS)}",
    ]
    for kind, found in by_kind.items():
        if found:
            why = "; ".join(f"{guess.column}: {guess.why}" for guess in found)
            lines.append(f"{_setting(kind, [guess.column for guess in found])}  # {_remark(why)}")
    lines += [
        "",
        "# [data.derive]",
        '# disease = "num > 0"  # a column made from another by a comparison',
        "",
        "[method]",
        f'name = "{METHOD}"  # see polyfed methods',
        "",
        "[run]",
        "rounds = 20",
        "seed = 0",
        "# sample = 0.5  # the share of the clients that take part in a round",
        "",
        "[compare]  # for polyfed compare",
        _setting("methods", list(COMPARED)),
        "seeds = [0, 1, 2]",
    ]
    return "\n".join(lines) + "\n"


def _setting(key: str, value: object) -> str:
    return to_toml({key: value}).rstrip("\n")


def _remark(text: str) -> str:
    """Values of a table may hold anything, and a remark ends with its line."""
    return "".join(character if character.isprintable() else " " for character in text)
