"""Features that a federation learns, beside the paper's algorithm: labels held out from them, and where projections start.

Two parts, each with keys of its own in states, messages and updates:

* **held-out labels**: a client sends two gradients of the features, of the labels that they are learned from and
  (`held_out/…`) of those that they never see; the server shortens its step where the two do not agree (`agreement/…`);
* **the start by moments**: while the server's state has `starting`, that is in round 1, an update has
  `direction/features.projection` in place of the projection's gradient, and the server does nothing but start from their mean.

Learned features have many parameters: they soon know the labels they were learned from by heart, and a noise or a mixing weight
that is learned from the same labels then believes it. So each client keeps a share of its inputs apart: the gradient of the
features comes from the others, that of all other groups from those held out. As long as what one part asks for also serves the
other, it is about the task; when they no longer agree, what remains to be learned is the labels of one part, and the features
stop moving. Predictions use all labels.

A random start spends its first rounds looking for a direction, the more of them the fewer labels there are. The scores of the
rows, r = ∂ℓ/∂f at f = 0, are what any likelihood says about the direction in which its output should move; their moments with
the inputs, Σ r x, are the step that a linear f would take first. They are of the labels that are not held out, and scaled so
that a client's own inputs have spread one along them. What clients have in common adds up in their mean, and what is chance in
each of them does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from polyfed.data import ClientData
from polyfed.gp import Prior, Rows, group_of
from polyfed.gp.projection import scaled_sums
from polyfed.methods.gp.holdout import ENOUGH, MEMORY, agreement, held_out_inputs, judged_together, split
from polyfed.methods.gp.states import ClientRows, Sent, Server
from polyfed.methods.messages import State
from polyfed.seeds import Stream

STARTS = ("random", "moments")
# Of the inputs along directions on which all clients agree; chosen of 0.1, 0.3 and 1 on validation images of CelebA and Dogcat.
SPREAD = 0.1
PROJECTION = "features.projection"


@dataclass(frozen=True)
class FeatureLearning:
    """`share`: the inputs of a client that are held out from the features; `seeks`: whether round 1 looks for a start."""

    share: float
    seeks: bool

    def begun(self, server: Server) -> Server:
        """With what the server remembers before the first round."""
        one = torch.ones((), dtype=torch.float64)
        agreements = dict.fromkeys(judged_together(self.of(server.theta)), one)
        return replace(server, agreements=agreements, starting=one if self.seeks else None)

    def form(self, server: Server) -> Sent:
        """The arrays of an update that belong to Θ and its features."""
        sent = Sent(server.theta, self.of(server.theta))
        return sent if server.starting is None else _in_place(sent, server.theta[PROJECTION])

    @staticmethod
    def start(server: Server, found: Tensor) -> Server:
        """The server after round 1, if that was for a start: all else is learned from the next round on. To the projection,
        which is random and small, comes what the clients found."""
        projection = server.theta[PROJECTION] + SPREAD * found
        return replace(server, starting=None, theta=server.theta | {PROJECTION: projection})

    def trusted(self, server: Server, mean: Sent, moved: State) -> tuple[State, State]:
        """The step of the features as far as held-out labels agree with it, and the agreements so far."""
        moved, agreements = dict(moved), {}
        for label, features in judged_together(self.of(mean.gradient)).items():
            now = agreement(features, {name: mean.held_out[name] for name in features})
            agreements[label] = MEMORY * server.agreements[label] + (1 - MEMORY) * now
            # All of the step where the gradients agree well, nothing of it where they do not.
            part, start = (agreements[label] / ENOUGH).clamp(0.0, 1.0), server.theta
            moved |= {n: start[n] + part.to(moved[n].dtype) * (moved[n] - start[n]) for n in features}
        return moved, agreements

    def chosen(self, data: ClientData, stream: Stream) -> State:
        """What a client's state has of the inputs that it holds out from the features, for good."""
        if not self.share:
            return {}
        mask = held_out_inputs(data, self.share, replace(stream, purpose="holdout").numpy())
        return ClientRows(held_out=mask).to_arrays()

    def split(self, clients: Sequence[ClientData], masks: Sequence[Tensor]) -> tuple[Sequence[ClientData], ...]:
        """The labels that features are learned from, and those that all else is learned from."""
        if not masks:
            return clients, clients
        pairs = [split(data, mask) for data, mask in zip(clients, masks, strict=True)]
        return [taught for taught, _ in pairs], [held_out for _, held_out in pairs]

    @staticmethod
    def with_directions(sent: Sent, prior: Prior, before: State, taught: Sequence[Rows], rows: Sequence[Rows]) -> Sent:
        """Where each client would have the projection start."""
        priors = [prior.with_values({name: value[i] for name, value in before.items()}) for i in range(len(rows))]
        return _in_place(sent, torch.stack([directions(*each) for each in zip(priors, taught, rows, strict=True)]))

    def of(self, values: Mapping[str, Tensor]) -> State:
        """The parameters of features among these, if some labels are held out from them."""
        return {name: value for name, value in values.items() if self.share and group_of(name) == "features"}


def _in_place(sent: Sent, direction: Tensor) -> Sent:
    """With a direction in place of the projection's gradient."""
    return replace(sent, gradient={n: v for n, v in sent.gradient.items() if n != PROJECTION}, direction=direction)


def directions(prior: Prior, rows: Rows, others: Rows) -> Tensor:
    """Of one client, a direction for each output of each latent, in the shape of the projection.

    `others` are rows that do not enter: along a direction that is made of few inputs, these very inputs are spread too wide.
    """
    assert prior.projected is not None
    with torch.no_grad():
        at_zero = torch.zeros(len(rows), dtype=torch.float64)
        _, scores = rows.sites(prior, at_zero, torch.ones_like(at_zero))
        per_input = rows.A.new_zeros(len(rows.x), rows.A.shape[-1])
        per_input.index_add_(0, rows.at, rows.A * scores[:, None])
        inputs, measured = (_centred(prior.features_of(some.x).double()) for some in (rows, others))
        found = []
        for b in range(prior.n_latents):
            part = slice(b * prior.projected, (b + 1) * prior.projected) if prior.apart else slice(None)
            moments = inputs[:, part].mT @ per_input
            spread = scaled_sums(measured[:, part], moments).square().sum(0).div(max(len(measured), 1)).sqrt()
            found.append(_laid_out(moments / torch.where(spread > 0, spread, torch.inf), b, prior.dims))
        return torch.cat(found, -1)


def _centred(x: Tensor) -> Tensor:
    return x - x.sum(0) / max(len(x), 1)


def _laid_out(moments: Tensor, b: int, dims: int) -> Tensor:
    """A column for each dimension of latent b: the outputs in turn, and zero where there are more dimensions than outputs.

    >>> _laid_out(torch.tensor([[1.0, 2.0, 3.0]]), 1, dims=2)
    tensor([[3., 1.]])
    >>> _laid_out(torch.tensor([[1.0, 2.0, 3.0]]), 1, dims=4)
    tensor([[1., 2., 3., 0.]])
    """
    n = moments.shape[-1]
    if n <= dims:
        return torch.nn.functional.pad(moments, (0, dims - n))
    return moments[:, [(b * dims + j) % n for j in range(dims)]]
