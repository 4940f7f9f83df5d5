"""Test images in a row, some of them masked, and below each what a method believes of it: its latent function with a band.

The images are in the figure itself, as small JPEGs, so that the report needs no other file.
"""

from __future__ import annotations

import base64
import importlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyfed.experiments.comparing import Cell
from polyfed.experiments.config import ImagesConfig
from polyfed.experiments.images import corrupted, image_federation, images_of, vision_room
from polyfed.paper.blocks import Block
from polyfed.paper.measures import BAND, uncertainties
from polyfed.report.charts.base import Chart, Figure, band, dots, figure, line, plain, short
from polyfed.seeds import Stream

SHOWN = 12  # images in the row
MASKED = (3, 8)  # which of them are masked, from 0
THUMBNAIL = 72  # pixels


def strip(block: Block, cell: Cell) -> Chart | None:
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
            drawn = _figure(found.latent_mean, found.latent_std, masked, paths, [thumbnail(path) for path in seen])
            about = f"Test images of {block.data}, {len(MASKED)} of them masked, and the latent function of {task} below each."
            title = f"{block.data} {block.setting.name}, {cell.method}: {task}, {client}"
            return Chart(f"strip-{block.data}-{block.setting.name}-{cell.method}", title, about, {"": drawn}, wide=True)
    return None


def thumbnail(path: Path) -> str:
    """The middle square of an image, small, as an address that holds it."""
    Image: Any = importlib.import_module("PIL.Image")
    ops: Any = importlib.import_module("PIL.ImageOps")
    with Image.open(path) as opened:
        small = ops.fit(opened.convert("RGB"), (THUMBNAIL, THUMBNAIL))
    written = io.BytesIO()
    small.save(written, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(written.getvalue()).decode()


def _figure(
    mean: np.ndarray, std: np.ndarray, masked: np.ndarray, paths: Sequence[Path], seen: Sequence[str]
) -> Figure:
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
