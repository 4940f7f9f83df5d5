"""Random problems for the tests: tasks of any of the seven likelihoods under a random prior.

`build` makes one from a seed, `problems` lets hypothesis choose its structure (the tasks, their sizes, the kernels)
and a seed for the numbers, so that a failing example shrinks to few tasks and few data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from polyfed.gp import (
    BatchStep,
    ExactModel,
    LatentPrediction,
    Likelihood,
    Posterior,
    Prior,
    Rows,
    infer,
    predict_latents,
)
from polyfed.gp.kernels import KERNELS
from polyfed.gp.likelihoods import (
    Bernoulli,
    Binomial,
    Gaussian,
    LogisticSoftmax,
    NegativeBinomial,
    OneVsEach,
    StudentT,
)

LOGISTIC = ("bernoulli", "binomial", "negative-binomial", "one-vs-each")  # the kinds with two bounds
KINDS = ("gaussian", "student-t", "logistic-softmax", *LOGISTIC)
LOG_CONCAVE = ("gaussian", *LOGISTIC)  # one optimum only: the bound is concave in the mean and the factor of q
CLASSES = 3


@dataclass(frozen=True)
class Problem:
    """A prior, and what one client has seen: task → (positions in x, coded labels)."""

    prior: Prior
    likelihoods: dict[str, Likelihood]
    x: Tensor
    observations: dict[str, tuple[Tensor, Tensor]]

    def rows(self) -> Rows:
        return Rows.of(self.x, self.observations, self.likelihoods)

    def model(self) -> ExactModel:
        return ExactModel(self.prior, self.rows())

    def seeing(self, observations: Mapping[str, tuple[Tensor, Tensor]]) -> Problem:
        """The same problem with other labels."""
        return replace(self, observations=dict(observations))


def likelihood(kind: str, *, bound: str = "polya-gamma", classes: int = CLASSES, power: float = 1.0) -> Likelihood:
    return {
        "gaussian": lambda: Gaussian(power=power),
        "student-t": lambda: StudentT(dof=4.0, power=power),
        "bernoulli": lambda: Bernoulli(bound=bound, power=power),
        "binomial": lambda: Binomial(bound=bound, power=power),
        "negative-binomial": lambda: NegativeBinomial(typical=3.0, bound=bound, power=power),
        "one-vs-each": lambda: OneVsEach(classes, bound=bound, power=power),
        "logistic-softmax": lambda: LogisticSoftmax(classes, temperature=0.7, power=power),
    }[kind]()


def labels(of: Likelihood, n: int, rng: np.random.Generator) -> Tensor:
    """Coded labels as the likelihood takes them, without any regard to the inputs."""
    if isinstance(of, Bernoulli):
        y = rng.choice([-1.0, 1.0], n)
    elif isinstance(of, Binomial):
        trials = rng.integers(1, 9, n)
        y = np.stack([rng.integers(0, trials + 1), trials], 1)
    elif isinstance(of, NegativeBinomial):
        y = rng.poisson(3.0, n)
    elif isinstance(of, OneVsEach | LogisticSoftmax):
        y = rng.integers(0, of.n_outputs, n)
    else:
        y = rng.standard_normal(n)
    return torch.as_tensor(y, dtype=torch.float64)


def random_prior(
    likelihoods: Mapping[str, Likelihood],
    *,
    kernels: Sequence[str],
    dims: int,
    rng: np.random.Generator,
    per_dimension: bool = False,
    features: nn.Module | None = None,
) -> Prior:
    """Parameters of order one, all different."""
    prior = Prior(
        kernels=kernels,
        dims=dims,
        outputs={task: of.n_outputs for task, of in likelihoods.items()},
        noise={task: 1.0 for task, of in likelihoods.items() if of.initial_noise is not None},
        per_dimension=per_dimension,
        features=features,
    )
    own = {name: value for name, value in prior.state().items() if not name.startswith("features")}
    return prior.load({name: 0.7 * normal(rng, *value.shape) for name, value in own.items()})


def normal(rng: np.random.Generator, *shape: int) -> Tensor:
    return torch.as_tensor(rng.standard_normal(shape), dtype=torch.float64)


def build(
    kinds: Sequence[str],
    *,
    seed: int,
    sizes: Sequence[int] | int = 5,
    kernels: Sequence[str] = ("rbf", "matern52"),
    dims: int = 2,
    bound: str = "polya-gamma",
    powers: Sequence[float] | float = 1.0,
    classes: int = CLASSES,
    per_dimension: bool = False,
    features: nn.Module | None = None,
    features_dims: int | None = None,
) -> Problem:
    """One problem; tasks are named by kind and number, their inputs overlap, and some inputs are of no task."""
    rng = np.random.default_rng(seed)
    sizes = [sizes] * len(kinds) if isinstance(sizes, int) else list(sizes)
    powers = [powers] * len(kinds) if isinstance(powers, float) else list(powers)
    likelihoods = {
        f"{kind}.{i}": likelihood(kind, bound=bound, classes=classes, power=power)
        for i, (kind, power) in enumerate(zip(kinds, powers, strict=True))
    }
    prior = random_prior(
        likelihoods,
        kernels=kernels,
        dims=features_dims or dims,
        rng=rng,
        per_dimension=per_dimension,
        features=features,
    )
    n_inputs = max(sizes, default=0) + 2
    observations = {
        task: (torch.as_tensor(rng.permutation(n_inputs)[:size]), labels(of, size, rng))
        for (task, of), size in zip(likelihoods.items(), sizes, strict=True)
    }
    return Problem(prior, likelihoods, normal(rng, n_inputs, dims), observations)


@st.composite
def problems(
    draw: st.DrawFn,
    *,
    kinds: Sequence[str] = KINDS,
    bound: str = "polya-gamma",
    powers: Sequence[float] = (1.0,),
    scales: Sequence[float] = (1.0,),
    min_tasks: int = 1,
    max_tasks: int = 4,
) -> Problem:
    """1 to 8 inputs for each task, 1 to 3 latents of any kernel, inputs of 1 to 3 dimensions, W of some scale."""
    chosen = draw(st.lists(st.sampled_from(list(kinds)), min_size=min_tasks, max_size=max_tasks))
    n = len(chosen)
    problem = build(
        chosen,
        seed=draw(st.integers(0, 2**16)),
        sizes=draw(st.lists(st.integers(1, 8), min_size=n, max_size=n)),
        kernels=draw(st.lists(st.sampled_from(sorted(KERNELS)), min_size=1, max_size=3)),
        dims=draw(st.integers(1, 3)),
        bound=bound,
        powers=draw(st.lists(st.sampled_from(list(powers)), min_size=n, max_size=n)),
        per_dimension=draw(st.booleans()),
    )
    scale = draw(st.sampled_from(list(scales)))
    problem.prior.load({name: scale * W.detach() for name, W in problem.prior.group("mixing").items()})
    return problem


def law(examples: int) -> settings:
    """So many examples, however long they take."""
    return settings(max_examples=examples, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def run(
    model: ExactModel, *, steps: int = 8, start: tuple[Tensor, Tensor] | None = None, accelerate: bool = False
) -> Posterior:
    """So many steps whatever they gain, and plain ones: two runs that should agree then agree to rounding."""
    return infer(model, start=start, tolerance=-np.inf, max_steps=steps, accelerate=accelerate)


def of_client(step: BatchStep, i: int) -> SimpleNamespace:
    """What a step of many clients found for one of them."""
    noise = {task: (float(total[i]), float(count[i])) for task, (total, count) in step.noise.items() if count[i] > 0}
    gradient = {name: each[i] for name, each in step.gradient.items()}
    return SimpleNamespace(bound=float(step.bound[i]), marginals=step.marginals_of(i), gradient=gradient, noise=noise)


def central_differences(value: Callable[[], Tensor], at: Tensor, step: float = 1e-5) -> Tensor:
    """The derivative of a number in every entry of a tensor, which is moved and put back."""
    numbers = at.detach().view(-1)
    slopes = torch.empty_like(numbers)
    with torch.no_grad():
        for i in range(len(numbers)):
            here = numbers[i].item()
            numbers[i] = here + step
            above = value()
            numbers[i] = here - step
            slopes[i] = (above - value()) / (2.0 * step)
            numbers[i] = here
    return slopes.view_as(at)


def predict(problem: Problem, x: Tensor, *, steps: int = 8) -> tuple[float, LatentPrediction]:
    """The bound after so many steps, and the latent functions at x."""
    model = problem.model()
    posterior = run(model, steps=steps)
    return posterior.bound, predict_latents(model, posterior.q, x)


def readouts(problem: Problem, latents: LatentPrediction) -> dict[str, dict[str, Tensor]]:
    """What each task says of its labels where the latent functions are so."""
    said = {}
    for task, of in problem.likelihoods.items():
        mean, cov = latents.of(task)
        noise = problem.prior.noise_of(task)
        said[task] = of.readout(mean, cov, None if noise is None else noise.detach())
    return said


def assert_same(a: LatentPrediction, b: LatentPrediction, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(a.mean, b.mean, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(a.cov, b.cov, rtol=tolerance, atol=tolerance)
