"""Checks of the options of data sets."""

from __future__ import annotations

from numbers import Integral, Real

from polyfed.errors import ConfigError


def reject_unless_whole(where: str, least: int, **options: int) -> None:
    for option, value in options.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            what = f"{option}={value!r} is not a whole number that will do"
            raise ConfigError(what, where=where, remedy=f"give {least} or more")


def reject_unless_between(where: str, low: float, high: float, **options: float) -> None:
    for option, value in options.items():
        if not isinstance(value, Real) or isinstance(value, bool) or not low <= float(value) < high:
            what = f"{option}={value!r} is out of range"
            raise ConfigError(what, where=where, remedy=f"give at least {low:g} and less than {high:g}")
