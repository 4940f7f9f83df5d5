"""Θ, the prior that clients share: what the server learns and what a client may keep to itself.

Four groups, known by the first word of a parameter's name:

| group      | names                                        | on paper            |
|------------|----------------------------------------------|---------------------|
| `features` | `features.<parameter of the network>`, `features.projection` | θ   |
|            | `features.mean`, `features.mean_bias`        | V, c of the prior mean |
| `kernels`  | `kernels.<b>.log_amplitude`, `….log_phi1`    | φ_b = (φ₀, φ₁)      |
|            | `….<part>.log_phi1`, ... of sums and products |                    |
| `mixing`   | `mixing.<task>`, a row for each output       | W                   |
| `noise`    | `noise.<task>`, the logarithm                | σ_i² (or a dispersion) |

Positive parameters live in log space, so any step of any optimiser leaves them positive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from math import log
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from polyfed.errors import ConfigError, nearest
from polyfed.gp.kernels import KernelLike, Positive, check_kernel, kernel_of
from polyfed.gp.projection import feature_map, scaled_sums

if TYPE_CHECKING:
    from jaxtyping import Float

GROUPS = ("features", "kernels", "mixing", "noise")
MEANS = ("zero", "linear")


def group_of(name: str) -> str:
    """The group of a parameter: `group_of("mixing.heart.rate") == "mixing"`."""
    return name.split(".", 1)[0]


def _name(b: int, key: str) -> str:
    """The name of a kernel's parameter in Θ: `kernels.0.log_phi1`, and `kernels.0.1.log_period` for one of a part."""
    part, dot, last = key.rpartition(".")
    return f"kernels.{b}.{part}{dot}log_{last}"


