"""The options that say which data, which method and how: the same for `run` and `compare`, and how they become settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from polyfed.cli.arguments import QUERY, TABLE, Names, option
from polyfed.cli.output import note, number
from polyfed.errors import UsageError, nearest
from polyfed.kinds import KINDS, LabelForm

if TYPE_CHECKING:
    from polyfed.experiments.config import Config
    from polyfed.experiments.reading import Document

_NAMES = "A,B"
# Options that are settings of the data as they are given, but for the names of three.
_SETTINGS = (
    *("data", "query", "dataset", "client", "features", "drop", "weights", "missing", "scaling"),
    *("test_fraction", "validation_fraction", "shots", "shots_rows", "split_by", "split_group", "split_column"),
)
_RENAMED = {"data": "source", "test_fraction": "test", "validation_fraction": "validation"}


_column = partial(option, panel="Your data")
_how = partial(option, panel="The run")


@dataclass
class _SourceOptions:
    data: Annotated[str | None, _column(TABLE, "PATH")] = None
    query: Annotated[str | None, _column(QUERY, "SQL")] = None
    dataset: Annotated[
        str | None, _column("A data set that polyfed brings: see polyfed datasets.", "NAME", names="datasets")
    ] = None
    client: Annotated[str | None, _column("Column that says whose row it is.", "COLUMN")] = None


# A flag for each kind of task.
_TaskOptions: Any = make_dataclass(
    "_TaskOptions",
    [
        (
            name,
            Annotated[Names, _column(f"Targets {kind.summary}.", "K/N" if kind.form is LabelForm.PAIR else _NAMES)],
            None,
        )
        for name, kind in KINDS.items()
    ],
    bases=(_SourceOptions,),
)


@dataclass
class DataOptions(_TaskOptions):
    features: Annotated[Names, _column("Inputs; all other columns if not given.", _NAMES)] = None
    drop: Annotated[Names, _column("Columns that are neither inputs nor targets.", _NAMES)] = None
    derive: Annotated[Names, _column("A new column, such as disease=num>0 or y=log(income).", "NAME=TEST")] = None
    transform: Annotated[
        Names, _column("Take a skewed input's logarithm or rank; auto: held-out rows choose.", "NAME=log|rank|auto")
    ] = None
    weights: Annotated[str | None, _column("Column that says how much each row counts in training.", "COLUMN")] = None
    class_weights: Annotated[
        Names,
        _column("balanced: classes weigh the same at each client; or their weights.", "balanced|TASK=CLASS:N,..."),
    ] = None
    missing: Annotated[
        Names, _column("A text that means no label or no client; ',NA' for an empty field or NA.", "A,B")
    ] = None
    scaling: Annotated[
        str | None, _column("Units: federated, local, targets (of these alone) or none.", "HOW", names="scalings")
    ] = None
    test_fraction: Annotated[float | None, _column("Share of each client's rows for testing (0.2).", "SHARE")] = None
    validation_fraction: Annotated[float | None, _column("Share of the rows for validation.", "SHARE")] = None
    split_by: Annotated[
        str | None, _column("Test on the latest rows by this column of dates or numbers.", "COLUMN")
    ] = None
    split_group: Annotated[str | None, _column("Keep rows with the same value here in one part.", "COLUMN")] = None
    split_column: Annotated[str | None, _column("Column that says train, validation or test.", "COLUMN")] = None
    shots: Annotated[int | None, _column("Keep N training labels of each task.", "N")] = None
    shots_rows: Annotated[
        str | None, _column("Shots of the tasks on different rows (the default) or on the same.", "HOW")
    ] = None

    def into(self, document: Document) -> None:
        from polyfed.data.features.transforms import ALL, AUTO
        from polyfed.experiments.reading import put

        given: dict[str, Any] = vars(self) | {"features": split_names(self.features), "drop": split_names(self.drop)}
        if self.missing is not None:  # an empty text may be one that is meant
            given["missing"] = [text for texts in self.missing for text in texts.split(",")]
        for name in _SETTINGS:
            if given[name] is not None:
                put(document, ("data", _RENAMED.get(name, name)), given[name])
        by_kind = {kind: split_names(getattr(self, kind)) for kind in KINDS}
        tasks = [{"name": name, "kind": kind} for kind, names in by_kind.items() for name in names or ()]
        if tasks:
            put(document, ("data", "tasks"), tasks)
        for weights in self.class_weights or ():
            _put_class_weights(document, weights)
        for assignment in self.derive or ():
            name, test = split_assignment(assignment)
            put(document, ("data", "derive", name), test)
        for assignment in self.transform or ():
            in_full = f"{ALL}={AUTO}" if assignment.strip() == AUTO else assignment
            name, how = split_assignment(in_full, "transform", "income=log, or auto")
            put(document, ("data", "transform", name), how)


def _put_class_weights(document: Document, given: str) -> None:
    """`balanced` for all tasks, or for one task `balanced` or the weights of its classes."""
    from polyfed.data.task import BALANCED
    from polyfed.experiments.reading import put

    task, equals, how = (part.strip() for part in given.partition("="))
    if not equals:
        put(document, ("data", "class_weights"), task)
        return
    tasks = document.get("data", {}).get("tasks")
    named = [entry for entry in tasks if entry.get("name") == task] if isinstance(tasks, list) else []
    if not named:
        names = [str(entry.get("name")) for entry in tasks] if isinstance(tasks, list) else []
        remedy = nearest(task, names) if names else "give it as class_weights of the task in the config file"
        raise UsageError(f"task {task!r} is not among those that options name", where="--class-weights", remedy=remedy)
    pairs = [pair.rpartition(":") for pair in how.split(",")]
    try:
        weights = BALANCED if how == BALANCED else {label.strip(): float(weight) for label, _, weight in pairs}
        named[0]["class_weights"] = weights
    except ValueError:
        remedy = "write balanced, or for example sick=no:1,yes:5"
        raise UsageError(f"{given!r} weighs nothing", where="--class-weights", remedy=remedy) from None


@dataclass
class RunOptions:
    rounds: Annotated[int | None, _how("Number of rounds (20).", "N")] = None
    sample: Annotated[float | None, _how("Clients in a round: a number, or a share below 1.", "N")] = None
    aggregation: Annotated[
        str | None,
        _how("Before the mean: clip, mean (nothing), median, trimmed, krum; or a+b.", "RULE", names="aggregations"),
    ] = None
    workers: Annotated[int | None, _how("Threads that share out the clients.", "N")] = None
    set: Annotated[Names, _how("Any setting of the config file, such as run.quorum=0.8.", "KEY=VALUE")] = None

    def into(self, document: Document) -> None:
        """Add what was given to a document of settings; --set has the last word."""
        from polyfed.experiments.reading import put, set_value

        sample = self.sample
        if sample is not None and sample >= 1 and sample.is_integer():
            sample = int(sample)
        given = {"rounds": self.rounds, "sample": sample, "aggregation": self.aggregation, "workers": self.workers}
        for key, value in given.items():
            if value is not None:
                put(document, ("run", key), value)
        for assignment in self.set or ():
            set_value(document, assignment)


COMMAND_LINE = "command line"


def settings(
    config: Path | None, *groups: DataOptions | RunOptions, extra: Mapping[tuple[str, ...], object]
) -> tuple[Config, str]:
    """The settings of a file, of options, or of both (options win), and what errors call the place they are from."""
    from polyfed.experiments.reading import check, put, read_document

    document = read_document(config) if config is not None else {}
    for keys, value in extra.items():
        if value is not None:
            put(document, keys, value)
    for group in groups:
        group.into(document)
    if config is None and not document.get("data"):
        what = "there are no data to run on"
        raise UsageError(what, remedy="give a config file, --data FILE with --client and a target, or --dataset NAME")
    where = COMMAND_LINE if config is None else str(config)
    return check(document, where), where


def with_scales(config: Config, where: str, *, quiet: bool) -> Config:
    """The settings with the scales that `--transform auto` chose on held-out rows; what was tried is said on stderr."""
    from polyfed.experiments.scales import AS_IT_IS, settled

    def report(text: str) -> None:
        if not quiet:
            note(f"note: {text}")

    trials = "short runs choose scales on rows that are neither trained nor tested on"
    config, found = settled(config, where, lambda n_runs: report(f"{n_runs} {trials}"))
    for scale in found:
        known = {"as it is" if how == AS_IT_IS else how: number(loss) for how, loss in scale.losses.items()}
        losses = ", ".join(f"{how} {loss}" for how, loss in known.items())
        chosen = "left as it is" if scale.chosen == AS_IT_IS else f"taken as {scale.chosen}"
        report(f"{scale.column} is {chosen} (loss on held-out rows: {losses})")
    return config


def split_names(given: Sequence[str] | None) -> list[str] | None:
    """Names that may be given at once, as in a,b, or one by one."""
    if given is None:
        return None
    return [name.strip() for part in given for name in part.split(",") if name.strip()]


def split_seeds(given: Sequence[str] | None) -> list[int] | None:
    seeds = split_names(given)
    if odd := [seed for seed in seeds or () if not seed.isdecimal()]:
        remedy = "give whole numbers from 0 up, as in 0,1,2"
        raise UsageError(f"{odd[0]!r} is no seed", where="--seeds", remedy=remedy)
    return None if seeds is None else list(map(int, seeds))


def split_assignment(text: str, option: str = "derive", example: str = "disease=num>0") -> tuple[str, str]:
    """`disease=num>0` as a name and a comparison."""
    name, equals, test = text.partition("=")
    if not equals or not name.strip() or not test.strip():
        raise UsageError(f"{text!r} {option}s nothing", where=f"--{option}", remedy=f"write for example {example}")
    return name.strip(), test.strip()
