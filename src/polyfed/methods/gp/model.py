"""The Gaussian process of a client as a federation sees it: its likelihoods, its rows, its Θ by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from reprlib import repr as shorten
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from polyfed.data import ClientData, LabelCodec
from polyfed.errors import ConfigError
from polyfed.gp import ExactModel, Knowledge, LatentPrediction, Likelihood, Prior, Rows, infer, predict_latents
from polyfed.gp.batch import buckets
from polyfed.gp.meanfield import Marginals
from polyfed.gp.rows import places as rows_in_stack
from polyfed.methods.base import Explanation
from polyfed.methods.messages import State
from polyfed.modelling.learning import initial_values, limits_of
from polyfed.modelling.rows import likelihoods_of, read_out, rows_of
from polyfed.modelling.sparsity import Sparsity
from polyfed.nets import SideBySide, n_outputs_of, started, trunk_of
from polyfed.predictions import Predictions
from polyfed.predictions.mixture import mixed
from polyfed.seeds import Stream

PREDICTION_TOLERANCE = 1e-8  # nats; predictions are made from the fixed point, wherever training has stopped
SPARSE_TOLERANCE = 1e-7  # for each row
PREDICTION_STEPS = 500


@dataclass(frozen=True)
class ModelConfig:
    """The options that say what the model is; `kernels` is the text of one for each latent, or of one for as many as needed."""

    kernels: tuple[str, ...] | str
    per_dimension: bool
    bound: str
    sparsity: Sparsity
    initial: tuple[tuple[str, object], ...] = ()
    projection: int | None = None
    network: str | None = None
    network_per_latent: bool = False
    chunk: int | None = None
    mean: str = "zero"

    def latents(self, n_tasks: int, n_features: int) -> tuple[str, ...]:
        """The kernel of each latent: with fewer latents than tasks one task is modelled at the cost of another."""
        return (self.kernels,) * max(2, n_tasks) if isinstance(self.kernels, str) else self.kernels

    def model(self, codecs: Mapping[str, LabelCodec], n_features: int) -> GPModel:
        """The model of these tasks. Clients whose targets differ in their units alone have the same one."""
        return _model(self, *key_of(codecs, n_features))


ModelKey = tuple[tuple[tuple[str, LabelCodec], ...], int]


def key_of(codecs: Mapping[str, LabelCodec], n_features: int) -> ModelKey:
    """What decides, beside its config, which model a client has; the same for clients that differ in units alone."""
    return tuple((name, codec.without_units()) for name, codec in codecs.items()), n_features


def alike(clients: Sequence[ClientData]) -> list[list[int]]:
    """The places of clients with the same model: one group, unless clients count in units of their own."""
    groups: dict[ModelKey, list[int]] = {}
    by_object: dict[tuple[int, int], list[int]] = {}  # codecs are one object for all, as a rule
    for i, data in enumerate(clients):
        there = id(data.codecs), data.n_features
        if there not in by_object:
            by_object[there] = groups.setdefault(key_of(data.codecs, data.n_features), [])
        by_object[there].append(i)
    return list(groups.values())


@lru_cache(maxsize=256)
def _model(config: ModelConfig, codecs: tuple[tuple[str, LabelCodec], ...], n_features: int) -> GPModel:
    likelihoods = likelihoods_of(dict(codecs), config.bound)
    kernels, width, trunk = config.latents(len(codecs), n_features), n_features, None
    if config.network is not None:
        trunk = trunk_of(config.network, n_features).to(torch.float32)
        width = n_outputs_of(trunk, n_features)
        if config.network_per_latent:
            trunk = SideBySide(trunk, len(kernels))
        # Batch statistics are never used under a GP: they would make a kernel depend on who else is in the batch.
        trunk.eval()
    prior = Prior(
        kernels=kernels,
        dims=config.projection or width,
        projected=None if config.projection is None else width,
        outputs={name: likelihood.n_outputs for name, likelihood in likelihoods.items()},
        noise={n: lik.initial_noise for n, lik in likelihoods.items() if lik.initial_noise is not None},
        per_dimension=config.per_dimension,
        features=trunk,
        apart=config.network_per_latent,
        chunk=config.chunk,
        mean=config.mean,
    )
    return GPModel(config, prior, likelihoods)


@dataclass(frozen=True, eq=False)
class GPModel:
    """Likelihoods of all tasks, and a prior whose shapes count and whose values do not."""

    config: ModelConfig
    prior: Prior
    likelihoods: Mapping[str, Likelihood]

    def initial_values(self, stream: Stream) -> State:
        """Θ before any data: features have spread one, so two inputs are typically √(2D) apart."""
        d = self.prior.dims
        typical = np.full(d if self.prior.per_dimension else 1, np.sqrt(2.0 * d))
        values = {**self.prior.state(), **initial_values(self.prior, typical, stream.numpy())}
        if self.prior.features is not None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(stream.integer())
                drawn = {f"features.{name}": value for name, value in started(self.prior.features).items()}
            values |= {name: value for name, value in drawn.items() if name in values}
        for name, given in self.config.initial:
            if name not in values:
                raise ConfigError(f"initial has no parameter {name!r}", remedy=f"known are {', '.join(values)}")
            try:
                values[name] = torch.tensor(given, dtype=torch.float64).broadcast_to(values[name].shape).clone()
            except (TypeError, ValueError, RuntimeError):
                what = f"initial value {shorten(given)} does not fit {name!r}"
                raise ConfigError(what, remedy=f"give numbers of shape {tuple(values[name].shape)}") from None
        return values

    @property
    def closed_form_noise(self) -> list[str]:
        """The noise parameters that have a closed form (optimial sigma, eq. 20), by name."""
        return [f"noise.{task}" for task, likelihood in self.likelihoods.items() if likelihood.closed_form_noise]

    def goes_alone(self, n_rows: int) -> bool:
        """Whether a client with `n_rows` rows has inducing inputs or a network, and is solved by itself."""
        return (
            self.prior.features is not None or self.config.sparsity.points_for(n_rows, self.prior.n_latents) is not None
        )

    def predict(
        self, values: Mapping[str, Tensor], data: ClientData, knowledge: Knowledge | None = None
    ) -> PosteriorPredictor:
        return PosteriorPredictor(self, self.prior.with_values(values), data, knowledge)

    def explain(
        self, values: Mapping[str, Tensor], groups: Sequence[str], codecs: Mapping[str, LabelCodec]
    ) -> Explanation:
        """What these groups of Θ say, in plain numbers; lengths are in units of the scaled features."""
        prior = self.prior.with_values(values)
        names: list[str] = []  # one for each output
        for task, n_outputs in prior.outputs.items():
            names += [task] if n_outputs == 1 else [f"{task}={label}" for label in codecs[task].classes or ()]
        noise = {task: prior.noise_of(task) for task in prior.outputs}
        known = {"kernels", "mixing"} <= set(groups)
        return {
            "task_correlation": {"names": names, "matrix": prior.output_correlation().tolist()} if known else None,
            "length_scales": [
                {"latent": b + 1, "kernel": kernel, "values": lengths.tolist()}
                for b, parts in enumerate(prior.length_scales() if "kernels" in groups else [])
                for kernel, lengths in parts
            ],
            "noise": {task: float(v.detach()) for task, v in noise.items() if v is not None and "noise" in groups},
        }


class PosteriorPredictor:
    """A prior and a client's data: the posterior, found when it is first asked for."""

    def __init__(self, model: GPModel, prior: Prior, data: ClientData, knowledge: Knowledge | None = None) -> None:
        self.model, self.prior, self.data, self.knowledge = model, prior, data, knowledge
        self.start: Marginals | None = None
        self._posterior: tuple[object, object] | None = None

    def begin_at(self, start: Marginals | None) -> None:
        """Let inference begin at these marginals of f, such as training left, if they are marginals and of these data."""
        n = len(prepared_rows(self.data, self.model.likelihoods))
        sound = start is not None and all(one.shape == (n,) and bool(torch.isfinite(one).all()) for one in start)
        self.start = start if start is not None and sound and bool((start[1] >= 0).all()) else None

    def __call__(self, x: np.ndarray) -> Predictions:
        if self._posterior is None:
            rows, sparsity = prepared_rows(self.data, self.model.likelihoods), self.model.config.sparsity
            with torch.no_grad():
                gp = sparsity.build(self.prior, rows, sparsity.choose(self.prior, rows), knowledge=self.knowledge)
                start = None if self.start is None else gp.rows.as_f(self.start, back=True)
                # That of many rows is sparse, and good to fewer digits of a nat.
                tolerance = max(
                    PREDICTION_TOLERANCE, 0.0 if isinstance(gp, ExactModel) else SPARSE_TOLERANCE * len(rows)
                )
                q = infer(gp, start=start, tolerance=tolerance, max_steps=PREDICTION_STEPS).q
            self._posterior = gp, q
        gp, q = self._posterior
        latents = predict_latents(gp, q, torch.from_numpy(x))  # pyright: ignore[reportArgumentType]
        return read_out(latents, self.prior, self.model.likelihoods, self.data.codecs)


