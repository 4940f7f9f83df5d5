"""What clients say of their own models, looked at before it is written down.

>>> reported = [{"part": "test", "model": "personal", "scores": {"pulse": {"rmse": 2.0, "mood": 1.0}}}]
>>> evaluation_events(5, {"basel": reported}, {"pulse": "regression"})[0]["clients"]
{'basel': {'pulse': {'rmse': 2.0}}}
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

from polyfed.engine.evaluation import PARTS
from polyfed.metrics import is_score

MODELS = ("personal", "global")


def evaluation_events(round: int, reported: Mapping[str, Any], kinds: Mapping[str, str]) -> list[dict[str, Any]]:
    """The events that the engine would have written itself; what is no score of a task is left out."""
    events = []
    for model, part in product(MODELS, PARTS):
        found = {client: _scores(reported[client], model, part, kinds) for client in sorted(reported)}
        if clients := {client: scores for client, scores in found.items() if scores}:
            events.append({"event": "evaluation", "round": round, "part": part, "model": model, "clients": clients})
    return events


def _scores(reported: Any, model: str, part: str, kinds: Mapping[str, str]) -> dict[str, dict[str, float | None]]:
    for entry in reported if isinstance(reported, list) else ():
        if isinstance(entry, dict) and entry.get("model") == model and entry.get("part") == part:
            of_tasks = entry.get("scores")
            return {
                task: {name: value for name, value in of_task.items() if _is_score(kinds[task], name, value)}
                for task, of_task in (of_tasks.items() if isinstance(of_tasks, dict) else ())
                if task in kinds and isinstance(of_task, dict)
            }
    return {}


def _is_score(kind: str, name: Any, value: Any) -> bool:
    return is_score(kind, name) and (value is None or (isinstance(value, (int, float)) and abs(value) < float("inf")))
