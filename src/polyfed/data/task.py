"""A task is one target that a client wants predicted: its name, its kind, and the options of that kind.

>>> Task("sick", "binary", classes=("no", "yes")).classes
('no', 'yes')
>>> [task.name for task in as_tasks({"pulse": "regression", "visits": "count"})]
['pulse', 'visits']
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from numbers import Real
from typing import Any

from polyfed.data.features.matrix import Described
from polyfed.errors import ConfigError, nearest
from polyfed.kinds import KINDS, Kind, LabelForm

Label = str | int | float  # of a class, as users write it; booleans are integers
BALANCED = "balanced"  # every class that a client has weighs the same there
ClassWeights = str | tuple[tuple[str, float], ...]
# Options that mean something to some kinds only; elsewhere they would be ignored in silence.
_OF_CLASSES = ("classes", "class_weights")
_OF_KINDS = (*_OF_CLASSES, "likelihood", "temperature", "dof")


@dataclass(frozen=True)
class Task(Described):
    """One target: what it is called, what kind of label it has, and how that label is modelled.

    kind         one of `polyfed.kinds`; "robust" is regression with outliers, "proportion" is k successes in n trials
    classes      binary: (negative, positive); multiclass: all of them in order; None: learned from the labels
    likelihood   multiclass only: "one-vs-each" (what None means) or "logistic-softmax"
    temperature  of the logistic-softmax
    dof          robust only: degrees of freedom of the Student-t noise, small means many outliers
    power        the likelihood is raised to this power; below 1 it is trusted less; "2/K" with K classes
    class_weights  of binary and multiclass: "balanced" (a client's classes weigh the same), or as in {"yes": 5}; None: 1 each

    >>> Task("pulse", "robust", dof=-1)
    Traceback (most recent call last):
    polyfed.errors.ConfigError: task 'pulse': dof=-1 is not a positive number; give a finite number above 0.
    """

    name: str
    kind: str = "regression"
    _: KW_ONLY
    classes: tuple[Label, ...] | None = None
    likelihood: str | None = None
    temperature: float = 1.0
    dof: float = 4.0
    power: float | str = 1.0
    class_weights: ClassWeights | Mapping[Label, float] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            what = f"{self.name!r} is not a name for a task"
            raise ConfigError(what, remedy="give it a non-empty text such as 'heart_rate'")
        try:
            described = KINDS[self.kind]
        except (ConfigError, TypeError):
            raise self._error(f"kind {self.kind!r} is not known", nearest(self.kind, KINDS)) from None
        store = object.__setattr__  # the dataclass is frozen, and this is still its construction
        store(self, "name", str(self.name))
        store(self, "temperature", self._positive("temperature"))
        store(self, "dof", self._positive("dof"))
        if self.classes is not None:
            store(self, "classes", self._checked_classes())
        if isinstance(self.power, str):
            if self.power != "2/K" or self.form is not LabelForm.CLASS:
                what = f"power={self.power!r} is not understood for a {self.kind} task"
                raise self._error(what, "give a number above 0, or '2/K' for a multiclass task")
        else:
            store(self, "power", self._positive("power"))
        if self.class_weights is not None:
            store(self, "class_weights", self._checked_weights())
        self._reject_options_of_others(described)

    @property
    def form(self) -> LabelForm:
        return KINDS[self.kind].form

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> Task:
        """The task that `to_dict` described; fields that are left out have their defaults."""
        known = [field.name for field in fields(cls)]
        for key in described:
            if key not in known:
                raise ConfigError(f"a task has no option {key!r}", remedy=nearest(key, known))
        if "name" not in described:
            raise ConfigError("a task has no name", remedy="add name = '...'")
        return cls(**described)

    def _error(self, what: str, remedy: str) -> ConfigError:
        return ConfigError(what, where=f"task {self.name!r}", remedy=remedy)

    def _positive(self, option: str) -> float:
        value = getattr(self, option)
        if not _is_positive(value):
            raise self._error(f"{option}={value!r} is not a positive number", "give a finite number above 0")
        return float(value)

    def _checked_classes(self) -> tuple[Label, ...]:
        given: Any = self.classes
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise self._error(f"classes={given!r} is not a list of labels", "give them as in classes=('no', 'yes')")
        classes = tuple(c.item() if hasattr(c, "item") else c for c in given)  # numpy scalars become Python's
        for label in classes:
            if not isinstance(label, (str, int, float)) or (isinstance(label, float) and not math.isfinite(label)):
                raise self._error(f"class {label!r} cannot be a label", "use text, finite numbers or booleans")
        for position, label in enumerate(classes):
            if label in classes[:position]:  # by equality, so 1 and True are the same class, as in a dict
                raise self._error(f"class {label!r} is listed twice", "list each class once")
        if self.form is LabelForm.BINARY and len(classes) != 2:
            raise self._error(f"a binary task has two classes, not {len(classes)}", "give classes=(negative, positive)")
        if self.form is LabelForm.CLASS and len(classes) < 2:
            raise self._error(f"{len(classes)} classes are too few to tell apart", "list at least two")
        return classes

    def _checked_weights(self) -> ClassWeights:
        """`balanced`, or the weight of each class that does not have 1, by its name."""
        given, remedy = self.class_weights, "give 'balanced', or as in {'yes': 5} a number above 0 for some classes"
        if given == BALANCED:
            return BALANCED
        pairs: Any = list(given.items()) if isinstance(given, Mapping) else given
        if not isinstance(pairs, (tuple, list)) or not all(isinstance(p, (tuple, list)) and len(p) == 2 for p in pairs):
            raise self._error(f"class_weights={given!r} is not understood", remedy)
        checked = {}
        for label, weight in pairs:
            if not _is_positive(weight):
                raise self._error(f"the weight of class {label!r} is {weight!r}, not a positive number", remedy)
            checked[class_name(label)] = float(weight)
        return tuple(checked.items())

    def _reject_options_of_others(self, described: Kind) -> None:
        for option in _OF_KINDS:
            value = getattr(self, option)
            if value != getattr(type(self), option) and not _has(described, option):
                owners = [repr(name) for name, kind in KINDS.items() if _has(kind, option)]
                what = f"{option}={value!r} does not belong to a {self.kind} task"
                raise self._error(what, f"drop it, or use kind {' or '.join(owners)}")
        if self.likelihood is not None and self.likelihood not in described.likelihood:
            remedy = nearest(self.likelihood, described.likelihood)
            raise self._error(f"likelihood {self.likelihood!r} is not known", remedy)
        if self.temperature != 1.0 and self.likelihood != "logistic-softmax":
            what = f"temperature={self.temperature!r} belongs to the logistic-softmax alone"
            raise self._error(what, "drop it, or set likelihood='logistic-softmax'")


def class_name(label: object) -> str:
    """A class as settings write it: 1.0 is 1.

    >>> Task("sick", "binary", class_weights={1.0: 5}).class_weights
    (('1', 5.0),)
    """
    return str(int(label) if isinstance(label, float) and label.is_integer() else label)


def _is_positive(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) < math.inf


def _has(kind: Kind, option: str) -> bool:
    return kind.has_classes if option in _OF_CLASSES else option in kind.options


def as_tasks(tasks: Any) -> tuple[Task, ...]:
    """Tasks from whatever is handy: Task objects, (name, kind) pairs, or a dict from name to kind.

    >>> as_tasks([("pulse", "robust"), Task("sick", "binary")])[0].kind
    'robust'
    """
    if isinstance(tasks, Task):
        tasks = [tasks]
    entries = list(tasks.items()) if isinstance(tasks, Mapping) else tasks
    if isinstance(entries, str) or not isinstance(entries, Iterable):
        remedy = "give for example [Task('pulse', 'regression')]"
        raise ConfigError(f"{entries!r} is not a list of tasks", remedy=remedy)
    made = tuple(map(_as_task, entries))
    if not made:
        raise ConfigError("there is no task", remedy="give at least one, for example Task('pulse', 'regression')")
    names = [task.name for task in made]
    for position, name in enumerate(names):
        if name in names[:position]:
            raise ConfigError(f"task {name!r} is given twice", remedy="give each task a name of its own")
    return made


def _as_task(entry: object) -> Task:
    if isinstance(entry, Task):
        return entry
    if isinstance(entry, (tuple, list)) and len(entry) == 2:
        return Task(*entry)
    raise ConfigError(f"{entry!r} is not a task", remedy="give a Task or a pair such as ('pulse', 'regression')")
