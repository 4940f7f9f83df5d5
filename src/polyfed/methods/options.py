"""Checks of the options of methods, each with a sentence that names the option."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from reprlib import repr as shorten
from typing import Any

from polyfed.errors import ConfigError, nearest


def check_choice(option: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise ConfigError(f"{option} {shorten(value)} is unknown", remedy=nearest(value, known))


def check_number(
    option: str,
    value: object,
    *,
    whole: bool = False,
    least: float | None = None,
    above: float | None = None,
    below: float = float("inf"),
    most: float = float("inf"),
) -> None:
    """A finite number, whole if need be, of at least `least` or above `above`, less than `below` and at most `most`.

    >>> check_number("local_steps", 0, whole=True, least=1)
    Traceback (most recent call last):
    polyfed.errors.ConfigError: local_steps is 0; give a whole number from 1 up.
    """
    kind, wanted = ("whole number", Integral) if whole else ("number", Real)
    limit = f" from {least:g} up" if least is not None else f" above {above:g}" if above is not None else ""
    limit += (
        f" and below {below:g}" if below < float("inf") else f" and at most {most:g}" if most < float("inf") else ""
    )
    is_number = isinstance(value, wanted) and not isinstance(value, bool)
    if is_number:
        number = as_float(value)
        high_enough = (least is None or number >= least) and (above is None or number > above)
        if high_enough and number < below and number <= most:
            return
    raise ConfigError(f"{option} is {shorten(value)}", remedy=f"give a {kind}{limit}")


def check_numbers(made: object, *options: str, optional: bool = False, **limits: Any) -> None:
    """`check_number` of several options of a method, by their names; with `optional`, None passes."""
    for option in options:
        if not (optional and getattr(made, option) is None):
            check_number(option, getattr(made, option), **limits)


def check_table(option: str, value: object) -> None:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ConfigError(f"{option} is {shorten(value)}", remedy="give a table of names and values")


def as_float(value: Any) -> float:
    """A number as a float; infinite if it is a whole number too large for one."""
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def frozen_tree(tree: Mapping[str, object]) -> tuple[tuple[str, object], ...]:
    """Nested lists as tuples, so that options can serve as a key."""

    def freeze(value: Any) -> object:
        value = value.tolist() if hasattr(value, "tolist") else value
        return tuple(freeze(item) for item in value) if isinstance(value, (list, tuple)) else value

    return tuple((name, freeze(value)) for name, value in tree.items())
