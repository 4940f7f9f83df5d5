"""Fed3R: ridge regression of the labels on features, in closed form from sums that the clients add up.

Fanì, Camoriano, Caputo, Ciccone: "Accelerating Heterogeneous Federated Learning with Closed-form Classifiers", ICML 2024,
arXiv:2406.01116. Client k sends A_k = Σ φφᵀ and b_k = Σ φtᵀ once; the server solves (Σ A_k + λI) V = Σ b_k. That is the
ridge regression of all rows in one place, to rounding, whoever has which of them and in whatever order they come. Features
are the inputs (which are often those of a frozen network already), of `network`, or random Fourier features of them (their
Fed3R-RF), with a one.

Of polyfed's own making:

- λ by generalised cross-validation, from the same sums; the publication has it fixed.
- Scores of least squares are no logits. They are multiplied by a slope, which is K for K classes at first (so that small
  scores give the probabilities of the linear model), and from the second round on the one with the least log loss of each
  client's labels, each predicted from all other labels of the federation. The noise of tasks that have one comes from the
  same residuals. So one round makes the model, and a second its probabilities; more change nothing.
- Tasks that are no classes: the target is the scaled label, or its log or logit.
- `own_penalty`: a client's own ridge regression around the shared V, min ‖Φ_k W − T_k‖² + λ_k ‖W − V‖².
- A client with fewer than `min_labels` labels of a task adds nothing to it: the sums of one row are that row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from polyfed.data import ClientData, FederationSpec
from polyfed.errors import ConfigError
from polyfed.methods.base import Method, Predictor
from polyfed.methods.messages import ClientUpdate, State, client_key, scalar, scalars, strip_prefix, under, with_prefix
from polyfed.methods.neural.base import noise_to_pool, pooled_noise, tasks_of_noise
from polyfed.methods.neural.ridge import Ridge, held_out, moments, objection_to, ridge
from polyfed.methods.neural.shared_network import network_of
from polyfed.methods.options import check_numbers
from polyfed.methods.supervised import LabelledRows, n_outputs, rows_of, supervision_of, target_of, with_one
from polyfed.predictions import Predictions
from polyfed.seeds import Stream

SLOPES = tuple(2.0 ** (k / 2) for k in range(-8, 9))  # times the number of classes
LARGEST = 1e4  # mean square of a scaled feature or target: a hundred standard deviations


@dataclass(frozen=True)
class Fed3R(Method):
    """Args:
    penalty: λ, or "gcv" to choose it for each task by generalised cross-validation.
    own_penalty: λ of a client's own ridge regression around the shared one; None: all have the shared one.
    random_features: number of random Fourier features of the inputs; 0: the inputs themselves.
    bandwidth: of these, in units of the root of the number of inputs.
    min_labels: a client with fewer labels of a task adds nothing to it.
    network: 'package.module:factory' of a trunk whose features stand in for the inputs; it is never trained.
    """

    name: ClassVar[str] = "fed3r"
    summary: ClassVar[str] = "ridge regression of all rows, from sums that clients add up once"

    penalty: float | str = "gcv"
    own_penalty: float | None = None
    random_features: int = 0
    bandwidth: float = 1.0
    min_labels: int = 2
    network: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.penalty, str) and self.penalty != "gcv":
            raise ConfigError(f"penalty is {self.penalty!r}", remedy="give 'gcv' or a number above 0")
        if self.penalty != "gcv":
            check_numbers(self, "penalty", above=0)
        check_numbers(self, "own_penalty", above=0, optional=True)
        check_numbers(self, "random_features", whole=True, least=0)
        check_numbers(self, "bandwidth", above=0)
        check_numbers(self, "min_labels", whole=True, least=1)

    @property
    def takes_weights(self) -> bool:
        return True

    @property
    def personalises(self) -> bool:
        return self.own_penalty is not None

    def init(self, spec: FederationSpec, stream: Stream) -> State:
        net = network_of(spec.codecs, spec.n_features, (), self.network)
        trunk = {name: value for name, value in net.initial(stream.integer()).items() if name not in net.heads}
        fourier = self.fourier(net.width, stream.integer())
        width = (self.random_features or net.width) + 1
        of_features = [2.0 / self.random_features if self.random_features else LARGEST] * (width - 1) + [1.0]
        server = with_prefix("trunk", trunk) | with_prefix("fourier", fourier)
        server["counted"] = torch.zeros(0, dtype=torch.int64)
        for i, (task, codec) in enumerate(spec.codecs.items()):
            k = n_outputs(codec)
            of_targets = [1.0 if codec.classes else LARGEST] * k
            server[f"position/{task}"] = torch.tensor(i)  # storage does not keep the order of names
            server[f"bounds/{i}"] = torch.tensor([*of_features, *of_targets], dtype=torch.float64)
            server[f"moments/{i}"] = torch.zeros(width + k, width + k, dtype=torch.float64)
            server[f"head/{i}"] = torch.zeros(width, k, dtype=torch.float64)
            server[f"inverse/{i}"] = torch.zeros(width, width, dtype=torch.float64)
            server[f"penalty/{i}"] = scalar(0.0)  # as long as there is nothing to solve
            if codec.classes:
                server[f"slope/{i}"] = scalar(len(codec.classes))
                server[f"slopes/{i}"] = len(codec.classes) * torch.tensor(SLOPES, dtype=torch.float64)
        return server | noise_to_pool(spec, 0.0)  # zero: not measured yet

    def fourier(self, width: int, seed: int) -> State:
        """Of an RBF kernel (Rahimi, Recht: "Random Features for Large-Scale Kernel Machines", NeurIPS 2007):
        √(2/D) cos(ωᵀx + u), ω normal, u uniform."""
        if not self.random_features:
            return {}
        draw, kind = torch.Generator().manual_seed(seed), torch.float64
        spread = self.bandwidth * width**0.5
        return {
            "weight": torch.randn(width, self.random_features, generator=draw, dtype=kind) / spread,
            "bias": 2 * torch.pi * torch.rand(self.random_features, generator=draw, dtype=kind),
        }

    def broadcast(self, server: State, client: str) -> State:
        """Also whether the client's sums are among those that were added up: the server alone knows."""
        counted = bool((server["counted"] == client_key(client)).any())
        return self.prediction_state(server, client) | {"counted": torch.tensor(counted)}

    def prediction_state(self, server: State, client: str) -> State:
        own = ("moments/", "bounds/", "counted")
        return {name: value for name, value in server.items() if not name.startswith(own)}

    def template(self, server: State) -> ClientUpdate:
        arrays = under(server, "moments") | with_prefix("losses", strip_prefix(server, "slopes"))
        pooled = dict.fromkeys(strip_prefix(server, "noise"), scalars(0.0, 0.0))
        return ClientUpdate(arrays, pooled, counts=dict.fromkeys(_tasks(server), 0), metrics={"loss": 0.0})

    def counted_tasks(self, server: State, name: str) -> Sequence[str] | None:
        return tasks_of_noise(server, name)

    def is_evidence(self, name: str) -> bool:
        return True  # sums, of moments and of losses

    def objection(self, server: State, update: ClientUpdate) -> str | None:
        for i, task in enumerate(_tasks(server)):
            place = len(server[f"head/{i}"]) - 1
            bounds, n = server[f"bounds/{i}"], float(update.counts[task])
            if reason := objection_to(update.arrays[f"moments/{i}"], n, bounds, place):
                return f"array 'moments/{i}' {reason}"
        for name, losses in strip_prefix(update.arrays, "losses").items():
            if bool((losses < 0).any()):
                return f"array 'losses/{name}' has a loss below zero"
        return None

    def aggregate(self, server: State, updates: Mapping[str, ClientUpdate]) -> State:
        known = set(server["counted"].tolist())
        new = [client for client in sorted(updates) if client_key(client) not in known]
        sent = [updates[client] for client in sorted(updates)]
        after = {**server, **with_prefix("noise", pooled_noise(server, sent))}
        keys = torch.tensor([client_key(client) for client in new], dtype=torch.int64)
        after["counted"] = torch.cat([server["counted"], keys])
        for i in range(len(_tasks(server))):
            name, width = f"moments/{i}", len(server[f"head/{i}"])
            # Each client's once, whatever it sends.
            M = after[name] = sum((updates[client].arrays[name] for client in new), server[name])
            if new and M[width - 1, width - 1] > 0:
                fit = ridge(M, width, None if self.penalty == "gcv" else float(self.penalty))
                after |= {f"head/{i}": fit.head, f"inverse/{i}": fit.inverse, f"penalty/{i}": scalar(fit.penalty)}
            if f"slope/{i}" in server:
                losses = torch.stack([update.arrays[f"losses/{i}"] for update in sent]).sum(0)
                if losses.any():
                    after[f"slope/{i}"] = server[f"slopes/{i}"][losses.argmin()]
        return after

    def local(self, state: State, message: State, data: ClientData, stream: Stream) -> tuple[State, ClientUpdate]:
        arrays: State = {}
        pooled: dict[str, tuple[Tensor, Tensor]] = {}
        losses: list[float] = []
        for i, (task, codec) in enumerate(data.codecs.items()):
            fit, measured = _fit(message, i), (0.0, 0.0)
            side = sum(fit.head.shape)
            arrays[f"moments/{i}"] = torch.zeros(side, side, dtype=torch.float64)
            slopes = message.get(f"slopes/{i}")  # None where scores are not of classes
            if slopes is not None:
                arrays[f"losses/{i}"] = torch.zeros_like(slopes)
            if task in data.labels:
                rows = rows_of(data, task)
                root, features, targets = self._regressed(message, rows, data)
                adds, counted = len(targets) >= self.min_labels, bool(message["counted"])
                if adds and not counted:
                    arrays[f"moments/{i}"] = moments(root * features, root * targets)
                if fit.penalty > 0:
                    # Rows that are not part of the fit are left out of it anyway.
                    left_out = adds and counted
                    g = held_out(root * features, root * targets, fit) / root if left_out else features @ fit.head
                    if slopes is not None:
                        arrays[f"losses/{i}"] = len(g) * torch.stack([rows.loss(slope * g) for slope in slopes])
                    f = message.get(f"slope/{i}", 1.0) * g
                    losses.append(float(rows.loss(f)))
                    measured = rows.spread(f)
            if supervision_of(codec).noise:
                pooled[task] = scalars(*measured)
        return state, ClientUpdate(arrays, pooled, float(data.n_labels), data.counts(), {"loss": float(np.sum(losses))})

    def _regressed(self, values: State, rows: LabelledRows, data: ClientData) -> tuple[Tensor, Tensor, Tensor]:
        """The roots of the rows' weights, their features and targets."""
        return rows.counted.sqrt()[:, None], self.features(values, rows.x, data), target_of(rows.y, rows.codec)

    def features(self, values: State, x: Tensor, data: ClientData) -> Tensor:
        """φ(x) with its one, of parameters as the server sends them."""
        net = network_of(data.codecs, data.n_features, (), self.network)
        with torch.no_grad():
            h = net.features(strip_prefix(values, "trunk"), x, data.tasks[0])
        if self.random_features:
            h = torch.cos(h @ values["fourier/weight"] + values["fourier/bias"]) * (2 / self.random_features) ** 0.5
        return with_one(h)

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        heads, noise = {}, {}
        for i, (task, codec) in enumerate(data.codecs.items()):
            fit, slope = _fit(server, i), server.get(f"slope/{i}", 1.0)
            heads[task], noise[task] = slope * fit.head, float(server.get(f"noise/{task}", 1.0))
            if task in data.labels:
                rows = rows_of(data, task)
                root, features, targets = self._regressed(server, rows, data)
                if state is not None and self.own_penalty is not None:
                    heads[task] = slope * self.around(fit.head, root * features, root * targets)
                if supervision_of(codec).noise and not noise[task]:  # after a single round
                    total, count = rows.spread(features @ heads[task])
                    noise[task] = total / count if count > 0 else 1.0
            noise[task] = noise[task] or 1.0

        def predict(x: np.ndarray) -> Predictions:
            features, found = self.features(server, torch.from_numpy(x), data), {}
            for task, codec in data.codecs.items():
                found[task] = supervision_of(codec).predict((features @ heads[task]).numpy(), noise[task], codec)
            return Predictions(found)

        return predict

    def around(self, head: Tensor, features: Tensor, targets: Tensor) -> Tensor:
        """V + (A_k + λ_k I)⁻¹ Φ_kᵀ (T_k − Φ_k V)."""
        assert self.own_penalty is not None
        gram = features.T @ features + self.own_penalty * torch.eye(len(head), dtype=torch.float64)
        return head + torch.linalg.solve(gram, features.T @ (targets - features @ head))


def _tasks(server: State) -> list[str]:
    positions = strip_prefix(server, "position")
    return sorted(positions, key=lambda task: int(positions[task]))


def _fit(values: State, i: int) -> Ridge:
    return Ridge(values[f"head/{i}"], values[f"inverse/{i}"], float(values[f"penalty/{i}"]))
