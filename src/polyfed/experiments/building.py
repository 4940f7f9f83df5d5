"""Settings become objects: a federation, a method, the engine's settings.

>>> from polyfed.experiments.reading import check
>>> build_federation(check({"data": {"dataset": "synthetic", "options": {"n_clients": 3}}}, "study.toml").data, "study.toml")
Federation of 3 clients and 900 rows; ...

Data sets of images become ordinary federations: a frozen network sees each image once, and its features are kept on disk.

    [data]
    dataset = "celeba"
    options = { folder = "celeba", shots = 20 }
    images = { backbone = "resnet18", weights_dir = "weights" }
"""

from __future__ import annotations

import glob
import hashlib
import importlib
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyfed.data import Federation, load_dataset
from polyfed.data.datasets import IMAGE_DATASETS, load_images
from polyfed.data.images import CORRUPTIONS, ImageFederation
from polyfed.data.tables.files import matching_files
from polyfed.data.tables.servers import is_url
from polyfed.errors import ConfigError, DataError, MissingExtraError
from polyfed.experiments.config import Config, DataConfig, ImagesConfig
from polyfed.files import reject_unnameable, write_whole

if TYPE_CHECKING:
    from polyfed.engine import Settings
    from polyfed.methods import Method

_COLUMNS = ("client", "features", "drop", "derive", "missing", "query", "transform", "weights")
_OF_TABLES = ("tasks", *_COLUMNS, "sha256", "split_by", "split_group", "split_column")

# Who wants to know how many images the network has seen, and of how many: features may take long, and are computed where
# nobody asks for a progress bar.
watching: ContextVar[Callable[[int, int], object] | None] = ContextVar("watching", default=None)

MASK = 0.95  # side of the black square in the middle, as a share of the shorter side: nine tenths of the area, as published
BLUR = 1 / 16  # standard deviation of the blur, as a share of it


def build_federation(data: DataConfig, where: str) -> Federation:
    if (data.source is None) == (data.dataset is None):
        what = "there are no data" if data.source is None else f"both {data.source!r} and {data.dataset!r} are given"
        raise ConfigError(what, where=where, remedy="give either a source (--data) or a data set (--dataset)")
    with _at(where):
        federation = _from_dataset(data) if data.source is None else _from_table(data)
        split = data.split(federation.split)
        return federation.with_options(scaling=data.scaling, split=split, limits=data.limits)


def build_method(config: Config, where: str) -> Method:
    from polyfed.methods import method

    with _at(where):
        return method(config.method.name, **config.method.options)


def build_settings(config: Config, where: str) -> Settings:
    from polyfed.engine import Settings

    with _at(where):
        return Settings(**config.run.model_dump(exclude={"folder"}))


def digest(source: Path) -> str:
    """The SHA-256 of a file, or of the names and contents of all files in a folder or of a pattern."""
    whole = hashlib.sha256()
    try:
        for path in sorted(source.iterdir()) if source.is_dir() else matching_files(source) or [source]:
            with path.open("rb") as file:
                inner = hashlib.file_digest(file, "sha256").hexdigest()
            if path == source:
                return inner
            whole.update(f"{path.name}\0{inner}\0".encode(errors="surrogateescape"))
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", where=error.filename, remedy="correct it") from None
    return whole.hexdigest()


def reject_changed(data: DataConfig) -> None:
    """An error if the source is not what it was when the settings were written down."""
    if data.sha256 is None or data.source is None or is_url(data.source):
        return
    is_there = Path(data.source).exists() or glob.has_magic(data.source)
    if is_there and digest(Path(data.source)) != data.sha256:
        remedy = "restore it, or start a new run"
        raise DataError("has changed since the run was started", where=data.source, remedy=remedy)


def _from_dataset(data: DataConfig) -> Federation:
    for key in _OF_TABLES:
        if getattr(data, key) not in (None, [], {}):
            remedy = f"leave {key} out, or give a source instead of a data set"
            raise ConfigError(f"data.{key} is given, but data set {data.dataset!r} brings its own", remedy=remedy)
    if data.dataset in IMAGE_DATASETS:
        return image_federation(data)
    if data.images is not None:
        remedy = f"leave it out: sets of images are {', '.join(IMAGE_DATASETS)}"
        raise ConfigError(f"data.images is given, but data set {data.dataset!r} has none", remedy=remedy)
    return load_dataset(data.dataset or "", **data.options)


