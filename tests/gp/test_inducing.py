"""The choice of inducing inputs: which, how many, and what it is worth."""

from __future__ import annotations

import pytest
import torch

from polyfed.errors import ConfigError
from polyfed.gp import inducing
from polyfed.gp.inducing import METHODS, choose_inducing
from polyfed.gp.latent_sparse import SparseModel
from problems import Problem, build


def choose(problem: Problem, M: int, method: str = "greedy", seed: int = 0) -> torch.Tensor:
    return choose_inducing(problem.prior, problem.rows(), M, method=method, seed=seed)


def crowded(seed: int, copies: int = 3) -> Problem:
    """Every input several times over."""
    problem = build(["gaussian", "bernoulli"], seed=seed, sizes=10)
    x = problem.x.repeat(copies, 1)
    many = {
        task: (torch.cat([at + c * len(problem.x) for c in range(copies)]), y.repeat(copies))
        for task, (at, y) in problem.observations.items()
    }
    return Problem(problem.prior, problem.likelihoods, x, many)


def certificate(problem: Problem, Z: torch.Tensor) -> float:
    model = SparseModel(problem.prior, problem.rows(), Z)
    sites = model.rows.sites(model.prior, *model.prior_marginals())
    return model.solve(*sites).certificate.item()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("M", [1, 4, 100])
def test_so_many_distinct_inputs_and_no_more(method, M):
    Z = choose(crowded(0), M, method)
    assert Z.dtype == torch.float64
    assert bool(torch.isfinite(Z).all())
    assert 1 <= len(Z) <= min(M, 12)
    assert len(Z.unique(dim=0)) == len(Z)


@pytest.mark.parametrize("method", ["greedy", "uniform"])
def test_they_are_inputs_that_have_a_label(method):
    problem = build(["gaussian"], seed=1, sizes=6)  # two of the eight inputs have none
    with_label = problem.x[problem.observations["gaussian.0"][0]]
    Z = choose(problem, 100, method)
    assert sorted(Z.tolist()) == sorted(with_label.tolist())


@pytest.mark.parametrize("kernels", [("rbf", "matern52"), ("laplace",), ("linear", "cauchy")])
def test_greedy_choices_are_nested(kernels):
    problem = build(["gaussian", "one-vs-each"], seed=2, sizes=20, kernels=kernels)
    most = choose(problem, 15)
    for M in (1, 2, 7, 14):
        assert choose(problem, M).tolist() == most[:M].tolist()


def test_greedy_ends_when_nothing_is_left_to_explain():
    problem = build(["gaussian"], seed=3, sizes=20, kernels=["linear"], dims=2)
    assert len(choose(problem, 15)) == 2  # a linear function of two inputs is known from two of them
    assert len(choose(crowded(3), 1000)) <= 12


@pytest.mark.parametrize("amplitude", [1e-12, 1e12])
def test_greedy_does_not_care_for_units(amplitude):
    problem = build(["gaussian"], seed=4, sizes=12)
    expected = choose(problem, 8)
    log_amplitudes = {n: v.detach() for n, v in problem.prior.parameters.items() if n.endswith("log_amplitude")}
    problem.prior.load({n: v + torch.tensor(amplitude, dtype=v.dtype).log() for n, v in log_amplitudes.items()})
    assert choose(problem, 8).tolist() == expected.tolist()


def test_greedy_explains_more_than_chance():
    ratios = []
    for seed in range(10):
        problem = build(["gaussian", "bernoulli"], seed=seed, sizes=40, kernels=["rbf", "matern52"])
        for M in (4, 8, 16):
            greedy = certificate(problem, choose(problem, M))
            chance = sum(certificate(problem, choose(problem, M, "uniform", s)) for s in range(5)) / 5.0
            ratios.append(greedy / chance)
    assert sum(ratios) / len(ratios) < 0.7
    assert max(ratios) < 1.0


def test_of_very_many_inputs_greedy_looks_at_a_part(monkeypatch):
    monkeypatch.setattr(inducing, "CANDIDATES", (15, 15))
    problem = build(["gaussian"], seed=5, sizes=40)
    Z = choose(problem, 10)
    assert len(Z) == 10
    assert choose(problem, 5).tolist() == Z[:5].tolist()
    assert choose(problem, 10, seed=1).tolist() != Z.tolist()
    assert len(choose(problem, 30)) == 30  # a part, but no fewer than asked for


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_the_same_inputs(method):
    problem = build(["gaussian"], seed=6, sizes=30)
    torch.manual_seed(0)
    first = choose(problem, 5, method, seed=3)
    torch.manual_seed(1)  # the global generator has no say
    assert choose(problem, 5, method, seed=3).tolist() == first.tolist()


def test_another_seed_other_inputs():
    problem = build(["gaussian"], seed=7, sizes=30)
    assert choose(problem, 5, "uniform", seed=0).tolist() != choose(problem, 5, "uniform", seed=1).tolist()


def test_kmeans_lie_among_the_inputs():
    problem = build(["gaussian"], seed=8, sizes=50)
    Z = choose(problem, 5, "kmeans")
    low, high = problem.x.amin(0), problem.x.amax(0)
    assert torch.equal(Z, Z.clamp(low, high))


@pytest.mark.parametrize("method", METHODS)
def test_no_rows_no_inputs(method):
    assert choose(build(["gaussian"], seed=9).seeing({}), 5, method).shape == (0, 2)


def test_an_unknown_selection():
    with pytest.raises(ConfigError) as caught:
        choose(build(["gaussian"], seed=0), 5, "gredy")
    assert str(caught.value) == (
        "selection 'gredy' of inducing inputs is unknown; did you mean 'greedy'? "
        "known are 'greedy', 'uniform', 'kmeans'."
    )


@pytest.mark.parametrize("M", [0, -3])
def test_no_inducing_inputs_at_all(M):
    with pytest.raises(ConfigError) as caught:
        choose(build(["gaussian"], seed=0), M)
    assert str(caught.value) == f"{M} inducing inputs; use at least one, or None for the exact posterior."
