"""pFedFDA: a Gaussian classifier on shared features, between what a client sees and what all see.

McLaughlin, Su: "Personalized Federated Learning via Feature Distribution Adaptation", NeurIPS 2024, arXiv:2411.00329.
Features of class c are N(μ_c, Σ); with prior π_c the scores are those of linear discriminant analysis,

    μ_cᵀΣ⁻¹h − ½ μ_cᵀΣ⁻¹μ_c + log π_c            Σ shrunk by `shrinkage` to a multiple of I

so that the classifier is a head that nobody trains. In a round a client trains the trunk below the server's Gaussians with its
own π. Then it estimates Gaussians of its own, and β between them and the server's, μ = β μ_own + (1 − β) μ_server and Σ
likewise, for which half of its rows tell the classes of the other half best (cross-entropy, two folds). It sends the change of
its trunk and the mixed Gaussians; the server averages both. To predict, a client finds β anew with the trunk of the server.

What leaves a client beside its trunk: means and one covariance of its features in each class, mixed with the server's. Where β
is one and a class has a single label, that mean is the feature vector of its row.

What the server knows includes the client's own rows of rounds before, those of the tested half too: among clients that are
alike and have few labels, β = 0 is the usual choice.

Open in the publication, or other than in its authors' code: β is one number on a grid of eleven (they offer one or two, by
L-BFGS), folds are made without chance, and a server that knows nothing of a class yet lets clients use their own mean (theirs
starts from means at random).

The publication has classes alone. For other kinds of tasks this is an extension of polyfed's: features and target (on the scale
of outputs) are one Gaussian, the head is the mean of the target given the features, and β is judged by squares. What leaves a
client are then mean and covariance of features and target: of a single label, these are the row and the label.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from polyfed.data import ClientData, FederationSpec, LabelCodec
from polyfed.methods.base import Predictor
from polyfed.methods.messages import ClientUpdate, State, strip_prefix, under
from polyfed.methods.neural.base import BodyTrained
from polyfed.methods.options import check_numbers
from polyfed.methods.supervised import groups_of, outputs_of_scores, rows_of, target_of
from polyfed.nets import Network
from polyfed.seeds import Stream

UNSEEN = 1e-4  # added to each class's share of the labels, so that none is impossible
BETAS = torch.linspace(0.0, 1.0, 11, dtype=torch.float64)


class Gaussians(NamedTuple):
    """Means (classes, d) and one covariance (d, d) of features; `known` is zero for classes of which nothing is known."""

    means: Tensor
    covariance: Tensor
    known: Tensor

    def mixed(self, received: Gaussians, beta: float | Tensor) -> Gaussians:
        """These and what was received, where something was."""
        both = (received.known > 0)[:, None]
        means = torch.where(both, beta * self.means + (1 - beta) * received.means, self.means)
        share = beta if bool(both.any()) else 1.0
        covariance = share * self.covariance + (1 - share) * received.covariance
        return Gaussians(means, covariance, torch.maximum(self.known, received.known))

    def scores(self, priors: Tensor, shrinkage: float) -> tuple[Tensor, Tensor]:
        """Weights (classes, d) and biases of the discriminant analysis."""
        weights = torch.linalg.solve(shrunk(self.covariance, shrinkage), self.means.T).T
        return weights, priors.log() - 0.5 * (self.means * weights).sum(1)

    def regression(self, shrinkage: float) -> tuple[Tensor, Tensor]:
        """Weights (1, d) and bias of the mean of the last of d + 1 numbers, given the others."""
        among, between = self.covariance[:-1, :-1], self.covariance[:-1, -1:]
        weights = torch.linalg.solve(shrunk(among, shrinkage), between).T
        return weights, self.means[:, -1] - (self.means[:, :-1] * weights).sum(1)


SHARES = Gaussians._fields


def shrunk(covariance: Tensor, shrinkage: float) -> Tensor:
    d = len(covariance)
    even = covariance.trace() / max(d, 1) * torch.eye(d, dtype=torch.float64)
    return (1 - shrinkage) * covariance + shrinkage * even


def estimated(h: Tensor, groups: Tensor, received: Gaussians, ridge: float) -> Gaussians:
    """Gaussians of features with one-hot classes, times the weight of each row; a class without rows is as given."""
    counts, weights = groups.sum(0), groups.sum(1, keepdim=True)
    own = groups.T @ h / counts.clamp_min(torch.finfo(counts.dtype).tiny)[:, None]
    means = torch.where((counts > 0)[:, None], own, received.means)
    away = h - means[groups.argmax(1)]
    scatter = (weights * away).T @ away / counts.sum().clamp_min(torch.finfo(counts.dtype).tiny)
    covariance = scatter + ridge * torch.eye(h.shape[1], dtype=torch.float64)
    return Gaussians(means, covariance, torch.maximum(received.known, (counts > 0).to(torch.float64)))


def priors_of(groups: Tensor) -> Tensor:
    """The share of each class among a client's labels."""
    shares = groups.sum(0) / groups.sum() + UNSEEN
    return shares / shares.sum()


