"""Figures as plain dictionaries in plotly's form, of which the page draws what is used here."""

from polyfed.report.charts.base import Chart, Control
from polyfed.report.charts.calibration import balance, reliability
from polyfed.report.charts.comparison import gains, ranked
from polyfed.report.charts.curves import compared, evaluated, traffic, trained
from polyfed.report.charts.effects import effects, importance
from polyfed.report.charts.latents import correlation, latents
from polyfed.report.charts.predicted import coverages, predicted

__all__ = [
    "Chart",
    "Control",
    "balance",
    "compared",
    "correlation",
    "coverages",
    "effects",
    "evaluated",
    "gains",
    "importance",
    "latents",
    "predicted",
    "ranked",
    "reliability",
    "traffic",
    "trained",
]
