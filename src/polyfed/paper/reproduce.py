"""One experiment from its preset to its folder; the same call again goes on where it was stopped.

It leaves results.json, results.md, report.html and the pictures as plotly's JSON. Beside the numbers a reader must know what
was done differently, how long it took, on which machine, and with what.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from polyfed.data import Federation
from polyfed.data.images import make_images
from polyfed.errors import DataError, PolyfedError
from polyfed.experiments.building import vision_room
from polyfed.experiments.comparing import Cell
from polyfed.files import SHOWN, write_whole
from polyfed.paper.beside import with_rows
from polyfed.paper.pictures import PICTURES
from polyfed.paper.presets import Block, Choices, Preset, blocks, with_cells
from polyfed.paper.records import Record, collect, holds, published
from polyfed.paper.tables import Table, tables
from polyfed.report.folders import read_run
from polyfed.report.templates import PAGES, as_json, figures_of, render

PACKAGES = ("polyfed", "torch", "numpy", "scipy", "scikit-learn", "torchvision", "Pillow")
PAPERS_BACKBONE = "resnet18"
MADE_UP = 200  # images of each data set: 120 for training, 40 for testing


Document = dict[str, Any]  # results.json


@dataclass(frozen=True)
class Experiment:
    """A preset as it was chosen, with the data and the cells of its runs."""

    original: Preset
    preset: Preset
    choices: Choices
    blocks: Sequence[Block]
    folder: Path

    @property
    def cells(self) -> list[Cell]:
        """Every run that can be completed, once: variants that are the method as it is share theirs."""
        return list({cell.folder: cell for block in self.blocks if not block.error for cell in block.cells}.values())

    def federation(self, cell: Cell) -> Federation:
        return next(block.federation for block in self.blocks if any(own.folder == cell.folder for own in block.cells))

    @property
    def unfinished(self) -> dict[Path, PolyfedError]:
        """Runs without data, and why."""
        return {cell.folder: block.error for block in self.blocks if block.error for cell in block.cells}


def prepare(
    original: Preset,
    choices: Choices,
    folder: Path,
    where: str,
    on_block: Callable[[Block], None] | None = None,
    runs: Path | None = None,
) -> Experiment:
    """Check everything, and read the data or compute features; what experiments with the same `runs` share is run once."""
    preset = choices.of(original)
    made = with_cells(blocks(preset, choices, where), runs or folder / "runs", where, on_block)
    return Experiment(original, preset, choices, made, folder)


def write(
    experiment: Experiment, failed: Mapping[Path, PolyfedError], command: Sequence[str], page: str | None = None
) -> tuple[Document, list[Record]]:
    """Measure all runs, compare with what was published, and write the files; also the document and its numbers.

    The rows go into the tables of a `page`, if there is one.
    """
    preset, folder = experiment.preset, experiment.folder
    begun = [cell.folder for cell in experiment.cells if (cell.folder / "run.json").is_file()]
    known = published(preset.name)
    records = collect(experiment.blocks, preset.what, failed, known)
    charts = PICTURES[preset.what](experiment.blocks, records, failed)
    pictures = {folder / "pictures" / f"{chart.id}.json": coloured(chart.figures[""]) for chart in charts}
    found = [(claim.text, *holds(claim, records)) for claim in known.claims]
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    document: Document = {
        "command": "reproduce",
        "preset": preset.name,
        "title": preset.title,
        "folder": str(folder),
        "quick": experiment.choices.quick,
        "invoked": shlex.join(command),
        "seconds": sum(read_run(folder).seconds for folder in begun),
        "machine": machine(),
        "versions": versions,
        "differences": differences(experiment),
        "cells": [
            {
                "data": block.data,
                "setting": block.setting.name,
                "variant": block.variant.title,
                "method": cell.method,
                "seed": cell.seed,
                "folder": str(cell.folder),
                "error": str(failed[cell.folder]) if cell.folder in failed else None,
            }
            for block in experiment.blocks
            for cell in block.cells
        ],
        "markdown": str(folder / "results.md"),
        "report": str(folder / "report.html"),
        "pictures": list(map(str, pictures)),
        "source": known.source,
        "figures": [
            {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in asdict(record).items()}
            for record in records
        ],
        "claims": [{"text": text, "holds": right, "of": looked} for text, right, looked in found],
    }
    made = tables(records)
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    for path, figure in pictures.items():
        write_whole(path, json.dumps(figure, allow_nan=False).encode(), SHOWN)
    write_whole(folder / "results.json", json.dumps(document, indent=2, allow_nan=False).encode(), SHOWN)
    later = ", ".join(dict.fromkeys(cell["method"] for cell in document["cells"] if not cell["error"]))
    about = [f"run later than the others: {later}, by `{document['invoked']}`", *facts(document)]
    text = markdown(document, made) if page is None else with_rows(page, made, about)
    write_whole(folder / "results.md", text.encode(), SHOWN)
    html = render(
        "reproduction.html",
        title=document["title"],
        says=says(preset.name),
        facts=facts(document),
        tables=[(table.title, table.headings, table.rows) for table in made],
        claims=[(claim["text"], reported(claim)) for claim in document["claims"]],
        differences=document["differences"],
        charts=charts,
        figures=as_json(figures_of(charts)),
    )
    write_whole(folder / "report.html", html.encode(), SHOWN)
    return document, records


def image_folders(preset: Preset, data_dir: Path | None, folder: Path, *, quick: bool) -> dict[str, Path]:
    """Data set → its folder of images: below the one given, or made up for a quick run; none if the preset has no images."""
    if preset.family != "images":
        return {}
    vision_room()
    if data_dir is None and quick:
        places = {name: folder / "images" / name for name in preset.data}
        for name, place in places.items():
            if not place.is_dir():
                unfinished = place.with_name(f".{place.name}")  # of a command that was stopped here
                shutil.rmtree(unfinished, ignore_errors=True)
                make_images(unfinished, MADE_UP, layout=name)
                unfinished.rename(place)
        return places
    wanted = " and ".join(f"{name}/" for name in preset.data)
    remedy = f"put {wanted} into one folder and name it with --data-dir, or try --quick, which makes images up"
    if data_dir is None:
        raise DataError("there is no folder of images", where=f"preset {preset.name!r}", remedy=remedy)
    if absent := [name for name in preset.data if not (data_dir / name).is_dir()]:
        raise DataError(f"there is no folder {absent[0]}/ in it", where=data_dir, remedy=remedy)
    return {name: data_dir / name for name in preset.data}


def says(preset: str) -> str:
    """What a number in the table is."""
    rows = "All clients' test rows together" if preset == "calibration" else "Mean over the clients"
    return f"{rows}, ± standard deviation over the seeds, (rank) among the rows."


def markdown(document: Document, made: Sequence[Table]) -> str:
    """The tables with all that belongs below them."""
    published = f" Published: `{document['source']}`." if document["source"] else ""  # not so of an extension
    parts = [f"# {document['title']}", f"{says(document['preset'])}{published}"]
    parts += [table.markdown() for table in made]
    if document["claims"]:
        lines = [f"- {claim['text']} (`{document['source']}`): {reported(claim)}" for claim in document["claims"]]
        parts.append("\n".join(["What the publication says, and whether it is so here:", "", *lines]))
    if failed := _failures(document["cells"]):
        parts.append("\n".join(["Runs that failed:", "", *(f"- {line}" for line in failed)]))
    parts.append("\n".join(["Differences to the publication:", "", *(f"- {one}" for one in document["differences"])]))
    parts.append("\n".join(f"- {fact}" for fact in [f"command: `{document['invoked']}`", *facts(document)]))
    return "\n\n".join(parts) + "\n"


def _failures(cells: Sequence[Document]) -> list[str]:
    """What went wrong, once for all runs of which it is the same.

    >>> _failures([{"folder": name, "error": "no weights."} for name in ("a", "b")])
    ['a and 1 more: no weights.']
    """
    by_error: dict[str, list[str]] = {}
    for cell in cells:
        if cell["error"]:
            by_error.setdefault(cell["error"], []).append(cell["folder"])
    others = {error: f" and {len(folders) - 1} more" if len(folders) > 1 else "" for error, folders in by_error.items()}
    return [f"{folders[0]}{others[error]}: {error}" for error, folders in by_error.items()]


def facts(document: Document) -> list[str]:
    machine = document["machine"]
    completed = {cell["folder"] for cell in document["cells"] if not cell["error"]}  # variants may share one
    memory = f", {machine['memory_gb']:g} GB of memory" if machine["memory_gb"] else ""
    return [
        f"{len(completed)} runs, {document['seconds']:.0f} s of computing",
        f"{machine['cores']} cores{memory}",
        ", ".join(f"{name} {number}" for name, number in document["versions"].items()),
    ]


def reported(claim: Document) -> str:
    """
    >>> reported({"holds": 2, "of": 2}), reported({"holds": 1, "of": 2}), reported({"holds": 0, "of": 0})
    ('yes', 'in 1 of 2 cases', 'not measured')
    """
    right, looked = claim["holds"], claim["of"]
    if looked == 0:
        return "not measured"
    return "yes" if right == looked else "no" if right == 0 else f"in {right} of {looked} cases"


def coloured(figure: Any) -> Any:
    """A figure with the colours of the light theme instead of their names, for programs that do not know the page.

    >>> coloured({"data": [{"marker": {"color": "--green"}}]})
    {'data': [{'marker': {'color': '#23835f'}}]}
    """
    if isinstance(figure, dict):
        return {key: coloured(inner) for key, inner in figure.items()}
    if isinstance(figure, list):
        return [coloured(inner) for inner in figure]
    return _colours().get(figure, figure) if isinstance(figure, str) else figure


@cache
def _colours() -> dict[str, str]:
    style = (PAGES / "style.css").read_text(encoding="utf-8")
    light = style[: style.index("@media")]
    return dict(re.findall(r"(--[\w-]+): (#\w+);", light))


def differences(experiment: Experiment) -> list[str]:
    """In what this differs from the publication: what the preset says, and what follows from the choices."""
    original, chosen, choices, found = experiment.original, experiment.preset, experiment.choices, []
    if choices.quick:
        found.append("a quick run: federations, rounds and seeds are smaller than in the publication")
    if any(path.parent == experiment.folder / "images" for path in choices.folders.values()):
        found.append("the images are made up (discs and crosses): the numbers say nothing about the data sets")
    rounds, published = (preset.base["run"]["rounds"] for preset in (chosen, original))
    if rounds != published:
        found.append(f"{rounds} rounds instead of {published}")
    if len(chosen.seeds) > 1:
        found.append(f"{len(chosen.seeds)} seeds and their std; the publication has one number for each cell")
    varied = any(variant.backbone for variant in chosen.variants)
    used = {block.config.data.images.backbone for block in experiment.blocks if block.config.data.images is not None}
    others = sorted(used - {PAPERS_BACKBONE})
    if others and not varied:
        found.append(f"the backbone is {', '.join(others)} instead of ResNet-18")
    if missing := [method for method in original.methods if method not in chosen.methods]:
        found.append(f"without {', '.join(missing)}")
    return [*found, *chosen.differences]


def machine() -> dict[str, float | None]:
    """Its size, not its name."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        memory = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (AttributeError, OSError, ValueError):  # not on every system
        memory = None
    return {"cores": cores, "memory_gb": memory}
