"""The experiments as files: `preset_files/*.toml`. A preset is a list of data sets, settings, variants, methods and seeds.

>>> sorted(known_presets())
['ablation', 'calibration', 'convergence', 'mean', 'ood', 'synthetic', 'table1']
>>> read_preset("table1").settings[0]
Setting(name='10x20', clients=20, shots=10, sample=18)
>>> read_preset("tabel1")
Traceback (most recent call last):
polyfed.errors.UsageError: preset 'tabel1' is not known; did you mean 'table1'? known are 'ablation', ...
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict

from polyfed.errors import UsageError, nearest

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
    options: dict[str, Any] = {}
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
    base: dict[str, Any] = {}
    datasets: dict[str, dict[str, Any]] = {}  # in place of the preset's: another backbone has other cuts and sizes
    differences: list[str] = []  # in place of the preset's


class Preset(_Part):
    """One experiment."""

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
    base: dict[str, Any] = {}  # settings as `polyfed compare` has them; data set, setting, variant and seed are added
    datasets: dict[str, dict[str, Any]] = {}  # data set → what is different for it in `base`
    differences: list[str] = []  # what is done differently than in the publication

    def made(self, version: Version) -> Preset:
        """This experiment in another version."""
        changed: dict[str, Any] = {
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
    """The names of all presets."""
    names = [path.name.removesuffix(".toml") for path in FOLDER.iterdir() if path.name.endswith(".toml")]
    return sorted(name for name in names if name not in SHARED)


def read_preset(name: str) -> Preset:
    """The preset of this name."""
    if name not in known_presets():
        raise UsageError(f"preset {name!r} is not known", remedy=nearest(name, known_presets()))
    document = merged(EXACT, {**read_toml(name), "name": name})
    if document.get("family"):
        document = merged(read_toml(document["family"]), document)
    return Preset.model_validate(document)


def read_toml(name: str) -> dict[str, Any]:
    """A file of the folder of presets."""
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
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
