"""Pictures of an experiment, as charts that the report draws: latent functions, reliability diagrams, curves, points; and test
images in a row, some of them masked, below each what a method believes of it. Images are in the figure itself, as small JPEGs,
so that the report needs no other file."""

from __future__ import annotations

import base64
import importlib
import io
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from polyfed.experiments.building import corrupted, image_federation, images_of, vision_room
from polyfed.experiments.comparing import Cell
from polyfed.experiments.config import ImagesConfig
from polyfed.folders.results_file import read_results
from polyfed.paper.measures import BAND, uncertainties
from polyfed.paper.presets import Block
from polyfed.paper.records import Record
from polyfed.paper.tables import NAMES
from polyfed.report.charts.base import COLOURS, Chart, Figure, band, dots, figure, line, plain, rounds_axis, short
from polyfed.report.charts.calibration import reliability as reliability_chart
from polyfed.report.charts.latents import latents as latent_charts
from polyfed.seeds import Stream

SHOWN = 12  # images in the row
MASKED = (3, 8)  # which of them are masked, from 0
THUMBNAIL = 72  # pixels
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
    for block, cell in _of_first_seed(blocks, failed):
        results = read_results(cell.folder)
        for task, described in results["tasks"].items():
            id = f"reliability-{block.data}-{block.setting.name}-{cell.method}-{task}"
            if described["classes"] and (chart := reliability_chart(id, task, results["predictions"])):
                charts.append(replace(chart, title=f"{cell.method}, {chart.title}"))
    return charts


def _of_first_seed(blocks: Sequence[Block], failed: Container[Path]) -> Iterator[tuple[Block, Cell]]:
    for block in (block for block in blocks if block.seed == blocks[0].seed):
        yield from ((block, cell) for cell in block.cells if cell.folder not in failed)


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
        # An axis as long as the numbers need: plotly would begin it at zero, where no point is.
        ends = [r.mean + sign * (r.std or 0.0) for r in here for sign in (-1, 1)]
        ends = [v for v in [*ends, *(r.published for r in here)] if v is not None and isfinite(v)]
        margin = 0.06 * (max(ends) - min(ends)) if ends else 0.0
        axis = {"range": short([min(ends) - margin, max(ends) + margin])} if margin else {}
        wide = len(drawn) > 2 or len({r.row for r in here}) > len(COLOURS) + 2
        shown = figure(drawn, y=name, height=400 if wide else 300, yaxis=axis, scattermode="group")
        charts.append(Chart(id, title, f"{title}, a point for each row of the table.", {"": shown}, wide=wide))
    return charts


def _points(rows: Sequence[str], values: Sequence[float], name: str, colour: str, symbol: str = "circle") -> Figure:
    drawn = dots(rows, colour, y=short(values), size=9)
    return {**drawn, "name": name, "marker": {**drawn["marker"], "symbol": symbol}}


def strips(blocks: Sequence[Block], records: Sequence[Record], failed: Container[Path]) -> list[Chart]:
    """Images in a row with what each method believes of them, with the first seed; and the scores."""
    made = [_strip(block, cell) for block, cell in _of_first_seed(blocks, failed)]
    return [*filter(None, made), *points(blocks, records, failed)]


def _strip(block: Block, cell: Cell) -> Chart | None:
    """The strip of the first client and the first task with a variance, if any; the same images for all methods of a seed."""
    from polyfed.engine import load

    run = load(cell.folder)
    client = run.members.names[0]
    images = images_of(block.config.data).test_images(client)
    chosen = Stream(block.seed, "strip").numpy().permutation(len(images))[:SHOWN]
    masked = np.isin(np.arange(len(chosen)), MASKED)
    x_masked = image_federation(block.config.data, "masked").prepare(run.settings.seed).clients[client].test.x
    x = np.where(masked[:, None], x_masked[chosen], run.prepared.clients[client].test.x[chosen])
    for task, found in run.client(client).predictor(x).items():
        if hasattr(found, "proba") and "variance" in uncertainties(found):
            folder = vision_room().cache.cache_folder((block.config.data.images or ImagesConfig()).cache) / "corrupted"
            paths = [images[i] for i in chosen]
            seen = [corrupted(p, "masked", folder) if m else p for p, m in zip(paths, masked, strict=True)]
            drawn = _row(found.latent_mean, found.latent_std, masked, paths, [_thumbnail(path) for path in seen])
            about = f"Test images of {block.data}, {len(MASKED)} of them masked, and the latent function of {task} below each."
            title = f"{block.data} {block.setting.name}, {cell.method}: {task}, {client}"
            return Chart(f"strip-{block.data}-{block.setting.name}-{cell.method}", title, about, {"": drawn}, wide=True)
    return None


def _thumbnail(path: Path) -> str:
    """The middle square of an image, small, as an address that holds it."""
    Image: Any = importlib.import_module("PIL.Image")
    ops: Any = importlib.import_module("PIL.ImageOps")
    with Image.open(path) as opened:
        small = ops.fit(opened.convert("RGB"), (THUMBNAIL, THUMBNAIL))
    written = io.BytesIO()
    small.save(written, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(written.getvalue()).decode()


def _row(mean: np.ndarray, std: np.ndarray, masked: np.ndarray, paths: Sequence[Path], seen: Sequence[str]) -> Figure:
    at, lower, upper = np.arange(1, len(mean) + 1), mean - BAND * std, mean + BAND * std
    below = np.full(masked.sum(), lower.min() - 0.08 * np.ptp([lower, upper]))
    stars = dots(short(at[masked]), "--ink", y=short(below), size=11)
    traces = [
        *band(at, lower, upper, "--red-faint", name="95 % band"),
        {**line(at, mean, "posterior mean", "--blue"), "text": [plain(path.name) for path in paths]},
        {**stars, "name": "masked", "marker": {**stars["marker"], "symbol": "star"}},
    ]
    place = {"xref": "x", "yref": "paper", "xanchor": "center", "yanchor": "top", "sizex": 0.92, "sizey": 0.3, "y": 1}
    images = [{**place, "x": int(i), "source": source, "sizing": "contain"} for i, source in zip(at, seen, strict=True)]
    sides = {"range": [0.5, len(at) + 0.5], "tickvals": at.tolist(), "showgrid": False}
    return figure(traces, y="latent function", height=380, xaxis=sides, yaxis={"domain": [0, 0.68]}, images=images)


PICTURES: dict[str, Pictures] = {
    "latents": latents,
    "calibration": calibration,
    "convergence": convergence,
    "prediction": points,
    "ood": strips,
}
