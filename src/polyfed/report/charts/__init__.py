"""Figures as plain dictionaries in plotly's form, of which the page draws what is used here."""

from polyfed.report.charts.base import Chart, Control
from polyfed.report.charts.calibration import reliability
from polyfed.report.charts.clients import balance, coverages, gains
from polyfed.report.charts.curves import compared, evaluated, trained
from polyfed.report.charts.effects import effects, importance
from polyfed.report.charts.latents import latents
from polyfed.report.charts.matrix import correlation
from polyfed.report.charts.predicted import predicted
from polyfed.report.charts.ranked import ranked
from polyfed.report.charts.traffic import traffic

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
