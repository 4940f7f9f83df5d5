"""Who and what was left out of a run, or would be elsewhere, in sentences: for the command line and for reports.

>>> left_out({"silent": ["zug"], "below": {"basel": {"pulse": 4}}})
['Too few labels to take part in rounds, so served as clients that join late: zug', 'On a machine of its own this would stay \
out of what is sent (fewer than 10 training labels): basel (4 of pulse)']
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

MOST = 5  # names in a line
FEWEST = 10  # labels that a node sends anything of, unless its owner says otherwise: `polyfed.data.DEPLOYED`


def left_out(reported: Mapping[str, Any]) -> list[str]:
    """A line for each kind of omission there is; `reported` as `results.json` has it under `left_out`."""
    lines = []
    if silent := reported.get("silent"):
        lines.append(f"Too few labels to take part in rounds, so served as clients that join late: {_listed(silent)}")
    if rejected := reported.get("rejected"):
        reasons = _listed((f"{client} ({why})" for client, why in rejected.items()), len(rejected))
        lines.append(f"What they sent in round 0 could not be used, so they took no part: {reasons}")
    if unknown := reported.get("unknown"):
        lines.append(
            "Labels of classes that no client named from its training rows were neither learned nor scored "
            f"(give the task classes=...): {_counted(unknown)}"
        )
    if below := {
        c: tasks for c, tasks in (reported.get("below") or {}).items() if c not in (reported.get("silent") or ())
    }:
        lines.append(
            "On a machine of its own this would stay out of what is sent "
            f"(fewer than {FEWEST} training labels): {_counted(below)}"
        )
    return lines


def _counted(clients: Mapping[str, Mapping[str, int]]) -> str:
    said = (
        f"{client} ({', '.join(f'{n} of {task}' for task, n in tasks.items())})" for client, tasks in clients.items()
    )
    return _listed(said, len(clients))


def _listed(names: Iterable[str], n: int | None = None) -> str:
    names = list(names)
    n = len(names) if n is None else n
    return ", ".join(names[:MOST]) + (f" and {n - MOST} more" if n > MOST else "")
