"""The kinds of tasks: the one place that knows which there are and what belongs to each.

A kind is described by names alone, so that this file imports nothing heavy: each room looks its own part up, and a part is
imported when it is first asked for. What kinds have in common is the *form* of their labels, which most rooms ask for.

>>> KINDS["robust"].form.name, KINDS["robust"].headline
('NUMBER', 'rmse')
>>> KINDS["robust"].part("prediction").__name__
'RobustPrediction'
>>> KINDS["ordinal"]
Traceback (most recent call last):
polyfed.errors.ConfigError: kind 'ordinal' is not known; known are 'regression', 'robust', 'binary', 'multiclass', ...
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pkgutil import resolve_name
from typing import Any

from polyfed.errors import ConfigError, nearest
from polyfed.plugins import registered


class LabelForm(Enum):
    """How a label is written and how it is coded for models."""

    NUMBER = "a number, coded as (y - shift) / scale"
    COUNT = "a whole number from 0 up; `scale` is a typical one"
    PAIR = "successes and trials"
    BINARY = "one of two classes, coded as -1 or +1"
    CLASS = "one of several classes, coded as its position"

    @property
    def has_classes(self) -> bool:
        return self in (LabelForm.BINARY, LabelForm.CLASS)


_OF_CLASSES = ("accuracy", "balanced_accuracy", "auroc", "nll", "brier", "ece")
METRICS = {
    LabelForm.NUMBER: ("mse", "rmse", "r2", "nlpd", "coverage", "width"),
    LabelForm.COUNT: ("rmse", "r2", "nlpd", "deviance", "coverage", "width"),
    LabelForm.PAIR: ("rmse", "r2", "nlpd", "deviance"),
    LabelForm.BINARY: _OF_CLASSES,
    LabelForm.CLASS: _OF_CLASSES,
}


@dataclass(frozen=True)
class Kind:
    """What belongs to a kind of task. A part is the thing itself, or its place as in "package.module:name".

    Attributes:
        name: what users call it in `Task`, in config files, and as a flag of the command line.
        summary: what such targets are, as in "numbers with outliers".
        form: how labels are written and coded, and with that which metrics compare them with predictions.
        likelihood: part, a class of likelihoods (`polyfed.gp.likelihoods.base`), made with those options that it has; or
            several by name, of which the first is the default.
        prediction: part, the class of its predictions (`polyfed.predictions.base`).
        options: those of `Task` that mean something to this kind; all kinds have `power`, and classes have theirs.
        supervision: part, how networks are trained on it (`polyfed.methods`); None: by its likelihood.
        guess: part, a function from a column to why it seems to be of this kind, or None; asked by `polyfed init`.
    """

    name: str
    summary: str
    form: LabelForm
    likelihood: Any
    prediction: object
    options: tuple[str, ...] = ()
    supervision: object = None
    guess: object = None

    @property
    def has_classes(self) -> bool:
        return self.form.has_classes

    @property
    def metrics(self) -> tuple[str, ...]:
        return METRICS[self.form]

    @property
    def headline(self) -> str:
        """The metric that is shown first."""
        return "accuracy" if self.has_classes else "rmse"

    @property
    def loss(self) -> str:
        """The metric by which models are chosen on validation rows."""
        return "nll" if self.has_classes else "nlpd"

    def part(self, name: str, choice: str | None = None) -> Any:
        """A part of it, imported if it is given by its place; of several by name the chosen one, or the first."""
        given = getattr(self, name)
        if isinstance(given, Mapping):
            if choice is not None and choice not in given:
                what = f"{name} {choice!r} of kind {self.name!r} is not known"
                raise ConfigError(what, remedy=nearest(choice, given))
            given = given[choice or next(iter(given))]
        return resolve_name(given) if isinstance(given, str) else given


class Kinds(dict[str, Kind]):
    """name → kind: polyfed's own, those that were added, and those under the entry point `polyfed.kinds`."""

    def __missing__(self, name: str) -> Kind:
        for found, kind in registered("kinds", "kind").items():
            self.setdefault(found, kind)
        if name not in self:
            raise ConfigError(f"kind {name!r} is not known", remedy=nearest(name, self))
        return self[name]


KINDS = Kinds()


def add_kind(new: Kind) -> Kind:
    """Make a kind known to all rooms; its name must be free."""
    if KINDS.setdefault(new.name, new) is not new:
        raise ConfigError(f"there is a kind {new.name!r} already", remedy="give the new one another name")
    return new


def _own(
    name: str, summary: str, form: LabelForm, likelihood: str | dict[str, str], *options: str, guess: str | None = None
) -> None:
    """One of polyfed's own, whose parts have their usual places and names."""
    at = "polyfed.gp.likelihoods:"
    part = at + likelihood if isinstance(likelihood, str) else {key: at + it for key, it in likelihood.items()}
    prediction, supervision = (
        f"polyfed.predictions:{name.title()}Prediction",
        f"polyfed.methods.supervised:{name.upper()}",
    )
    guessed = None if guess is None else f"polyfed.experiments.guessing:{guess}"
    add_kind(Kind(name, summary, form, part, prediction, options, supervision, guessed))


_SOFTMAX = {"one-vs-each": "OneVsEach", "logistic-softmax": "LogisticSoftmax"}
_own("regression", "that are numbers", LabelForm.NUMBER, "Gaussian", guess="numbers")
_own("robust", "that are numbers with outliers", LabelForm.NUMBER, "StudentT", "dof", guess="outliers")
_own("binary", "with two classes", LabelForm.BINARY, "Bernoulli", guess="two_values")
_own("multiclass", "with several classes", LabelForm.CLASS, _SOFTMAX, "likelihood", "temperature", guess="texts")
_own("proportion", "that are k successes in n trials", LabelForm.PAIR, "Binomial")
_own("count", "that are counts", LabelForm.COUNT, "NegativeBinomial", guess="whole_numbers")
_NAMES = tuple(KINDS)


def own_kinds(*forms: LabelForm) -> tuple[str, ...]:
    """Those of polyfed's own kinds whose labels have one of these forms: what a method may serve that is no more general."""
    return tuple(name for name in _NAMES if KINDS[name].form in forms)
