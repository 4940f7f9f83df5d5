"""Whether scores are worth having, in sentences: for the command line and for reports.

>>> history = History(kinds={"pulse": "regression"})
>>> scores = {name: {"pulse": {"rmse": 9.0, "baseline": 8.0, "skill": -0.27}} for name in ("basel", "bern")}
>>> history.add({"event": "evaluation", "round": 5, "part": "test", "model": "personal", "clients": scores})
>>> doubts(history)
["pulse: no better than guessing each client's mean (median skill -0.27 over 2 clients); its inputs may say nothing of it, \
or more rounds, labels or another method are needed"]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from polyfed.kinds import KINDS
from polyfed.metrics import badness
from polyfed.report.history import History
from polyfed.report.words import name_of

MOST = 5  # names in a line
TIMES = 5  # an error so many times the median is absurd, if guessing is better too


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
    what = "the frequencies of each client's classes" if KINDS[kind].has_classes else "each client's mean"
    usual, worse = median(skills.values()), sorted((skill, client) for client, skill in skills.items() if skill < 0)
    if usual <= 0:
        yield (
            f"no better than guessing {what} (median skill {usual:.2f} over {_counted(len(skills))}); "
            "its inputs may say nothing of it, or more rounds, labels or another method are needed"
        )
    elif worse:
        names = _listed([f"{client} (skill {skill:.2f})" for skill, client in worse])
        yield f"worse than guessing {what} at {len(worse)} of {_counted(len(skills))}: {names}"


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


def _counted(n: int) -> str:
    return f"{n} client{'' if n == 1 else 's'}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST]) + (f" and {len(names) - MOST} more" if len(names) > MOST else "")