def _from_table(data: DataConfig) -> Federation:
    for key in ("options", "images"):
        if getattr(data, key):
            raise ConfigError(f"data.{key} is given beside a source", remedy="leave it out: it is of data sets alone")
    if not data.tasks:
        remedy = "name the columns to predict, for example with --regression, --binary or data.tasks"
        raise ConfigError("there is no task", remedy=remedy)
    source = data.source or ""
    reject_unnameable(source, "data.source")
    if data.client is None and not is_url(source) and Path(source).is_file():
        what = f"no column of {source} is named that says whose row it is"
        raise ConfigError(what, remedy="name one with --client or data.client")
    reject_changed(data)
    given = {key: getattr(data, key) for key in _COLUMNS}
    return Federation.from_table(source, tasks=data.all_tasks(), split=data.split(), **given)


@contextmanager
def _at(where: str) -> Iterator[None]:
    """Errors about settings say in which file they are; errors about data name theirs already."""
    try:
        yield
    except ConfigError as error:
        place = where if not error.where else error.where if where in error.where else f"{where}, {error.where}"
        raise type(error)(error.what, where=place, remedy=error.remedy) from None


def image_federation(data: DataConfig, corruption: str | None = None) -> Federation:
    """The federation of the features; with a corruption, the test images are corrupted before they are seen."""
    made = images_of(data) if corruption is None else images_of(data).corrupted(corruption)
    return made.with_features(embedder(data.images or ImagesConfig()))


def images_of(data: DataConfig) -> ImageFederation:
    """The files and labels; nothing is opened yet."""
    return load_images(data.dataset or "", **data.options)


def embedder(images: ImagesConfig) -> Callable[..., np.ndarray]:
    """Paths → features, as `ImageFederation.with_features` wants it."""
    vision = vision_room()
    options = images.model_dump(exclude={"backbone", "cache"}, exclude_none=True)

    def embed(paths: Sequence[Path], corruption: str | None = None) -> np.ndarray:
        cache = vision.cache.cache_folder(images.cache)
        if corruption is not None:
            paths = [corrupted(path, corruption, cache / "corrupted") for path in paths]
        return vision.embed(paths, images.backbone, cache_dir=cache, progress=watching.get(), **options)

    return embed


def vision_room() -> Any:
    """The module, or an error that says what to install."""
    try:
        importlib.import_module("polyfed.nets.vision.cache")
        importlib.import_module("PIL")
        return importlib.import_module("polyfed.nets.vision")
    except ImportError as error:
        if isinstance(error, MissingExtraError):
            raise
        name = "Pillow" if error.name == "PIL" else error.name
        remedy = "pip install 'polyfed[vision]'"
        raise MissingExtraError(f"images need {name}, which is not installed", remedy=remedy) from None


def corrupted(path: Path, corruption: str, folder: Path) -> Path:
    """A copy of the image that is masked or blurred, made once; the same image is always corrupted in the same way."""
    if corruption not in CORRUPTIONS:
        raise ConfigError(f"corruption {corruption!r} is not known", remedy=f"known are {', '.join(CORRUPTIONS)}")
    content = path.read_bytes()
    out = folder / corruption / f"{hashlib.sha256(content).hexdigest()}.png"
    if not out.is_file():
        Image, ImageFilter = map(importlib.import_module, ("PIL.Image", "PIL.ImageFilter"))
        with Image.open(io.BytesIO(content)) as opened:
            made = opened.convert("RGB")
        if corruption == "masked":
            side = round(MASK * min(made.size))
            left, top = ((length - side) // 2 for length in made.size)
            made.paste((0, 0, 0), (left, top, left + side, top + side))
        else:
            made = made.filter(ImageFilter.GaussianBlur(BLUR * min(made.size)))
        written = io.BytesIO()
        made.save(written, "PNG")
        out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(out, written.getvalue())
    return out
