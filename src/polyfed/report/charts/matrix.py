"""The correlation of the tasks' outputs as a heat map with its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from polyfed.report.charts.base import Chart, figure, plain

SCALE = ((0.0, "--minus"), (0.5, "--zero"), (1.0, "--plus"))


def correlation(prefix: str, described: Mapping[str, Any]) -> Chart:
    """Names and a square matrix."""
    names = [plain(name) for name in described["names"]]
    matrix = np.asarray(described["matrix"], dtype=np.float64)
    positions = list(range(len(names)))
    heat = {
        "type": "heatmap",
        "x": positions,
        "y": positions,
        "z": [[round(value, 3) if np.isfinite(value) else None for value in row] for row in matrix.tolist()],
        "zmin": -1,
        "zmax": 1,
        "colorscale": [list(stop) for stop in SCALE],
        "texttemplate": "%{z:.2f}",
        "hoverongaps": False,
        "xgap": 2,
        "ygap": 2,
        "customdata": [[f"{one} and {other}" for one in names] for other in names],
        "hovertemplate": "%{customdata}: %{z:.3f}<extra></extra>",
        "colorbar": {"thickness": 10, "outlinewidth": 0, "tickvals": [-1, 0, 1]},
    }
    # Positions with names as labels: two outputs may have one name, and a name may look like a number.
    ticks = {"tickvals": positions, "ticktext": names, "showgrid": False, "zeroline": False}
    drawn = figure(
        [heat],
        height=max(240, 60 + 46 * len(names)),
        xaxis={**ticks, "side": "bottom"},
        yaxis={**ticks, "autorange": "reversed"},
    )
    about = "The correlation of each pair of outputs, from -1 to 1."
    return Chart(prefix, "Correlation of the outputs", about, {"": drawn})
