"""The likelihoods, one file each, and the one place that knows which kind of task has which.

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

from collections.abc import Callable

from polyfed.errors import ConfigError, nearest
from polyfed.gp.likelihoods.base import Likelihood
from polyfed.gp.likelihoods.bernoulli import Bernoulli
from polyfed.gp.likelihoods.binomial import Binomial
from polyfed.gp.likelihoods.gaussian import Gaussian
from polyfed.gp.likelihoods.logistic_softmax import LogisticSoftmax
from polyfed.gp.likelihoods.negative_binomial import NegativeBinomial
from polyfed.gp.likelihoods.one_vs_each import OneVsEach
from polyfed.gp.likelihoods.student_t import StudentT

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
    """The likelihood of a kind of task. Options that a kind does not have are not looked at.

    >>> likelihood_for("multiclass", n_classes=4).n_outputs
    4
    """
    makers: dict[str, Callable[[], Likelihood]] = {
        "regression": lambda: Gaussian(power=power),
        "robust": lambda: StudentT(dof=dof, power=power),
        "binary": lambda: Bernoulli(bound=bound, power=power),
        "proportion": lambda: Binomial(bound=bound, power=power),
        "count": lambda: NegativeBinomial(typical=typical, bound=bound, power=power),
        "multiclass/one-vs-each": lambda: OneVsEach(n_classes, bound=bound, power=power),
        "multiclass/logistic-softmax": lambda: LogisticSoftmax(n_classes, temperature=temperature, power=power),
    }
    key = f"{kind}/{likelihood or 'one-vs-each'}" if kind == "multiclass" else kind
    if key not in makers:
        raise ConfigError(f"there is no likelihood for a task of kind {key!r}", remedy=nearest(key, makers))
    return makers[key]()
