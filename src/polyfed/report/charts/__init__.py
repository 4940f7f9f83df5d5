"""Figures as plain dictionaries in plotly's own form; the page draws them."""

from polyfed.report.charts.base import Chart, Control
from polyfed.report.charts.calibration import reliability
from polyfed.report.charts.curves import compared, evaluated, trained
from polyfed.report.charts.latents import latents
from polyfed.report.charts.matrix import correlation
from polyfed.report.charts.predicted import predicted
from polyfed.report.charts.traffic import traffic

__all__ = [
    "Chart",
    "Control",
    "compared",
    "correlation",
    "evaluated",
    "latents",
    "predicted",
    "reliability",
    "traffic",
    "trained",
]
