"""The form of an update: what it is made of, and whether its labels are those that were declared.

Clients choose what stands in an update, and so in the reason for which it is rejected: whole numbers of thousands of digits
and names of a megabyte must do no harm, neither here nor in the events.

>>> shown("a\\x1b[31m" + "b" * 1000)[:6], len(shown("b" * 1000))
('a [31m', 200)
>>> plain(10**5000)
'a whole number of 16610 bits'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from polyfed.methods import ClientUpdate
from polyfed.methods.update_batch import UpdateBatch, batch_of

LARGEST = 1e30  # of any number that is sent or kept: its square is a double still, and no sane model comes near it
LONGEST = 200  # characters of a reason
_PARTS = ("arrays", "pooled", "counts", "metrics")


class Forms:
    """Looks at the forms of updates; at the arrays of those that are in one batch, once."""

    def __init__(self, template: ClientUpdate) -> None:
        self._template = template
        self._batches: dict[int, tuple[UpdateBatch, str | None]] = {}

    def misfit(self, update: object, declared: Mapping[str, int]) -> str | None:
        """What is wrong with the form of an update, if anything is."""
        try:
            found = self._misfit(update, declared)
        except Exception as error:  # objects that break when they are looked at
            found = f"is not understood ({reason_of(error)})"
        return None if found is None else shown(found)

    def _misfit(self, update: object, declared: Mapping[str, int]) -> str | None:
        if not isinstance(update, ClientUpdate):
            return f"sent a {type(update).__name__} instead of a ClientUpdate"
        batch = batch_of(update)
        if batch is not None and self._is_usual(update, declared):
            return self._of_batch(batch, update)
        if batch is None:
            reason = _other_names(update, self._template, _PARTS) or _other_forms(update, self._template)
        else:
            reason = _other_names(update, self._template, _PARTS[2:]) or self._of_batch(batch, update)
        return reason or _odd_number(update, declared)

    def _is_usual(self, update: ClientUpdate, declared: Mapping[str, int]) -> bool:
        """Whether all but its arrays is as it should be. Thousands of updates are looked at: this is soon done."""
        counts, metrics, weight, usual = update.counts, update.metrics, update.weight, self._template
        return (
            type(counts) is dict
            and type(metrics) is dict
            and type(weight) is float
            and counts == declared
            and counts.keys() == usual.counts.keys()
            and metrics.keys() == usual.metrics.keys()
            and 0.0 < weight <= sum(declared.values()) <= LARGEST
            and all(type(value) is float and abs(value) <= LARGEST for value in metrics.values())
        )

    def _of_batch(self, batch: UpdateBatch, update: ClientUpdate) -> str | None:
        if id(batch) not in self._batches:
            one = batch.update(0, update.weight, update.counts, update.metrics)
            reason = _other_names(one, self._template, _PARTS[:2]) or _other_forms(one, self._template)
            self._batches[id(batch)] = batch, reason
        return self._batches[id(batch)][1]


def shown(text: str) -> str:
    """A text that a client may have chosen, fit for events and terminals: in one line, and of a sane length."""
    text = "".join(character if character.isprintable() else " " for character in text[: LONGEST + 1])
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def reason_of(error: BaseException) -> str:
    try:
        return shown(f"{type(error).__name__}: {error}")
    except Exception:  # its text cannot be made
        return type(error).__name__


def plain(value: object) -> str:
    """A value in a reason; Python does not write whole numbers of thousands of digits."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a whole number of {value.bit_length()} bits"
    return shown(repr(value))


def _other_names(update: ClientUpdate, template: ClientUpdate, parts: Sequence[str]) -> str | None:
    for what in parts:
        mine, wanted = getattr(update, what), getattr(template, what)
        if not isinstance(mine, dict | Mapping):  # a dict is soon recognised
            return f"{what} are a {type(mine).__name__}"
        if mine.keys() != wanted.keys():
            missing, extra = sorted(wanted.keys() - mine.keys()), sorted(mine.keys() - wanted.keys(), key=str)
            return f"{what} lack {missing[0]!r}" if missing else f"{what} have {extra[0]!r}, which nobody asked for"
    return None


def _other_forms(update: ClientUpdate, template: ClientUpdate) -> str | None:
    for name, value in update.arrays.items():
        if reason := _other_form(f"array {name!r}", value, template.arrays[name]):
            return reason
    for name, pair in update.pooled.items():
        if not isinstance(pair, tuple) or len(pair) != 2:
            return f"pooled {name!r} is no pair of sum and count"
        for what, value, wanted in zip(("sum", "count"), pair, template.pooled[name], strict=True):
            if reason := _other_form(f"{what} of {name!r}", value, wanted):
                return reason
    return None


def _other_form(what: str, value: object, wanted: Tensor) -> str | None:
    if not isinstance(value, Tensor):
        return f"{what} is a {type(value).__name__}, not a tensor"
    if value.shape != wanted.shape:
        return f"{what} has shape {tuple(value.shape)}, not {tuple(wanted.shape)}"
    if value.dtype != wanted.dtype:
        return f"{what} is {value.dtype}, not {wanted.dtype}"
    if value.layout != torch.strided or value.device != wanted.device:
        return f"{what} is {value.layout} on {value.device}"
    return None


def _odd_number(update: ClientUpdate, declared: Mapping[str, int]) -> str | None:
    """What is wrong with counts, weight and metrics. Fewer labels than declared are honest: those of a class that nobody
    declared are left out later."""
    for task, count in update.counts.items():
        if not _is_number(count) or not 0 <= count <= LARGEST or count != int(count):
            return f"count of task {task!r} is {plain(count)}"
        if count > declared.get(task, 0):
            return f"count of task {task!r} is {plain(count)}, and it declared {declared.get(task, 0)} labels"
    most = sum(declared.values())
    if not _is_number(update.weight) or not 0 < update.weight <= LARGEST:
        return f"weight is {plain(update.weight)}"
    if update.weight > max(most, 1):
        return f"weight is {plain(update.weight)}, and it declared {most} labels"
    odd = ((n, v) for n, v in update.metrics.items() if not _is_number(v) or not abs(v) <= LARGEST)
    return next((f"metric {name!r} is {plain(value)}" for name, value in odd), None)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
