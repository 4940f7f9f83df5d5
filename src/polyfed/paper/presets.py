"""The experiments as files: `preset_files/*.toml`. A preset is a list of data sets, settings, variants, methods and seeds.

It becomes runs: for each data set, setting, variant and seed a block of runs on the same data, one for each method.

>>> sorted(known_presets())
['ablation', 'calibration', 'convergence', 'mean', 'ood', 'synthetic', 'table1']
>>> read_preset("table1").settings[0]
Setting(name='10x20', clients=20, shots=10, sample=18)
>>> read_preset("tabel1")
Traceback (most recent call last):
polyfed.errors.UsageError: preset 'tabel1' is not known; did you mean 'table1'? known are 'ablation', ...
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from polyfed.errors import PolyfedError, UsageError, nearest
from polyfed.experiments.building import build_federation
from polyfed.experiments.comparing import Cell, cells
from polyfed.experiments.config import Config, DataConfig
from polyfed.experiments.grid import folder_name
from polyfed.experiments.reading import Document, check

if TYPE_CHECKING:
    from polyfed.data import Federation

FOLDER = files("polyfed.paper") / "preset_files"
EXACT = {"base": {"run": {"aggregation": "mean"}}}  # the publications average, whoever the clients are
SHARED = ("images", "published")  # files beside the presets: what those on images have in common, and published figures


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Setting(_Part):
    """A size of the federation: clients, labels of each task at each, and clients in a round (all, if not given)."""

    name: str
    clients: int
    shots: int | None = None
    sample: int | None = None


class Variant(_Part):
    """A change of one part of the methods; it is compared with the others of its group."""

    group: str = ""
    name: str = ""
    options: Document = {}
    backbone: str | None = None

    @property
    def title(self) -> str:
        return f"{self.group} {self.name}".strip()


class Version(_Part):
    """Another version of an experiment: what is not given is as in the preset."""

    settings: list[Setting] | None = None
    seeds: list[int] | None = None
    rounds: int
    methods: list[str] | None = None
    groups: list[str] | None = None  # of variants
    base: Document = {}
    datasets: dict[str, Document] = {}  # in place of the preset's: another backbone has other cuts and sizes
    differences: list[str] = []  # in place of the preset's


class Preset(_Part):
    name: str
    title: str
    what: str  # which measures, tables and pictures are made: a key of `measures.MEASURES`
    data: list[str]
    settings: list[Setting]
    methods: list[str]
    seeds: list[int]
    quick: Version  # for minutes
    trained: Version | None = None  # whose networks are trained
    family: str | None = None  # "images", if the data sets are folders of images
    variants: list[Variant] = [Variant()]
    base: Document = {}  # settings as `polyfed compare` has them; data set, setting, variant and seed are added
    datasets: dict[str, Document] = {}  # data set → what is different for it in `base`
    differences: list[str] = []  # what is done differently than in the publication

    def made(self, version: Version) -> Preset:
        changed = {
            "settings": version.settings or self.settings,
            "seeds": version.seeds or self.seeds,
            "methods": version.methods or self.methods,
            "variants": [one for one in self.variants if version.groups is None or one.group in version.groups],
            "base": merged(merged(self.base, version.base), {"run": {"rounds": version.rounds}}),
            "datasets": version.datasets,
            "differences": version.differences or self.differences,
        }
        return self.model_copy(update=changed)


def known_presets() -> list[str]:
    names = [path.name.removesuffix(".toml") for path in FOLDER.iterdir() if path.name.endswith(".toml")]
    return sorted(name for name in names if name not in SHARED)


def read_preset(name: str) -> Preset:
    if name not in known_presets():
        raise UsageError(f"preset {name!r} is not known", remedy=nearest(name, known_presets()))
    document = merged(EXACT, {**read_toml(name), "name": name})
    if document.get("family"):
        document = merged(read_toml(document["family"]), document)
    return Preset.model_validate(document)


def read_toml(name: str) -> Document:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def merged(below: Document, above: Document) -> Document:
    """Tables key by key, and of two values that of `above`; lists of differences one after the other.

    >>> merged({"run": {"rounds": 3, "seed": 0}}, {"run": {"rounds": 5}})
    {'run': {'rounds': 5, 'seed': 0}}
    """
    made = dict(below)
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(made.get(key), dict):
            made[key] = merged(made[key], value)
        elif key == "differences":
            made[key] = [*made.get(key, []), *value]
        else:
            made[key] = value
    return made


@dataclass(frozen=True)
class Choices:
    """What a user may choose of a preset; None and nothing leave it as it is."""

    seeds: Sequence[int] | None = None
    methods: Sequence[str] | None = None
    rounds: int | None = None
    quick: bool = False
    trained: bool = False
    images: Mapping[str, str] = field(default_factory=dict)  # of [data.images], such as backbone and weights_dir
    folders: Mapping[str, Path] = field(default_factory=dict)  # data set → its folder of images

    def of(self, preset: Preset) -> Preset:
        version = preset.quick if self.quick else preset.trained if self.trained else None
        if version is None and self.trained:
            raise UsageError(f"preset {preset.name!r} has no version with trained networks", remedy="try table1")
        made = preset if version is None else preset.made(version)
        changed: dict[str, object] = {}
        if self.rounds is not None:
            changed["base"] = merged(made.base, {"run": {"rounds": self.rounds}})
        given = {"seeds": self.seeds, "methods": self.methods}
        changed |= {name: list(chosen) for name, chosen in given.items() if chosen is not None}
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

    made = []
    for data, setting, variant, seed in product(preset.data, preset.settings, preset.variants, preset.seeds):
        documents = (_document(preset, choices, data, setting, one, seed) for one in (variant, Variant()))
        config, usual = (check(document, where) for document in documents)
        made.append(Block(data, setting, variant, seed, config, usual))
    return made


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


def _document(preset: Preset, choices: Choices, data: str, setting: Setting, variant: Variant, seed: int) -> Document:
    document = merged(preset.base, preset.datasets.get(data, {}))
    document = merged(document, {"data": {"dataset": data, "options": {"n_clients": setting.clients, "seed": seed}}})
    if preset.family == "images":
        options = {"folder": str(choices.folders[data]), "shots": setting.shots}
        document = merged(document, {"data": {"options": options}})
        images = {**choices.images, **({"backbone": variant.backbone} if variant.backbone else {})}
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
