"""The server's door: every update is looked at before it is used, and a bad one is rejected by name.

Rejected are errors, foreign types and forms (engine/form.py), numbers that are not finite or beyond any sane size, pooled
statistics that cannot be (a sum or a count below zero, more labels than the client declared in round 0), updates larger by
far than those of the others, and what the method itself objects to. The rest of the round goes on without them. The
state that comes out of a round is looked at too: one bad number in it would be with every client from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from polyfed.engine.form import LARGEST, Forms, reason_of, shown
from polyfed.methods import ClientResult, ClientUpdate, Method, State
from polyfed.methods.update_batch import Columns

MAX_NORM = 1e5  # times the median: clients of very different sizes are honest, six orders of magnitude are not
MOST_COUNTED = 2**53  # of whole numbers in a state, such as steps: beyond, a double no longer counts them

# client → task → training labels that it declared in round 0, tasks in the federation's order
Declared = Mapping[str, Mapping[str, int]]


def validate_updates(
    method: Method, server: State, outcomes: Mapping[str, ClientResult], declared: Declared, max_norm: float = MAX_NORM
) -> tuple[dict[str, tuple[State, ClientUpdate]], dict[str, str]]:
    """The updates that are fit for use, and client → reason for the others, both in the order of the names."""
    template = method.template(server)
    forms = Forms(template)
    rejected: dict[str, str] = {}
    sound: dict[str, tuple[State, ClientUpdate]] = {}
    for client in sorted(outcomes):
        outcome, labels = outcomes[client], declared.get(client, {})
        if isinstance(outcome, Exception):
            rejected[client] = reason_of(outcome)
        elif reason := forms.misfit(outcome[1], labels):
            rejected[client] = reason
        else:
            sound[client] = (outcome[0], _in_order(outcome[1], labels))
    updates = {client: update for client, (_, update) in sound.items()}
    bad = _bad_values(method, server, template, updates, max_norm)
    bad |= _objections(method, server, {client: update for client, update in updates.items() if client not in bad})
    for client, reason in bad.items():
        rejected[client] = shown(reason)
        del sound[client]
    return sound, dict(sorted(rejected.items()))


def fault_of(after: State, before: State) -> str | None:
    """What is wrong with the state that a round made of the one before it; None if it may be kept."""
    for name, value in after.items():
        if value is not before.get(name) and value.numel() and bool(_beyond(value.reshape(1, -1))):
            if value.is_floating_point() and not bool(torch.isfinite(value).all()):
                return shown(f"{name!r} would no longer be finite")
            return shown(f"{name!r} would be beyond {LARGEST:g}")
    return None


def _in_order(update: ClientUpdate, labels: Mapping[str, int]) -> ClientUpdate:
    """The update with its tasks in the federation's order: methods number the tasks by it, and a client must not choose."""
    wanted = [task for task in labels if task in update.counts]
    if len(wanted) < len(update.counts) or wanted == list(update.counts):
        return update
    return replace(update, counts={task: update.counts[task] for task in wanted})


def _objections(method: Method, server: State, updates: Mapping[str, ClientUpdate]) -> dict[str, str]:
    def objection(update: ClientUpdate) -> str | None:
        try:
            return method.objection(server, update)
        except Exception as error:  # what a client sent must not end the round of the others
            return reason_of(error)

    try:
        found = method.objections(server, list(updates.values()))
    except Exception:  # what one of them sent; alone, each answers for itself
        found = map(objection, updates.values())
    return {client: reason for client, reason in zip(updates, found, strict=True) if reason}


def _bad_values(
    method: Method, server: State, template: ClientUpdate, updates: Mapping[str, ClientUpdate], max_norm: float
) -> dict[str, str]:
    """What is wrong with the numbers; updates of all clients are looked at together, for speed."""
    if not updates:
        return {}
    clients, sent = list(updates), list(updates.values())
    reasons: dict[str, str] = {}
    columns, squares = Columns(sent), torch.zeros(len(clients), dtype=torch.float64)
    for name in template.arrays:
        finite, beyond = torch.zeros(2, len(sent), dtype=torch.bool)
        square = torch.zeros_like(squares)
        for places, (values,) in columns.pieces(name):
            flat = values.reshape(len(values), -1)
            beyond[places] = far = _beyond(flat)
            # What is within a limit is finite.
            finite[places] = torch.isfinite(flat).all(1) if bool(far.any()) else ~far
            square[places] = torch.linalg.vector_norm(flat.to(torch.float64), dim=1).square()
        _note(reasons, clients, ~finite, f"array {name!r} is not finite")
        _note(reasons, clients, beyond, f"array {name!r} is beyond {LARGEST:g}")
        if not method.is_evidence(name):
            squares += square
    _note(reasons, clients, _outliers(squares.sqrt(), max_norm), f"its norm is over {max_norm:g} times the median")
    for name in template.pooled:
        total, count = (value.reshape(len(sent), -1).to(torch.float64) for value in columns.pooled(name))
        tasks = method.counted_tasks(server, name)
        finite = torch.isfinite(total).all(1) & torch.isfinite(count).all(1)
        _note(reasons, clients, ~finite, f"sum or count of {name!r} is not finite")
        _note(reasons, clients, _beyond(total) | _beyond(count), f"sum or count of {name!r} is beyond {LARGEST:g}")
        _note(reasons, clients, (total < 0).any(1), f"sum of {name!r} is negative")
        _note(reasons, clients, (count < 0).any(1), f"count of {name!r} is negative")
        if tasks is not None:
            most = torch.tensor([[sum(update.counts[task] for task in tasks)] for update in sent], dtype=torch.float64)
            _note(reasons, clients, (count > most).any(1), f"count of {name!r} is above its labels")
        mean = (total / count.clamp_min(1.0)).square().sum(1).sqrt()
        _note(reasons, clients, _outliers(mean, max_norm), f"mean of {name!r} is over {max_norm:g} times the median")
    return reasons


def _beyond(values: Tensor) -> Tensor:
    """Rows with a number beyond any sane size, or that is none; of whole numbers beyond what doubles can count."""
    if values.is_floating_point():
        return ~(values.abs() <= LARGEST).all(1)
    values = values.to(torch.int64)
    return ((values > MOST_COUNTED) | (values < -MOST_COUNTED)).any(1)


def _outliers(norms: Tensor, factor: float) -> Tensor:
    """Norms above `factor` times the median of those that are finite and not zero."""
    usual = norms[torch.isfinite(norms) & (norms > 0)]
    if len(usual) < 2:
        return torch.zeros_like(norms, dtype=torch.bool)
    return norms > factor * usual.median()  # torch's is the lower one of two: a client must not vouch for itself


def _note(reasons: dict[str, str], clients: list[str], where: Tensor, reason: str) -> None:
    for i in where.nonzero()[:, 0].tolist():
        reasons.setdefault(clients[i], reason)
