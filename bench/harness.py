"""Timing on a machine that others use too: turns (A B A B ...), ratios of neighbours, medians with quartiles.

The clock is the processor time of this process, so what others do to the wall clock stays out; all runs on one thread.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from time import process_time
from typing import Any

UNITS = {"×": "{:.2f} ×", "s": "{:.2f} s", "ms": "{:.1f} ms", "nats": "{:.2f} nats", "GB": "{:.2f} GB"}


@dataclass(frozen=True)
class Spread:
    """A median between its quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """
        >>> Spread.of([1.0, 2.0, 3.0, 4.0, 100.0])
        Spread(median=3.0, low=2.0, high=4.0)
        """
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, _, high = quantiles(values, n=4, method="inclusive")
        return cls(median(values), low, high)


@dataclass(frozen=True)
class Turns:
    """Seconds of A and of B, turn by turn."""

    a: tuple[float, ...]
    b: tuple[float, ...]

    @property
    def ratio(self) -> Spread:
        """A over B. Each turn gives a ratio of its own: a slow minute slows both sides of it."""
        return Spread.of([a / b for a, b in zip(self.a, self.b, strict=True)])

    @property
    def seconds(self) -> Spread:
        """Of A."""
        return Spread.of(self.a)


def take_turns(
    a: Callable[[], Any],
    b: Callable[[], Any],
    *,
    repeats: int,
    warm_ups: int = 2,
    clock: Callable[[], float] = process_time,
) -> Turns:
    """Run A B A B ... and time each; the first turns warm the caches and the allocator and do not count."""
    times: tuple[list[float], list[float]] = ([], [])
    collecting = gc.isenabled()
    gc.disable()  # a collection would be charged to whoever happens to run
    try:
        for turn in range(warm_ups + repeats):
            gc.collect()
            for run, kept in zip((a, b), times, strict=True):
                start = clock()
                run()
                seconds = clock() - start
                if turn >= warm_ups:
                    kept.append(seconds)
    finally:
        if collecting:
            gc.enable()
    return Turns(tuple(times[0]), tuple(times[1]))


@dataclass(frozen=True)
class Target:
    """What a figure should reach: at most or at least so much."""

    kind: str  # "≤" or "≥"
    value: float

    def met_by(self, figure: float) -> bool:
        return figure <= self.value if self.kind == "≤" else figure >= self.value


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    name: str
    figure: Spread
    unit: str = "×"
    target: Target | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """None without a target."""
        return None if self.target is None else self.target.met_by(self.figure.median)

    def cells(self) -> tuple[str, ...]:
        def show(value: float) -> str:
            return UNITS[self.unit].format(value)

        goal = "" if self.target is None else f"{self.target.kind} {show(self.target.value)}"
        between = f"{self.figure.low:.2f} to {self.figure.high:.2f}"
        verdict = {True: "yes", False: "NO", None: ""}[self.met]
        return self.name, show(self.figure.median), between, goal, verdict, self.note

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"met": self.met}