class Averaged:
    """Several priors of the same client, each as probable as the others: the average of what they predict."""

    def __init__(self, parts: Sequence[PosteriorPredictor]) -> None:
        self.parts = list(parts)

    def __call__(self, x: np.ndarray) -> Predictions:
        return mixed([one(x) for one in self.parts])


_rows: WeakKeyDictionary[ClientData, Rows] = WeakKeyDictionary()


def prepared_rows(data: ClientData, likelihoods: Mapping[str, Likelihood]) -> Rows:
    """The rows of a client; made once, since its data never change."""
    rows = _rows.get(data)
    # Another method may model the same data with other likelihoods.
    if rows is None or any(block.likelihood is not likelihoods[block.task] for block in rows.blocks):
        rows = _rows[data] = rows_of(data, likelihoods)
    return rows


def clamped(values: Mapping[str, Tensor]) -> State:
    """Θ within the limits of sane data (LIMITS): constant targets would send σ² to zero."""
    return {name: value.clamp(*limits_of(name)) for name, value in values.items()}


def answers(predictors: Sequence[PosteriorPredictor], asked: Sequence[np.ndarray]) -> list[Predictions]:
    """What each says of its own inputs. They have one model, and receive shared functions all or none."""
    rows = [prepared_rows(one.data, one.model.likelihoods) for one in predictors]
    together = [
        i
        for i, (one, n) in enumerate(zip(predictors, map(len, rows), strict=True))
        if n > 0 and one.prior.sees_inputs and not one.prior.has_mean and not one.model.goes_alone(n)
    ]
    found: dict[int, Predictions] = {}
    for group in buckets([len(rows[i]) for i in together]):
        places = [together[i] for i in group]
        some = [predictors[i] for i in places]
        found |= zip(places, _of_batch(some, [rows[i] for i in places], [asked[i] for i in places]), strict=True)
    return [found[i] if i in found else one(asked[i]) for i, one in enumerate(predictors)]


