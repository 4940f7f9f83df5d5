"""What follows from the events of a run alone: tables of what happened, and whether it has learned enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from polyfed.counting import as_people_count
from polyfed.engine.events import Event
from polyfed.errors import UsageError
from polyfed.kinds import KINDS


def history(events: Sequence[Event]) -> pd.DataFrame:
    """Every score of every client in every evaluation: round, part, model, client, task, metric, value."""
    rows = [
        (event["round"], event["part"], event["model"], client, task, metric, value)
        for event in events
        if event["event"] == "evaluation"
        for client, tasks in event["clients"].items()
        for task, metrics in tasks.items()
        for metric, value in metrics.items()
    ]
    return pd.DataFrame(rows, columns=["round", "part", "model", "client", "task", "metric", "value"])


def bounds_of(event: Event) -> list[float]:
    """The bounds of the clients in a round; None stands for numbers that JSON has no word for."""
    reported = [metrics.get("bound") for metrics in event["metrics"].values()]
    return [bound for bound in reported if bound is not None]


def rounds(events: Sequence[Event]) -> pd.DataFrame:
    """A row for each round: clients sampled and rejected, whether it was used, why dropped, bytes both ways, the mean bound."""
    names = ["round", "sampled", "rejected", "used", "dropped", "bytes_down", "bytes_up", "bound"]
    rows = []
    for event in (event for event in events if event["event"] == "round"):
        bounds = bounds_of(event)
        counted = {name: len(event[name]) for name in ("sampled", "rejected")}
        rows.append({**event, **counted, "bound": sum(bounds) / len(bounds) if bounds else None})
    return pd.DataFrame(rows, columns=names).set_index("round")


def summary(
    events: Sequence[Event],
    kinds: Mapping[str, str],
    *,
    metrics: str | Sequence[str] = "headline",
    part: str = "test",
    model: str = "personal",
    at: str | int = "last",
) -> pd.DataFrame:
    """Clients × (task, metric) at one evaluation; `averages` has the mean over the clients and its std.

    `at` is a round, "last", or "best": the round with the least loss on the validation rows.
    """
    table: Any = history(events)  # pandas' own types are too wide to be of help
    if model == "global" and not (table["model"] == "global").any():
        model = "personal"  # a method without personal parts has but one model
    table = table[table["model"] == model]
    chosen = table[table["part"] == part]
    if chosen.empty:
        known = sorted(set(table["part"]))
        remedy = f"use part={known[0]!r}" if known else "give the federation a split with test rows"
        raise UsageError(f"nothing was measured on the {part} rows", where="summary", remedy=remedy)
    chosen = chosen[chosen["round"] == _round(table, chosen, kinds, at)]
    wanted = [
        (task, metric)
        for task, kind in kinds.items()
        for metric in dict.fromkeys(chosen.loc[chosen["task"] == task, "metric"])
        if metrics == "all" or (metric == KINDS[kind].headline if metrics == "headline" else metric in metrics)
    ]
    wide = chosen.pivot(index="client", columns=["task", "metric"], values="value")
    wide = wide.reindex(columns=pd.MultiIndex.from_tuples(wanted, names=["task", "metric"])).astype(float)
    return wide.loc[sorted(wide.index, key=as_people_count)].rename_axis(index="client")


def averages(of_clients: pd.DataFrame) -> pd.DataFrame:
    """The mean over the clients of a `summary`, its std, and over how many: apart from them, for a client may be
    called anything.

    >>> of_clients = pd.DataFrame({("pulse", "rmse"): [1.0, 3.0]}, index=["mean", "bern"])
    >>> averages(of_clients)["pulse"]["rmse"].tolist()
    [2.0, 1.4142135623730951, 2.0]
    """
    found = {"mean": of_clients.mean(), "std": of_clients.std(), "clients": of_clients.notna().sum().astype(float)}
    return pd.DataFrame(found).T.rename_axis(index=None)


def _round(table: Any, chosen: Any, kinds: Mapping[str, str], at: str | int) -> int:
    if at == "last":
        return int(chosen["round"].max())
    if at != "best":
        if at not in set(chosen["round"]):
            known = ", ".join(map(str, sorted(set(chosen["round"]))))
            raise UsageError(f"nothing was measured after round {at!r}", where="summary", remedy=f"known are {known}")
        return int(at)
    losses = losses_of_tasks(table, kinds)
    if not losses:
        remedy = "use Split(validation=0.1), or at='last'"
        raise UsageError("there are no validation rows", where="summary", remedy=remedy)
    return min(losses, key=lambda round: losses[round])


def losses_of_tasks(table: Any, kinds: Mapping[str, str]) -> dict[int, float]:
    """Round → loss of the clients' own models on the validation rows, in nats; empty without such rows."""
    metric = table["task"].map(lambda task: KINDS[kinds[task]].loss)
    losses = table[(table["part"] == "validation") & (table["metric"] == metric)]
    # Tasks differ in units: the sum over the tasks of each one's mean over the clients, all in nats.
    by_round = losses.groupby(["round", "task"])["value"].mean().groupby("round").sum()
    return {int(round): float(value) for round, value in by_round.items()}
