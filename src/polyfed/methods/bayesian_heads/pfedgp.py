"""pFedGP: a shared network makes features, and each client's own labels are its personal model, by Gaussian processes on them.

Achituve, Shamsian, Navon, Chechik, Fetaya: "Personalized Federated Learning with Gaussian Processes", NeurIPS 2021,
arXiv:2106.15482.

    z = φ(x)/‖φ(x)‖,   k(z, z') = s exp(−‖z − z'‖² / 2ℓ²),  s = 8 and ℓ = 1

A client has no parameters of its own. Its K classes become a tree (`ClassTree`), with a binary classifier on the labels of
each branch; a binary task is one branch. Classifiers by Pólya-Gamma augmentation: mean field, or Gibbs sampling. A round is
a few gradient steps on the network with, for each client,

* `predictive`: half of its labels, split by class, condition the process; the other half is scored by cross-entropy;
* `marginal`: the evidence of its labels (its bound for mean field), for each label.

Probabilities are averages of the sigmoid over the latent function, P(right) = P(left) with the sign turned: swapped labels
give swapped probabilities. (Public code has exp(E[log sigmoid]) on the left: 0.263 where f ~ N(0, 8) says one half.)

Beyond the paper: regression by the exact process; `robust`, `count` and `proportion` by mean field with the likelihoods of
`gp`; the noise of a task is a shared parameter that is learned along with the network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, zip_longest
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from polyfed.data import ClientData, FederationSpec
from polyfed.errors import ConfigError
from polyfed.kinds import LabelForm
from polyfed.methods.base import Job, Predictor
from polyfed.methods.bayesian_heads.node_gp import unit_features
from polyfed.methods.bayesian_heads.task_gp import PosteriorPredictor, ScoredNode, TaskGP, losses
from polyfed.methods.messages import NOTHING, ClientUpdate, State, scalars, strip_prefix, with_prefix
from polyfed.methods.neural.cohorts import Cohort, TrainedSideBySide
from polyfed.methods.options import check_choice, check_number, check_numbers
from polyfed.modelling.rows import likelihoods_of
from polyfed.predictions import Predictions
from polyfed.seeds import Stream


@dataclass(frozen=True)
class PFedGP(TrainedSideBySide):
    """Options as of `SharedNetwork` (an epoch is one step on all labels, up to `batch_size` of each task), and

    Args:
        inference: of classes: `mf` (mean field) or `gibbs`; other kinds have mean field, and regression needs neither.
        objective: `predictive` or `marginal`.
        predict_ratio: the share of labels that is scored, for `predictive`.
        amplitude: s, the prior variance of the latent functions.
        length: ℓ; features have length one, so no two are more than 2 apart.
        learn_kernel: learn s and ℓ of every task along with the network.
        n_chains: Gibbs chains in training, an even number: they come in pairs that mirror each other.
        n_test_chains: and in prediction.
        n_sweeps: steps of each chain, from the mean-field solution.
        floor: ε; a class that a client has never seen has probability ε/K there.
        clip: the largest norm of a gradient.
    """

    name: ClassVar[str] = "pfedgp"
    summary: ClassVar[str] = "a shared network, and Gaussian processes on its features at each client"

    inference: str = "mf"
    objective: str = "predictive"
    predict_ratio: float = 0.5
    amplitude: float = 8.0
    length: float = 1.0
    learn_kernel: bool = False
    n_chains: int = 20
    n_test_chains: int = 30
    n_sweeps: int = 5
    floor: float = 0.01
    clip: float = 50.0
    local_epochs: int = 3
    batch_size: int = 512
    momentum: float = 0.9
    weight_decay: float = 1e-3
    weighting: str = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("inference", self.inference, ("mf", "gibbs"))
        check_choice("objective", self.objective, ("predictive", "marginal"))
        if not isinstance(self.learn_kernel, bool):
            raise ConfigError(f"learn_kernel is {self.learn_kernel!r}", remedy="give true or false")
        check_numbers(self, "amplitude", "length", "clip", above=0)
        check_numbers(self, "n_sweeps", whole=True, least=1)
        for option in ("n_chains", "n_test_chains"):
            check_number(option, getattr(self, option), whole=True, least=2)
            if getattr(self, option) % 2:
                raise ConfigError(
                    f"{option} is {getattr(self, option)}", remedy="give an even number: chains are paired"
                )
        for option in ("predict_ratio", "floor"):
            check_number(option, getattr(self, option), above=0)
            if getattr(self, option) >= 1:
                raise ConfigError(f"{option} is {getattr(self, option)}", remedy="give a number between 0 and 1")

    @property
    def takes_weights(self) -> bool:
        return self.inference == "mf"  # a chain draws ω of whole labels

    @property
    def personalises(self) -> bool:
        return self.bn_buffers == "local"  # a client's labels make its model its own, and the server has none without

    def init(self, spec: FederationSpec, stream: Stream) -> State:
        for name, codec in spec.codecs.items():
            if self.inference == "gibbs" and codec.task.form.has_classes and codec.task.power != 1.0:
                what = f"power={codec.task.power!r} is not for inference='gibbs'"
                raise ConfigError(what, where=f"task {name!r}", remedy="leave power at 1, or use inference='mf'")
        server = super().init(spec, stream)
        shared = {name: value for name, value in strip_prefix(server, "theta").items() if not name.startswith("head.")}
        for i, likelihood in enumerate(likelihoods_of(spec.codecs, "polya-gamma").values()):
            if likelihood.initial_noise is not None:
                shared[f"noise.{i}"] = _log(likelihood.initial_noise)
            if self.learn_kernel:
                shared |= {f"kernel.{i}.amplitude": _log(self.amplitude), f"kernel.{i}.length": _log(self.length)}
        rest = {name: value for name, value in server.items() if not name.startswith("theta/")}
        return with_prefix("theta", shared) | rest

    def template(self, server: State) -> ClientUpdate:
        return replace(super().template(server), pooled=dict.fromkeys(strip_prefix(server, "task"), NOTHING))

    def counted_tasks(self, server: State, name: str) -> Sequence[str] | None:
        return list(strip_prefix(server, "task"))  # it counts once, whether it has the task or not

    def _labels(self, name: str, update: ClientUpdate) -> float:
        """Only tasks that taught the client something count: one class alone teaches a classifier nothing."""
        taught = {task: int(n) if bool(update.pooled[task][0] > 0) else 0 for task, n in update.counts.items()}
        return super()._labels(name, replace(update, counts=taught))

    def train_cohort(self, jobs: Sequence[Job]) -> list[tuple[State, ClientUpdate]]:
        net = self.net_of(jobs[0].data)
        cohort = Cohort(net, [job.data for job in jobs], train=self.bn_buffers != "frozen")
        before = [{**job.message, **strip_prefix(job.state, "personal")} for job in jobs]
        values, velocity = cohort.stack(before), {}
        names, scores = self.trainable(net, values), [[0.0] for _ in jobs]
        taught = [dict.fromkeys(job.data.tasks, 0.0) for job in jobs]
        for epoch in range(self.local_epochs):
            scores = [[] for _ in jobs]
            plans = [self.batches(net, job.data, job.stream, epoch) for job in jobs]
            for k, batches in enumerate(zip_longest(*plans, fillvalue={})):
                draws = [replace(job.stream, purpose=f"{job.stream.purpose} gibbs {epoch} {k}") for job in jobs]
                losses, gradient, said = self.step(cohort, values, batches, names, draws)
                touched = {name: [bool(s) and net.owner(name) in (None, *s) for s in said] for name in gradient}
                moves = {name: torch.tensor(clients) for name, clients in touched.items()}
                self.descend(values, gradient, velocity, moves=moves)
                for j, tasks in enumerate(said):
                    scores[j] += [losses[j]] if batches[j] else []
                    taught[j] |= dict.fromkeys(tasks, 1.0)
        found = []
        for j, (job, after) in enumerate(zip(jobs, cohort.unstack(values), strict=True)):
            arrays = {name: after[name] - before[j][name] for name in job.message}
            pooled = {task: scalars(seen, 1.0) for task, seen in taught[j].items()}
            metrics = {"loss": float(np.mean(scores[j] or [0.0]))}
            update = ClientUpdate(arrays, pooled, float(job.data.n_labels), job.data.counts(), metrics)
            found.append(({**job.state, **self.kept(net, after)}, update))
        return found

    def step(
        self,
        cohort: Cohort,
        values: State,
        batches: Sequence[Mapping[str, np.ndarray]],
        names: Sequence[str],
        draws: Sequence[Stream],
    ) -> tuple[list[float], State, list[list[str]]]:
        """Of each client the sum of its tasks' losses, its clipped gradient, and the tasks that said something."""
        leaves = {name: values[name].detach().requires_grad_() for name in names}
        live = {**values, **leaves, **{name: values[name].clone() for name in cohort.net.buffers}}
        rows = cohort.batch(batches)
        features = [unit_features(cohort.each(cohort.net.features, live, of.x, task)) for task, of in rows.items()]
        values.update({name: live[name] for name in cohort.net.buffers})  # moved on by the forward pass
        z = torch.cat([torch.zeros(0, cohort.net.width), *(own.flatten(0, 1) for own in features)])
        first = dict(zip(rows, accumulate((own[..., 0].numel() for own in features), initial=0), strict=False))
        tasks = {task: TaskGP.of(self, leaves, cohort.members[0], task) for task in rows}
        nodes: list[ScoredNode] = []
        owners: list[int] = []
        said: list[list[str]] = [[] for _ in batches]
        for j, (mine, batch) in enumerate(zip(cohort.members, batches, strict=True)):
            generator = torch.Generator().manual_seed(draws[j].integer())
            for task, positions in batch.items():
                y, weights = (torch.from_numpy(a[positions]) for a in (mine.labels[task][1], mine.weights_of(task)))
                at = first[task] + j * rows[task].x.shape[1] + torch.arange(len(y))
                taught = list(tasks[task].of_client(j).nodes(z.detach(), at, y, weights, generator))
                nodes += taught
                owners += [j] * len(taught)
                said[j] += [task] if taught else []
        totals = torch.zeros(len(batches), dtype=torch.float64)
        if nodes:
            totals = totals.index_add(0, torch.tensor(owners), losses(nodes, z))
        if not totals.requires_grad:  # no label says anything, or no hidden layer, no noise, a fixed kernel
            return totals.tolist(), {}, said
        grads = torch.autograd.grad(totals.sum(), list(leaves.values()), allow_unused=True)
        gradient = {name: g for name, g in zip(leaves, grads, strict=True) if g is not None}
        norm = torch.cat([g.reshape(len(batches), -1) for g in gradient.values()], 1).norm(dim=1)
        share = (self.clip / norm.clamp_min(1e-300)).clamp_max(1.0)
        clipped = {name: share.reshape(-1, *(1,) * (g.dim() - 1)) * g for name, g in gradient.items()}
        return totals.tolist(), clipped, said

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        values, net = self.values(server, state), self.net_of(data)

        def features(x: np.ndarray, task: str) -> Tensor:
            return unit_features(net.features(values, torch.from_numpy(x), task))

        conditioned = {}
        with torch.no_grad():
            for task, codec in data.codecs.items():
                at, y = data.labels.get(task, (np.zeros(0, dtype=np.int64), np.zeros((0, 2))))
                y = y if len(at) or codec.task.form is LabelForm.PAIR else np.zeros(0)
                generator = torch.Generator().manual_seed(Stream(0, f"pfedgp {task}").integer())
                model = TaskGP.of(self, values, data, task)
                z, weights = features(data.x[at], task), torch.from_numpy(data.weights_of(task))
                conditioned[task] = PosteriorPredictor(model, z, torch.from_numpy(y), generator, weights)

        def predict(x: np.ndarray) -> Predictions:
            with torch.no_grad():
                return Predictions({task: known.predict(features(x, task)) for task, known in conditioned.items()})

        return predict


def _log(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64).log()
