"""How the pictures of tutorials and the gallery look."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

# Okabe and Ito's colours, which colour-blind readers tell apart.
BLUE, ORANGE, GREEN, RED, GREY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#767676"
COLOURS = [BLUE, ORANGE, GREEN, RED, "#cc79a7", "#56b4e9"]

plt.rcParams.update(
    {
        "axes.prop_cycle": plt.cycler(color=COLOURS),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.dpi": 110,
        "figure.constrained_layout.use": True,
        "font.size": 9,
        "legend.frameon": False,
        "savefig.facecolor": "white",
        "svg.hashsalt": "polyfed",
    }
)


def axes(columns: int = 1, rows: int = 1, *, width: float = 7.2, height: float = 2.5, **options: Any) -> Any:
    """A row (or raster) of axes, as a flat list; a single one as it is."""
    _, made = plt.subplots(rows, columns, figsize=(width, height * rows), **options)
    flat = list(np.atleast_1d(made).flat)
    return flat[0] if len(flat) == 1 else flat


def band(ax: Any, x: Any, mean: Any, lower: Any, upper: Any, *, colour: str = BLUE, label: str | None = None) -> None:
    """A function with its 95 % band."""
    ax.plot(x, mean, color=colour, label=label)
    ax.fill_between(x, lower, upper, color=colour, alpha=0.18, linewidth=0)
