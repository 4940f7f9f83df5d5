"""Learning curves: each metric against the number of labels, a line for each method, averaged over tables and seeds.

Drawn by matplotlib, which CatBoost brings along (extra `rivals`).
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

SHOWN = {
    "rmse": "RMSE (stds)",
    "nlpd": "NLPD",
    "coverage": "coverage of 95 % intervals",
    "log_loss": "log loss",
    "auroc": "AUROC",
}
OURS = "pfed-hier"
# Colours that people tell apart, and dashes where they run out.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666")
DASHES = ("-", "--", ":")


def curves(scores: pd.DataFrame) -> pd.DataFrame:
    """(metric, method) × labels: each table counts once, over the tables that have every number of labels."""
    per_table = scores.groupby(["metric", "method", "labels", "table"])["value"].mean()
    return per_table.groupby(["metric", "method", "labels"]).mean().unstack("labels")


def span(lines: pd.DataFrame) -> tuple[float, float]:
    """What an axis shows: all lines, but for those that are so far out that the others would be one line; they are cut.

    >>> span(pd.DataFrame({5: [1.0, 1.2, 90.0], 10: [0.8, 1.0, 1.1]}))
    (0.78, 1.22)
    """
    values = lines.stack().dropna()
    middle = values.median()
    off = (values - middle).abs()
    near = values[off <= 5.0 * off.median()]
    low, high = float(near.min()), float(near.max())
    room = 0.05 * (high - low) or 0.05
    return round(low - room, 3), round(high + room, 3)


def draw_curves(scores: pd.DataFrame, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    found = curves(scores)
    shown = [metric for metric in SHOWN if metric in found.index.get_level_values("metric")]
    if not shown:
        return
    figure = Figure(figsize=(4.2 * len(shown), 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    methods = sorted(dict.fromkeys(scores["method"]), key=lambda m: m != OURS)
    for i, metric in enumerate(shown):
        axes = figure.add_subplot(1, len(shown), i + 1)
        for j, method in enumerate(methods):
            if (metric, method) in found.index:
                line = found.loc[(metric, method)].dropna()
                style = {"color": COLOURS[j % len(COLOURS)], "linestyle": DASHES[j // len(COLOURS) % len(DASHES)]}
                axes.plot(
                    line.index, line.values, marker="o", ms=3, lw=2.5 if method == OURS else 1.2, label=method, **style
                )
        axes.set_xscale("log")
        axes.set_xticks(sorted(set(scores["labels"])), [str(n) for n in sorted(set(scores["labels"]))])
        axes.minorticks_off()
        axes.set_xlabel("labels of each task and client")
        axes.set_title(SHOWN[metric])
        if found.loc[metric].notna().any(axis=None):
            axes.set_ylim(*span(found.loc[metric]))
        if metric == "coverage":
            axes.axhline(0.95, color="#999999", lw=0.8)
        if i == 0:
            handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=7, frameon=False)
    figure.savefig(path, dpi=110, metadata={"Software": None})