def _of_batch(
    predictors: Sequence[PosteriorPredictor], rows: Sequence[Rows], asked: Sequence[np.ndarray]
) -> list[Predictions]:
    model, known = predictors[0].model, [one.knowledge for one in predictors if one.knowledge is not None]
    knowledge = Knowledge.stack(known) if known else None
    values = [one.prior.parameters for one in predictors]
    with torch.no_grad():
        prior = model.prior.with_values({name: torch.stack([mine[name] for mine in values]) for name in values[0]})
        gp = ExactModel(prior, Rows.stack(rows), knowledge=knowledge)
        first = gp.rows.as_f(gp.prior_marginals())
        for c, (one, spot) in enumerate(zip(predictors, rows_in_stack(rows), strict=True)):
            if one.start is not None:
                first[0][c, spot], first[1][c, spot] = one.start
        start = gp.rows.as_f(first, back=True)
        q = infer(gp, start=start, tolerance=PREDICTION_TOLERANCE, max_steps=PREDICTION_STEPS).q
        x = [torch.from_numpy(own) for own in asked]
        mean, cov = gp.latents_at(getattr(q, "whole", q), torch.nn.utils.rnn.pad_sequence(x, batch_first=True))
    said = []
    for c, one in enumerate(predictors):
        n = len(x[c])
        latents = LatentPrediction(mean[c, :n], cov[c, :n], one.prior.mixing())
        said.append(read_out(latents, one.prior, model.likelihoods, one.data.codecs))
    return said
