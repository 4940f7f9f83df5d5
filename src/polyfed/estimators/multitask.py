"""MultiTaskGP: several tasks of different kinds, modelled jointly on one machine."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from polyfed.data import ClientData, Encoder, LabelCodec, Task, as_tasks
from polyfed.data.raw import by_task, read_given
from polyfed.data.schema.coding import code_rows
from polyfed.errors import ConfigError, DataError, UsageError, nearest
from polyfed.gp import GROUPS, Prior, infer, predict_latents
from polyfed.gp.kernels import Kernel, KernelLike, kernel_of
from polyfed.gp.likelihoods.logistic import BOUNDS
from polyfed.gp.lmc import Distances
from polyfed.modelling.learning import Learning, initialise, maximise_bound
from polyfed.modelling.memory import MOST_ROWS, exact_bytes, holds, memory, too_long
from polyfed.modelling.rows import likelihoods_of, read_out, rows_of
from polyfed.modelling.sparsity import Sparsity
from polyfed.modelling.threads import threads_for
from polyfed.predictions import Predictions


class MultiTaskGP:
    """A multi-output Gaussian process over tasks of different kinds, with closed-form inference.

    Every task is a mixture of the same few latent functions, so each learns from the labels of all others, and a
    task without any label here can still be predicted.

    Args:
        tasks: `Task`s, or a dictionary name → kind.
        n_latents: number of latent functions that the tasks share.
        kernel: `rbf`, `matern32`, `matern52`, `laplace`, `cauchy`, `linear`, `affine` or `periodic`; an expression such as
            "rbf + periodic", or a kernel itself (`polyfed.gp.kernels`); or one for each latent.
        per_dimension: a length-scale for each feature (more flexible, wants more data).
        bound: `polya-gamma` (closed form) or `gaussian` (tighter for classes and counts, slower).
        scale: standardise features and targets; predictions come back in the units of the labels.
        inducing: number of inducing inputs for large data, "auto" to let the data say, None for the exact posterior,
            whose cost grows with the cube of the number of labels ("auto" all the same where memory does not hold it).
        inducing_method: `greedy`, `uniform` or `kmeans`; `paper` for the paper's own variant (docs/sparse.md).
        inducing_tolerance: "auto" takes as many as leave less than this many nats for each label unexplained.
        tolerance: inference stops when the bound moves by less than this many nats.
        max_steps: mean-field steps at the most.
        max_iterations: optimiser iterations at the most, when Θ is learned.
        prior: Θ to start from (or to use as it is with `learn=False`) instead of one guessed from the data; its
            kernels replace `n_latents`, `kernel` and `per_dimension`.
        seed: of the initial mixing weights.

    >>> import numpy as np
    >>> x = np.linspace(0, 6, 30)[:, None]
    >>> gp = MultiTaskGP({"height": "regression", "high": "binary"}, n_latents=1)
    >>> gp = gp.fit({"height": (x, np.sin(x[:, 0])), "high": (x[:8], x[:8, 0] > 0.6)})
    >>> p = gp.predict([[1.5], [4.5]])
    >>> p["height"].mean.round(1), p["high"].label  # no label of "high" was seen beyond x = 1.5
    (array([ 1., -1.]), array([ True, False]))
    """

    def __init__(
        self,
        tasks: Iterable[Task] | dict[str, str],
        n_latents: int = 2,
        *,
        kernel: KernelLike | Sequence[KernelLike] = "rbf",
        per_dimension: bool = False,
        bound: str = "polya-gamma",
        scale: bool = True,
        inducing: int | str | None = None,
        inducing_method: str = "greedy",
        inducing_tolerance: float = 1e-3,
        tolerance: float = 1e-6,
        max_steps: int = 500,
        max_iterations: int = 100,
        prior: Prior | None = None,
        seed: int = 0,
    ) -> None:
        self.tasks = as_tasks(tasks)
        if prior is not None:  # it says what it is made of
            n_latents, kernel, per_dimension = prior.n_latents, prior.kernels, prior.per_dimension
        given = [kernel] * n_latents if isinstance(kernel, (str, Kernel)) else kernel
        self.kernels = tuple(kernel_of(each) for each in given)
        self._check(n_latents, bound)
        self.n_latents, self.per_dimension, self.bound_name = n_latents, per_dimension, bound
        self.scale, self.tolerance, self.max_steps = scale, tolerance, max_steps
        self.max_iterations, self.seed = max_iterations, seed
        self.inducing, self.inducing_method, self.inducing_tolerance = inducing, inducing_method, inducing_tolerance
        self._sparsity = Sparsity(inducing, inducing_method, inducing_tolerance, seed)
        self._given_prior = prior
        self.learning: Learning | None = None
        self._fitted = False

    def _check(self, n_latents: int, bound: str) -> None:
        if n_latents < 1:
            raise ConfigError(f"n_latents is {n_latents}", remedy="use at least one latent function")
        if len(self.kernels) != n_latents:
            what = f"{len(self.kernels)} kernels for {n_latents} latents"
            raise ConfigError(what, remedy="give one kernel, or one for each")
        if bound not in BOUNDS:
            raise ConfigError(f"bound {bound!r} is unknown", remedy=nearest(bound, BOUNDS))

    def fit(self, data: object, labels: object = None, *, learn: bool | Iterable[str] = True) -> MultiTaskGP:
        """Learn Θ and infer the posterior.

        Args:
            data: a dictionary task → (X, y), or one X for all tasks: an array, a tensor or a table, read as those of a
                federation's clients are (texts are categories, dates become numbers, NaN and None are missing values).
            labels: with one X, a dictionary task → y or a table with a column for each task; NaN or None is a
                missing label.
            learn: True for all of Θ, False to only infer, or the groups to learn, such as `["noise"]`.
        """
        groups = _groups(learn)
        observations, encoder = collect(self.tasks, data, labels, scale=self.scale)
        if groups and not observations.n_labels:
            raise DataError("no label in any task", where="fit", remedy="give some, or pass learn=False")
        # From here on the earlier fit, if there was one, is gone: a failure must not leave half of each.
        self._prepare(observations, encoder)
        self.prior = self._starting_prior()
        self.learning = None
        with threads_for(len(self._rows)):
            if groups:
                Z, distances = self._sparsity.choose(self.prior, self._rows), Distances(self._rows.x)
                self.learning = maximise_bound(
                    self.prior,
                    lambda: self._sparsity.build(self.prior, self._rows, Z, distances),
                    groups=groups,
                    max_iterations=self.max_iterations,
                )
            self._condition(self._sparsity.choose(self.prior, self._rows))
            if self.inducing is None and self._Z is not None:
                fits = holds(exact_bytes(len(self._rows), self.n_latents))
                reason = too_long(MOST_ROWS) if fits else f"does not fit into memory ({memory() / 1e9:.1f} GB)"
                warnings.warn(
                    f"{len(self._rows):,} rows: the exact posterior {reason}, so "
                    f"inducing='auto' is used, with {len(self._Z)} inducing inputs; see docs/sparse.md",
                    stacklevel=2,
                )
            posterior = infer(self._model, tolerance=self.tolerance, max_steps=self.max_steps)
        self._q, self.bound, self.converged = posterior.q, posterior.bound, posterior.converged
        self._fitted = True
        return self

    def _condition(self, Z: torch.Tensor | None) -> None:
        """The model at the Θ that was learned; Z are its inducing inputs, None if it is exact."""
        self._Z = Z
        with torch.no_grad():
            self._model = self._sparsity.build(self.prior, self._rows, Z)

    def _prepare(self, observations: ClientData, encoder: Encoder) -> None:
        self._fitted, self.observations, self.encoder = False, observations, encoder
        self.likelihoods = likelihoods_of(observations.codecs, self.bound_name)
        self._rows = rows_of(observations, self.likelihoods)

    def _empty_prior(self) -> Prior:
        """A prior over the tasks of this model, its values not yet chosen."""
        return Prior(
            kernels=self.kernels,
            dims=self.observations.n_features,
            outputs={name: likelihood.n_outputs for name, likelihood in self.likelihoods.items()},
            noise={n: lik.initial_noise for n, lik in self.likelihoods.items() if lik.initial_noise is not None},
            per_dimension=self.per_dimension,
        )

    def _starting_prior(self) -> Prior:
        prior = initialise(self._empty_prior(), self._rows, self.seed)
        if self._given_prior is None:
            return prior
        # A copy for the tasks here: what was given is never changed, and may know more tasks, or fewer.
        known = prior.parameters
        return prior.load({name: v for name, v in self._given_prior.state().items() if name in known})

    def predict(self, X: object, *, tasks: Sequence[str] | None = None) -> Predictions:
        """Predictive distribution of every task (or of those named) at each row of X."""
        if not self._fitted:
            raise UsageError("this MultiTaskGP is not fitted yet", where="predict", remedy="call fit first")
        x = torch.from_numpy(self.encoder.encode_new(X, "X"))
        with threads_for(len(self._rows)):
            latents = predict_latents(self._model, self._q, x)
        return read_out(latents, self.prior, self.likelihoods, self.observations.codecs, tasks)

    def restore(
        self,
        observations: ClientData,
        encoder: Encoder,
        theta: dict[str, torch.Tensor],
        Z: torch.Tensor | None,
        sites: tuple[torch.Tensor, torch.Tensor],
        *,
        bound: float,
        converged: bool,
    ) -> MultiTaskGP:
        """This model as an earlier fit left it: its data, Θ, inducing inputs and sites (h, r)."""
        self._prepare(observations, encoder)
        self.prior = self._empty_prior().load(theta)
        self._condition(Z)
        self._q = self._model.solve(*sites)
        self.bound, self.converged, self._fitted = bound, converged, True
        return self

    @property
    def sites(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(h, r) of every row of the fitted model."""
        return self._q.h, self._q.r

    @property
    def inducing_inputs(self) -> torch.Tensor | None:
        """Z of the fitted model; None for an exact one."""
        return self._Z

    @property
    def n_inducing(self) -> int | None:
        """Number of inducing inputs that the fitted model uses; None for an exact one."""
        return None if self._Z is None else len(self._Z)

    @property
    def task_correlation(self) -> np.ndarray:
        """Prior correlation of the outputs at one input."""
        return self.prior.output_correlation().numpy()

    def save(self, folder: str | Path) -> Path:
        """Write the fitted model to a folder (safetensors + JSON). It holds the training data: keep it as private."""
        from polyfed.estimators.storage import save

        if not self._fitted:
            raise UsageError("this MultiTaskGP is not fitted yet", where="save", remedy="call fit first")
        return save(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> MultiTaskGP:
        """Read a model that `save` wrote; its predictions are the same to the last bit."""
        from polyfed.estimators.storage import load

        return load(cls, Path(folder))

    def __repr__(self) -> str:
        tasks = ", ".join(f"{task.name}: {task.kind}" for task in self.tasks)
        state = f", bound={self.bound:.6g}" if self._fitted else ""
        state = f", n_inducing={self.n_inducing}{state}" if self._fitted and self.n_inducing else state
        return f"MultiTaskGP({{{tasks}}}, n_latents={self.n_latents}{state})"


def _groups(learn: bool | Iterable[str]) -> tuple[str, ...]:
    if isinstance(learn, bool):
        return GROUPS if learn else ()
    if isinstance(learn, str):
        return (learn,)
    return tuple(learn)


def collect(
    tasks: Sequence[Task], data: object, labels: object = None, *, scale: bool = True
) -> tuple[ClientData, Encoder]:
    """Check and code the arguments of `fit`: a dictionary task → (X, y), or one X with labels for each task."""
    if labels is None and not isinstance(data, Mapping):
        what = f"fit got {type(data).__name__} and no labels"
        raise DataError(what, where="fit", remedy="pass {task: (X, y)}, or X and {task: y}")
    known = [task.name for task in tasks]
    given = by_task(data if labels is None else (data, labels), known, "fit")
    if not given:
        raise DataError("no features at all", where="fit", remedy="give at least one task as (X, y)")
    in_order = {name: given[name] for name in (*known, None) if name in given}
    codecs = {
        task.name: LabelCodec.learn(task, in_order.get(task.name, (None, None))[1], scale=scale) for task in tasks
    }
    raw = read_given(in_order, tasks, where="fit")
    encoder = Encoder.learn(raw.features, scale=scale)
    return code_rows("fit", raw, encoder, codecs), encoder
