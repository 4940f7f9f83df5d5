"""The server's door: every update is looked at before it is used, and a bad one is refused by name.

Refused are errors, foreign types, missing and extra names, wrong shapes and types, values that are not finite, weights
that are not positive, and updates larger by far than those of the others. The rest of the round goes on without them.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from polyfed.methods import ClientUpdate, Outcome, State

MAX_NORM = 1e5  # times the median: clients of very different sizes are honest, six orders of magnitude are not


def check(
    template: ClientUpdate, outcomes: Mapping[str, Outcome], max_norm: float = MAX_NORM
) -> tuple[dict[str, tuple[State, ClientUpdate]], dict[str, str]]:
    """Those that are fit for use, and client → reason for the others, both in the order of their names."""
    refused: dict[str, str] = {}
    sound: dict[str, tuple[State, ClientUpdate]] = {}
    for client in sorted(outcomes):
        outcome = outcomes[client]
        if isinstance(outcome, Exception):
            refused[client] = f"{type(outcome).__name__}: {outcome}"
        elif reason := _misfit(outcome[1], template):
            refused[client] = reason
        else:
            sound[client] = outcome
    for client, reason in _bad_values({client: update for client, (_, update) in sound.items()}, max_norm).items():
        refused[client] = reason
        del sound[client]
    return sound, dict(sorted(refused.items()))


def _misfit(update: ClientUpdate, template: ClientUpdate) -> str | None:
    """What is wrong with its form."""
    if not isinstance(update, ClientUpdate):
        return f"sent a {type(update).__name__} instead of a ClientUpdate"
    for what in ("arrays", "pooled", "counts", "metrics"):
        mine, wanted = getattr(update, what), getattr(template, what)
        if mine.keys() != wanted.keys():
            missing, extra = sorted(wanted.keys() - mine.keys()), sorted(mine.keys() - wanted.keys())
            return f"{what} lack {missing[0]!r}" if missing else f"{what} have {extra[0]!r}, which nobody asked for"
    for name, value in update.arrays.items():
        if reason := _other_form(f"array {name!r}", value, template.arrays[name]):
            return reason
    for name, pair in update.pooled.items():
        for what, value, wanted in zip(("sum", "count"), pair, template.pooled[name], strict=True):
            if reason := _other_form(f"{what} of {name!r}", value, wanted):
                return reason
    if not 0 < update.weight < float("inf"):
        return f"weight is {update.weight}"
    for task, count in update.counts.items():
        if not 0 <= count < float("inf"):
            return f"count of task {task!r} is {count}"
    for name, value in update.metrics.items():
        if not abs(value) < float("inf"):
            return f"metric {name!r} is {value}"
    return None


def _other_form(what: str, value: Tensor, wanted: Tensor) -> str | None:
    if not isinstance(value, Tensor):
        return f"{what} is a {type(value).__name__}, not a tensor"
    if value.shape != wanted.shape:
        return f"{what} has shape {tuple(value.shape)}, not {tuple(wanted.shape)}"
    if value.dtype != wanted.dtype:
        return f"{what} is {value.dtype}, not {wanted.dtype}"
    return None


def _bad_values(updates: Mapping[str, ClientUpdate], max_norm: float) -> dict[str, str]:
    """What is wrong with the numbers; updates of all clients are looked at together, for speed."""
    if not updates:
        return {}
    clients, all_updates = list(updates), list(updates.values())
    reasons: dict[str, str] = {}
    squares = torch.zeros(len(clients), dtype=torch.float64)
    for name in all_updates[0].arrays:
        values = torch.stack([update.arrays[name] for update in all_updates]).reshape(len(clients), -1)
        _note(reasons, clients, ~torch.isfinite(values).all(1), f"array {name!r} is not finite")
        squares += values.to(torch.float64).square().sum(1)
    _note(reasons, clients, _outliers(squares.sqrt(), max_norm), f"its norm is over {max_norm:g} times the median")
    for name in all_updates[0].pooled:
        total, count = (torch.stack([update.pooled[name][i] for update in all_updates]) for i in (0, 1))
        total, count = total.reshape(len(clients), -1).to(torch.float64), count.reshape(len(clients), -1)
        finite = torch.isfinite(total).all(1) & torch.isfinite(count).all(1)
        _note(reasons, clients, ~finite, f"sum or count of {name!r} is not finite")
        _note(reasons, clients, (count < 0).any(1), f"count of {name!r} is negative")
        mean = (total / count.clamp_min(1.0)).square().sum(1).sqrt()
        _note(reasons, clients, _outliers(mean, max_norm), f"mean of {name!r} is over {max_norm:g} times the median")
    return reasons


def _outliers(norms: Tensor, factor: float) -> Tensor:
    """Norms above `factor` times the median of those that are finite and not zero.

    Of two in the middle the lower one counts: with two clients, one of them must not vouch for itself.
    """
    usual = norms[torch.isfinite(norms) & (norms > 0)]
    if len(usual) < 2:
        return torch.zeros_like(norms, dtype=torch.bool)
    return norms > factor * usual.median()  # torch's median is the lower one


def _note(reasons: dict[str, str], clients: list[str], where: Tensor, reason: str) -> None:
    for i in where.nonzero()[:, 0].tolist():
        reasons.setdefault(clients[i], reason)
