"""Bytes that went down to the clients and up to the server in each round."""

from __future__ import annotations

from polyfed.report.charts.base import Chart, figure, rounds_axis
from polyfed.report.history import History


def traffic(prefix: str, history: History) -> Chart | None:
    """Bars for each round, one direction on top of the other."""
    if not history.rounds:
        return None
    bars = [
        {
            "type": "bar",
            "name": name,
            "x": [round.round for round in history.rounds],
            "y": [getattr(round, column) for round in history.rounds],
            "marker": {"color": colour},
            "hovertemplate": "round %{x}: %{y:,} bytes<extra></extra>",
        }
        for name, column, colour in (("down", "bytes_down", "--blue"), ("up", "bytes_up", "--orange"))
    ]
    axes = {"xaxis": rounds_axis(history.round), "yaxis": {"rangemode": "tozero"}}
    drawn = figure(bars, x="round", y="bytes", height=280, barmode="stack", bargap=0.35, **axes)
    total = sum(round.bytes_down + round.bytes_up for round in history.rounds)
    title = f"{human(total)} in {len(history.rounds)} rounds"
    return Chart(f"{prefix}-bytes", title, f"Bytes sent by round; {title} in all.", {"": drawn})


def human(n_bytes: float) -> str:
    """A size as people say it.

    >>> human(812), human(40_800), human(3_200_000)
    ('812 bytes', '40.8 kB', '3.2 MB')
    """
    for unit in ("bytes", "kB", "MB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} {unit}" if unit == "bytes" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} GB"
