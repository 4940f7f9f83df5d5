"""Pictures of an experiment, as charts that the report draws: latent functions, reliability diagrams, curves, points."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path

from polyfed.paper.blocks import Block
from polyfed.paper.measures import read_results
from polyfed.paper.records import Record
from polyfed.paper.strip import strip
from polyfed.paper.tables import NAMES
from polyfed.report.charts.base import COLOURS, Chart, Figure, dots, figure, line, rounds_axis, short
from polyfed.report.charts.learned import latents as latent_charts
from polyfed.report.charts.predictions import reliability as reliability_chart

LINES = (*COLOURS, "--ink")  # nine methods, nine colours
Pictures = Callable[[Sequence[Block], Sequence[Record], Container[Path]], list[Chart]]


def latents(blocks: Sequence[Block], records: Sequence[Record], failed: Container[Path]) -> list[Chart]:
    """The posterior of the latent functions at the first client, with the first seed, for each method."""
    charts = []
    for cell in (cell for cell in blocks[0].cells if cell.folder not in failed):
        results = read_results(cell.folder)
        first = dict(list(results["latents"].items())[:1])
        _, made = latent_charts(cell.method, results["tasks"], first) or (None, [])
        for chart in made:
            title, figures = f"{cell.method}: {chart.title}", {"": chart.figures["0"]}
            charts.append(replace(chart, title=title, figures=figures, follows=""))
    return charts


def calibration(blocks: Sequence[Block], records: Sequence[Record], failed: Container[Path]) -> list[Chart]:
    """A reliability diagram for each method and setting, with the first seed."""
    charts = []
    for block in (block for block in blocks if block.seed == blocks[0].seed):
        for cell in (cell for cell in block.cells if cell.folder not in failed):
            results = read_results(cell.folder)
            for task, described in results["tasks"].items():
                id = f"reliability-{block.data}-{block.setting.name}-{cell.method}-{task}"
                if described["classes"] and (chart := reliability_chart(id, task, results["predictions"])):
                    charts.append(replace(chart, title=f"{cell.method}, {chart.title}"))
    return charts


def convergence(blocks: Sequence[Block], records: Sequence[Record], failed: Container[Path]) -> list[Chart]:
    """The accuracy by round of all methods; bars are the spread over the seeds."""
    charts = []
    for data, setting, task in dict.fromkeys((r.data, r.setting, r.task) for r in records):
        here = [r for r in records if (r.data, r.setting, r.task) == (data, setting, task)]
        lines = []
        for i, row in enumerate(dict.fromkeys(r.row for r in here)):
            mine = [r for r in here if r.row == row]
            drawn = line([r.round or 0 for r in mine], [r.mean for r in mine], row, LINES[i % len(LINES)])
            if i >= len(LINES):
                drawn["line"]["dash"] = "dot"
            drawn["error_y"] = {"type": "data", "array": short([r.std or 0.0 for r in mine]), "thickness": 1}
            lines.append(drawn)
        last = max(r.round or 0 for r in here)
        shown = figure(lines, x="round", y="accuracy", height=420, xaxis=rounds_axis(last))
        about = f"The accuracy of {task} on {data} by round, a line for each method."
        id = f"convergence-{data}-{setting}"
        charts.append(Chart(id, f"{data} {setting}: {task}", about, {"": shown}, wide=True))
    return charts


def points(blocks: Sequence[Block], records: Sequence[Record], failed: Container[Path]) -> list[Chart]:
    """Each metric as a point for each row and case, with the spread over the seeds, beside the published figures."""
    charts = []
    for place in dict.fromkeys((r.data, r.setting, r.task, r.metric) for r in records):
        here = [r for r in records if (r.data, r.setting, r.task, r.metric) == place]
        data, setting, task, metric = place
        drawn: list[Figure] = []
        for i, case in enumerate(sorted(dict.fromkeys(r.case for r in here))):
            of_case = [r for r in here if r.case == case]
            rows, colour = [r.row for r in of_case], COLOURS[i % len(COLOURS)]
            std = {"type": "data", "array": short([r.std or 0.0 for r in of_case]), "thickness": 1}
            drawn.append({**_points(rows, [r.mean for r in of_case], case or "here", colour), "error_y": std})
            if any(r.published is not None for r in of_case):
                known = [float("nan") if r.published is None else r.published for r in of_case]
                drawn.append(_points(rows, known, "published", "--orange", symbol="diamond-open"))
        name = NAMES[metric].removesuffix(" %")
        title = " ".join(filter(None, [data, setting, f"{task}:", name]))
        id = "-".join(filter(None, [data, setting, task, metric])).replace(" ", "-")
        wide = len(drawn) > 2 or len({r.row for r in here}) > len(COLOURS) + 2
        shown = figure(drawn, y=name, height=400 if wide else 300, yaxis=_around(here), scattermode="group")
        charts.append(Chart(id, title, f"{title}, a point for each row of the table.", {"": shown}, wide=wide))
    return charts


def _around(records: Sequence[Record]) -> Figure:
    """An axis as long as the numbers need: plotly would begin it at zero, where no point is."""
    values = [r.mean + sign * (r.std or 0.0) for r in records for sign in (-1, 1)]
    values = [v for v in [*values, *(r.published for r in records)] if v is not None and isfinite(v)]
    margin = 0.06 * (max(values) - min(values)) if values else 0.0
    return {"range": short([min(values) - margin, max(values) + margin])} if margin else {}


def _points(rows: Sequence[str], values: Sequence[float], name: str, colour: str, symbol: str = "circle") -> Figure:
    drawn = dots(rows, colour, y=short(values), size=9)
    return {**drawn, "name": name, "marker": {**drawn["marker"], "symbol": symbol}}


def strips(blocks: Sequence[Block], records: Sequence[Record], failed: Container[Path]) -> list[Chart]:
    """Images in a row with what each method believes of them, with the first seed; and the scores."""
    first = [block for block in blocks if block.seed == blocks[0].seed]
    made = [strip(block, cell) for block in first for cell in block.cells if cell.folder not in failed]
    return [*(chart for chart in made if chart), *points(blocks, records, failed)]


PICTURES: dict[str, Pictures] = {
    "latents": latents,
    "calibration": calibration,
    "convergence": convergence,
    "prediction": points,
    "ood": strips,
}
