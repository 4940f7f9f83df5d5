"""A grid: for a method, the values to try of some of its options. Every combination is a run, in a folder of its own.

>>> combinations({"learning_rate": [0.1, 0.01], "hidden": [[32], [64, 64]]})[1]
{'learning_rate': 0.1, 'hidden': [64, 64]}
>>> folder_name("fedavg", {"learning_rate": 0.1, "hidden": [64, 64]}, seed=0), folder_name("fedavg", {}, seed=0)
('fedavg-learning_rate=0.1-hidden=64,64-0', 'fedavg-0')
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from polyfed.errors import ConfigError, nearest
from polyfed.experiments.config import CompareConfig

ALL = "all"  # in place of a method: every method that has the option
MOST_LETTERS = 100  # of the values in the name of a folder
Grid = dict[str, list[Any]]  # option → its values
Options = dict[str, Any]


def grids(compare: CompareConfig, where: str) -> dict[str, Grid]:
    """Method → its grid, of the methods that are compared and have one; what is set for `all` a method's own replaces."""
    from polyfed.methods import known_methods

    methods = known_methods()
    for name, grid in compare.grid.items():
        place = f"{where}, compare.grid.{name}"
        if name != ALL and name not in methods:
            raise ConfigError("is no method", where=place, remedy=nearest(name, [*methods, ALL]))
        for option, values in grid.items():
            if _twice(values):
                raise ConfigError("a value is given twice", where=f"{place}.{option}", remedy="give each once")
    without = lacking(compare)
    for option, lack in without.items():
        if len(lack) == len(compare.methods):
            known = dict.fromkeys(name for method in compare.methods for name in _options(method))
            place = f"{where}, compare.grid.{ALL}.{option}"
            raise ConfigError("is an option of none of the methods", where=place, remedy=nearest(option, known))
    shared = compare.grid.get(ALL, {})
    known = {m: {o: values for o, values in shared.items() if m not in without[o]} for m in compare.methods}
    found = {method: {**usual, **compare.grid.get(method, {})} for method, usual in known.items()}
    return {method: grid for method, grid in found.items() if grid}


def lacking(compare: CompareConfig) -> dict[str, list[str]]:
    """Option of `all` → the methods that are compared and do not have it."""
    return {o: [m for m in compare.methods if o not in _options(m)] for o in compare.grid.get(ALL, {})}


def combinations(grid: Grid) -> list[Options]:
    """Each value of each option with each of the others; of no grid the one with nothing in it."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def written(options: Options) -> str:
    """
    >>> written({"hidden": [64, 64], "kernel": "rbf"})
    'hidden=64,64, kernel=rbf'
    """
    return ", ".join(f"{option}={_word(value)}" for option, value in options.items())


def folder_name(method: str, options: Options, seed: int) -> str:
    """<method>-<option>=<value>-<seed>: of these values alone, so that a grid can grow in the same folder."""
    text = "".join(f"-{option}={_word(value)}" for option, value in options.items())
    safe = re.sub(r"[^A-Za-z0-9.,+=_-]", "_", text)[:MOST_LETTERS]
    if safe != text:  # two values that look alike when written so are still two
        safe = f"{safe}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return f"{method}{safe}-{seed}"


def _word(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_word, value)) + ("," if len(value) == 1 else "")
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _twice(values: Sequence[object]) -> bool:
    """Also values that would share a folder, as 32 and "32" do."""
    return any(value in values[:i] for i, value in enumerate(values)) or len({*map(_word, values)}) < len(values)


def _options(method: str) -> list[str]:
    from polyfed.methods import known_methods

    made = known_methods().get(method)
    return [option.name for option in fields(made)] if is_dataclass(made) else []
