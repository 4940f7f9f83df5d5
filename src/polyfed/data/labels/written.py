"""What stands in a cell of a file: which texts mean that there is nothing, and which labels are numbers.

A CSV file has no types. Labels and names of clients are read as they are written, so that a class called NA, or clients
called 1 and 01, stay what they are; only labels that are all written as plain numbers, or as booleans, become these.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from polyfed.data.task import Label
from polyfed.errors import ConfigError

EMPTY = ("",)  # means nothing in labels and names, unless the user says otherwise
# Among numbers none of these can be meant as a value; as a class or a name each of them can.
USUAL = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d{1,15})?")  # 01 and 1e0 are names
_TRUTH = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}


def checked_missing(given: object) -> tuple[str, ...] | None:
    """The texts that mean that there is no label or no client, as a user gives them; None for the usual."""
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(one, str) for one in given):
        raise ConfigError(f"missing is {given!r}", remedy="give a list of texts such as ['', 'NA']")
    return tuple(dict.fromkeys(given))


def as_labels(written: Iterable[object], classes: Sequence[Label] | None = None, *, lenient: bool = True) -> np.ndarray:
    """Texts as labels, None where there is none. With `classes`, those that they name; a usual marker that is no class is
    no label then, if `lenient`.

    >>> as_labels(["1", "2", None]), as_labels(["1", "01"]), as_labels(["True", "False"])
    (array([1, 2, None], dtype=object), array(['1', '01'], dtype=object), array([True, False], dtype=object))
    >>> as_labels(["1", "NA", "x"], classes=[1, 2])
    array([1, None, 'x'], dtype=object)
    """
    texts = [one if isinstance(one, str) else None for one in written]
    distinct = [text for text in dict.fromkeys(texts) if text is not None]
    meaning = _natural(distinct) if classes is None else {text: _class_of(text, classes, lenient) for text in distinct}
    return np.array([None if text is None else meaning[text] for text in texts], dtype=object)


def _natural(distinct: Sequence[str]) -> dict[str, Label]:
    """Booleans or numbers if every text is one and no two are the same; else the texts themselves."""
    for read in (_TRUTH.get, _number):
        values = [value for text in distinct if (value := read(text.strip())) is not None]
        if len(set(values)) == len(distinct):
            together = np.array(values).tolist() if values else []  # 2 beside 1.5 is 2.0
            return dict(zip(distinct, together, strict=True))
    return {text: text for text in distinct}


def _class_of(text: str, classes: Sequence[Label], lenient: bool) -> Label | None:
    if text in classes:
        return text
    for read in (_TRUTH.get, _number):
        if (value := read(text.strip())) is not None:
            for known in classes:
                if not isinstance(known, str) and known == value:
                    return known
    return None if lenient and text in USUAL else text


def _number(text: str) -> float | None:
    found = _NUMBER.fullmatch(text)
    return None if found is None else float(text) if found[2] else int(text)
