"""The server's door in round 0: every summary is validated before it is used, and a bad one is rejected by its client's name.

Two looks at each: is it a summary at all (`read_summary`: names, types, sizes, finite numbers), and does it fit those of most
others (`unlike_most`: columns, kinds, classes of a binary task)? The rest of the federation goes on without those rejected.
Nothing that a client chose is quoted at length: reasons stand in events and logs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from polyfed.data.features.transforms import LEAST_GROUP, MOST_GROUPS, MOST_KNOTS
from polyfed.data.prepared_checks import reject_odd_schema
from polyfed.data.schema.client_summary import NUMBERS, ClientSummary, open_tasks, scaled_tasks
from polyfed.data.schema.limits import LONGEST_TEXT, MOST_CATEGORIES
from polyfed.data.schema.negotiation import Schema
from polyfed.data.task import Task
from polyfed.errors import ConfigError, DataError
from polyfed.folders.documents import unlike
from polyfed.folders.schemas import AgreedPart
from polyfed.kinds import LabelForm

MOST_COLUMNS = 100_000
MOST_CLASSES = 1_000  # of one task
MOST_ROWS = 10**9
LARGEST = 1.7976931348623157e308  # of a float
FIELDS = ("columns", "kinds", "gaps", "categories", "classes", "labels", "moments", "targets", "ranks")
KINDS = (*NUMBERS, "text", "wide")


class Rejected(Exception):
    """Why a summary cannot be used, in a few words."""


def vet(
    tasks: Sequence[Task], reported: Mapping[str, Any], scaling: str
) -> tuple[dict[str, ClientSummary], dict[str, str]]:
    """Those that are fit for use, and client → reason for the others, both in the order of their names."""
    summaries: dict[str, ClientSummary] = {}
    rejected: dict[str, str] = {}
    for client in sorted(reported):
        try:
            summaries[client] = read_summary(tasks, reported[client], scaling)
        except Rejected as reason:
            rejected[client] = str(reason)
    rejected |= unlike_most(tasks, summaries)
    return {name: own for name, own in summaries.items() if name not in rejected}, dict(sorted(rejected.items()))


# ---- one summary ------------------------------------------------------------------------------------------------------


def read_summary(tasks: Sequence[Task], given: object, scaling: str) -> ClientSummary:
    reported = _keys("its summary", given, FIELDS)
    labels = _labels(reported["labels"], tasks)
    if not labels:  # a client that is silent says nothing else either
        if any(reported[field] for field in FIELDS):
            raise Rejected("it declares no labels, but tells of its data")
        return ClientSummary.nothing()
    columns = _texts("columns", reported["columns"], MOST_COLUMNS)
    if not columns:
        raise Rejected("there are no columns")
    kinds, gaps = (_list(field, reported[field], len(columns)) for field in ("kinds", "gaps"))
    of_kind: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for name, kind in zip(columns, kinds, strict=True):
        if not isinstance(kind, str) or kind not in KINDS:
            raise Rejected(f"a kind of column is {shown(kind)}")
        of_kind[kind].add(name)
    for gap in gaps:
        if not isinstance(gap, bool):
            raise Rejected(f"gaps have {shown(gap)}, not true or false")
    categories = _mapping("categories", reported["categories"], of_kind["text"], all_of=True)
    for name, levels in categories.items():
        _texts(f"categories of {shown(name)}", levels, MOST_CATEGORIES + 1)  # one is OTHER
    if scaling == "federated":
        _moments("moments", reported["moments"], sum(len(of_kind[kind]) for kind in NUMBERS))
    elif reported["moments"] is not None:
        raise Rejected("it tells moments, which nobody asked for")
    _ranks(reported["ranks"], of_kind["rank"])
    _classes(reported["classes"], tasks, labels)
    _targets(reported["targets"], tasks, labels, scaling)
    return ClientSummary.from_dict(reported)


def shown(value: object) -> str:
    """A value in a reason: never long, whatever it is."""
    if isinstance(value, int) and abs(value) > 10**20:
        return "a huge number"
    if isinstance(value, (str, int, float)) or value is None:
        text = ascii(value[:60] if isinstance(value, str) else value)
        return text if len(text) <= 60 else f"{text[:57]}..."
    return f"a {type(value).__name__}"


def is_text(value: object) -> bool:
    """Whether it is a text that can be a name: not empty of sense, not endless, and possible to write."""
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        return False
    return value.isascii() or value.encode(errors="replace").decode() == value  # no half of a pair


def _keys(what: str, value: object, wanted: Sequence[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Rejected(f"{what} is {shown(value)}, not an object")
    for key in wanted:
        if key not in value:
            raise Rejected(f"{what} lacks {key!r}")
    for key in value:
        if key not in wanted:
            raise Rejected(f"{what} has {shown(key)}, which nobody asked for")
    return value


def _list(what: str, value: object, length: int | None = None, *, most: int = MOST_ROWS) -> list[Any]:
    if not isinstance(value, list):
        raise Rejected(f"{what} are {shown(value)}, not a list")
    if length is not None and len(value) != length:
        raise Rejected(f"{what} are {len(value)}, not {length}")
    if len(value) > most:
        raise Rejected(f"{what} are {len(value)}, more than {most}")
    return value


def _texts(what: str, value: object, most: int) -> list[str]:
    texts = _list(what, value, most=most)
    for text in texts:
        if not is_text(text):
            long = isinstance(text, str) and len(text) > LONGEST_TEXT
            raise Rejected(f"{what} have {f'a text of {len(text)} characters' if long else shown(text)}")
    if len(set(texts)) < len(texts):
        raise Rejected(f"{what} have {shown(Counter(texts).most_common(1)[0][0])} twice")
    return texts


def _mapping(what: str, value: object, known: set[str], *, all_of: bool = False) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Rejected(f"{what} are {shown(value)}, not an object")
    for key in value:
        if key not in known:
            raise Rejected(f"{what} have {shown(key)}, which nobody asked for")
    if all_of and (missing := sorted(known - value.keys())):
        raise Rejected(f"{what} lack {shown(missing[0])}")
    return value


def _number(what: str, value: object, least: float = -LARGEST, *, whole: bool = False) -> Any:
    if not isinstance(value, int if whole else (int, float)) or isinstance(value, bool):
        raise Rejected(f"{what} is {shown(value)}, not a {'whole ' if whole else ''}number")
    if not least <= value <= (MOST_ROWS if whole else LARGEST):  # NaN neither
        raise Rejected(f"{what} is {shown(value)}")
    return value


def _moments(what: str, value: object, n_columns: int) -> None:
    given = _keys(what, value, ("count", "mean", "std"))
    reported = [_list(f"{what}, {key}", given[key], n_columns) for key in ("count", "mean", "std")]
    for n, mean, std in zip(*reported, strict=True):
        _number(f"{what}: a count", n, 0, whole=True)
        _number(f"{what}: a mean", mean)
        _number(f"{what}: a std", std, least=0.0)
        if n == 0 and (mean or std):
            raise Rejected(f"{what}: a column without values has a mean or a std")


def _ranks(value: object, ranked: set[str]) -> None:
    for name, sketch in _mapping("ranks", value, ranked).items():
        what = f"ranks of {shown(name)}"
        _keys(what, sketch, ("mean", "count"))
        counts = sketch["count"]
        if not isinstance(counts, list) or not 1 <= len(counts) <= MOST_GROUPS:
            raise Rejected(f"{what}: counts are not a list of 1 to {MOST_GROUPS}")
        last = None
        for n, mean in zip(counts, _list(f"{what}, means", sketch["mean"], len(counts)), strict=True):
            _number(f"{what}: a count", n, LEAST_GROUP, whole=True)
            _number(f"{what}: a mean", mean)
            if last is not None and mean <= last:
                raise Rejected(f"{what}: {shown(mean)} comes after {shown(last)}")
            last = mean


def _labels(value: object, tasks: Sequence[Task]) -> dict[str, int]:
    labels = _mapping("labels", value, {task.name for task in tasks})
    return {task: _number(f"labels of task {task!r}", n, 1, whole=True) for task, n in labels.items()}


def _classes(value: object, tasks: Sequence[Task], labels: Mapping[str, int]) -> None:
    open_ones = open_tasks(tasks, labels)
    reported = _mapping("classes", value, set(open_ones), all_of=True)
    for name, found in reported.items():
        what = f"classes of task {name!r}"
        most = 2 if open_ones[name].form is LabelForm.BINARY else MOST_CLASSES
        for label in _list(what, found, most=most):
            if not is_text(label):
                _number(f"{what}: a label", int(label) if isinstance(label, bool) else label)
        if len(set(found)) < len(found):
            raise Rejected(f"{what} have one twice")


def _targets(value: object, tasks: Sequence[Task], labels: Mapping[str, int], scaling: str) -> None:
    scaled = scaled_tasks(tasks, labels, scaling)
    reported = _mapping("targets", value, set(scaled), all_of=True)
    for name, moments in reported.items():
        _moments(f"target {name!r}", moments, 1)
        if moments["count"][0] != labels[name]:
            raise Rejected(f"target {name!r} has a count of {moments['count'][0]}, but {labels[name]} labels")
        if scaled[name].form is LabelForm.COUNT and moments["mean"][0] < 0:
            raise Rejected(f"target {name!r} is a count with a mean of {shown(moments['mean'][0])}")


# ---- beside the others ------------------------------------------------------------------------------------------------


def unlike_most(tasks: Sequence[Task], summaries: Mapping[str, ClientSummary]) -> dict[str, str]:
    """client → what it has that most others have not, which nobody could put together; of two equal halves, the first."""
    speaking = {client: summary for client, summary in summaries.items() if not summary.is_silent}
    rejected: dict[str, str] = {}

    def reject(reasons: Mapping[str, str | None]) -> None:
        rejected.update({client: reason for client, reason in reasons.items() if reason is not None})
        for client in rejected.keys() & speaking.keys():
            del speaking[client]

    sets = Counter(frozenset(summary.columns) for summary in speaking.values())
    usual = max(sets, key=sets.__getitem__, default=frozenset[str]())
    reject({client: _other_columns(set(summary.columns), usual) for client, summary in speaking.items()})
    votes: dict[str, Counter[str]] = {}
    for summary in speaking.values():
        for column, kind in zip(summary.columns, summary.kinds, strict=True):
            if kind != "empty":
                votes.setdefault(column, Counter())[_sort(kind)] += 1
    reject({client: _other_kind(summary, votes) for client, summary in speaking.items()})
    for name in [task.name for task in tasks if task.form is LabelForm.BINARY and task.classes is None]:
        classes = {client: summary.classes.get(name, ()) for client, summary in speaking.items()}
        known = Counter(label for own in classes.values() for label in own)
        pair = {label for label, _ in known.most_common(2)}  # of equals, the first in the order of the clients
        third = {client: [label for label in own if label not in pair] for client, own in classes.items()}
        reject({c: f"task {name!r}: {shown(own[0])} is a third class" for c, own in third.items() if own})
    return rejected


def _other_columns(mine: set[str], usual: frozenset[str]) -> str | None:
    if missing := sorted(usual - mine):
        return f"lacks column {shown(missing[0])}, which most clients have"
    extra = sorted(mine - usual)
    return f"has column {shown(extra[0])}, which most clients lack" if extra else None


def _other_kind(summary: ClientSummary, votes: Mapping[str, Counter[str]]) -> str | None:
    for column, kind in zip(summary.columns, summary.kinds, strict=True):
        mine = _sort(kind)
        if kind != "empty" and mine != (usual := votes[column].most_common(1)[0][0]):
            return f"column {shown(column)} holds {mine}, and {usual} at most clients"
    return None


def _sort(kind: str) -> str:
    return "text" if kind == "wide" else kind


# ---- what a server says was agreed --------------------------------------------------------------------------------------


def read_schema(given: object) -> Schema:
    """The schema that this is, or Rejected: a client trusts its server no further than a server its clients.

    The schema is that of run folders; sizes are limited here, for what is stored is one's own.
    """
    described = _keys("it", given, tuple(AgreedPart.model_fields))
    if what := unlike(described, AgreedPart):
        raise Rejected(what)
    _texts("columns", [column["name"] for column in described["columns"]], MOST_COLUMNS)
    for column in described["columns"]:
        _texts("categories", column["categories"], MOST_CATEGORIES + 1)
        if len(column.get("ranks") or ()) > MOST_KNOTS:
            raise Rejected(f"ranks are {len(column['ranks'])}, more than {MOST_KNOTS}")
    for codec in described["codecs"]:
        if codec["classes"] is not None and len(codec["classes"]) > MOST_CLASSES:
            raise Rejected(f"classes are {len(codec['classes'])}, more than {MOST_CLASSES}")
    try:
        agreed = Schema.from_dict(described)
        reject_odd_schema(agreed, len(described["codecs"]))
    except DataError as error:
        raise Rejected(error.what) from None
    except (ConfigError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise Rejected(f"a task is not understood ({type(error).__name__})") from None
    return agreed
