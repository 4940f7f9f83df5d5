"""What is known of Θ, and not its best value alone: a Laplace approximation at the server, and draws of it for predictions.

Θ is learned as the maximum of Σ_c L_c(Θ) + log p(Θ). With few labels other values are nearly as good, and intervals that
know one alone are too narrow. In the last round each client also sends the second derivatives of its bound
(methods/gp/theta_curvature.py); their sum H over all clients gives

    Θ ~ N(Θ̂, (C⁻¹ + (−H)₊)⁻¹)

with the covariance C of Θ's prior (as MacKay 1992, doi:10.1162/neco.1992.4.3.415, has it for hyper-parameters). A direction
in which the bounds are flat, or curve upwards, is as wide as the prior and no wider: (·)₊ drops negative eigenvalues, in
coordinates in which the prior is spherical. Without a prior of Θ (`theta_prior = "none"`) a deviation of one stands in for it.
Draws come in pairs, Θ̂ ± δ, so that their mean is Θ̂; the normal numbers behind them are drawn once, when a run begins.

What a client sends can therefore do little harm: draws lie between the point estimate that there was before and the prior.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from polyfed.gp.hyperprior import Densities, HyperPrior
from polyfed.methods.gp.theta_curvature import flat, shaped
from polyfed.methods.messages import State, strip_prefix, with_prefix
from polyfed.seeds import Stream

CURVING = "curving"  # in states and messages of the round in which second derivatives are asked for
CURVATURE = "curvature"  # in updates: one triangle
WIDTHS, NORMALS, DRAWS = "width", "normals", "draw"  # in the server's state
OWN = (CURVING, f"{WIDTHS}/", NORMALS)  # of that, what is no client's business

UNIT = HyperPrior(length=1.0, noise=1.0)  # the widths where Θ has no prior: one, of weights and logarithms alike


def remembered(widths: Densities, values: State, n_draws: int, stream: Stream) -> State:
    """What the server needs to know before the first round; `widths` of the parameters that are drawn."""
    n = sum(values[name].numel() for name in widths)
    normals = torch.from_numpy(stream.numpy().standard_normal(((n_draws + 1) // 2, n)))
    return with_prefix(WIDTHS, widths) | {NORMALS: normals}


def begun(server: State, rounds_left: int) -> State:
    """The server's state as a round begins: in the last one second derivatives are asked for."""
    rest = {name: value for name, value in server.items() if name != CURVING}
    return rest | ({CURVING: torch.ones((), dtype=torch.float64)} if rounds_left == 0 else {})


def names_of(server: Mapping[str, Tensor]) -> list[str]:
    """The parameters that are drawn, in an order that files and messages do not change."""
    return sorted(strip_prefix(server, WIDTHS))


def triangle(matrix: Tensor) -> Tensor:
    """The lower triangle of symmetric matrices as vectors."""
    i, j = torch.tril_indices(matrix.shape[-1], matrix.shape[-1])
    return matrix[..., i, j]


def symmetric(entries: Tensor, n: int) -> Tensor:
    """The n × n matrix of a triangle."""
    i, j = torch.tril_indices(n, n)
    whole = entries.new_zeros(*entries.shape[:-1], n, n)
    whole[..., i, j] = entries
    whole[..., j, i] = entries
    return whole


def form(server: State) -> State:
    """An array such as clients send, if they are asked for it."""
    if CURVING not in server:
        return {}
    n = server[NORMALS].shape[1]
    return {CURVATURE: torch.zeros(n * (n + 1) // 2, dtype=torch.float64)}


def without_draws(server: State) -> State:
    """Draws are of the Θ around which they were made."""
    return {name: value for name, value in server.items() if name != CURVING and not name.startswith(f"{DRAWS}/")}


def drawn(values: State, hessian: Tensor, server: State, n_draws: int) -> State:
    """Draws of Θ around these values, by name, with a leading dimension; `hessian` is of the bounds of all clients."""
    names = names_of(server)
    root = root_covariance(hessian, prior_root(strip_prefix(server, WIDTHS), {name: values[name] for name in names}))
    away = server[NORMALS] @ root.mT
    return shaped(flat(values, names) + torch.cat([away, -away])[:n_draws], values, names)


def root_covariance(hessian: Tensor, root: Tensor) -> Tensor:
    """R with R Rᵀ = (C⁻¹ + (−H)₊)⁻¹, where C = root rootᵀ."""
    curved, directions = torch.linalg.eigh(-root.mT @ hessian @ root)
    return root @ directions * (1.0 + curved.clamp_min(0.0)).rsqrt()


def prior_root(widths: Densities, values: State) -> Tensor:
    """A root of the prior's covariance: entries of a parameter share `common`, and go `apart` (gp/hyperprior.py)."""
    blocks = []
    for name, value in values.items():
        _, common, apart = widths[name]
        n, many = value.shape[-1] if value.dim() else 1, value.numel()
        unit = torch.eye(n, dtype=torch.float64)
        block = unit * common if not apart > 0 else torch.linalg.cholesky(unit * apart.square() + common.square())
        blocks += [block] * (many // n)
    return torch.block_diag(*blocks)


def draws_in(server: Mapping[str, Tensor]) -> Sequence[State]:
    """The draws that a server's state has, one Θ after the other; none, if there are none."""
    stacked = strip_prefix(server, DRAWS)
    n = min((len(value) for value in stacked.values()), default=0)
    return [{name: value[k] for name, value in stacked.items()} for k in range(n)]
