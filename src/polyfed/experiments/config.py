"""All that can be set for a run, section by section. Shapes and types are checked here, values by those who use them.

>>> config = Config.model_validate({"data": {"dataset": "penguins"}})
>>> config.run.rounds, config.method.name
(20, 'pfed-hier')
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from polyfed.data.features.transforms import ALL, AUTO
from polyfed.data.schema.limits import Limits
from polyfed.data.splits import DEFAULT_SPLIT, Split
from polyfed.data.tables.files import stem_of
from polyfed.data.task import Task
from polyfed.defaults import COMPARED, METHOD


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TaskConfig(_Section):
    """One target: the fields of `Task`."""

    name: str
    kind: str = "regression"
    classes: list[Any] | None = None
    likelihood: str | None = None
    temperature: float = 1.0
    dof: float = 4.0
    power: Any = 1.0
    class_weights: str | dict[str, float] | None = None

    def task(self) -> Task:
        return Task(
            **self.model_dump(exclude={"classes"}), classes=None if self.classes is None else tuple(self.classes)
        )


class ImagesConfig(_Section):
    """How images become numbers: the features of a network that was trained elsewhere and is kept as it is.

    Attributes:
        backbone: its name, or a factory as package.module:factory.
        cut: where it is cut; its pooled last map, if it is not given.
        grid: points of the raster, each way, over which the map at a cut is averaged.
        size: side of the images in pixels.
        fit: "crop" (the central square) or "stretch".
        weights: a file, or "random".
        weights_dir: a folder in which the files of known backbones are looked for.
        cache: a folder that keeps the features.
    """

    backbone: str = "resnet18"
    cut: str | None = None
    grid: int | None = None
    size: int | None = None
    fit: str | None = None
    weights: str | None = None
    weights_dir: str | None = None
    cache: str | None = None


# A key of [data] → the option of a split that it is.
SPLIT_OPTIONS = {
    **{key: key for key in ("test", "validation", "shots", "shots_rows")},
    **{f"split_{option}": option for option in ("by", "group", "column")},
}


_FOR_ALL = BeforeValidator(lambda transform: {ALL: AUTO} if transform == AUTO else transform)


class DataConfig(_Section):
    """Where the data come from and what they are.

    Attributes:
        source: a table in a file, a pattern, or a folder with a file for each client; relative to the file of settings.
        query: what is read from a source that is a database.
        sha256: of the source; a source that has another is rejected.
        dataset: a data set that polyfed brings, instead of a source.
        options: of the data set.
        images: how those of a data set of images become numbers.
        client: the column that says whose row it is.
        tasks: the targets.
        features: the inputs; all other columns, if it is not given.
        drop: columns that are neither.
        derive: further columns by one comparison each, such as disease = "num > 0", or a logarithm, such as "log(income)".
        transform: inputs that are transformed, such as income = "log" or "rank"; "auto", for one column or for all that are
            skewed, lets rows that are not for testing choose.
        weights: a column that says how much each row counts in training.
        class_weights: "balanced" for all targets with classes; those of a task have the last word.
        missing: texts that mean that there is no label or no client; an empty field alone, if it is not given.
        scaling: "federated", "local", "targets" (features stay as they are) or "none".
        test, validation: fractions of each client's rows.
        shots: training labels of each task that are kept.
        shots_rows: "different" (no two tasks have them on the same row) or "same".
        split_by: a column of dates or numbers, the latest of which are held out.
        split_group: a column whose equal values stay in one part.
        split_column: a column that says train, validation or test.
        min_rows: training labels of a task that a client must have to speak of it at all.
        min_count: rows that must hold a text or class for a client to name it.
    """

    source: str | None = None
    query: str | None = None
    sha256: str | None = None
    dataset: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    images: ImagesConfig | None = None
    client: str | None = None
    tasks: list[TaskConfig] = Field(default_factory=list)
    features: list[str] | None = None
    drop: list[str] = Field(default_factory=list)
    derive: dict[str, str] = Field(default_factory=dict)
    transform: Annotated[dict[str, str], _FOR_ALL] = Field(default_factory=dict)
    weights: str | None = None
    class_weights: str | None = None
    missing: list[str] | None = None
    scaling: str | None = None
    test: float | None = None
    validation: float | None = None
    shots: int | None = None
    shots_rows: str | None = None
    split_by: str | None = None
    split_group: str | None = None
    split_column: str | None = None
    min_rows: int | None = None
    min_count: int | None = None

    @property
    def name(self) -> str:
        return self.dataset or stem_of(self.source or "data")

    def split(self, usual: Split = DEFAULT_SPLIT) -> Split:
        """How rows are divided, with what these settings leave open as is usual."""
        given = {option: getattr(self, key) for key, option in SPLIT_OPTIONS.items()}
        return replace(usual, **{option: value for option, value in given.items() if value is not None})

    def all_tasks(self) -> tuple[Task, ...]:
        """The targets, with what is set for all of them."""
        made = [config.task() for config in self.tasks]
        usual = {task.name for task in made if task.form.has_classes and task.class_weights is None}
        return tuple(replace(t, class_weights=self.class_weights) if t.name in usual else t for t in made)

    @property
    def limits(self) -> Limits:
        """What each client lets leave, as far as these settings decide it."""
        given = {"min_rows": self.min_rows, "min_count": self.min_count}
        return Limits(**{key: value for key, value in given.items() if value is not None})


class MethodConfig(BaseModel):
    """The method; further keys are its options."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    name: str = METHOD

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class RunConfig(_Section):
    """How the run goes: the fields of the engine's `Settings`, and where it is kept."""

    rounds: int = 20
    seed: int = 0
    sample: Any = None
    evaluate_every: int = 5
    quorum: float = 0.5
    max_norm: float = 1e5
    aggregation: str = "clip"
    trim: float = 0.2
    keep: int = 3
    workers: int = 1
    stop: str = "none"
    patience: int = 2
    folder: str | None = None


class CompareConfig(_Section):
    """Several methods and seeds.

    Attributes:
        methods: names; each method is run with each seed.
        seeds: one run for each.
        options: method → its options; those of [method] are for the method named there.
        grid: method (or "all") → option → values to try; the validation rows choose among their combinations.
    """

    methods: list[str] = Field(default_factory=lambda: list(COMPARED), min_length=1)
    seeds: list[int] = Field(default_factory=lambda: [0], min_length=1)
    options: dict[str, dict[str, Any]] = Field(default_factory=dict)
    grid: dict[str, dict[str, Annotated[list[Any], Field(min_length=1)]]] = Field(default_factory=dict)


class Config(_Section):
    data: DataConfig
    method: MethodConfig = Field(default_factory=MethodConfig)
    run: RunConfig = Field(default_factory=RunConfig)
    compare: CompareConfig = Field(default_factory=CompareConfig)
