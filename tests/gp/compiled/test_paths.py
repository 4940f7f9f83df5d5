"""Compiled inference gives what torch gives: posterior, bound, gradient, noise and evidence, over random problems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polyfed.gp import Prior, Rows, compiled, infer
from polyfed.gp.batch import BatchStep, ClientBatch
from polyfed.gp.exact import ExactModel
from polyfed.gp.kernels import KERNELS, rbf
from polyfed.gp.knowledge import Evidence, Knowledge, KnowledgeOf, triangle, width_of
from polyfed.gp.likelihoods import Likelihood
from polyfed.gp.whitened import normal_points
from problems import KINDS, labels, law, likelihood, normal

GROUPS = ("features", "kernels", "mixing", "noise")
DIMS = 2
NOT_COMPILED = replace(rbf, name="not-compiled", profile=lambda d, phi1: (-0.5 * phi1 * d).exp())
EVERY_KERNEL = [*sorted(KERNELS), "rbf + periodic", "matern52 * linear", NOT_COMPILED]
pytestmark = pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")


@dataclass(frozen=True)
class Federation:
    """A prior for all, clients that each lack some tasks, and what they know of shared latents."""

    prior: Prior
    clients: list[Rows]
    knowledge: KnowledgeOf | None = None


@st.composite
def federations(draw: st.DrawFn) -> Federation:
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    bound, power = draw(st.sampled_from(["polya-gamma", "gaussian"])), draw(st.sampled_from([1.0, 0.6]))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
    likelihoods = {f"{kind}.{i}": likelihood(kind, bound=bound, power=power) for i, kind in enumerate(kinds)}
    kernels = draw(st.lists(st.sampled_from(EVERY_KERNEL), min_size=1, max_size=3))
    told = draw(st.booleans())
    prior = Prior(
        kernels=kernels,
        dims=DIMS,
        outputs={task: of.n_outputs for task, of in likelihoods.items()},
        noise={task: 1.0 for task, of in likelihoods.items() if of.initial_noise is not None},
        per_dimension=draw(st.booleans()),
        mean="zero" if told else draw(st.sampled_from(["zero", "linear"])),
        projected=None if told else draw(st.sampled_from([None, DIMS])),
    )
    scale = draw(st.sampled_from([0.7, 1e-3]))  # the second leaves rows with h K far below 1e-4
    prior.load({name: scale * normal(rng, *value.shape) for name, value in prior.state().items()})
    own_inputs = draw(st.booleans())
    sizes = draw(st.lists(st.integers(0, 9), min_size=1, max_size=5))
    clients = [client(likelihoods, c, size, rng, own_inputs=own_inputs) for c, size in enumerate(sizes)]
    return Federation(prior, clients, known(prior, len(clients), rng) if told else None)


def client(
    likelihoods: dict[str, Likelihood], c: int, size: int, rng: np.random.Generator, *, own_inputs: bool
) -> Rows:
    """Labels at inputs of their own, or at the same ones for all tasks."""
    has = [task for i, task in enumerate(likelihoods) if (i + c) % 3 or len(likelihoods) == 1]
    x = normal(rng, max(1, size * (len(has) if own_inputs else 1)), DIMS)
    seen = {}
    for i, task in enumerate(has):
        at = torch.from_numpy(rng.permutation(size)) + (i * size if own_inputs else 0)
        seen[task] = (at, labels(likelihoods[task], size, rng))
    return Rows.of(x, seen, likelihoods)


def known(prior: Prior, n_clients: int, rng: np.random.Generator) -> KnowledgeOf:
    """Evidence as of others, of the first latent."""
    Z = normal_points(5, DIMS)
    P = width_of(prior, 1, len(Z))
    half = normal(rng, n_clients, P, P)
    evidence = Evidence(triangle(half @ half.mT), normal(rng, n_clients, P))
    return lambda group: Knowledge(Z, 1, evidence[group])


def on_both(act: Callable):
    """What `act` gives by torch, and compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(compiled.SWITCH, "0")
        by_torch = act()
        patch.setenv(compiled.SWITCH, "1")
        return by_torch, act()


