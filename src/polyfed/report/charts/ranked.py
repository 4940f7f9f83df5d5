"""Mean ranks with what luck may explain (Nemenyi's test, in the form of Demšar 2006): intervals that overlap may be luck."""

from __future__ import annotations

from polyfed.report.charts.base import Chart, Figure, figure, plain
from polyfed.report.tables.ranking import Ranking


def ranked(prefix: str, found: Ranking) -> Chart:
    """Each method at its mean rank, the best at the top; half the critical difference reaches to each side."""
    names, means = list(found.mean), list(found.mean.values())
    lines = list(range(len(names)))[::-1]
    dots: Figure = {
        "type": "scatter",
        "mode": "markers",
        "x": [round(mean, 4) for mean in means],
        "y": lines,
        "text": [plain(name) for name in names],
        "marker": {"color": "--blue", "size": 10},
        "hovertemplate": "%{text}: mean rank %{x:.2f}<extra></extra>",
    }
    reach = ""
    if found.critical is not None:
        half = [round(found.critical / 2, 4)] * len(names)
        dots["error_x"] = {"type": "data", "array": half, "color": "--blue-soft", "thickness": 3, "width": 0}
        reach = f"; {found.critical:.2f} apart is more than luck"
    ticks = {"tickvals": lines, "ticktext": dots["text"], "range": [-0.6, len(names) - 0.4], "zeroline": False}
    drawn = figure(
        [dots],
        x="mean rank, lower is better",
        height=90 + 26 * max(3, len(names)),
        yaxis=ticks,
        showlegend=False,
    )
    title = f"Mean ranks over {found.n_blocks:,} clients × tasks × seeds{reach}"
    reported = ", ".join(f"{name} {mean:.2f}" for name, mean in found.mean.items())
    return Chart(prefix, title, f"Mean ranks: {reported}.", {"": drawn}, wide=True)