@dataclass(frozen=True)
class PFedFDA(BodyTrained):
    """Options as of `Neural`, and

    Args:
        shrinkage: of covariances to a multiple of I, where they are inverted.
        ridge: added to the diagonal of a client's own covariance.
    """

    name: ClassVar[str] = "pfedfda"
    summary: ClassVar[str] = "Gaussian classes on shared features, between a client's own and everyone's"

    shrinkage: float = 1e-4
    ridge: float = 1.0
    learning_rate: float = 0.01
    local_epochs: int = 5
    batch_size: int = 50
    momentum: float = 0.5
    weight_decay: float = 5e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "shrinkage", above=0, most=1)
        check_numbers(self, "ridge", above=0)

    def init(self, spec: FederationSpec, stream: Stream) -> State:
        server, d = super().init(spec, stream), self.net_of(spec).width
        for i, (task, codec) in enumerate(spec.codecs.items()):
            n_groups, numbers = len(codec.classes or ()) or 1, d if codec.classes else d + 1
            server[f"position/{task}"] = torch.tensor(i)  # storage does not keep the order of names
            server[f"means/{i}"] = torch.zeros(n_groups, numbers, dtype=torch.float64)
            server[f"covariance/{i}"] = torch.eye(numbers, dtype=torch.float64)
            server[f"known/{i}"] = torch.zeros(n_groups, dtype=torch.float64)
        return server

    def broadcast(self, server: State, client: str) -> State:
        return under(server, "theta", *SHARES)

    def prediction_state(self, server: State, client: str) -> State:
        return super().prediction_state(server, client) | under(server, *SHARES)

    def template(self, server: State) -> ClientUpdate:
        plain = super().template(server)
        return replace(plain, arrays=plain.arrays | under(server, *SHARES))

    def is_evidence(self, name: str) -> bool:
        return name.startswith("known/")

    def objection(self, server: State, update: ClientUpdate) -> str | None:
        for task, position in strip_prefix(server, "position").items():
            known, covariance = (update.arrays[f"{what}/{int(position)}"] for what in ("known", "covariance"))
            if not bool(((known == 0) | (known == 1)).all()):
                return f"says of the classes of task {task!r} neither that they are known nor that they are not"
            largest = covariance.abs().max()
            if bool((covariance - covariance.T).abs().max() > 1e-9 * largest):
                return f"covariance of task {task!r} is not symmetric"
            if bool(torch.linalg.eigvalsh(covariance)[0] < -1e-9 * largest):
                return f"covariance of task {task!r} is not positive"
        return None

    def aggregate(self, server: State, updates: Mapping[str, ClientUpdate]) -> State:
        after, sent = super().aggregate(server, updates), [updates[client] for client in sorted(updates)]
        for task, position in strip_prefix(server, "position").items():
            i = int(position)
            owners = [update for update in sent if update.counts[task] > 0]
            if not owners:
                continue
            n = torch.tensor([float(update.counts[task]) for update in owners], dtype=torch.float64)
            n = n if self.weighting == "samples" else torch.ones_like(n)
            means, covariances, known = (torch.stack([u.arrays[f"{what}/{i}"] for u in owners]) for what in SHARES)
            weight = n[:, None] * known
            total = weight.sum(0)
            mean = (weight[:, :, None] * means).sum(0) / total.clamp_min(torch.finfo(total.dtype).tiny)[:, None]
            after[f"means/{i}"] = torch.where((total > 0)[:, None], mean, server[f"means/{i}"])
            after[f"covariance/{i}"] = (n[:, None, None] * covariances).sum(0) / n.sum()
            after[f"known/{i}"] = torch.maximum(server[f"known/{i}"], (total > 0).to(torch.float64))
        return after

    def local(self, state: State, message: State, data: ClientData, stream: Stream) -> tuple[State, ClientUpdate]:
        net, theta = self.net_of(data), strip_prefix(message, "theta")
        before = {**strip_prefix(state, "personal"), **theta}
        for i, task in enumerate(net.tasks):
            received = _received(message, i)
            if task in data.labels:  # below the server's Gaussians, with the client's own shares of the classes
                h, groups = self._features(net, before, data, task)
                gaussians = estimated(h, groups, received, self.ridge).mixed(received, 0.0)
                weight, bias = self.head(data.codecs[task], gaussians, priors_of(groups))
                before |= {f"head.{i}.weight": weight, f"head.{i}.bias": bias}
        after, loss = before, 0.0
        if self.trainable(net, before):
            after, loss = self.train(net, before, data, stream, epochs=self.local_epochs)
        arrays = {name: after[name] - value for name, value in theta.items()}
        for i, task in enumerate(net.tasks):
            found, _ = self.adapted(net, after, data, task, _received(message, i))
            arrays |= {f"{what}/{i}": value for what, value in zip(SHARES, found, strict=True)}
        return {**state, **self.kept(net, after)}, self.update(arrays, net, after, data, loss)

    def adapted(
        self, net: Network, values: State, data: ClientData, task: str, received: Gaussians
    ) -> tuple[Gaussians, Tensor]:
        """The client's Gaussians, mixed with those received, and its shares of the classes; as received if it has no label."""
        if task not in data.labels or not len(data.labels[task][0]):
            return received, torch.full_like(received.known, 1 / len(received.known))
        h, groups = self._features(net, values, data, task)
        priors = priors_of(groups)
        own = estimated(h, groups, received, self.ridge)
        return own.mixed(received, self.beta(data.codecs[task], h, groups, received, priors)), priors

    def beta(self, codec: LabelCodec, h: Tensor, groups: Tensor, received: Gaussians, priors: Tensor) -> float:
        """How much a client's own Gaussians count: for which one half of its rows predicts the other half best."""
        if not bool((received.known > 0).any()):
            return 1.0
        member = (groups > 0).to(torch.float64)
        rank = (member.cumsum(0) * member).sum(1)  # of a row among those of its class
        several = (member @ member.sum(0)) > 1
        losses = torch.zeros_like(BETAS)
        for fold in (0, 1):
            tested = several & (rank % 2 == fold)
            learned = several & (rank % 2 != fold)
            if not bool(tested.any()) or not bool(learned.any()):
                return 0.0  # nothing of its own can be put to the test
            own = estimated(h[learned], groups[learned], received, self.ridge)
            for j, beta in enumerate(BETAS):
                losses[j] += self._loss(codec, own.mixed(received, beta), h[tested], groups[tested], priors)
        return float(BETAS[losses.argmin()])

    def _loss(self, codec: LabelCodec, gaussians: Gaussians, h: Tensor, groups: Tensor, priors: Tensor) -> Tensor:
        """Of rows whose classes, or whose target beside the features, are known."""
        if codec.classes:
            weights, bias = gaussians.scores(priors, self.shrinkage)
            losses = cross_entropy(h @ weights.T + bias, groups.argmax(1), reduction="none")
        else:
            weights, bias = gaussians.regression(self.shrinkage)
            losses = (h[:, :-1] @ weights.T + bias - h[:, -1:])[:, 0].square()
        return (groups.sum(1) * losses).sum() / groups.sum()

    def _features(self, net: Network, values: State, data: ClientData, task: str) -> tuple[Tensor, Tensor]:
        """Features and one-hot classes, times weights, of a client's labels; without classes, features and target of one
        group."""
        rows = rows_of(data, task)
        with torch.no_grad():
            h = net.features(values, rows.x, task).to(torch.float64)
        target = [] if rows.codec.classes else [target_of(rows.y, rows.codec)]
        return torch.cat([h, *target], 1), rows.counted[:, None] * groups_of(rows.y, rows.codec)

    def head(self, codec: LabelCodec, gaussians: Gaussians, priors: Tensor) -> tuple[Tensor, Tensor]:
        """Weight and bias of the head that says what these Gaussians say."""
        if not codec.classes:
            return gaussians.regression(self.shrinkage)
        weights, bias = gaussians.scores(priors, self.shrinkage)
        return outputs_of_scores(weights.T, codec).T.contiguous(), outputs_of_scores(bias, codec)

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        """Gaussians between the client's own and the server's; the server's with even shares, where it has no state."""
        net, values = self.net_of(data), self.values(server, state)
        seen = data if state is not None else ClientData(data.x, {}, data.codecs)
        for i, task in enumerate(net.tasks):
            gaussians, priors = self.adapted(net, values, seen, task, _received(server, i))
            weight, bias = self.head(data.codecs[task], gaussians, priors)
            values |= {f"head.{i}.weight": weight, f"head.{i}.bias": bias}
        return self.reader(server, values, data)


def _received(state: State, i: int) -> Gaussians:
    return Gaussians(*(state[f"{what}/{i}"] for what in SHARES))
