"""Steps by curvature: against BFGS written out, Newton's step on a quadratic, and the bound's optimum by scipy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from federations import START, federation, one_round, run_rounds
from polyfed.errors import ConfigError
from polyfed.gp import ClientBatch, Prior
from polyfed.gp.hyperprior import HyperPrior, gradient, log_density
from polyfed.methods import PFedHier, PFedMul
from polyfed.methods.gp.clients import batch_of
from polyfed.methods.gp.model import prepared_rows
from polyfed.methods.gp.optimiser import Adam, Halving
from polyfed.methods.gp.quasi_newton import QuasiNewton, direction
from polyfed.modelling.rows import likelihoods_of, rows_of

RATES = {"kernels": 0.3, "noise": 0.3, "mixing": 0.3, "features": 0.3}


def test_direction_is_that_of_dense_bfgs():
    """The updates of the inverse Hessian as matrices, oldest pair first, from the same diagonal."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((6, 6))
    A = A @ A.T + np.eye(6)
    S = rng.standard_normal((4, 6))
    Y = S @ A
    g, diagonal = rng.standard_normal(6), rng.uniform(0.5, 2.0, 6)
    H = np.diag(diagonal)
    for s, y in zip(S, Y, strict=True):
        V = np.eye(6) - np.outer(y, s) / (s @ y)
        H = V.T @ H @ V + np.outer(s, s) / (s @ y)
    unused = np.zeros((3, 6))
    arguments = [torch.from_numpy(part) for part in (np.vstack([unused, S]), np.vstack([unused, Y]), g, diagonal)]
    np.testing.assert_allclose(direction(*arguments).numpy(), H @ g, atol=1e-12)


def climbed(rounds, who=lambda i: ["basel", "bern"], reach=0.5):
    """A quadratic in two parameters of different shapes, from far away."""
    rng = np.random.default_rng(1)
    A = rng.standard_normal((5, 5))
    A, top = torch.from_numpy(A @ A.T + 0.1 * np.eye(5)), torch.from_numpy(rng.standard_normal(5))
    values = {"kernels.a": torch.zeros(2).double(), "mixing.b": torch.zeros(3, 1).double()}
    optimiser = QuasiNewton(Adam(RATES), memory=10, reach=reach)
    bends = {"kernels.a": A.diagonal()[:2], "mixing.b": A.diagonal()[2:, None]}
    state, led = optimiser.start(values), []
    for i in range(rounds):
        slope = A @ (top - torch.cat([values["kernels.a"], values["mixing.b"][:, 0]]))
        before = values
        parts = {"kernels.a": slope[:2], "mixing.b": slope[2:, None]}
        values, state, by_pairs = optimiser.step(values, parts, bends, state, who=who(i))
        led.append(by_pairs)
        assert max((values[name] - before[name]).abs().max().item() for name in values) <= max(reach, 0.3) + 1e-12
    return torch.cat([values["kernels.a"], values["mixing.b"][:, 0]]) - top, led


def test_a_quadratic_is_climbed():
    off, led = climbed(40)
    assert led == [False] + [True] * 39
    assert off.abs().max() < 1e-6


def test_no_pair_is_made_of_different_clients():
    """Whoever changes between two rounds, the step is Adam's."""
    _, led = climbed(12, who=lambda i: [f"client {i % 2}"])
    assert not any(led)
    _, led = climbed(6, who=lambda i: ["basel"] if i < 3 else ["bern"])
    assert led == [False, True, True, False, True, True]


def test_the_order_of_clients_does_not_matter():
    _, led = climbed(3, who=lambda i: ["basel", "bern"] if i % 2 else ["bern", "basel"])
    assert led == [False, True, True]


def test_a_state_that_was_stored_and_read_again_goes_on_as_before():
    """Files keep names and not their order; the pairs are flat vectors over all parameters."""
    spec, data = federation(3, kinds=("regression", "binary"))
    made = PFedHier(optimiser="quasi-newton", n_points=8)
    states = {name: made.start(mine, START) for name, mine in data.items()}
    server = again = made.init(spec, START)
    for _ in range(4):
        after, updates = one_round(made, server, states, data)
        again = made.aggregate({name: again[name] for name in sorted(again, reverse=True)}, updates)
        server = after
        assert again.keys() == server.keys()
        assert [name for name in server if not torch.equal(server[name], again[name])] == []


def test_steps_are_shortened_as_rates_are():
    """Pairs that promise a long way on a line: no entry moves by more than is left of the reach."""
    values, flat = {"kernels.a": torch.zeros(1).double()}, {"kernels.a": torch.tensor([1e-3]).double()}
    optimiser = QuasiNewton(Adam(RATES, schedule=Halving(every=1, after=2)), reach=0.5)
    state, moves = optimiser.start(values), []
    for i in range(6):
        before = values
        slope = {"kernels.a": torch.full((1,), 10.0 - 0.001 * i).double()}
        values, state, _ = optimiser.step(values, slope, flat, state, who=["basel"])
        moves.append(float(values["kernels.a"] - before["kernels.a"]))
    assert moves[1:] == pytest.approx([0.5, 0.5, 0.25, 0.125, 0.0625])


