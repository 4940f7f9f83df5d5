"""One look at a run as JSON: pieces of the page, and figures for its charts; a page that has this version gets nothing more."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from polyfed.report import charts
from polyfed.report.charts.curves import human
from polyfed.report.details import MOST_REJECTIONS, duration
from polyfed.report.live.watcher import Look
from polyfed.report.templates import figures_of, render

SENTENCES = {
    "waiting": "The run has not begun.",
    "running": "The run goes on.",
    "stopped": "Nothing has happened for a while: the run was stopped, or is stuck.",
    "finished": "The run is finished.",
}


def snapshot(look: Look) -> dict[str, Any]:
    """Everything that the page shows now."""
    history = look.history
    extra = (charts.trained("live", history), charts.traffic("live", history))
    shown = [*charts.evaluated("live", history), *(chart for chart in extra if chart)]
    last, n = history.rejections[-MOST_REJECTIONS:], len(history.rejections)
    content = {
        "state": look.state,
        "sentence": SENTENCES[look.state],
        "title": f"{look.method}, seed {look.seed}" if look.method else "A run that has not begun",
        "round": history.round,
        "rounds": look.n_rounds,
        "facts": render("live_facts.html", facts=_facts(look)),
        "charts": render("live_charts.html", charts=shown),
        "rejections": render("live_rejections.html", rejections=last, n_rejections=n, warnings=look.warnings),
        "figures": figures_of(shown),
    }
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return {"version": digest[:16], **content}


def _facts(look: Look) -> dict[str, str]:
    history = look.history
    if look.state == "waiting":
        return {"Round": "–"}
    facts = {"Round": f"{history.round} of {look.n_rounds}"}
    if look.state == "running":
        facts["Time left"] = "–" if look.seconds_left is None else f"≈ {duration(look.seconds_left)}"
    facts["Clients"] = f"{len(history.clients):,}"
    if history.rounds:
        last = history.rounds[-1]
        n_used = last.n_sampled - last.n_rejected if last.used else 0
        facts["Used in last round"] = f"{n_used:,} of {last.n_sampled:,}"
    facts["Rejected so far"] = f"{len(history.rejections):,}"
    facts["Sent down"] = human(sum(round.bytes_down for round in history.rounds))
    facts["Sent up"] = human(sum(round.bytes_up for round in history.rounds))
    return facts
