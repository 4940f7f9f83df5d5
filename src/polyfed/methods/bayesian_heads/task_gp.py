"""One task of pFedGP at one client: what its rows teach the network, and what they predict.

Both go over the branches of the task: pairs of a binary classifier's rows and their sides. A binary task has one branch with
all its rows; of the branches of a multiclass task each has the rows of its classes alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from polyfed.data import ClientData, LabelCodec
from polyfed.gp.likelihoods import Bernoulli, Likelihood
from polyfed.gp.linalg import log_z
from polyfed.gp.quadrature import expected_sigmoid
from polyfed.kinds import LabelForm
from polyfed.methods.bayesian_heads.class_tree import ClassTree
from polyfed.methods.bayesian_heads.node_gp import NodeGP, Sites, kernel, log_predictive
from polyfed.methods.bayesian_heads.polya_gamma_draws import gibbs
from polyfed.modelling.readout import prediction_of
from polyfed.modelling.rows import likelihood_of
from polyfed.predictions import Prediction

if TYPE_CHECKING:
    from polyfed.methods.bayesian_heads.pfedgp import PFedGP

CHUNK = 2**23  # numbers held at once by a prediction
LEAST = 1e-300  # a probability that is 0 as a double
LIMIT = 12.0  # of the logarithm of a noise: constant targets would send it to minus infinity
EXACT = {"tolerance": 1e-8, "max_steps": 500}  # predictions are made from the fixed point
CLOSE = {"tolerance": 1e-3, "max_steps": 50}  # sites of a training step are constants of it, and the next has others


@dataclass(frozen=True, eq=False)
class TaskGP:
    """What is known of a task before any label: its likelihood, kernel and noise."""

    method: PFedGP
    codec: LabelCodec
    likelihood: Likelihood
    amplitude: Tensor | float
    length: Tensor | float
    noise: Tensor | None

    @classmethod
    def of(cls, method: PFedGP, values: Mapping[str, Tensor], data: ClientData, task: str) -> TaskGP:
        i, codec = data.tasks.index(task), data.codecs[task]
        likelihood = likelihood_of(codec)
        amplitude, length, noise = method.amplitude, method.length, values.get(f"noise.{i}")
        if method.learn_kernel:
            amplitude, length = (values[f"kernel.{i}.{name}"].exp() for name in ("amplitude", "length"))
        sigma2 = None if noise is None else noise.clamp(-LIMIT, LIMIT).exp()
        return cls(method, codec, likelihood, amplitude, length, sigma2)

    @property
    def classifies(self) -> bool:
        return self.codec.task.form.has_classes

    def covariance(self, z: Tensor, z2: Tensor) -> Tensor:
        return kernel(z, z2, self.amplitude, self.length)

    def node(self, z: Tensor, y: Tensor, weights: Tensor | None) -> NodeGP:
        """The process of one branch (y: its sides), or of all rows of a task without classes."""
        K = self.covariance(z, z)
        if self.classifies:
            power = self.likelihood.power if self.codec.task.form is LabelForm.BINARY else 1.0
            return NodeGP(K, Bernoulli(power=power), y, weights=weights)
        return NodeGP(K, self.likelihood, y, self.noise, weights)

    def tree(self, z: Tensor, y: Tensor) -> ClassTree | None:
        return ClassTree.of(z, y) if self.codec.task.form is LabelForm.CLASS else None

    def sites(self, node: NodeGP, generator: torch.Generator, n_chains: int, exact: bool = False) -> Sites:
        """Of the mean-field solution, (n,), or of each Gibbs chain, (chains, n)."""
        h, r = node.sites_found(**EXACT if exact else CLOSE)  # pyright: ignore[reportArgumentType]
        if self.method.inference == "mf" or not self.classifies:
            return h, r
        n_sweeps = self.method.n_sweeps
        omega, _ = gibbs(node.K.detach(), node.y, h, n_chains=n_chains, n_sweeps=n_sweeps, generator=generator)
        return omega, (0.5 * node.y).expand_as(omega)

    # ---- what rows teach --------------------------------------------------------------------------------------------

    def loss(self, z: Tensor, y: Tensor, generator: torch.Generator, weights: Tensor | None = None) -> Tensor | None:
        """The objective of these rows, for each label that it speaks of; None if they cannot teach anything."""
        if self.classifies and len(y.unique()) < 2:
            return None
        if self.method.objective == "marginal":
            return self._marginal(z, y, weights, generator)
        given, scored = halves(y if self.classifies else torch.zeros(len(y)), self.method.predict_ratio)
        return self._predictive(z, y, weights, given, scored, generator) if len(scored) else None

    def _marginal(self, z: Tensor, y: Tensor, weights: Tensor | None, generator: torch.Generator) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for rows, side in branches(self.tree(z, y), y):
            node = self.node(z[rows], side, _some(weights, rows))
            if self.classifies and self.method.inference == "gibbs":
                # log p(y, ω) but for what K does not change: the gradient of its average over p(ω | y) is that of log p(y)
                h, r = self.sites(node, generator, self.method.n_chains)
                total = total - log_z(node.K.expand(len(h), -1, -1), r, h).mean()
            else:
                total = total - node.bound(node.posterior())
        return total / len(y)

    def _predictive(
        self,
        z: Tensor,
        y: Tensor,
        weights: Tensor | None,
        given: Tensor,
        scored: Tensor,
        generator: torch.Generator,
    ) -> Tensor:
        """Minus the mean log probability of the scored labels; they have no say in the tree nor in the sites."""
        total, z_given, z_scored = torch.zeros((), dtype=torch.float64), z[given], z[scored]
        tree = self.tree(z_given, y[given])
        for (rows, side), (there, wanted) in zip(branches(tree, y[given]), branches(tree, y[scored]), strict=True):
            if not len(there):
                continue
            node = self.node(z_given[rows], side, _some(weights, given[rows]))
            k_star = self.covariance(z_given[rows], z_scored[there])
            sites = self.sites(node, generator, self.method.n_chains)
            mean, variance = node.predict(sites, k_star, self.amplitude)
            if self.classifies:
                logs = _average(expected_sigmoid(wanted * mean, variance)).clamp_min(LEAST).log()
            else:
                logs = log_predictive(self.likelihood, wanted, mean, variance, self.noise)
            total = total - (logs if weights is None else weights[scored[there]] * logs).sum()
        return total / len(scored)


def branches(tree: ClassTree | None, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows and their sides (−1 or 1) at each branch; without a tree, all rows and their labels."""
    if tree is None:
        yield torch.arange(len(y)), y
        return
    for branch in tree.branches:
        side = branch.side(y)
        rows = side.nonzero()[:, 0]
        yield rows, side[rows]


