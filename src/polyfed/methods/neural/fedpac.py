"""FedPAC: a shared trunk whose features of a class agree between clients, and heads that borrow from similar clients.

Xu, Tong, Huang: "Personalized Federated Learning with Feature Alignment and Classifier Collaboration", ICLR 2023,
arXiv:2306.11867.

A client trains its head on the trunk it was sent, then the trunk below its head, pulled towards the class means c of all:

    loss + λ mean (φ(x) − c_y)²           no pull in the first round; its own mean where nobody has sent one of a class

The server averages the trunks and the means, and gives each client the mixture Σ_j α_j g_j of the heads that it expects to be
best: α minimises α'Pα on the simplex, with P_jl = V_j [j = l] + ⟨H_i − H_j, H_i − H_l⟩, H = E[e(y) ⊗ φ(x)] and V = tr Cov / n.

What leaves a client beside its parameters: H, V, the class means of its features and their counts. Of a client with a
single label of a class, that mean is the feature vector of that row.

The publication has classes alone. For other kinds of tasks this is an extension of polyfed's: e(y) is (y, 1) instead of
one-hot, and the pull is on the mean feature of a batch, since pulling every row would make all features alike. So are an α
for each task, and the spread of all clients for one that has a single label and so cannot know its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear

from polyfed.data import ClientData, FederationSpec
from polyfed.errors import ConfigError
from polyfed.methods.base import Predictor
from polyfed.methods.messages import ClientUpdate, State, client_key, scalar, strip_prefix, under, with_prefix
from polyfed.methods.neural.base import Neural, Objective
from polyfed.methods.neural.fedpac_statistics import Statistics, mixing_weights, statistics_of, with_pooled_std
from polyfed.methods.options import check_numbers
from polyfed.methods.supervised import groups_of, rows_of
from polyfed.nets import Network
from polyfed.seeds import Stream


@dataclass(frozen=True)
class FedPAC(Neural):
    """Options as of `Neural` (of the trunk; `local_epochs` are its own, heads have theirs), and

    Args:
        alignment: λ, how strongly features are pulled towards the means of their class; 0: not at all.
        head_rate: learning rate of the heads.
        head_epochs: epochs on the heads in a round, before those on the trunk.
        join_epochs: epochs in which a client that joins later trains its heads.
        combine: whether the server mixes heads; without, they never leave their clients.
    """

    name: ClassVar[str] = "fedpac"
    summary: ClassVar[str] = "a shared trunk with aligned classes, heads mixed from similar clients"

    alignment: float = 1.0
    head_rate: float = 0.1
    head_epochs: int = 1
    join_epochs: int = 10
    combine: bool = True
    learning_rate: float = 0.01
    local_epochs: int = 5
    batch_size: int = 50
    momentum: float = 0.5
    weight_decay: float = 5e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "alignment", least=0)
        check_numbers(self, "head_rate", above=0)
        check_numbers(self, "head_epochs", whole=True, least=1)
        check_numbers(self, "join_epochs", whole=True, least=0)
        if not isinstance(self.combine, bool):
            raise ConfigError(f"combine is {self.combine!r}", remedy="give true or false")

    def personal(self, net: Network) -> list[str]:
        return [*super().personal(net), *(() if self.combine else net.heads)]

    def init(self, spec: FederationSpec, stream: Stream) -> State:
        server, width = super().init(spec, stream), self.net_of(spec).width
        for i, (task, codec) in enumerate(spec.codecs.items()):
            n_groups = len(codec.classes or ()) or 1
            n_targets = n_groups if codec.classes else 2
            server[f"position/{task}"] = torch.tensor(i)  # storage does not keep the order of names
            server[f"prototype/{i}"] = torch.zeros(n_groups, width, dtype=torch.float64)
            server[f"known/{i}"] = torch.zeros(n_groups, dtype=torch.float64)
            server[f"moment/{i}"] = torch.zeros(n_targets, width, dtype=torch.float64)
        return server

    def broadcast(self, server: State, client: str) -> State:
        mixed = with_prefix("combined", strip_prefix(server, f"combined/{client_key(client)}"))
        return under(server, "theta", "prototype", "known") | mixed | {"key": torch.tensor(client_key(client))}

    def prediction_state(self, server: State, client: str) -> State:
        mine = f"combined/{client_key(client)}"  # no other client's
        return super().prediction_state(server, client) | with_prefix(mine, strip_prefix(server, mine))

    def template(self, server: State) -> ClientUpdate:
        plain = super().template(server)
        variances = with_prefix("variance", dict.fromkeys(strip_prefix(server, "moment"), scalar(0.0)))
        counts = with_prefix("count", strip_prefix(server, "known"))
        return replace(plain, arrays=plain.arrays | under(server, "moment", "prototype") | variances | counts)

    def is_evidence(self, name: str) -> bool:
        """How many labels of each class there are, and how much their features vary, is as it is."""
        return name.startswith(("count/", "variance/"))

    def objection(self, server: State, update: ClientUpdate) -> str | None:
        for task, position in strip_prefix(server, "position").items():
            counts, variance = (update.arrays[f"{what}/{int(position)}"] for what in ("count", "variance"))
            if bool((counts < 0).any()) or float(counts.sum()) > update.counts[task]:
                return f"counts of the classes of task {task!r} are not those of its labels"
            if float(variance) < 0:
                return f"variance of task {task!r} is negative"
        return None

    def aggregate(self, server: State, updates: Mapping[str, ClientUpdate]) -> State:
        after, clients = super().aggregate(server, updates), sorted(updates)
        for task, position in strip_prefix(server, "position").items():
            i = int(position)
            means, counts = (
                torch.stack([updates[c].arrays[f"{n}/{i}"] for c in clients]) for n in ("prototype", "count")
            )
            total, found = (counts[:, :, None] * means).sum(0), counts.sum(0)
            new = (found > 0)[:, None]  # a class that nobody had this time keeps its mean
            after[f"prototype/{i}"] = torch.where(
                new, total / found.clamp_min(torch.finfo(found.dtype).tiny)[:, None], server[f"prototype/{i}"]
            )
            after[f"known/{i}"] = torch.maximum(server[f"known/{i}"], (found > 0).to(torch.float64))
            owners = [client for client in clients if updates[client].counts[task] > 0]
            if self.combine and owners:
                after |= self._combined(server, {client: updates[client] for client in owners}, task, i)
        return after

    def _combined(self, server: State, updates: Mapping[str, ClientUpdate], task: str, i: int) -> State:
        """The mixed heads of one task of those who have it, each under the key of its client."""
        H, V = (torch.stack([u.arrays[f"{n}/{i}"] for u in updates.values()]).numpy() for n in ("moment", "variance"))
        n = np.array([update.counts[task] for update in updates.values()], dtype=float)
        alpha = torch.from_numpy(mixing_weights(H, with_pooled_std(V, n)))
        mixed: State = {}
        for name, value in strip_prefix(server, "theta").items():
            if name.startswith(f"head.{i}."):
                heads = torch.stack([value + update.arrays[name] for update in updates.values()])
                for client, head in zip(updates, torch.tensordot(alpha, heads, 1), strict=True):
                    mixed[f"combined/{client_key(client)}/{name}"] = head
        return mixed

    def start(self, data: ClientData, stream: Stream) -> State:
        net = self.net_of(data)
        values = net.initial(stream.integer())
        kept = {name: values[name] for name in super().personal(net)}
        return with_prefix("personal", kept) | with_prefix("begin", {name: values[name] for name in net.heads})

    def local(self, state: State, message: State, data: ClientData, stream: Stream) -> tuple[State, ClientUpdate]:
        net, theta = self.net_of(data), strip_prefix(message, "theta")
        heads = {**strip_prefix(state, "begin"), **strip_prefix(state, "own"), **strip_prefix(message, "combined")}
        before = {**theta, **strip_prefix(state, "personal"), **heads}
        tasks = [task for task, n in data.counts().items() if n]
        first = {task: statistics_of(net, before, data, task) for task in tasks}
        after, loss = self.train_heads(net, before, data, stream, self.head_epochs)
        trunk = [name for name in self.trainable(net, before) if name not in heads]
        if trunk:
            pull = {
                task: targets for task in tasks if (targets := _targets(net, message, task, first[task])) is not None
            }
            after, loss = self.train(
                net, after, data, stream, epochs=self.local_epochs, names=trunk, objective=self.aligned(net, data, pull)
            )
        # A head that was not trained is no news; the change of the others is from the one that the server has.
        arrays = {
            name: torch.zeros_like(v) if name in heads and net.owner(name) not in tasks else after[name] - v
            for name, v in theta.items()
        }
        for i, task in enumerate(net.tasks):
            if task in tasks:
                sent = (*first[task][:2], *statistics_of(net, after, data, task)[2:])
            else:
                means, codec = message[f"prototype/{i}"], data.codecs[task]
                moment = torch.zeros_like(means if codec.classes else means.repeat(2, 1))
                sent = (moment, scalar(0.0), torch.zeros_like(means), torch.zeros_like(means[:, 0]))
            arrays |= {f"{n}/{i}": v for n, v in zip(("moment", "variance", "prototype", "count"), sent, strict=True)}
        own = {name: after[name] for name in heads if net.owner(name) in tasks}
        kept = {name: after[name] for name in super().personal(net)}
        state = {**state, **with_prefix("personal", kept), **with_prefix("own", own), "key": message["key"]}
        return state, self.update(arrays, net, after, data, loss)

    def train_heads(
        self, net: Network, values: State, data: ClientData, stream: Stream, epochs: int
    ) -> tuple[State, float]:
        """Steps on the heads alone; the features are those of the statistics, running statistics stand still."""
        stream, still = replace(stream, purpose=f"{stream.purpose} head"), partial(self.loss, net, data, train=False)
        return self.train(
            net, values, data, stream, epochs=epochs, names=net.heads, rate=self.head_rate, objective=still
        )

    def aligned(self, net: Network, data: ClientData, pull: Mapping[str, Tensor]) -> Objective:
        """The loss of the trunk: that of the tasks, and the distance of features from the means in `pull`."""

        def objective(live: State, task: str, positions: np.ndarray) -> Tensor:
            rows, i = rows_of(data, task, positions), list(net.tasks).index(task)
            h = net.features(live, rows.x, task, train=self.bn_buffers != "frozen")
            loss = rows.loss(linear(h, live[f"head.{i}.weight"], live[f"head.{i}.bias"]))
            if task not in pull:
                return loss
            away, counted = h - groups_of(rows.y, rows.codec) @ pull[task], rows.counted[:, None]
            squares = counted * away.square() if rows.codec.classes else (counted * away).mean(0).square()
            return loss + self.alignment * squares.mean()

        return objective

    def join(self, server: State, data: ClientData, stream: Stream) -> State:
        state, net = self.start(data, stream), self.net_of(data)
        if not data.n_labels:
            return state
        values = {**strip_prefix(state, "personal"), **strip_prefix(server, "initial"), **strip_prefix(server, "theta")}
        trained, _ = self.train_heads(net, values, data, stream, self.join_epochs)
        return state | with_prefix("own", {name: trained[name] for name in net.heads if net.owner(name) in data.labels})

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        """The new trunk under the client's mixed heads; under the mean of all heads where it has none."""
        state = state or {}
        mixed = strip_prefix(server, f"combined/{int(state['key'])}") if "key" in state else {}
        return self.reader(server, {**self.values(server, state), **strip_prefix(state, "own"), **mixed}, data)


def _targets(net: Network, message: State, task: str, own: Statistics) -> Tensor | None:
    """Where features are pulled; None as long as the server knows no mean of the task."""
    i = list(net.tasks).index(task)
    known = message[f"known/{i}"] > 0
    return torch.where(known[:, None], message[f"prototype/{i}"], own.means) if known.any() else None
