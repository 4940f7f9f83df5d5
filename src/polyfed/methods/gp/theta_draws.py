"""What is known of Θ, and not its best value alone: a Laplace approximation at the server, and draws of it for predictions.

Θ is learned as the maximum of Σ_c L_c(Θ) + log p(Θ). With few labels other values are nearly as good, and intervals that
know one alone are too narrow. In the last round each client also sends the second derivatives of its bound (`hessians`);
their sum H over all clients gives

    Θ ~ N(Θ̂, (C⁻¹ + (−H)₊)⁻¹)

with the covariance C of Θ's prior (as MacKay 1992, doi:10.1162/neco.1992.4.3.415, has it for hyper-parameters). A direction
in which the bounds are flat, or curve upwards, is as wide as the prior and no wider: (·)₊ drops negative eigenvalues, in
coordinates in which the prior is spherical. Without a prior of Θ (`theta_prior = "none"`) a deviation of one stands in for it.
Draws come in pairs, Θ̂ ± δ, so that their mean is Θ̂; the normal numbers behind them are drawn once, when a run begins.

What a client sends can therefore do little harm: draws lie between the point estimate that there was before and the prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from polyfed.gp import GROUPS, BatchStep, Prior, Rows, group_of
from polyfed.gp.hyperprior import Densities, HyperPrior
from polyfed.gp.knowledge import symmetric, triangle
from polyfed.methods.gp.clients import Solver, solver_of
from polyfed.methods.gp.model import GPModel, clamped
from polyfed.methods.gp.quasi_newton import flat, shaped
from polyfed.methods.gp.states import Server
from polyfed.methods.messages import State
from polyfed.seeds import Stream

STEP = 1e-2  # of the logarithms and weights that Θ is made of: differences are good to its square
TOLERANCE, MOST_STEPS = 1e-10, 500  # of the E-step: what is left of it is divided by the step
UNIT = HyperPrior(length=1.0, noise=1.0)  # the widths where Θ has no prior: one, of weights and logarithms alike


def begun(server: Server, hyper: HyperPrior | None, prior: Prior, n_draws: int, stream: Stream) -> Server:
    """With what the server needs to know before the first round: widths of what is drawn, and the numbers behind draws."""
    shared = server.theta | server.pooled
    widths = {name: width for name, width in (hyper or UNIT).densities(prior).items() if name in shared}
    n = sum(shared[name].numel() for name in widths)
    rng = replace(stream, purpose=f"{stream.purpose} draws").numpy()
    return replace(server, widths=widths, normals=torch.from_numpy(rng.standard_normal(((n_draws + 1) // 2, n))))


def curvature(model: GPModel, rows: Sequence[Rows], values: State, shared: Sequence[str], step: BatchStep) -> Tensor:
    """The second derivatives that clients send, (clients, entries of a triangle)."""
    drawn = sorted(name for name in shared if group_of(name) != "features")
    return triangle(hessians(model, solver_of(model, rows), values, drawn, step))


def hessians(model: GPModel, solver: Solver, values: State, names: Sequence[str], start: BatchStep) -> Tensor:
    """∂²L/∂Θ² of each client in the parameters named, (clients, P, P). `values` hold all clients in a leading dimension.

    The gradient of a bound at its fixed point is that with the sites held fixed (the envelope theorem). Second derivatives are
    not: where Θ moves, sites move too. So the E-step is repeated to its fixed point on both sides of Θ, and the gradients
    there are subtracted. That is 2P gradients for P parameters, once in a run.
    """
    one = {name: values[name][0] for name in names}
    n = sum(value.numel() for value in one.values())

    def gradient(offset: Tensor, begin: BatchStep) -> tuple[Tensor, BatchStep]:
        moved = values | {name: values[name] + shift for name, shift in shaped(offset, one, names).items()}
        prior = model.prior.with_values(moved)
        step = solver.step(prior, start=begin, tolerance=TOLERANCE, max_steps=MOST_STEPS, groups=GROUPS)
        return flat(step.gradient, names, dims=1), step

    _, centre = gradient(torch.zeros(n, dtype=torch.float64), start)
    columns = [
        (gradient(offset, centre)[0] - gradient(-offset, centre)[0]) / (2 * STEP)
        for offset in STEP * torch.eye(n, dtype=torch.float64)
    ]
    found = torch.stack(columns, dim=-1)
    return 0.5 * (found + found.mT)


def form(server: Server) -> Tensor | None:
    """A curvature such as clients send, if they are asked for it."""
    if server.curving is None or server.normals is None:
        return None
    n = server.normals.shape[1]
    return torch.zeros(n * (n + 1) // 2, dtype=torch.float64)


def drawn(server: Server, values: State, curvature: Tensor | None, n_draws: int) -> State:
    """Draws of Θ around these values, by name, with a leading dimension; `curvature` is that of the average bound."""
    if curvature is None or server.normals is None or server.n_clients is None:
        return {}
    names = sorted(server.widths)  # an order that files and messages do not change
    hessian = symmetric(server.n_clients * curvature, server.normals.shape[1])
    root = root_covariance(hessian, prior_root(server.widths, {name: values[name] for name in names}))
    away = server.normals @ root.mT
    return clamped(shaped(flat(values, names) + torch.cat([away, -away])[:n_draws], values, names))


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


def draws_in(draws: State) -> Sequence[State]:
    """One Θ after the other; none, if there are none."""
    n = min((len(value) for value in draws.values()), default=0)
    return [{name: value[k] for name, value in draws.items()} for k in range(n)]
