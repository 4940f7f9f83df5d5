"""Whether scores are worth having, and who was left out, in sentences: for the command line and for reports.

>>> history = History(kinds={"pulse": "regression"})
>>> scores = {name: {"pulse": {"rmse": 9.0, "baseline": 8.0, "skill": -0.27}} for name in ("basel", "bern")}
>>> history.add({"event": "evaluation", "round": 5, "part": "test", "model": "personal", "clients": scores})
>>> doubts(history)
["pulse: no better than guessing each client's mean (median skill -0.27 over 2 clients); its inputs may say nothing of it, \
or more rounds, labels or another method are needed"]
>>> left_out({"silent": ["zug"], "below": {"basel": {"pulse": 4}}})
['Too few labels to take part in rounds, so served as clients that join late: zug', 'On a machine of its own this would stay \
out of what is sent (fewer than 10 training labels): basel (4 of pulse)']
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import Any

from polyfed.kinds import KINDS
from polyfed.metrics import badness
from polyfed.report.folders import History
from polyfed.report.templates import name_of

MOST = 5  # names in a line
TIMES = 5  # an error this many times the median is absurd, if guessing is better too
FEWEST = 10  # labels that a node sends anything of, unless its owner says otherwise: `polyfed.data.DEPLOYED`


def doubts(history: History) -> list[str]:
    """A line for each task that is not better than guessing, for clients where it is not, and for scores that are absurd."""
    final = history.final()
    lines = []
    for task, kind in history.kinds.items():
        scores = {client: tasks[task] for client, tasks in final.items() if tasks.get(task)}
        lines += [f"{task}: {reported}" for reported in (*_guessing(scores, kind), *_absurd(scores, kind))]
    return lines


def _guessing(scores: Mapping[str, Mapping[str, float | None]], kind: str) -> Iterator[str]:
    skills = {client: skill for client, metrics in scores.items() if (skill := metrics.get("skill")) is not None}
    if not skills:
        return
    clients = f"{len(skills)} client{'' if len(skills) == 1 else 's'}"
    what = "the frequencies of each client's classes" if KINDS[kind].has_classes else "each client's mean"
    usual, worse = median(skills.values()), sorted((skill, client) for client, skill in skills.items() if skill < 0)
    if usual <= 0:
        yield (
            f"no better than guessing {what} (median skill {usual:.2f} over {clients}); "
            "its inputs may say nothing of it, or more rounds, labels or another method are needed"
        )
    elif worse:
        names = _listed(f"{client} (skill {skill:.2f})" for skill, client in worse)
        yield f"worse than guessing {what} at {len(worse)} of {clients}: {names}"


def _absurd(scores: Mapping[str, Mapping[str, float | None]], kind: str) -> Iterator[str]:
    metric = KINDS[kind].headline
    endless = [client for client, metrics in scores.items() if metric in metrics and metrics[metric] is None]
    if endless:
        yield f"the {name_of(metric)} is not finite at {_listed(endless)}; these are in no mean"
    known = {client: value for client, metrics in scores.items() if (value := metrics.get(metric)) is not None}
    if len(known) < 3 or badness(metric, 1.0) < 0:  # a share cannot be absurd
        return
    usual = median(known.values())
    for client, value in known.items():
        skill = scores[client].get("skill")
        if skill is not None and skill < 0 and value > TIMES * usual > 0:
            yield (
                f"the {name_of(metric)} of {client} is {value:.4g}, {value / usual:.0f} times the median of the clients, "
                f"and decides the mean; look at its rows{', or use kind robust' if kind == 'regression' else ''}"
            )


def left_out(reported: Mapping[str, Any]) -> list[str]:
    """A line for each kind of omission there is; `reported` as `results.json` has it under `left_out`."""
    lines, silent = [], reported.get("silent") or ()
    if silent:
        lines.append(f"Too few labels to take part in rounds, so served as clients that join late: {_listed(silent)}")
    if rejected := reported.get("rejected"):
        reasons = _listed(f"{client} ({why})" for client, why in rejected.items())
        lines.append(f"What they sent in round 0 could not be used, so they took no part: {reasons}")
    if unknown := reported.get("unknown"):
        lines.append(
            "Labels of classes that no client named from its training rows were neither learned nor scored "
            f"(give the task classes=...): {_counted(unknown)}"
        )
    if below := {c: tasks for c, tasks in (reported.get("below") or {}).items() if c not in silent}:
        lines.append(
            "On a machine of its own this would stay out of what is sent "
            f"(fewer than {FEWEST} training labels): {_counted(below)}"
        )
    return lines


def _counted(clients: Mapping[str, Mapping[str, int]]) -> str:
    said = {client: ", ".join(f"{n} of {task}" for task, n in tasks.items()) for client, tasks in clients.items()}
    return _listed(f"{client} ({counts})" for client, counts in said.items())


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:MOST]) + (f" and {len(names) - MOST} more" if len(names) > MOST else "")