def assert_close(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(b, a, rtol=tolerance, atol=tolerance)


def assert_same(a: BatchStep, b: BatchStep) -> None:
    assert_close(a.bound, b.bound)
    assert a.gradient.keys() == b.gradient.keys()
    for name, value in a.gradient.items():
        assert_close(value, b.gradient[name])
    for one, other in zip(a.marginals, b.marginals, strict=True):
        assert_close(torch.stack(one), torch.stack(other))
    assert a.noise.keys() == b.noise.keys()
    for task, statistics in a.noise.items():
        assert_close(torch.stack(statistics), torch.stack(b.noise[task]))
    assert (a.evidence is None) == (b.evidence is None)
    if a.evidence is not None and b.evidence is not None:
        assert_close(a.evidence.triangle, b.evidence.triangle)
        assert_close(a.evidence.shift, b.evidence.shift)


@pytest.mark.slow
@law(60)
@given(federation=federations(), max_steps=st.integers(1, 3))
def test_steps_of_many_clients(federation, max_steps):
    batch = ClientBatch(federation.clients)

    def steps() -> list[BatchStep]:
        options = {"groups": GROUPS, "knowledge": federation.knowledge, "tolerance": 0.0}
        first = batch.step(federation.prior, max_steps=max_steps, **options)
        return [first, batch.step(federation.prior, start=first, max_steps=1, **options)]  # and a warm one

    for a, b in zip(*on_both(steps), strict=True):
        assert_same(a, b)


@law(20)
@given(federation=federations(), accelerate=st.booleans())
def test_converged_posteriors_of_one_client(federation, accelerate):
    rows = max(federation.clients, key=len)

    def converged():
        with torch.no_grad():
            return infer(ExactModel(federation.prior, rows), tolerance=1e-10, max_steps=300, accelerate=accelerate)

    a, b = on_both(converged)
    # Where an extrapolation leads depends on rounding, where it all ends does not.
    assert b.bound == pytest.approx(a.bound, abs=1e-8)
    assert a.converged == b.converged
    assert_close(a.q.m, b.q.m, 1e-4)
    for name in ("L", "logz", "second_moment"):
        assert_close(getattr(a.q, name), getattr(b.q, name), 1e-4)


def test_personal_priors_of_clients():
    rng = np.random.default_rng(0)
    likelihoods = {kind: likelihood(kind) for kind in KINDS}
    outputs = {task: of.n_outputs for task, of in likelihoods.items()}
    noise = {task: 1.0 for task, of in likelihoods.items() if of.initial_noise is not None}
    priors = [Prior(kernels=["rbf", "linear"], dims=DIMS, outputs=outputs, noise=noise) for _ in range(3)]
    for prior in priors:
        prior.load({name: 0.7 * normal(rng, *value.shape) for name, value in prior.state().items()})
    batch = ClientBatch([client(likelihoods, c, 4, rng, own_inputs=False) for c in range(3)])
    a, b = on_both(lambda: batch.step(Prior.stack(priors), max_steps=2, groups=GROUPS))
    assert_same(a, b)


def test_threads_change_nothing():
    """Not a digit: clients see nothing of each other, and LAPACK has one thread for each."""
    rng = np.random.default_rng(0)
    likelihoods = {kind: likelihood(kind) for kind in ("gaussian", "bernoulli")}
    prior = Prior(kernels=["rbf"], dims=DIMS, outputs=dict.fromkeys(likelihoods, 1), noise={"gaussian": 0.3})
    clients = [client(likelihoods, c, 30 + c % 3, rng, own_inputs=True) for c in range(20)]

    def bounds(some: Sequence[Rows]) -> torch.Tensor:
        return ClientBatch(some).step(prior, groups=GROUPS).bound

    with ThreadPoolExecutor(4) as pool:
        shared_out = list(pool.map(bounds, [clients[k::4] for k in range(4)]))
    together = bounds(clients)
    for k, part in enumerate(shared_out):
        assert torch.equal(part, together[k::4])


class Unknown(Likelihood):
    """A site without precision, which inference may meet where a weight underflows, and no compiled form."""

    def local_bound(self, y, m, v, noise):
        return 0.3 * (y[:, None] * m).sum(-1)

    def site(self, y, m, v, noise):
        return torch.zeros_like(m), 0.3 * y[:, None].expand_as(m)

    def readout(self, mean, cov, noise):
        return {}


def flat_form(kind: str) -> Sequence[int]:
    """Addresses of the same two functions, compiled."""
    from polyfed.gp.compiled.jit import callback
    from polyfed.gp.compiled.pointers import BOUND, SITE

    def site(y, n_rows, n, noise, options, m, v, h, r):
        for i in range(n):
            h[i] = 0.0
            r[i] = 0.3 * y[i]

    def bound(y, n_rows, n, noise, options, m, v):
        total = 0.0
        for i in range(n):
            total += 0.3 * y[i] * m[i]
        return total

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("polyfed.gp.compiled.jit.KEPT", False)
        kept = callback(SITE)(site), callback(BOUND)(bound)
    return kept


@pytest.mark.parametrize("has_form", [False, True])
def test_a_likelihood_of_a_user_with_a_compiled_form_and_without(has_form):
    """Its rows have h = 0 and r ≠ 0, beside others."""
    rng, form = np.random.default_rng(0), flat_form("flat")

    class Known(Unknown):
        def compiled(self, y):
            from polyfed.gp.compiled.likelihoods import Form

            return Form(form[0].address, form[1].address, y)

    likelihoods = {
        "flat": Known() if has_form else Unknown(),
        "level": likelihood("gaussian"),
        "sick": likelihood("bernoulli"),
    }
    prior = Prior(kernels=["rbf"], dims=DIMS, outputs=dict.fromkeys(likelihoods, 1), noise={"level": 0.3})
    x = normal(rng, 6, DIMS)
    y = torch.sign(normal(rng, 6))
    batch = ClientBatch([Rows.of(x, dict.fromkeys(likelihoods, (torch.arange(6), y)), likelihoods)])
    a, b = on_both(lambda: batch.step(prior, max_steps=3, tolerance=0.0, groups=GROUPS))
    assert_same(a, b)
    solver = compiled.solver()
    assert solver is not None
    assert (solver.layout_of(batch.stacks[0][0]) is not None) == has_form


def test_torch_does_what_is_asked_of_it_and_the_compiled_path_is_there_again_afterwards():
    assert compiled.solver() is not None
    with compiled.by_torch():
        assert compiled.solver() is None
        with compiled.by_torch():
            pass
        assert compiled.solver() is None
    assert compiled.solver() is not None
