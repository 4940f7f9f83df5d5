"""A weakly informative prior of Θ itself, so that a point estimate of Θ does not follow the noise of few labels (MAP).

Inputs and targets are of order one, so that it can be the same for all data:

| parameter                        | density                                                         |
|----------------------------------|-----------------------------------------------------------------|
| W                                | N(0, mixing²)                                                   |
| log φ₀, other parameters of kernels | N(0, amplitude²) around where they start                     |
| log ℓ, one for all inputs        | N(log √(2D), length²): inputs of spread one are √(2D) apart     |
| log ℓ_d, one for each input      | the same for a common value, and each of them around it by ard  |
| log σ², other dispersions        | N(log noise_at, noise²)                                         |

With a length-scale for each input the common value is integrated out: the logarithms are jointly Gaussian with covariance
ard² I + length² 11ᵀ. Inputs that say little are pulled to the others, and no usual length need be given. The prior is one
of lengths; parameters are log φ₁, and kernels differ in how φ₁ follows from ℓ. Features have no density here, as they have
a weight decay.

>>> theta = Prior(kernels=["rbf"], dims=2, outputs={"pulse": 1}, noise={"pulse": 0.2})
>>> gradient(theta.state(), HyperPrior().densities(theta))["mixing.pulse"]  # W is 1, and drawn to 0
tensor([[-1.]], dtype=torch.float64)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log, pi, sqrt

import torch
from torch import Tensor

from polyfed.gp.prior import Prior, group_of

# Of a parameter: mean, standard deviation of what its entries share, and of each entry around that. Where the last is zero
# the entries share nothing, and the second is that of each.
Densities = Mapping[str, Tensor]
LARGEST = 50.0  # of the logarithm of a noise: e^50 beyond any sane data
NEWTON_STEPS = 200  # far below the root a step is about one


@dataclass(frozen=True)
class HyperPrior:
    """The standard deviations of the densities above, and where the noise is expected."""

    mixing: float = 1.0
    amplitude: float = 1.0
    length: float = 0.75
    ard: float = 0.35
    noise_at: float = 1.0  # as if inputs said nothing, until labels say otherwise: intervals of few labels stay honest
    noise: float = 0.5

    def densities(self, prior: Prior) -> dict[str, Tensor]:
        """By name, for the parameters of a prior of this structure; its values do not matter."""
        found: dict[str, tuple[float, float, float]] = {}
        typical = torch.tensor([sqrt(2.0 * prior.dims)], dtype=torch.float64)
        usual = {
            "kernels": (0.0, self.amplitude),
            "mixing": (0.0, self.mixing),
            "noise": (log(self.noise_at), self.noise),
        }
        for name, value in prior.parameters.items():
            positive = prior.positives.get(name)
            if positive is not None and positive.exponent:
                unit = abs(positive.exponent)  # log φ = log factor − exponent · log ℓ
                apart = unit * self.ard if value.shape[-1] > 1 else 0.0
                found[name] = float(positive.log_at(typical)[0]), unit * self.length, apart
            elif positive is not None:
                found[name] = log(positive.factor), self.amplitude, 0.0
            elif (group := group_of(name)) in usual:
                found[name] = *usual[group], 0.0
        return {name: torch.tensor(numbers, dtype=torch.float64) for name, numbers in found.items()}


def log_density(values: Mapping[str, Tensor], densities: Densities) -> Tensor:
    """log p of the parameters that have a density."""
    total = torch.zeros((), dtype=torch.float64)
    for name, value in values.items():
        if name in densities:
            mean, common, apart = densities[name]
            off, n = value - mean, value.shape[-1] if value.dim() else 1
            if apart > 0:
                # |apart² I + common² 11ᵀ| = apart^(2(n−1)) (apart² + n common²)
                log_det = 2 * (n - 1) * apart.log() + (apart.square() + n * common.square()).log()
            else:
                log_det, n = 2 * value.numel() * common.log(), value.numel()
            total = total - 0.5 * (n * log(2 * pi) + log_det + (off * _solved(off, common, apart)).sum())
    return total


def gradient(values: Mapping[str, Tensor], densities: Densities) -> dict[str, Tensor]:
    """∂ log p / ∂Θ by name, of the parameters that have a density; leading dimensions hold many clients."""
    return {
        name: -_solved(value - densities[name][0], *densities[name][1:])
        for name, value in values.items()
        if name in densities
    }


def precision(density: Tensor, like: Tensor) -> float:
    """That of one entry of such a parameter, with the others held fixed."""
    one = torch.zeros(like.shape[-1] if like.dim() else 1, dtype=torch.float64)
    one[0] = 1.0
    return float(_solved(one, *density[1:])[0])


def _solved(off: Tensor, common: Tensor, apart: Tensor) -> Tensor:
    """Precision times deviation (Sherman-Morrison where entries share a value)."""
    if not apart > 0:
        return off / common.square()
    share = common.square() / (apart.square() + off.shape[-1] * common.square())
    return (off - share * off.sum(-1, keepdim=True)) / apart.square()


def best_log_noise(total: Tensor, count: Tensor, density: Tensor | None, weight: float = 1.0) -> Tensor:
    """log σ² that maximises −½ count log σ² − ½ total/σ² + weight · log p(log σ²): the closed form of the noise with a prior.

    Without a density it is log(total/count), which is no number without a count. With one, the derivative by t = log σ²,
    −½ count + ½ total e^{−t} − weight (t − mean)/sd², falls and is convex in t: Newton's steps from where it is positive
    climb to its only root and never pass it.

    >>> never_seen = torch.zeros((), dtype=torch.float64)
    >>> best_log_noise(never_seen, never_seen, torch.tensor([-1.5, 1.0, 0.0], dtype=torch.float64))
    tensor(-1.5000, dtype=torch.float64)
    """
    best = (total / count).log()
    if density is None:
        return best
    mean, pull = density[0], weight / density[1].square()
    t = torch.where(count > 0, torch.minimum(best.clamp_min(-LARGEST), mean), mean)
    for _ in range(NEWTON_STEPS):
        rest = 0.5 * total * (-t).exp()
        step = (rest - 0.5 * count - pull * (t - mean)) / (rest + pull)
        t = t + step
        if bool((step.abs() < 1e-14 * (1.0 + t.abs())).all()):
            break
    return t
