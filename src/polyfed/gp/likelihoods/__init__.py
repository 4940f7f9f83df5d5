"""The likelihoods. Which kind of task has which, `polyfed.kinds` says:

| kind                             | likelihood          | options                     |
|----------------------------------|---------------------|-----------------------------|
| `regression`                     | `Gaussian`          | `power`                     |
| `robust`                         | `StudentT`          | `dof`, `power`              |
| `binary`                         | `Bernoulli`         | `bound`, `power`            |
| `proportion`                     | `Binomial`          | `bound`, `power`            |
| `count`                          | `NegativeBinomial`  | `typical`, `bound`, `power` |
| `multiclass`, `one-vs-each`      | `OneVsEach`         | `bound`, `power`            |
| `multiclass`, `logistic-softmax` | `LogisticSoftmax`   | `temperature`, `power`      |
"""

from __future__ import annotations

from inspect import signature

from polyfed.gp.likelihoods.base import Likelihood
from polyfed.gp.likelihoods.gaussian import Gaussian
from polyfed.gp.likelihoods.logistic import Bernoulli, Binomial
from polyfed.gp.likelihoods.logistic_softmax import LogisticSoftmax
from polyfed.gp.likelihoods.negative_binomial import NegativeBinomial
from polyfed.gp.likelihoods.one_vs_each import OneVsEach
from polyfed.gp.likelihoods.student_t import StudentT
from polyfed.kinds import KINDS

__all__ = [
    "Bernoulli",
    "Binomial",
    "Gaussian",
    "Likelihood",
    "LogisticSoftmax",
    "NegativeBinomial",
    "OneVsEach",
    "StudentT",
    "likelihood_for",
]


def likelihood_for(
    kind: str,
    *,
    n_classes: int = 2,
    likelihood: str | None = None,
    temperature: float = 1.0,
    dof: float = 4.0,
    typical: float | None = None,
    power: float = 1.0,
    bound: str = "polya-gamma",
) -> Likelihood:
    """The likelihood of a kind of task, made with those of the options that its constructor has.

    >>> likelihood_for("multiclass", n_classes=4).n_outputs
    4
    """
    made = KINDS[kind].part("likelihood", likelihood)
    given = {
        "n_classes": n_classes,
        "temperature": temperature,
        "dof": dof,
        "typical": typical,
        "power": power,
        "bound": bound,
    }
    return made(**{name: given[name] for name in signature(made).parameters if name in given})
