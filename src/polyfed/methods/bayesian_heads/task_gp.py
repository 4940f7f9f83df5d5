"""One task of pFedGP at one client: what its rows teach the network, and what they predict.

Both go over the branches of the task: pairs of a binary classifier's rows and their sides. A binary task has one branch with
all its rows; of the branches of a multiclass task each has the rows of its classes alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from polyfed.data import ClientData, LabelCodec
from polyfed.gp.likelihoods import Bernoulli, Likelihood
from polyfed.gp.linalg import log_z
from polyfed.gp.quadrature import expected_sigmoid
from polyfed.kinds import LabelForm
from polyfed.methods.bayesian_heads.class_tree import ClassTree
from polyfed.methods.bayesian_heads.node_gp import NodeGP, Sites, kernel, log_predictive
from polyfed.methods.bayesian_heads.polya_gamma_draws import gibbs
from polyfed.modelling.rows import likelihood_of, prediction_of
from polyfed.predictions import Prediction

if TYPE_CHECKING:
    from polyfed.methods.bayesian_heads.pfedgp import PFedGP

BLOCK = 32  # rows by which nodes that are solved at once may differ
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
    amplitude: Tensor
    length: Tensor
    noise: Tensor | None

    @classmethod
    def of(cls, method: PFedGP, values: Mapping[str, Tensor], data: ClientData, task: str) -> TaskGP:
        """With the parameters of one client, or of several with a leading dimension."""
        i, codec = data.tasks.index(task), data.codecs[task]
        noise = values.get(f"noise.{i}")
        amplitude, length = torch.tensor([method.amplitude, method.length], dtype=torch.float64)
        if method.learn_kernel:
            amplitude, length = (values[f"kernel.{i}.{name}"].exp() for name in ("amplitude", "length"))
        sigma2 = None if noise is None else noise.clamp(-LIMIT, LIMIT).exp()
        return cls(method, codec, likelihood_of(codec), amplitude, length, sigma2)

    def of_client(self, j: int) -> TaskGP:
        parameters = {name: getattr(self, name) for name in ("amplitude", "length", "noise")}
        return replace(self, **{name: v[j] for name, v in parameters.items() if v is not None and v.dim()})

    @property
    def classifies(self) -> bool:
        return self.codec.task.form.has_classes

    @property
    def samples(self) -> bool:
        return self.classifies and self.method.inference == "gibbs"

    @property
    def branch_likelihood(self) -> Likelihood:
        """Of the sides at a branch, or of the labels of a task without classes."""
        power = self.likelihood.power if self.codec.task.form is LabelForm.BINARY else 1.0
        return Bernoulli(power=power) if self.classifies else self.likelihood

    def covariance(self, z: Tensor, z2: Tensor) -> Tensor:
        return kernel(z, z2, self.amplitude, self.length)

    def tree(self, z: Tensor, y: Tensor) -> ClassTree | None:
        return ClassTree.of(z, y) if self.codec.task.form is LabelForm.CLASS else None

    def sites(self, node: NodeGP, generator: torch.Generator, n_chains: int, exact: bool = False) -> Sites:
        """Of the mean-field solution, (..., n), or of each Gibbs chain of one node, (chains, n)."""
        h, r = node.sites_found(**EXACT if exact else CLOSE)  # pyright: ignore[reportArgumentType]
        if not self.samples:
            return h, r
        n_sweeps = self.method.n_sweeps
        omega, _ = gibbs(node.K.detach(), node.y, h, n_chains=n_chains, n_sweeps=n_sweeps, generator=generator)
        return omega, (0.5 * node.y).expand_as(omega)

    def nodes(
        self, z: Tensor, at: Tensor, y: Tensor, weights: Tensor, generator: torch.Generator
    ) -> Iterator[ScoredNode]:
        """What the rows of z at these positions teach, branch by branch; nothing if they cannot."""
        if self.classifies and len(y.unique()) < 2:
            return
        given = scored = torch.arange(len(y))
        if self.method.objective == "predictive":
            given, scored = halves(y if self.classifies else torch.zeros(len(y)), self.method.predict_ratio)
        tree = self.tree(z[at[given]], y[given])  # scored labels have no say in it, nor in the sites
        for (rows, side), (there, wanted) in zip(branches(tree, y[given]), branches(tree, y[scored]), strict=True):
            if len(there):
                rows, there = given[rows], scored[there]
                known, asked = (at[rows], side, weights[rows]), (at[there], wanted, weights[there])
                yield ScoredNode(self, known, asked, 1.0 / len(scored), generator)


Labelled = tuple[Tensor, Tensor, Tensor]  # positions of rows, their labels, or sides at a branch, and weights


@dataclass(frozen=True, eq=False)
class ScoredNode:
    """A branch at one client: labels that condition its process, labels that are scored, and the share of each of these."""

    task: TaskGP
    given: Labelled
    scored: Labelled
    share: float
    generator: torch.Generator

    @property
    def alike(self) -> tuple[object, ...]:
        """Nodes of which this is equal are solved at once, the shorter filled up."""
        kind = self.task.branch_likelihood.power if self.task.classifies else self.task.codec.task.name
        return kind, max(len(self.given[0]), len(self.scored[0])) // BLOCK


def losses(nodes: Sequence[ScoredNode], z: Tensor) -> Tensor:
    """The objective of each node at rows of z, for each label of its task that is scored.

    Chains are solved one node at a time: their cost is that of their numbers, and these are drawn in the order of the nodes.
    """
    groups: dict[object, list[int]] = {}
    for i, node in enumerate(nodes):
        groups.setdefault(i if node.task.samples else node.alike, []).append(i)
    found = torch.cat([_losses([nodes[i] for i in group], z) for group in groups.values()])
    return found[torch.tensor([i for group in groups.values() for i in group]).argsort()]


def _losses(nodes: Sequence[ScoredNode], z: Tensor) -> Tensor:
    """Those of nodes that are alike; tensors have a leading dimension of nodes, or of the chains of one node."""
    task, tasks = nodes[0].task, [node.task for node in nodes]
    at, y, weights = _filled_up([node.given for node in nodes])
    there, wanted, wanted_weights = _filled_up([node.scored for node in nodes])
    share = torch.tensor([node.share for node in nodes], dtype=torch.float64)
    amplitude, length = (torch.stack([getattr(t, name) for t in tasks])[:, None] for name in ("amplitude", "length"))
    noise = None if task.noise is None else torch.stack([t.noise for t in tasks if t.noise is not None])
    some, z_given = (weights > 0).to(torch.float64), z[at]
    scale = (amplitude[..., None], length[..., None])
    K = some[:, :, None] * kernel(z_given, z_given, *scale) * some[:, None, :]
    node = NodeGP(K, task.branch_likelihood, y, noise, weights)
    marginal, n_chains = task.method.objective == "marginal", task.method.n_chains
    if marginal and not task.samples:
        return -share * node.bound(node.posterior())
    sites = h, r = task.sites(node, nodes[0].generator, n_chains)
    if marginal:
        # log p(y, ω) but for what K does not change: the gradient of its average over p(ω | y) is that of log p(y)
        return -share * log_z(K.expand(len(h), -1, -1), r, h).mean()
    mean, variance = node.predict(sites, some[..., None] * kernel(z_given, z[there], *scale), amplitude)
    if task.classifies:
        p = expected_sigmoid(wanted * mean, variance)
        logs = (p.mean(0, keepdim=True) if task.samples else p).clamp_min(LEAST).log()
    else:
        sigma2 = None if noise is None else noise.repeat_interleave(there.shape[1])[:, None]
        moments = mean.flatten(), variance.flatten()
        logs = log_predictive(node.likelihood, wanted.flatten(0, 1), *moments, sigma2).reshape(there.shape)
    return -share * (wanted_weights * logs).sum(-1)


def _filled_up(parts: Sequence[Labelled]) -> Labelled:
    at, y, weights = (pad_sequence(list(each), batch_first=True) for each in zip(*parts, strict=True))
    return at, y, weights


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
    """Positions that condition and positions that are scored: of each group the last share, but never all of it.

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

    def __init__(self, task: TaskGP, z: Tensor, y: Tensor, generator: torch.Generator, weights: Tensor) -> None:
        self.task, self.tree = task, task.tree(z, y)
        self.nodes: list[tuple[NodeGP, Tensor, Sites]] = []
        for rows, side in branches(self.tree, y):  # without any row, the prior
            K = task.covariance(z[rows], z[rows])
            node = NodeGP(K, task.branch_likelihood, side, task.noise, weights[rows])
            sites = task.sites(node, generator, task.method.n_test_chains, exact=True)
            self.nodes.append((node, z[rows], sites))

    def predict(self, z: Tensor) -> Prediction:
        """The prediction at inputs with features z."""
        held = max([sites[0].numel() for _, _, sites in self.nodes], default=0)
        parts = [self._latents(some) for some in z.split(max(1, CHUNK // max(1, held)))]
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
        if not found:  # a tree of one class, or of none
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


def _average(values: Tensor) -> Tensor:
    """Over the chains, if there are any."""
    return values.mean(0) if values.dim() > 1 else values
