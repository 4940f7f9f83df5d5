"""pFedVEM: a shared trunk, and heads β_j with a prior N(w, ρ_j² I) around a mean head w that the server learns.

A client keeps q(β_j) = N(μ_j, diag σ_j²), σ = softplus(s), for the head of each task. In a round, with the φ and w it was sent:

    1. ρ_j² = (Σ σ_j² + ‖μ_j − w‖²) / D     the optimum of the KL; D counts the weights and biases of the head
    2. steps on μ_j, s_j:  E_q[−log p(y | β, φ(x))] + KL(q ‖ N(w, ρ_j² I)), the expectation over a few draws of β
    3. epochs on the trunk φ under draws of β, q held fixed; a step of EM must not make its objective worse, so epochs
       that do are done again at half the rate. A client remembers its rate, and tries twice of it in its next round

Without that care 3. runs away: with q fixed its curvature is ‖x‖² E‖β‖², and nothing in 3. can make β smaller.


The server takes w = Σ μ_j/ρ_j² / Σ 1/ρ_j² and the mean of the trunks: a client that is unsure, or unlike the others, says
less about w. `server_rate` is 1 − β of the publication.

Steps on the head are divided by (information in the labels + 1/ρ²), its curvature up to the size of the features: a learning
rate then fits clients with ten labels and with ten thousand. For a client with n labels of classes the publication's rate of
0.001 on the plain sum is head_rate = (n + 1/ρ²)/1000.

The publication has classes alone. The others are an extension of polyfed's: a binary task has one logit, Gaussian and
Student-t noise is that of all clients' residuals, counts are Poisson with the variance that they are seen to have. Noise is
measured under q, not at μ: the optimum of the bound is E_q (y − f)², which a head that is unsure keeps away from zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad, softplus

from polyfed.data import ClientData, LabelCodec
from polyfed.methods.base import Predictor
from polyfed.methods.messages import ClientUpdate, State, labelled, part
from polyfed.methods.neural import Neural, Objective
from polyfed.methods.options import check_choice, check_number
from polyfed.methods.supervised import LEAST_NOISE, SUPERVISION
from polyfed.nets import Network
from polyfed.predictions import Prediction, Predictions
from polyfed.seeds import Stream

Posterior = tuple[Tensor, Tensor]  # μ and s of a head, (outputs, features + 1): the last column is the bias
_ATTEMPTS = 8  # at the trunk in a round, the last at 1/128 of the first rate
_AVERAGED = {"binary": "proba", "multiclass": "proba", "proportion": "mean"}  # what is not linear in β, by kind


@dataclass(frozen=True)
class PFedVEM(Neural):
    """Options as of `Neural` (of the trunk; `momentum` of the heads too), and

    Args:
        n_draws: draws of a head in each step.
        initial_std: σ of a client's head before its first round (the publication's 1 lets counts explode).
        head_rate: learning rate of μ and s, see above.
        head_steps: steps on μ and s in a round, each on all of a client's labels.
        join_rounds: a client that joins later does 1. and 2. so many times.
        read_out: `mc` (predictions are averaged over q, as calibration needs) or `mean` (those of μ).
        read_draws: pairs of draws, mirrored at μ, for the probabilities of `mc`.
    """

    name: ClassVar[str] = "pfedvem"
    summary: ClassVar[str] = "a shared trunk, uncertain heads around a mean head, weighted by confidence"

    n_draws: int = 5
    initial_std: float = 0.1
    head_rate: float = 0.05
    head_steps: int = 10
    join_rounds: int = 10
    read_out: str = "mc"
    read_draws: int = 50
    learning_rate: float = 0.01
    local_epochs: int = 5
    batch_size: int = 10
    momentum: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("read_out", self.read_out, ("mc", "mean"))
        for option in ("n_draws", "head_steps", "join_rounds", "read_draws"):
            check_number(option, getattr(self, option), whole=True, least=1)
        for option in ("initial_std", "head_rate"):
            check_number(option, getattr(self, option), above=0)

    # ---- the server -------------------------------------------------------------------------------------------

    def download(self, server: State, client: str) -> State:
        return labelled("theta", part(server, "theta")) | labelled("noise", part(server, "noise"))

    def template(self, server: State) -> ClientUpdate:
        plain, nothing = super().template(server), (_number(0.0), _number(0.0))
        precisions = {precision_of(i): nothing for i in range(len(plain.counts))}
        return replace(plain, pooled={**plain.pooled, **precisions})

    def counted_tasks(self, server: State, name: str) -> Sequence[str] | None:
        precisions = [precision_of(i) for i in range(len(part(server, "task")))]
        return list(part(server, "task")) if name in precisions else super().counted_tasks(server, name)

    def weights(self, name: str, sent: Sequence[ClientUpdate]) -> Tensor:
        """Heads count by 1/ρ², which is sent as 0 by those who do not have the task.

        It is sent as a pooled statistic: how sure a client may be of itself is bounded by how sure others are.
        """
        if not name.startswith("head."):
            return super().weights(name, sent)
        return torch.stack([update.pooled[precision_of(int(name.split(".")[1]))][0] for update in sent])

    # ---- a client -----------------------------------------------------------------------------------------------

    def local(self, state: State, message: State, data: ClientData, stream: Stream) -> tuple[State, ClientUpdate]:
        net, theta, pooled = self.net_of(data), part(message, "theta"), part(message, "noise")
        before = {**theta, **part(state, "personal")}
        after, heads, kept, precisions = dict(before), {}, {}, {}
        for i, task in enumerate(net.tasks):
            precisions[precision_of(i)] = (_number(0.0), _number(0.0))
            if data.counts()[task]:
                heads[task], rho2 = self.head_phase(net, state, before, pooled, data, task, stream)
                precisions[precision_of(i)] = (1 / rho2, _number(1.0))
                kept |= {f"mean/{i}": heads[task][0], f"raw/{i}": heads[task][1], f"rho2/{i}": rho2}
                after |= _as_layer(i, heads[task][0])
        after, rates, loss = self.trunk_phase(net, state, after, data, heads, stream)
        arrays = {name: after[name] - value for name, value in theta.items()}  # of heads, μ − w
        kept |= labelled("personal", {name: after[name] for name in self.personal(net)})
        update = self.update(arrays, net, after, data, loss)
        noise = {task: self.noise_under(net, after, data, task, heads[task]) for task in update.pooled if task in heads}
        return {**state, **kept, **rates}, replace(update, pooled={**update.pooled, **noise, **precisions})

    def head_phase(
        self, net: Network, state: State, values: State, noise: State, data: ClientData, task: str, stream: Stream
    ) -> tuple[Posterior, Tensor]:
        """1. and 2. for one task: q of its head, and the ρ² with which it was found. The trunk stands still."""
        i, codec, (at, y) = list(net.tasks).index(task), data.codecs[task], data.seen[task]
        with torch.no_grad():
            h = _with_one(net.features(values, torch.from_numpy(data.x[at]), task))
        labels, w = torch.from_numpy(y), _as_matrix(i, values)
        mean, raw = state.get(f"mean/{i}", w), state.get(f"raw/{i}", torch.full_like(w, _raw(self.initial_std)))
        rho2, sigma2 = prior_variance(mean, raw, w), float(noise.get(task, torch.ones(())))
        step = self.head_rate / (_information(labels, codec, sigma2) + 1 / float(rho2))
        rng, velocity = _own(stream, f"head draws {i}").numpy(), torch.zeros(2, *w.shape, dtype=torch.float64)
        for _ in range(self.head_steps):
            live = (mean.detach().requires_grad_(), raw.detach().requires_grad_())
            draws = torch.from_numpy(rng.standard_normal((self.n_draws, *w.shape)))
            bound = expected_loss(live, h, labels, codec, sigma2, draws) + divergence(*live, w, rho2)
            velocity = self.momentum * velocity + torch.stack(torch.autograd.grad(bound, live))
            mean, raw = mean - step * velocity[0], raw - step * velocity[1]
        return (mean, raw), rho2

    def trunk_phase(
        self,
        net: Network,
        state: State,
        values: State,
        data: ClientData,
        heads: Mapping[str, Posterior],
        stream: Stream,
    ) -> tuple[State, State, float]:
        """3.: all parameters, the rates to remember, the loss. Trunks that tasks have to themselves have rates of their own."""
        rates, total = {}, 0.0
        trunk = [name for name in self.trainable(net, values) if name not in net.heads]
        for owner in dict.fromkeys(net.owner(name) for name in trunk):
            own = ClientData(data.x, {t: seen for t, seen in data.seen.items() if owner in (None, t)}, data.codecs)
            if not own.n_labels:
                continue
            names, key = [name for name in trunk if net.owner(name) == owner], f"rate/{owner or ''}"
            rate = min(self.learning_rate, 2 * float(state.get(key, self.learning_rate)))
            worst = self.trunk_loss(net, values, own, heads, stream)
            for attempt in range(_ATTEMPTS):
                objective = self.averaged(net, own, heads, _own(stream, f"trunk draws {attempt}").numpy())
                trained, loss = self.train(
                    net, values, own, stream, epochs=self.local_epochs, names=names, rate=rate, objective=objective
                )
                if self.trunk_loss(net, trained, own, heads, stream) <= worst:  # not so if it is no number
                    values, worst = trained, loss
                    break
                rate /= 2
            rates[key], total = torch.tensor(rate, dtype=torch.float64), total + worst
        return values, rates, total

    def trunk_loss(
        self, net: Network, values: State, data: ClientData, heads: Mapping[str, Posterior], stream: Stream
    ) -> float:
        """What 3. makes smaller, on all labels and under the same draws whenever it is asked for in a round."""
        everything = {task: np.arange(len(at)) for task, (at, _) in data.seen.items()}
        live = {**values, **{name: values[name].clone() for name in net.buffers}}  # a forward pass moves them
        with torch.no_grad():
            return float(self.averaged(net, data, heads, _own(stream, "trunk loss").numpy())(live, everything))

    def noise_under(
        self, net: Network, values: State, data: ClientData, task: str, q: Posterior
    ) -> tuple[Tensor, Tensor]:
        """(sum, count) of the noise of a task that has one, over draws of its head."""
        (at, y), codec = data.seen[task], data.codecs[task]
        measure = SUPERVISION[codec.task.kind].noise
        assert measure is not None
        with torch.no_grad():
            h = _with_one(net.features(values, torch.from_numpy(data.x[at]), task))
        total, count = measure(*_outputs(h, torch.from_numpy(y), self._mirrored(q)), codec)
        n = 2 * self.read_draws
        return torch.tensor(total / n, dtype=torch.float64), torch.tensor(count / n, dtype=torch.float64)

    def _mirrored(self, q: Posterior) -> Tensor:
        """Draws of a head in pairs around μ, the same for all rows and at any time: a prediction depends on its row alone."""
        half = Stream(0, "read-out").numpy().standard_normal((self.read_draws, *q[0].shape))
        return q[0] + softplus(q[1]) * torch.from_numpy(np.concatenate([half, -half]))

    def averaged(
        self, net: Network, data: ClientData, heads: Mapping[str, Posterior], rng: np.random.Generator
    ) -> Objective:
        """The loss of the trunk, averaged over draws of the heads."""

        def objective(live: State, batch: Mapping[str, np.ndarray]) -> Tensor:
            total = torch.zeros((), dtype=torch.float64)
            for task, positions in batch.items():
                (at, y), codec, (mean, raw) = data.seen[task], data.codecs[task], heads[task]
                x = torch.from_numpy(data.x[at[positions]])
                h = _with_one(net.features(live, x, task, train=self.bn_buffers != "frozen"))
                draws = torch.from_numpy(rng.standard_normal((self.n_draws, *mean.shape)))
                f, labels = _outputs(h, torch.from_numpy(y[positions]), mean + softplus(raw) * draws)
                total = total + SUPERVISION[codec.task.kind].loss(f, labels, codec)
            return total

        return objective

    def join(self, server: State, data: ClientData, stream: Stream) -> State:
        state, net = super().join(server, data, stream), self.net_of(data)
        values = self.values(server, None)
        for i, (task, n) in enumerate(data.counts().items()):
            for k in range(self.join_rounds if n else 0):
                own = _own(stream, f"join {k}")
                (mean, raw), rho2 = self.head_phase(net, state, values, part(server, "noise"), data, task, own)
                state = {**state, f"mean/{i}": mean, f"raw/{i}": raw, f"rho2/{i}": rho2}
        return state

    # ---- predictions ----------------------------------------------------------------------------------------------

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        net, state = self.net_of(data), state or {}
        values = self.values(server, state)
        heads = {task: i for i, task in enumerate(net.tasks) if f"mean/{i}" in state}
        for i in heads.values():
            values |= _as_layer(i, state[f"mean/{i}"])
        plain = self.reader(server, values, data)
        if self.read_out == "mean" or not heads:
            return plain

        q = {task: (state[f"mean/{i}"], state[f"raw/{i}"]) for task, i in heads.items()}
        noise = {task: float(value) for task, value in part(server, "noise").items()}
        for task in noise.keys() & q.keys() & data.seen.keys():
            total, count = self.noise_under(net, values, data, task, q[task])
            noise[task] = float(total / count) if count > 0 else noise[task]

        def predict(x: np.ndarray) -> Predictions:
            found = dict(plain(x))
            for task, (mean, raw) in q.items():
                with torch.no_grad():
                    h = _with_one(net.features(values, torch.from_numpy(x), task))
                codec = data.codecs[task]
                at_mean = SUPERVISION[codec.task.kind].predict((h @ mean.T).numpy(), noise.get(task, 0.0), codec)
                found[task] = self._spread(at_mean, h, (mean, raw), codec)
            return Predictions(found)

        return predict

    def _spread(self, prediction: Prediction, h: Tensor, q: Posterior, codec: LabelCodec) -> Prediction:
        """The prediction of μ with the uncertainty of the head: f is linear in β, so its variance is Σ σ² h²."""
        (_, raw), kind = q, codec.task.kind
        std = (h.square() @ softplus(raw).square().T).sqrt().numpy()
        unit = codec.scale if kind in ("regression", "robust") else 1.0
        changes = {"latent_std": unit * (std if kind == "multiclass" else std[:, 0])}
        if kind in _AVERAGED:
            read, field, heads = SUPERVISION[kind].predict, _AVERAGED[kind], self._mirrored(q)
            changes[field] = np.mean([getattr(read((h @ beta.T).numpy(), 0.0, codec), field) for beta in heads], axis=0)
        return replace(prediction, **changes)  # pyright: ignore[reportArgumentType]


# ---- the bound ------------------------------------------------------------------------------------------------------


def prior_variance(mean: Tensor, raw: Tensor, w: Tensor) -> Tensor:
    """ρ², at which KL(q ‖ N(w, ρ² I)) is least."""
    return (softplus(raw).square() + (mean - w).square()).mean()


def divergence(mean: Tensor, raw: Tensor, w: Tensor, rho2: Tensor) -> Tensor:
    """KL(N(μ, diag σ²) ‖ N(w, ρ² I)).

    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> divergence(one, torch.log(torch.expm1(one)), 0 * one, one).item()  # σ = ρ = 1, apart by 1: ½
    0.5
    """
    sigma2 = softplus(raw).square()
    return 0.5 * ((sigma2 + (mean - w).square()) / rho2 - 1 - torch.log(sigma2 / rho2)).sum()


def expected_loss(q: Posterior, h: Tensor, y: Tensor, codec: LabelCodec, noise: float, draws: Tensor) -> Tensor:
    """−log p(y | β, h), summed over the labels and averaged over draws of β; constants in β left out."""
    f, labels = _outputs(h, y, q[0] + softplus(q[1]) * draws)
    kind, n = codec.task.kind, len(y)
    loss = SUPERVISION[kind].loss
    if kind in ("regression", "robust"):
        unit = max(noise, LEAST_NOISE) ** 0.5
        return n * loss(f / unit, labels / unit, codec)
    if kind == "proportion":  # by trials: the mean loss counts rows
        return (labels[:, 1] * softplus(f[:, 0]) - labels[:, 0] * f[:, 0]).sum() / len(draws)
    return _information(y, codec, noise) * loss(f, labels, codec)


def _information(y: Tensor, codec: LabelCodec, noise: float) -> float:
    """How much all labels say about f, in the unit of the mean loss."""
    kind, n = codec.task.kind, len(y)
    if kind in ("regression", "robust"):
        return n / max(noise, LEAST_NOISE)
    if kind == "count":  # μ/(1 + μ/ρ) each, of a negative binomial with mean μ
        return n * codec.scale / (1 + codec.scale * noise)
    return float(y[:, 1].sum()) if kind == "proportion" else float(n)


def _outputs(h: Tensor, y: Tensor, heads: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs under each head, one head after the other, and the labels as often."""
    f = torch.einsum("nd,skd->snk", h, heads)
    return f.reshape(-1, f.shape[-1]), y.repeat(len(heads), *(1,) * (y.dim() - 1))


def _with_one(h: Tensor) -> Tensor:
    return pad(h, (0, 1), value=1.0)


def _as_matrix(i: int, values: State) -> Tensor:
    return torch.cat([values[f"head.{i}.weight"], values[f"head.{i}.bias"][:, None]], 1)


def _as_layer(i: int, head: Tensor) -> State:
    return {f"head.{i}.weight": head[:, :-1].clone(), f"head.{i}.bias": head[:, -1].clone()}


def _raw(std: float) -> float:
    """softplus⁻¹"""
    return std + float(np.log(-np.expm1(-std)))


def precision_of(i: int) -> str:
    """Under which name 1/ρ² of the head of task i is sent."""
    return f"precision/{i}"


def _number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def _own(stream: Stream, purpose: str) -> Stream:
    return replace(stream, purpose=f"{stream.purpose} {purpose}")
