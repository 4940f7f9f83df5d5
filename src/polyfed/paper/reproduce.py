"""One experiment from its preset to its folder; the same call again goes on where it was stopped."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from polyfed.data import Federation
from polyfed.data.images import make_images
from polyfed.errors import DataError, PolyfedError
from polyfed.experiments.comparing import Cell
from polyfed.experiments.images import vision_room
from polyfed.paper.pictures import PICTURES
from polyfed.paper.presets import Block, Choices, Preset, blocks, with_cells
from polyfed.paper.records import Record, collect, published
from polyfed.paper.writing import Document, describe, differences, machine, versions, write_all
from polyfed.report.folders import read_run

MADE_UP = 200  # images of each data set: 120 for training, 40 for testing


@dataclass(frozen=True)
class Experiment:
    """A preset as it was chosen, with the data and the cells of its runs."""

    original: Preset
    preset: Preset
    choices: Choices
    blocks: Sequence[Block]
    folder: Path
    made_up: bool = False

    @property
    def cells(self) -> list[Cell]:
        """Every run that can be completed, once: variants that are the method as it is share theirs."""
        return list({cell.folder: cell for block in self.blocks if not block.error for cell in block.cells}.values())

    def federation(self, cell: Cell) -> Federation:
        """The data of a run."""
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
    made_up = any(path.parent == folder / "images" for path in choices.folders.values())
    return Experiment(original, preset, choices, made, folder, made_up)


def write(
    experiment: Experiment, failed: Mapping[Path, PolyfedError], command: Sequence[str], page: str | None = None
) -> tuple[Document, list[Record]]:
    """Measure all runs, compare with what was published, and write the files; also the document and its numbers."""
    preset, folder, quick = experiment.preset, experiment.folder, experiment.choices.quick
    begun = [cell.folder for cell in experiment.cells if (cell.folder / "run.json").is_file()]
    known = published(preset.name)
    records = collect(experiment.blocks, preset.what, failed, known)
    charts = PICTURES[preset.what](experiment.blocks, records, failed)
    about = {
        "command": "reproduce",
        "preset": preset.name,
        "title": preset.title,
        "folder": str(folder),
        "quick": quick,
        "invoked": shlex.join(command),
        "seconds": sum(read_run(folder).seconds for folder in begun),
        "machine": machine(),
        "versions": versions(),
        "differences": differences(experiment.original, preset, experiment.blocks, quick, experiment.made_up),
        "cells": [_cell(block, cell, failed) for block in experiment.blocks for cell in block.cells],
        "markdown": str(folder / "results.md"),
        "report": str(folder / "report.html"),
        "pictures": [str(folder / "pictures" / f"{chart.id}.json") for chart in charts],
    }
    document = describe(records, known, about)
    write_all(folder, document, records, charts, page)
    return document, records


def image_folders(preset: Preset, data_dir: Path | None, folder: Path, *, quick: bool) -> dict[str, Path]:
    """Data set → its folder of images: below the one given, or made up for a quick run; none if the preset has no images."""
    if preset.family != "images":
        return {}
    vision_room()
    if data_dir is None and quick:
        return {name: _made_up(folder / "images" / name, layout=name) for name in preset.data}
    wanted = " and ".join(f"{name}/" for name in preset.data)
    remedy = f"put {wanted} into one folder and name it with --data-dir, or try --quick, which makes images up"
    if data_dir is None:
        raise DataError("there is no folder of images", where=f"preset {preset.name!r}", remedy=remedy)
    if absent := [name for name in preset.data if not (data_dir / name).is_dir()]:
        raise DataError(f"there is no folder {absent[0]}/ in it", where=data_dir, remedy=remedy)
    return {name: data_dir / name for name in preset.data}


def _made_up(place: Path, layout: str) -> Path:
    if not place.is_dir():
        unfinished = place.with_name(f".{place.name}")  # of a command that was stopped here
        shutil.rmtree(unfinished, ignore_errors=True)
        make_images(unfinished, MADE_UP, layout=layout)
        unfinished.rename(place)
    return place


def _cell(block: Block, cell: Cell, failed: Mapping[Path, PolyfedError]) -> Document:
    return {
        "data": block.data,
        "setting": block.setting.name,
        "variant": block.variant.title,
        "method": cell.method,
        "seed": cell.seed,
        "folder": str(cell.folder),
        "error": str(failed[cell.folder]) if cell.folder in failed else None,
    }