def test_a_bound_that_curves_upwards_is_no_pair():
    """A convex objective to be climbed has no top: steps stay Adam's and finite."""
    values = {"kernels.a": torch.ones(2).double()}
    optimiser = QuasiNewton(Adam(RATES))
    state = optimiser.start(values)
    for _ in range(5):
        values, state, led = optimiser.step(values, values, {"kernels.a": torch.ones(2)}, state, who=["basel"])
        assert not led
    assert (values["kernels.a"] > 1).all()


def optimum(spec, data, start):
    """The best average bound with the prior of Θ, by scipy's L-BFGS after converged E-steps, and that bound as a function."""
    likelihoods = likelihoods_of(spec.codecs, "polya-gamma")
    noise = {task: lik.initial_noise for task, lik in likelihoods.items() if lik.initial_noise is not None}
    outputs = {task: lik.n_outputs for task, lik in likelihoods.items()}
    prior = Prior(kernels=["rbf"] * len(outputs), dims=spec.n_features, outputs=outputs, noise=noise)
    batch, densities = (
        ClientBatch([rows_of(mine, likelihoods) for mine in data.values()]),
        HyperPrior().densities(prior),
    )

    def of(values):
        step = batch.step(
            prior.with_values(values), tolerance=1e-9, max_steps=500, groups=("kernels", "mixing", "noise")
        )
        pulls = gradient(values, densities)
        slopes = {name: step.gradient[name].mean(0) + pulls[name] / len(data) for name in values}
        return step.bound.mean().item() + log_density(values, densities).item() / len(data), slopes

    def flat(x):
        sizes = [value.numel() for value in start.values()]
        pieces = torch.from_numpy(x.copy()).split(sizes)
        value, slopes = of({n: piece.reshape(v.shape) for (n, v), piece in zip(start.items(), pieces, strict=True)})
        return -value, -np.concatenate([slopes[name].reshape(-1).numpy() for name in start])

    x = np.concatenate([value.reshape(-1).numpy() for value in start.values()])
    return -minimize(flat, x, jac=True, method="L-BFGS-B", options={"maxiter": 400}).fun, lambda v: of(v)[0]


def test_a_federation_is_at_its_optimum_in_25_rounds():
    """Within a tenth of a nat for each client, where Adam as it is by default is not yet."""
    spec, data = federation(4, n_features=1, kinds=("regression", "binary"))

    def theta(server):
        return {n.partition("/")[2]: v for n, v in server.items() if n.startswith(("theta/", "pooled/"))}

    options = {"theta_prior": "weak", "learning_rate": 0.3, "betas": (0.7, 0.95)}
    best, bound = optimum(spec, data, theta(PFedMul(**options).init(spec, START)))
    found = {
        name: bound(
            theta(run_rounds(PFedMul(optimiser=name, **(options if name != "adam" else {})), spec, data, rounds=25)[0])
        )
        for name in ("adam", "quasi-newton")
    }
    assert found["adam"] < best - 0.1 < found["quasi-newton"] <= best + 1e-4


def test_the_slope_of_pooled_noise_is_that_of_the_bound():
    """What the server makes of sums and counts, against autograd on the clients' bounds."""
    spec, data = federation(3, kinds=("regression", "robust", "binary"))
    made = PFedMul(optimiser="quasi-newton", theta_prior={"noise": 1e6}, mf_steps=200)
    states = {name: made.start(mine, START) for name, mine in data.items()}
    server, _ = one_round(made, made.init(spec, START), states, data)
    step = server["adam/last.slope"]
    names = [n.partition("/")[2] for n in made.init(spec, START) if n.startswith("theta/")]
    names += [n.partition("/")[2] for n in made.init(spec, START) if n.startswith("pooled/")]
    model = made.model(next(iter(data.values())))
    batch = batch_of([prepared_rows(mine, model.likelihoods) for mine in data.values()])
    values = model.initial_values(START)
    found = batch.step(model.prior.with_values(values), max_steps=200, groups=("noise",)).gradient
    assert names[-2:] == ["noise.regression", "noise.robust"]
    wanted = [found[name].mean().item() for name in names[-2:]]
    assert step[-2:].tolist() == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"optimiser": "newton"}, "optimiser 'newton' is unknown"),
        ({"optimiser": "quasi-newton", "mode": "average"}, "optimiser is 'quasi-newton', and mode is 'average'"),
        ({"optimiser": "quasi-newton", "projection": 2}, "optimiser is 'quasi-newton', and features are learned"),
    ],
)
def test_wrong_options(options, text):
    with pytest.raises(ConfigError) as error:
        PFedMul(**options)
    assert text in str(error.value)
