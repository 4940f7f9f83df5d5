"""A preset becomes runs: for each data set, setting, variant and seed a block of runs on the same data, one for each method."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyfed.errors import PolyfedError, UsageError
from polyfed.experiments.building import build_federation
from polyfed.experiments.comparing import Cell, cells
from polyfed.experiments.config import Config, DataConfig
from polyfed.experiments.reading import check
from polyfed.experiments.tuning import folder_name
from polyfed.paper.presets import Preset, Setting, Variant, merged

if TYPE_CHECKING:
    from polyfed.data import Federation


@dataclass(frozen=True)
class Choices:
    """What a user may choose of a preset; None and nothing leave it as it is."""

    seeds: Sequence[int] | None = None
    methods: Sequence[str] | None = None
    rounds: int | None = None
    quick: bool = False
    trained: bool = False
    images: Mapping[str, Any] | None = None  # of [data.images], such as backbone and weights_dir
    folders: Mapping[str, Path] | None = None  # data set → its folder of images

    def of(self, preset: Preset) -> Preset:
        """The preset as it is chosen."""
        made = preset
        if self.quick:
            made = preset.made(preset.quick)
        elif self.trained:
            if preset.trained is None:
                raise UsageError(f"preset {preset.name!r} has no version with trained networks", remedy="try table1")
            made = preset.made(preset.trained)
        changed = {
            "seeds": made.seeds if self.seeds is None else list(self.seeds),
            "methods": made.methods if self.methods is None else list(self.methods),
            "base": made.base if self.rounds is None else merged(made.base, {"run": {"rounds": self.rounds}}),
        }
        return made.model_copy(update=changed)


@dataclass(frozen=True)
class Block:
    """Runs on the same data: one cell for each method. `error` says why there are no data, so that no cell can run."""

    data: str
    setting: Setting
    variant: Variant
    seed: int
    config: Config
    usual: Config  # without the variant
    cells: tuple[Cell, ...] = ()
    error: PolyfedError | None = None

    @property
    def federation(self) -> Federation:
        """Its data, read again if others were read in between: those of all blocks may not fit into memory."""
        return _federation(self.config.data.model_dump_json())


def blocks(preset: Preset, choices: Choices, where: str) -> list[Block]:
    """All blocks, without their data; the preset is as it was chosen."""

    def config(data: str, setting: Setting, variant: Variant, seed: int) -> Config:
        return check(_document(preset, choices, data, setting, variant, seed), where)

    return [
        Block(*place, variant, seed, config(*place, variant, seed), config(*place, Variant(), seed))
        for place in itertools.product(preset.data, preset.settings)
        for variant in preset.variants
        for seed in preset.seeds
    ]


def with_cells(
    made: Sequence[Block], runs: Path, where: str, on_block: Callable[[Block], None] | None = None
) -> list[Block]:
    """The blocks with their cells, once their data were read; equal runs have one folder, and missing data stop no others."""
    read: set[str] = set()
    places: dict[str, Path] = {}
    ready = []
    for block in made:
        key = block.config.data.model_dump_json()
        if key not in read and on_block is not None:
            on_block(block)
        read.add(key)
        folder = runs / f"{block.data}-{block.setting.name.replace(' ', '-')}"
        places.setdefault(block.usual.model_dump_json(), folder)  # a variant that changes nothing is no variant
        folder = places.setdefault(block.config.model_dump_json(), folder / block.variant.title.replace(" ", "-"))
        try:
            federation = block.federation
        except PolyfedError as error:
            places_of = {name: folder / folder_name(name, {}, block.seed) for name in block.config.compare.methods}
            unfinished = tuple(Cell(name, block.seed, place, block.config) for name, place in places_of.items())
            ready.append(replace(block, cells=unfinished, error=error))
        else:
            ready.append(replace(block, cells=tuple(cells(block.config, federation, folder, where))))
    if ready and all(block.error is not None for block in ready):
        raise next(block.error for block in ready if block.error is not None)
    return ready


@functools.lru_cache(maxsize=4)
def _federation(data: str) -> Federation:
    return build_federation(DataConfig.model_validate_json(data), "preset")


def _document(
    preset: Preset, choices: Choices, data: str, setting: Setting, variant: Variant, seed: int
) -> dict[str, Any]:
    document = merged(preset.base, preset.datasets.get(data, {}))
    document = merged(document, {"data": {"dataset": data, "options": {"n_clients": setting.clients, "seed": seed}}})
    if preset.family == "images":
        options: dict[str, Any] = {"folder": str((choices.folders or {})[data]), "shots": setting.shots}
        document = merged(document, {"data": {"options": options}})
        images = dict(choices.images or {})
        if variant.backbone:
            images["backbone"] = variant.backbone
        if not (choices.quick and "backbone" in images):  # the cut and size of a quick run are for no network at all
            images = {**document["data"]["images"], **images}
        document["data"]["images"] = images
    if setting.sample is not None:
        document = merged(document, {"run": {"sample": setting.sample}})
    known = document.get("compare", {}).get("options", {})
    varied = {method: {**known.get(method, {}), **variant.options} for method in preset.methods}
    document["compare"] = {
        "methods": list(preset.methods),
        "seeds": [seed],
        "options": {method: options for method, options in varied.items() if options},
    }
    return document