class Prior:
    """The hyper-parameters Θ of a multi-output GP: f_i(x) = μ_i(x) + Σ_b W[i, b] g_b(x), g_b ~ GP(0, k_b).  (eq1c, eq. 1c)

    The paper has μ = 0. A linear mean μ(x) = Vᵀx̃ + c, of what the projections see (x̃, the inputs or the features of a
    network), lets clients with few labels share what f is on average.

    Args:
        kernels: one for each latent function, as a kernel, a name or an expression (gp/kernels).
        dims: number of inputs of the kernels (of the network's features if there is a network, of what the projections make
            of them if there are any).
        outputs: task name → number of outputs (one, or one for each class).
        noise: task name → initial σ² (or dispersion), for the tasks that have one.
        per_dimension: a length-scale for each input dimension instead of one for all.
        features: a network η_θ whose outputs the kernels see; None for the inputs themselves.
        projected: number of inputs (or features) of which each latent has a linear projection of its own to `dims` numbers:
            a trunk that the latents share, and what each of them looks at; None for latents that all see the same.
        apart: the network makes features of each latent side by side (the θ_b of the paper), and latent b sees, or projects,
            the b-th part of them alone.
        chunk: inputs that go through the network at once (feature_map); None for all. It changes memory, not results.
        mean: `zero` or `linear`.

    >>> prior = Prior(kernels=["rbf", "rbf"], dims=3, outputs={"pulse": 1, "stage": 3}, noise={"pulse": 0.1})
    >>> prior.W.shape, sorted(prior.state())[-3:]
    (torch.Size([4, 2]), ['mixing.pulse', 'mixing.stage', 'noise.pulse'])
    """

    def __init__(
        self,
        *,
        kernels: Sequence[KernelLike],
        dims: int,
        outputs: Mapping[str, int],
        noise: Mapping[str, float] | None = None,
        per_dimension: bool = False,
        features: nn.Module | None = None,
        projected: int | None = None,
        apart: bool = False,
        chunk: int | None = None,
        mean: str = "zero",
    ) -> None:
        if mean not in MEANS:
            raise ConfigError(f"mean {mean!r} is unknown", remedy=nearest(mean, MEANS))
        if not kernels:
            raise ConfigError("a prior without latent functions", remedy="give at least one kernel")
        self.kernels, self.dims, self.outputs = tuple(kernel_of(each) for each in kernels), dims, dict(outputs)
        self.per_dimension, self.features, self.projected = per_dimension, features, projected
        self.apart, self.chunk = apart, chunk
        self._own: dict[str, Tensor] = {}
        # What a network froze is no part of Θ: it stays in the network, as do running statistics.
        learned = [] if features is None else [(n, p) for n, p in features.named_parameters() if p.requires_grad]
        self._net: dict[str, Tensor] = {f"features.{name}": parameter for name, parameter in learned}
        if projected is not None:
            self._add("features.projection", torch.ones(projected, self.n_latents * dims))
        if mean == "linear":
            n_seen = (projected or dims) * (self.n_latents if apart else 1)
            n_outputs = sum(self.outputs.values())
            self._add("features.mean", torch.zeros(n_seen, n_outputs))
            self._add("features.mean_bias", torch.zeros(n_outputs))
        if taken := self._net.keys() & self._own.keys():
            name = min(taken).removeprefix("features.")
            raise ConfigError(
                f"the network calls a parameter {name!r}, as projections and means call theirs",
                remedy="put the network into a torch.nn.Sequential",
            )
        n_scales = dims if per_dimension else 1
        self.positives: dict[str, Positive] = {}  # the parameters of kernels beside their amplitudes, by name
        for b, kernel in enumerate(self.kernels):
            check_kernel(kernel, dims, n_scales)
            self._add(f"kernels.{b}.log_amplitude", torch.zeros(()))
            for key, positive in kernel.parameters.items():
                self.positives[_name(b, key)] = positive
                self._add(_name(b, key), torch.zeros(positive.size(n_scales)))
        for task, n_outputs in self.outputs.items():
            self._add(f"mixing.{task}", torch.ones(n_outputs, self.n_latents))
        for task, sigma2 in (noise or {}).items():
            self._add(f"noise.{task}", torch.tensor(log(sigma2), dtype=torch.float64))

    def _add(self, name: str, value: Tensor) -> None:
        self._own[name] = value.to(torch.float64).requires_grad_()

    # ---- the parameters by name -------------------------------------------------------------------------

    @property
    def parameters(self) -> dict[str, Tensor]:
        """All parameters, live: the leaves that autograd knows."""
        return self._net | self._own

    def group(self, *groups: str) -> dict[str, Tensor]:
        """The live parameters of some groups."""
        for name in groups:
            if name not in GROUPS:
                raise ConfigError(f"group {name!r} is unknown", remedy=nearest(name, GROUPS))
        return {name: value for name, value in self.parameters.items() if group_of(name) in groups}

    def state(self) -> dict[str, Tensor]:
        """A copy of all parameters as a plain dictionary."""
        return {name: value.detach().clone() for name, value in self.parameters.items()}

    def load(self, state: Mapping[str, Tensor]) -> Prior:
        """Take over the values given, all or none of them; parameters that are not named stay as they are."""
        mine = self.parameters
        for name, value in state.items():
            if name not in mine:
                raise ConfigError(f"parameter {name!r} is not part of this prior", remedy=nearest(name, mine))
            if tuple(value.shape) != tuple(mine[name].shape):
                raise ConfigError(
                    f"parameter {name!r} has shape {tuple(value.shape)}, not {tuple(mine[name].shape)}",
                    remedy="load a state of a prior with the same tasks, kernels and inputs",
                )
            if not bool(torch.isfinite(value).all()):
                raise ConfigError(f"parameter {name!r} is not finite", remedy="load a state of a healthy prior")
        with torch.no_grad():
            for name, value in state.items():
                mine[name].copy_(value)
        return self

    def with_values(self, values: Mapping[str, Tensor]) -> Prior:
        """This prior with other values, in leaves of their own that share memory with them; do not `load` into these.

        A leading dimension holds the values of many clients.
        """
        other = copy(self)
        parts = self._net, self._own
        other._net, other._own = ({name: values[name].detach().requires_grad_() for name in part} for part in parts)
        return other

    @property
    def is_stacked(self) -> bool:
        """Whether it holds the values of many clients, in a leading dimension."""
        return self._own["kernels.0.log_amplitude"].dim() > 0

    def expand(self, n_clients: int) -> Prior:
        """This prior n times over, as `stack` would make it of n copies."""
        return self.with_values({n: value.expand(n_clients, *value.shape) for n, value in self.parameters.items()})

    def take(self, clients: Tensor) -> Prior:
        """The values of some clients of a stacked prior."""
        n, values = len(clients), self.parameters.items()
        return self.with_values(
            {name: v[:1].expand(n, *v.shape[1:]) if self.is_common(name) else v[clients] for name, v in values}
        )

    def is_common(self, name: str) -> bool:
        """Whether this parameter is known to be one for all clients: it is one in memory, or there is one client."""
        value = self.parameters[name]
        return not self.is_stacked or len(value) == 1 or value.stride(0) == 0

    @classmethod
    def stack(cls, priors: Sequence[Prior]) -> Prior:
        """Priors of the same tasks and kernels as one, with a leading dimension: to solve many clients at once.

        The result is a copy with leaves of its own: its gradient is that of each client by itself.
        """
        if any(prior.features is not None for prior in priors):
            raise ConfigError("priors with a network cannot be stacked", remedy="solve these clients one by one")
        states = [prior.state() for prior in priors]
        if any(
            {n: v.shape for n, v in state.items()} != {n: v.shape for n, v in states[0].items()} for state in states
        ):
            raise ConfigError(
                "priors of different parts cannot be stacked", remedy="give all the same tasks and kernels"
            )
        return priors[0].with_values({name: torch.stack([state[name] for state in states]) for name in states[0]})

    def broken(self) -> str | None:
        """The first parameter that is not finite, if there is one."""
        return next((name for name, value in self.parameters.items() if not bool(torch.isfinite(value).all())), None)

    # ---- the parameters by meaning ----------------------------------------------------------------------

    @property
    def n_latents(self) -> int:
        return len(self.kernels)

    @property
    def W(self) -> Float[Tensor, "*clients T B"]:
        """The mixing weights, (T, B): the rows of all tasks in the order of `outputs`."""
        return torch.cat([self._own[f"mixing.{task}"] for task in self.outputs], dim=-2)

    def W_of(self, task: str) -> Float[Tensor, "*clients O B"]:
        """The rows of W that belong to one task."""
        return self._own[f"mixing.{task}"]

    def mixing(self) -> dict[str, Tensor]:
        """Task → its rows of W, without their graph."""
        return {task: self.W_of(task).detach() for task in self.outputs}

    def selecting(self) -> dict[str, Tensor]:
        """Task → its rows of the identity: what `mixing` is where the outputs themselves are the latent functions."""
        sizes = list(self.outputs.values())
        return dict(zip(self.outputs, torch.eye(sum(sizes), dtype=torch.float64).split(sizes), strict=True))

    def noise_of(self, task: str) -> Tensor | None:
        """σ² (or dispersion) of a task, None for a task without."""
        log_noise = self._own.get(f"noise.{task}")
        return None if log_noise is None else log_noise.exp()

    def length_scales(self) -> list[list[tuple[str, Tensor]]]:
        """(kernel, length-scales) of each part of each latent's kernel that has some."""
        with torch.no_grad():
            return [kernel.length_scales(self.log_phi(b)) for b, kernel in enumerate(self.kernels)]

    def output_correlation(self) -> Float[Tensor, "T T"]:
        """Prior correlation of the outputs at one input: W diag(φ₀) Wᵀ, normalised."""
        with torch.no_grad():
            amplitude = torch.stack([self.amplitude(b) for b in range(self.n_latents)])
            cov = (self.W * amplitude) @ self.W.mT
            sd = cov.diagonal().clamp_min(1e-300).sqrt()
            return cov / sd[:, None] / sd[None, :]

    # ---- the latent kernels -----------------------------------------------------------------------------

    @property
    def sees_inputs(self) -> bool:
        """Whether the kernels see the inputs themselves, so that no parameter changes a distance but by a scale."""
        return self.features is None and self.projected is None

    @property
    def has_mean(self) -> bool:
        return "features.mean" in self._own

    def eta(self, x: Float[Tensor, "*batch N D"]) -> Float[Tensor, "*batch N E"]:
        """What the kernels see of an input (deepkernel, sec. 4.3): its features, or the input itself; of all latents
        side by side."""
        return self.project(self.features_of(x))

    def features_of(self, x: Tensor) -> Tensor:
        """x̃, what projections and the mean see of an input: the network's features, or the input itself."""
        if self.features is None:
            return x
        values = {name.removeprefix("features."): value for name, value in self._net.items()}
        return feature_map(self.features, values, x, self.chunk)

    def project(self, seen: Tensor) -> Tensor:
        """What the kernels see of x̃."""
        if self.projected is None:
            return seen
        P = self._own["features.projection"]
        if not self.apart:
            return scaled_sums(seen, P)
        pairs = zip(seen.split(self.projected, -1), P.split(self.dims, -1), strict=True)
        return torch.cat([scaled_sums(z, P_b) for z, P_b in pairs], -1)

    def mu(self, seen: Float[Tensor, "*batch N S"]) -> Float[Tensor, "*batch N T"] | None:
        """μ of all outputs (..., N, T), given x̃; None if it is zero."""
        if not self.has_mean:
            return None
        return scaled_sums(seen, self._own["features.mean"]) + self._own["features.mean_bias"][..., None, :]

    def mu_by_task(self, seen: Tensor) -> dict[str, Tensor]:
        """Task → μ of its outputs; empty if it is zero."""
        mu = self.mu(seen)
        if mu is None:
            return {}
        return dict(zip(self.outputs, mu.split(list(self.outputs.values()), -1), strict=True))

    def of_latent(self, b: int, z: Tensor) -> Tensor:
        """The part of the features that latent b sees."""
        if self.projected is None and not self.apart:
            return z
        return z[..., b * self.dims : (b + 1) * self.dims]

    def latent_covariance(
        self, b: int, z: Float[Tensor, "*#batch N E"], z2: Float[Tensor, "*#batch N2 E"]
    ) -> Float[Tensor, "*batch N N2"]:
        """k_b between two sets of features."""
        mine = self.of_latent(b, z)
        other = mine if z2 is z else self.of_latent(b, z2)
        return self.amplitude(b)[..., None, None] * self.correlation(b, mine, other)

    def correlation(self, b: int, mine: Tensor, other: Tensor) -> Tensor:
        """k_b of amplitude one, between two sets of what latent b sees."""
        return self.kernels[b](mine, other, self.phi(b))

    def latent_variance(self, b: int, z: Float[Tensor, "*#batch N E"]) -> Float[Tensor, "*batch N"]:
        """k_b(z, z) for each feature vector."""
        return self.amplitude(b)[..., None] * self.kernels[b].diagonal(self.of_latent(b, z), self.phi(b))

    def amplitude(self, b: int) -> Float[Tensor, "*clients"]:
        """φ₀ of latent b."""
        return self._own[f"kernels.{b}.log_amplitude"].exp()

    def log_phi(self, b: int) -> dict[str, Tensor]:
        """The parameters of latent b's kernel, as they are learned."""
        return {key: self._own[_name(b, key)] for key in self.kernels[b].parameters}

    def start(self, b: int, length: Tensor) -> dict[str, Tensor]:
        """Where the parameters of latent b's kernel start if inputs are typically so far apart; by their names in Θ."""
        return {_name(b, key): value for key, value in self.kernels[b].start(length).items()}

    def phi(self, b: int) -> dict[str, Tensor]:
        """The same, positive."""
        return {key: log_phi.exp() for key, log_phi in self.log_phi(b).items()}

    def phi1(self, b: int) -> Float[Tensor, "*clients lengths"]:
        """φ₁ of latent b, (..., 1) or (..., D); one for a kernel without."""
        log_phi1 = self._own.get(f"kernels.{b}.log_phi1")
        return torch.ones_like(self.amplitude(b))[..., None] if log_phi1 is None else log_phi1.exp()