def halves(groups: Tensor, ratio: float) -> tuple[Tensor, Tensor]:
    """Positions that condition and positions that are scored: of each group the last so many, but never all of it.

    >>> given, scored = halves(torch.tensor([1, 1, -1, 1, 1, -1, 0]), ratio=0.5)
    >>> given.tolist(), scored.tolist()  # the only 0 is not scored: nothing else would speak for its class
    ([0, 1, 2, 6], [3, 4, 5])
    """
    given, scored = [], []
    for group in groups.unique():
        rows = (groups == group).nonzero()[:, 0]
        n_given = len(rows) - min(max(round(ratio * len(rows)), 1), len(rows) - 1)
        given.append(rows[:n_given])
        scored.append(rows[n_given:])
    nobody = torch.zeros(0, dtype=torch.int64)
    return torch.cat([nobody, *given]).sort().values, torch.cat([nobody, *scored]).sort().values


class PosteriorPredictor:
    """A task with the labels of a client: all branches solved once, for any number of predictions."""

    def __init__(
        self, task: TaskGP, z: Tensor, y: Tensor, generator: torch.Generator, weights: Tensor | None = None
    ) -> None:
        self.task, self.tree = task, task.tree(z, y)
        n_chains = task.method.n_test_chains
        self.nodes: list[tuple[NodeGP, Tensor, Sites]] = []
        for rows, side in branches(self.tree, y):
            if len(rows):
                node = task.node(z[rows], side, _some(weights, rows))
                self.nodes.append((node, z[rows], task.sites(node, generator, n_chains, exact=True)))

    def predict(self, z: Tensor) -> Prediction:
        """The prediction at inputs with features z."""
        held = max([sites[0].numel() for _, _, sites in self.nodes], default=1)
        parts = [self._latents(some) for some in z.split(max(1, CHUNK // held))]
        means, stds, turns = (torch.cat(part) for part in zip(*parts, strict=True))
        task, codec = self.task, self.task.codec
        if self.tree is not None:
            means, stds, proba = self._classes(means, stds, turns)
            said = {"proba": proba}
        elif codec.task.form is LabelForm.BINARY:
            said = {"proba": turns[:, 0, 0]}
        else:
            said = task.likelihood.readout(means, stds.square()[..., None], task.noise)
        return prediction_of(codec, means.numpy(), stds.numpy(), said)

    def _latents(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and standard deviation of the latents of all branches, (N, branches), and P(left), P(right) there."""
        found = []
        for node, z_rows, sites in self.nodes:
            mean, variance = node.predict(sites, self.task.covariance(z_rows, z), self.task.amplitude)
            turn = torch.stack([_average(expected_sigmoid(sign * mean, variance)) for sign in (1.0, -1.0)], -1)
            spread = mean.var(0, correction=0) if mean.dim() > 1 else 0.0  # between the chains
            found.append((_average(mean), (_average(variance) + spread).sqrt(), turn))
        if not found and self.tree is None:  # no label: the prior
            zero = torch.zeros(len(z), dtype=torch.float64)
            found = [(zero, zero + self.task.amplitude**0.5, 0.5 + torch.stack([zero, zero], -1))]
        if not found:
            return torch.zeros(len(z), 0), torch.zeros(len(z), 0), torch.zeros(len(z), 0, 2)
        means, stds, turns = zip(*found, strict=True)
        return torch.stack(means, -1), torch.stack(stds, -1), torch.stack(turns, 1)

    def _classes(self, means: Tensor, stds: Tensor, turns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Probabilities of all classes; a class's latent is the sum of those that turn towards it on the way."""
        assert self.tree is not None
        n, K, seen = len(means), len(self.task.codec.classes or ()), list(self.tree.classes)
        latent, variance = (torch.zeros(n, K, dtype=torch.float64) for _ in range(2))
        for b, branch in enumerate(self.tree.branches):
            for sign, classes in ((1.0, list(branch.left)), (-1.0, list(branch.right))):
                latent[:, classes] += sign * means[:, b, None]
                variance[:, classes] += stds[:, b, None].square()
        variance = torch.where(variance == 0.0, self.task.amplitude, variance)  # nothing known: as the prior
        if not seen:
            return latent, variance.sqrt(), torch.full((n, K), 1.0 / K, dtype=torch.float64)
        floor = self.task.method.floor / K
        proba = torch.full((n, K), floor, dtype=torch.float64)
        proba[:, seen] = (1.0 - floor * (K - len(seen))) * self.tree.leaf_probabilities(list(turns.unbind(1)))
        return latent, variance.sqrt(), proba


def _some(weights: Tensor | None, rows: Tensor) -> Tensor | None:
    return None if weights is None else weights[rows]


def _average(values: Tensor) -> Tensor:
    """Over the chains, if there are any."""
    return values.mean(0) if values.dim() > 1 else values
