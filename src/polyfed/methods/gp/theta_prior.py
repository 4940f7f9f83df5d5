"""The prior of Θ as methods use it: an option, what the server has to remember, and the terms it adds.

The federation maximises Σ_c F_c(Θ) + log p(Θ). A server that averages gradients of its clients therefore adds 1/N of the
prior's, where N is the number of clients of the federation and not of those asked in this round: their average stands for
that of all N, whoever they are and whatever they weigh. Sums of closed-form noise are those of the clients asked, so there
the prior has as small a part as they are of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import torch
from torch import Tensor

from polyfed.errors import ConfigError, nearest
from polyfed.gp import group_of, hyperprior
from polyfed.gp.hyperprior import HyperPrior
from polyfed.methods.gp.states import Server
from polyfed.methods.messages import State
from polyfed.methods.options import check_number

CHOICES = ("none", "weak")


def hyperprior_of(given: str | Mapping[str, float]) -> HyperPrior | None:
    """The prior of Θ that an option asks for.

    >>> hyperprior_of({"ard": 0.5}).ard, hyperprior_of("none")
    (0.5, None)
    """
    if not isinstance(given, Mapping):
        if given not in CHOICES:
            raise ConfigError(f"theta_prior {given!r} is unknown", remedy=nearest(given, CHOICES))
        return None if given == "none" else HyperPrior()
    known = [field.name for field in fields(HyperPrior)]
    for name, value in given.items():
        if name not in known:
            raise ConfigError(f"theta_prior names {name!r}", remedy=nearest(name, known))
        check_number(f"{name} of theta_prior", value, above=0)
    return HyperPrior(**given)


def asked(server: Server, n_asked: int) -> float:
    """The share of all clients that were asked; one where the server does not keep count."""
    return 1.0 if server.n_clients is None else min(1.0, n_asked / float(server.n_clients))


def with_prior(gradient: State, theta: State, server: Server) -> State:
    """The gradient of the average bound with the prior's part."""
    if server.n_clients is None:
        return gradient
    pulls = hyperprior.gradient(theta, server.densities)
    return gradient | {name: gradient[name] + pull / server.n_clients for name, pull in pulls.items()}


def balanced(theta: State, densities: State) -> State:
    """The same functions, where the prior of Θ is highest: it is √φ₀ W that makes them, so what one factor gains the other may
    lose. The best amplitude has the form of a noise's (`hyperprior.best_log_noise`), with W² of all tasks as its sum.

    As it is, where the server has no prior of both or does not hold both.
    """
    moved = dict(theta)
    weights = [name for name in theta if group_of(name) == "mixing" and name in densities]
    amplitudes = [name for name in theta if name.endswith(".log_amplitude") and name in densities]
    for name in amplitudes if weights else ():
        b, old = int(name.split(".")[1]), theta[name]
        pull = torch.stack([(theta[w][:, b] / densities[w][1]).square().sum() for w in weights]).sum()
        moved[name] = hyperprior.best_log_noise(old.exp() * pull, torch.zeros_like(old), densities[name])
        for w in weights:
            moved[w] = moved[w].clone()
            moved[w][:, b] *= (0.5 * (old - moved[name])).exp()
    return moved


def noise_slope(value: Tensor, total: Tensor, count: Tensor, n_asked: int) -> Tensor:
    """The gradient of the average bound by the logarithm of a noise, from the same sums: ½(total/σ² − count) of all asked."""
    return 0.5 * (total * (-value).exp() - count) / n_asked


def pooled_noise(name: str, total: Tensor, count: Tensor, server: Server, n_asked: int) -> Tensor:
    """The logarithm of a noise from its sums over the clients asked; as it was, if nobody had a label."""
    if not count > 0:
        return server.pooled[name]
    return hyperprior.best_log_noise(total, count, server.densities.get(name), asked(server, n_asked))
