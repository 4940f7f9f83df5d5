"""One family of errors: each says the value, where it is, and the remedy, in one sentence.

Every class carries the exit code with which the command line ends when it meets that error.

>>> str(DataError("label 'maybe' is not a number", where="task 'pulse', row 3", remedy="correct it or drop the row"))
"task 'pulse', row 3: label 'maybe' is not a number; correct it or drop the row."
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

LONGEST = 700  # characters of what is wrong: a value in it may be a megabyte long


class PolyfedError(Exception):
    """Base of all errors that polyfed raises on purpose."""

    exit_code = 1

    def __init__(self, what: str, *, where: str | Path = "", remedy: str = "") -> None:
        what = what if len(what) <= LONGEST else f"{what[: LONGEST - 1]}…"
        self.what, self.where, self.remedy = what, str(where), remedy
        place = f"{where}: " if where else ""
        cure = f"; {remedy}" if remedy else ""
        super().__init__(f"{place}{what}{cure}.")

    def __reduce__(self) -> tuple[Any, ...]:  # the text has three parts; pickle (joblib workers) would pass it as one
        return partial(type(self), self.what, where=self.where, remedy=self.remedy), ()


class UsageError(PolyfedError):
    """A call that makes no sense here, such as predicting before fitting."""

    exit_code = 2


class ConfigError(PolyfedError, ValueError):
    """An option or a task description that is not understood."""

    exit_code = 3


class UnknownNameError(ConfigError, KeyError):
    """A task or a client that is not there; also a KeyError, as mappings promise."""

    __str__ = Exception.__str__  # KeyError would put the sentence into quotes


class DataError(PolyfedError, ValueError):
    """Features or labels that cannot be used as they are."""

    exit_code = 4


class NumericalError(PolyfedError, ArithmeticError):
    """Linear algebra that broke down, with the task in which it did."""

    exit_code = 5


class MissingExtraError(PolyfedError, ImportError):
    """An optional dependency that is not installed."""

    exit_code = 6


class Interrupted(PolyfedError, KeyboardInterrupt):
    """Ctrl-C, after everything that was done has been stored."""

    exit_code = 130


def in_words(error: Exception) -> Exception:
    """An error of whoever hands out memory as one that says what to do; any other as it is.

    >>> str(in_words(MemoryError("Unable to allocate 298. GiB")))
    "memory does not hold what this takes; use fewer rows, or inducing='auto' where the method has it."
    """
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "allocate memory" in str(error)):
        remedy = "use fewer rows, or inducing='auto' where the method has it"
        return NumericalError("memory does not hold what this takes", remedy=remedy)
    return error


def nearest(name: object, known: Iterable[str]) -> str:
    """The remedy for an unknown name: the closest known one if there is one, and all of them.

    >>> nearest("bianry", ["binary", "count"])
    "did you mean 'binary'? known are 'binary', 'count'"
    """
    known = [str(k) for k in known]
    close = difflib.get_close_matches(str(name), known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}known are {', '.join(repr(k) for k in known)}"
