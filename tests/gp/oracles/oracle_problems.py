"""Small random clients with several correlated tasks, held twice: as numpy arrays, and as the library's model.

The numpy side builds the prior from f_i(x) = Σ_b W_ib g_b(x) and kernels written out here. `roots` holds R_b with
R_b R_bᵀ = k_b, so that g_b = R_b u_b with u ~ N(0, I): no prior needs to be invertible.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from oracle_likelihoods import KINDS, Array, Kind

from polyfed.gp import ExactModel, Prior, Rows


def kernel_value(name: str, x: Array, x2: Array, phi1: Array) -> float:
    """shape(x, x') of two single inputs, by its formula."""
    phi1 = np.broadcast_to(phi1, x.shape)
    rho2 = sum(p * (a - b) ** 2 for p, a, b in zip(phi1, x, x2, strict=True))
    rho = rho2**0.5
    match name:
        case "rbf":
            return np.exp(-0.5 * rho2)
        case "laplace":
            return np.exp(-0.5 * sum(p * abs(a - b) for p, a, b in zip(phi1, x, x2, strict=True)))
        case "cauchy":
            return 1.0 / (1.0 + rho2)
        case "matern32":
            return (1.0 + 3**0.5 * rho) * np.exp(-(3**0.5) * rho)
        case "matern52":
            return (1.0 + 5**0.5 * rho + 5.0 / 3.0 * rho2) * np.exp(-(5**0.5) * rho)
        case "linear":
            return float(np.dot(x, x2)) / (float(np.dot(x, x)) * float(np.dot(x2, x2))) ** 0.5
        case "affine":
            return (len(x) + float(np.dot(x, x2))) / ((len(x) + np.dot(x, x)) * (len(x) + np.dot(x2, x2))) ** 0.5
    raise ValueError(name)


def kernel_matrix(name: str, x: Array, x2: Array, phi1: Array) -> Array:
    """The double loop."""
    return np.array([[kernel_value(name, a, b, phi1) for b in x2] for a in x])


@dataclass(frozen=True)
class Task:
    """Labels `y` of one kind at the inputs `at`; `W` is (outputs, latents)."""

    kind: str
    at: NDArray[np.int64]
    y: Array
    W: Array
    noise: float | None

    @property
    def means(self) -> Kind:
        return KINDS[self.kind]


@dataclass(frozen=True)
class Problem:
    """One client. Tasks without data at an input still have outputs there."""

    x: Array
    kernels: tuple[str, ...]
    amplitude: Array  # φ₀ of each latent
    phi1: Array  # (latents, dims)
    tasks: dict[str, Task]

    @cached_property
    def W(self) -> Array:
        return np.concatenate([task.W for task in self.tasks.values()])

    @cached_property
    def roots(self) -> Array:
        """(B, U, U): R_b with R_b R_bᵀ = k_b, by eigen-decomposition."""
        roots = []
        for name, phi0, phi1 in zip(self.kernels, self.amplitude, self.phi1, strict=True):
            values, vectors = np.linalg.eigh(phi0 * kernel_matrix(name, self.x, self.x, phi1))
            roots.append(vectors * np.sqrt(values.clip(0.0)))
        return np.stack(roots)

    @cached_property
    def design(self) -> Array:
        """(U, T, B·U): outputs = design @ u."""
        U = len(self.x)
        return np.einsum("tb,bxu->xtbu", self.W, self.roots).reshape(U, len(self.W), -1)

    @property
    def dims(self) -> int:
        return self.design.shape[-1]

    def outputs(self, u: Array) -> Array:
        """(..., U, T) from whitened coordinates (..., B·U)."""
        U, T, D = self.design.shape
        return (u @ self.design.reshape(U * T, D).T).reshape(*u.shape[:-1], U, T)

    def log_likelihood(self, f: Array, *, instead: dict | None = None) -> Array:
        """log p(all labels | outputs (..., U, T)); `instead` replaces the density of some tasks."""
        total, first = np.zeros(f.shape[:-2]), 0
        for name, task in self.tasks.items():
            scores = f[..., task.at, first : first + len(task.W)]
            first += len(task.W)
            density = (instead or {}).get(name, task.means.log_density)
            total = total + density(task.y, scores, task.noise).sum(-1)
        return total

    def model(self, bound: str = "polya-gamma") -> ExactModel:
        """The same client in the library's hands."""
        likelihoods = {name: task.means.ours(bound) for name, task in self.tasks.items()}
        prior = Prior(
            kernels=self.kernels,
            dims=self.x.shape[1],
            outputs={name: len(task.W) for name, task in self.tasks.items()},
            noise={name: task.noise for name, task in self.tasks.items() if task.noise is not None},
            per_dimension=True,
        )
        state = {f"mixing.{name}": torch.tensor(task.W) for name, task in self.tasks.items()}
        for b, name in enumerate(self.kernels):
            state[f"kernels.{b}.log_amplitude"] = torch.tensor(np.log(self.amplitude[b]))
            if name != "linear":
                state[f"kernels.{b}.log_phi1"] = torch.tensor(np.log(self.phi1[b]))
        seen = {name: (torch.tensor(task.at), torch.tensor(task.y)) for name, task in self.tasks.items()}
        return ExactModel(prior.load(state), Rows.of(torch.tensor(self.x), seen, likelihoods))

    def row_design(self, model: ExactModel) -> Array:
        """(N, B·U): the library's rows from whitened coordinates, for proposals made of its sites."""
        inputs = model.rows.x[model.rows.at].numpy()  # rows have their own order of them
        at = (inputs[:, None] == self.x).all(-1).argmax(1)
        return np.einsum("nt,ntu->nu", model.rows.A.numpy(), self.design[at])


def random_problem(
    kinds: tuple[str, ...],
    seed: int,
    *,
    n_inputs: int = 7,
    n_data: int | None = None,
    kernels: tuple[str, ...] | None = None,
    unseen: int = 0,
) -> Problem:
    """A client whose tasks share two latents and whose labels are drawn from the model itself.

    The mixing weights of all outputs lean the same way, so that tasks are correlated. The last `unseen` inputs have
    no labels.
    """
    rng = np.random.default_rng([seed, len(kinds)])
    names = np.array(["rbf", "matern32", "matern52", "laplace", "cauchy", "linear"])
    kernels = kernels or tuple(str(name) for name in rng.choice(names, 2, replace=False))
    B = len(kernels)
    x = rng.uniform(-1.5, 1.5, (n_inputs + unseen, 2))
    amplitude, phi1 = rng.uniform(0.6, 1.6, B), rng.uniform(0.3, 2.0, (B, 2))
    leaning = rng.normal(0.0, 0.7, B)
    tasks = {}
    for i, kind in enumerate(kinds):
        means = KINDS[kind]
        # With replacement: an input may be seen twice by one task, and by none.
        at = rng.choice(n_inputs, n_data or int(rng.integers(4, n_inputs + 3)), replace=True)
        W = leaning + rng.normal(0.0, 0.6, (means.n_outputs, B))
        noise = None if means.noise is None else float(means.noise * np.exp(0.4 * rng.normal()))
        tasks[f"task{i}"] = Task(kind, at, np.zeros(0), W, noise)
    blank = Problem(x, kernels, amplitude, phi1, tasks)
    f = blank.outputs(rng.normal(size=blank.dims))
    first = 0
    for name, task in tasks.items():
        scores = f[task.at, first : first + len(task.W)]
        first += len(task.W)
        y = task.means.draw(scores, task.noise if task.noise is not None else 1.0, rng)
        tasks[name] = Task(task.kind, task.at, y, task.W, task.noise)
    return Problem(x, kernels, amplitude, phi1, tasks)
