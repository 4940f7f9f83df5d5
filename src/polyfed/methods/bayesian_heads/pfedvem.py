"""pFedVEM: a shared trunk, and heads β_j with a prior N(w, ρ_j² I) around a mean head w that the server learns.

Zhu, Ma, Blaschko: "Confidence-aware Personalized Federated Learning via Variational Expectation Maximization", CVPR 2023,
arXiv:2305.12557.

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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus
from torch.nn.utils.rnn import pad_sequence

from polyfed.data import ClientData, LabelCodec
from polyfed.kinds import LabelForm
from polyfed.methods.base import Job, Predictor
from polyfed.methods.bayesian_heads import uncertain_heads as uncertain
from polyfed.methods.bayesian_heads.uncertain_heads import Posterior, Trunks, Turn, outputs
from polyfed.methods.messages import NOTHING, ClientUpdate, State, scalar, scalars, strip_prefix, under
from polyfed.methods.neural.base import Neural
from polyfed.methods.neural.cohorts import Labels, Rows, TrainedSideBySide
from polyfed.methods.options import check_choice, check_numbers
from polyfed.methods.supervised import supervision_of, with_one
from polyfed.nets import Network
from polyfed.predictions import Prediction, Predictions
from polyfed.seeds import Stream

_ATTEMPTS = 8  # at the trunk in a round, the last at 1/128 of the first rate
_AVERAGED = {LabelForm.BINARY: "proba", LabelForm.CLASS: "proba", LabelForm.PAIR: "mean"}  # what is not linear in β


@dataclass(frozen=True)
class PFedVEM(TrainedSideBySide, Neural):
    """Options as of `Neural` (of the trunk; `momentum` of the heads too), and

    Args:
        n_draws: draws of a head in each step.
        initial_std: σ of a client's head before its first round (the publication's 1 lets counts explode).
        head_rate: learning rate of μ and s, see above.
        head_steps: steps on μ and s in a round, each on all of a client's labels.
        join_rounds: how often a client that joins later does 1. and 2.
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
        check_numbers(self, "n_draws", "head_steps", "join_rounds", "read_draws", whole=True, least=1)
        check_numbers(self, "initial_std", "head_rate", above=0)

    def broadcast(self, server: State, client: str) -> State:
        return under(server, "theta", "noise")

    def template(self, server: State) -> ClientUpdate:
        plain = super().template(server)
        return replace(
            plain, pooled=plain.pooled | {uncertain.precision_of(i): NOTHING for i in range(len(plain.counts))}
        )

    def counted_tasks(self, server: State, name: str) -> Sequence[str] | None:
        precisions = [uncertain.precision_of(i) for i in range(len(strip_prefix(server, "task")))]
        return list(strip_prefix(server, "task")) if name in precisions else super().counted_tasks(server, name)

    def weights(self, name: str, sent: Sequence[ClientUpdate]) -> Tensor:
        """Heads count by 1/ρ², which is sent as 0 by those who do not have the task.

        It is sent as a pooled statistic: how sure a client may be of itself is bounded by how sure others are.
        """
        if not name.startswith("head."):
            return super().weights(name, sent)
        return torch.stack([update.pooled[uncertain.precision_of(int(name.split(".")[1]))][0] for update in sent])

    def train_cohort(self, jobs: Sequence[Job]) -> list[tuple[State, ClientUpdate]]:
        net = self.net_of(jobs[0].data)
        turns = [
            Turn(job, {**strip_prefix(job.message, "theta"), **strip_prefix(job.state, "personal")}, {}) for job in jobs
        ]
        states = [dict(job.state) for job in jobs]
        sure = [dict.fromkeys(map(uncertain.precision_of, range(len(net.tasks))), NOTHING) for _ in jobs]
        for i, task in enumerate(net.tasks):
            who = [j for j, job in enumerate(jobs) if job.data.counts()[task]]
            for j, (q, rho2) in zip(who, self.head_phase(net, task, [turns[j] for j in who]), strict=True):
                turns[j].heads[task] = q
                turns[j].values.update(uncertain.as_layer(i, q[0]))
                sure[j][uncertain.precision_of(i)] = (1 / rho2, scalar(1.0))
                states[j] |= uncertain.head_state(i, q, rho2)
        found = []
        for j, (turn, (rates, loss)) in enumerate(zip(turns, self.trunk_phase(net, turns), strict=True)):
            data, after = turn.job.data, turn.values
            arrays = {name: after[name] - v for name, v in strip_prefix(turn.job.message, "theta").items()}  # μ − w
            update = self.update(arrays, net, after, data, loss)
            measured = [task for task in update.pooled if task in turn.heads]
            spread = {task: self.noise_under(net, after, data, task, turn.heads[task]) for task in measured}
            states[j] |= self.kept(net, after) | rates
            found.append((states[j], replace(update, pooled=update.pooled | spread | sure[j])))
        return found

    def head_phase(self, net: Network, task: str, turns: Sequence[Turn]) -> list[tuple[Posterior, Tensor]]:
        """1. and 2. for one task of each client: q of its head, and ρ².

        The trunk stands still, so features are computed once and any network will do.
        """
        if not turns:
            return []
        i, members = list(net.tasks).index(task), [turn.job.data for turn in turns]
        with torch.no_grad():
            x = [torch.from_numpy(data.x[data.labels[task][0]]) for data in members]
            own = [with_one(net.features(turn.values, mine, task)) for turn, mine in zip(turns, x, strict=True)]
        h, held = pad_sequence(own, batch_first=True), Rows.stack(members, task, [np.arange(len(mine)) for mine in x])
        w = torch.stack([uncertain.as_matrix(i, turn.values) for turn in turns])
        start = torch.full_like(w[0], self.initial_std + np.log(-np.expm1(-self.initial_std)))
        mean = torch.stack([turn.job.state.get(f"mean/{i}", mine) for turn, mine in zip(turns, w, strict=True)])
        raw = torch.stack([turn.job.state.get(f"raw/{i}", start) for turn in turns])
        sigma2 = torch.stack([turn.job.message.get(f"noise/{task}", scalar(1.0)) for turn in turns])
        rho2 = uncertain.prior_variance(mean, raw, w)
        step = (self.head_rate / (uncertain.information(held, sigma2) + 1 / rho2))[:, None, None]
        rngs = [_own(turn.job.stream, f"head draws {i}").numpy() for turn in turns]
        velocity = torch.zeros(2, *w.shape, dtype=torch.float64)
        for _ in range(self.head_steps):
            live = (mean.detach().requires_grad_(), raw.detach().requires_grad_())
            draws = uncertain.drawn(rngs, (self.n_draws, *w.shape[1:]))
            bound = uncertain.expected_loss(live, h, held, sigma2, draws) + uncertain.divergence(*live, w, rho2)
            velocity = self.momentum * velocity + torch.stack(torch.autograd.grad(bound.sum(), live))
            mean, raw = mean - step * velocity[0], raw - step * velocity[1]
        return [((mean[j], raw[j]), rho2[j]) for j in range(len(turns))]

    def trunk_phase(self, net: Network, turns: Sequence[Turn]) -> list[tuple[State, float]]:
        """3.: the parameters in `turns` move on; of each client the rates to remember, and the loss.

        Trunks that tasks have to themselves have rates of their own.
        """
        rates: list[State] = [{} for _ in turns]
        totals = [0.0] * len(turns)
        trunk = [name for name in self.trainable(net, turns[0].values) if name not in net.heads]
        for owner in dict.fromkeys(net.owner(name) for name in trunk):
            names, key = [name for name in trunk if net.owner(name) == owner], f"rate/{owner or ''}"
            mine = [turn.of(owner) for turn in turns]
            left = {j for j, turn in enumerate(mine) if turn.job.data.n_labels}
            rate = {j: min(self.learning_rate, 2 * float(mine[j].job.state.get(key, self.learning_rate))) for j in left}
            worst = {j: self.trunk_loss(net, mine[j]) for j in left}
            for attempt in range(_ATTEMPTS):
                if not left:
                    break
                trying = sorted(left)
                rngs = [_own(mine[j].job.stream, f"trunk draws {attempt}").numpy() for j in trying]
                trunks = Trunks(self, net, [mine[j] for j in trying], rngs)
                tried = trunks.run_epochs(names, [rate[j] for j in trying])
                for j, (values, loss) in zip(trying, tried, strict=True):
                    if self.trunk_loss(net, replace(mine[j], values=values)) <= worst[j]:  # not so if it is no number
                        turns[j].values.update(values)
                        worst[j] = loss
                        left.remove(j)
                    else:
                        rate[j] /= 2
            for j in rate:
                rates[j][key], totals[j] = scalar(rate[j]), totals[j] + worst[j]
        return list(zip(rates, totals, strict=True))

    def trunk_loss(self, net: Network, turn: Turn) -> float:
        """What 3. makes smaller, on all labels and under the same draws whenever it is asked for in a round."""
        everything = {task: np.arange(len(at)) for task, (at, _) in turn.job.data.labels.items()}
        trunk = Trunks(self, net, [turn], [_own(turn.job.stream, "trunk loss").numpy()])
        values = trunk.stack([turn.values])
        with torch.no_grad():
            return float(trunk.loss(values, dict(values), trunk.batch([everything])))

    def noise_under(
        self, net: Network, values: State, data: ClientData, task: str, q: Posterior
    ) -> tuple[Tensor, Tensor]:
        """(sum, count) of the noise of a task that has one, over draws of its head."""
        (at, y), codec = data.labels[task], data.codecs[task]
        with torch.no_grad():
            h = with_one(net.features(values, torch.from_numpy(data.x[at]), task))
        f, labels = outputs(h, self._mirrored(q)), Labels.of(torch.from_numpy(y), codec)
        n, weights = 2 * self.read_draws, torch.from_numpy(data.weights_of(task))
        total, count = supervision_of(codec).spread(f.flatten(0, -2), labels.under(f), codec, weights.repeat(n))
        return scalars(total / n, count / n)

    def _mirrored(self, q: Posterior) -> Tensor:
        """Draws of a head in pairs around μ, the same for all rows and at any time: a prediction depends on its row alone."""
        half = Stream(0, "read-out").numpy().standard_normal((self.read_draws, *q[0].shape))
        return q[0] + softplus(q[1]) * torch.from_numpy(np.concatenate([half, -half]))

    def join(self, server: State, data: ClientData, stream: Stream) -> State:
        state, net, values = super().join(server, data, stream), self.net_of(data), self.values(server, None)
        for i, (task, n) in enumerate(data.counts().items()):
            for k in range(self.join_rounds if n else 0):
                turn = Turn(Job("", state, under(server, "noise"), data, _own(stream, f"join {k}")), values, {})
                [(q, rho2)] = self.head_phase(net, task, [turn])
                state = state | uncertain.head_state(i, q, rho2)
        return state

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        net, state = self.net_of(data), state or {}
        values = self.values(server, state)
        heads = {task: i for i, task in enumerate(net.tasks) if f"mean/{i}" in state}
        for i in heads.values():
            values |= uncertain.as_layer(i, state[f"mean/{i}"])
        plain = self.reader(server, values, data)
        if self.read_out == "mean" or not heads:
            return plain

        q = {task: (state[f"mean/{i}"], state[f"raw/{i}"]) for task, i in heads.items()}
        noise = {task: float(value) for task, value in strip_prefix(server, "noise").items()}
        for task in noise.keys() & q.keys() & data.labels.keys():
            total, count = self.noise_under(net, values, data, task, q[task])
            noise[task] = float(total / count) if count > 0 else noise[task]

        def predict(x: np.ndarray) -> Predictions:
            found = dict(plain(x))
            for task, (mean, raw) in q.items():
                with torch.no_grad():
                    h = with_one(net.features(values, torch.from_numpy(x), task))
                codec = data.codecs[task]
                at_mean = supervision_of(codec).predict((h @ mean.T).numpy(), noise.get(task, 0.0), codec)
                found[task] = self._spread(at_mean, h, (mean, raw), codec)
            return Predictions(found)

        return predict

    def _spread(self, prediction: Prediction, h: Tensor, q: Posterior, codec: LabelCodec) -> Prediction:
        """The prediction of μ with the uncertainty of the head: f is linear in β, so its variance is Σ σ² h²."""
        (_, raw), form = q, codec.task.form
        std = (h.square() @ softplus(raw).square().T).sqrt().numpy()
        unit = codec.scale if form is LabelForm.NUMBER else 1.0
        changes = {"latent_std": unit * (std if form is LabelForm.CLASS else std[:, 0])}
        if form in _AVERAGED:
            read, field, heads = supervision_of(codec).predict, _AVERAGED[form], self._mirrored(q)
            changes[field] = np.mean([getattr(read((h @ beta.T).numpy(), 0.0, codec), field) for beta in heads], axis=0)
        return replace(prediction, **changes)  # pyright: ignore[reportArgumentType]


def _own(stream: Stream, purpose: str) -> Stream:
    return replace(stream, purpose=f"{stream.purpose} {purpose}")
