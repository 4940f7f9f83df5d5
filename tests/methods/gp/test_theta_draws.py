"""The uncertainty of Θ: second derivatives against autograd and differences of bounds, the Laplace approximation against a
sampler of Θ, and draws as every other part of a federation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import polyfed as pf
from federations import START, client, federation, make_federation
from polyfed.engine.rounds import FederationState, run_round
from polyfed.engine.settings import Settings
from polyfed.errors import ConfigError
from polyfed.gp import ExactModel, group_of, hyperprior, infer
from polyfed.gp.hyperprior import HyperPrior
from polyfed.methods import PFedHier, PFedMul, PFedSt, method
from polyfed.methods.base import Question
from polyfed.methods.checks import check_method
from polyfed.methods.gp.clients import solver_of
from polyfed.methods.gp.model import Averaged, prepared_rows
from polyfed.methods.gp.quasi_newton import flat, shaped
from polyfed.methods.gp.states import Served, Server
from polyfed.methods.gp.theta_draws import begun, drawn, hessians, prior_root, root_covariance, symmetric, triangle
from polyfed.methods.messages import strip_prefix

AT = np.linspace(-2, 2, 12).reshape(6, 2)


def parts_of(data, options=None):
    model = PFedMul(**(options or {})).model(data)
    values = model.initial_values(START)
    generator = torch.Generator().manual_seed(3)
    values = {
        name: value + 0.3 * torch.randn(value.shape, generator=generator, dtype=value.dtype)
        for name, value in values.items()
    }
    return model, values, sorted(name for name in values if group_of(name) != "features")


def found_hessians(model, values, names, clients):
    rows = [prepared_rows(one, model.likelihoods) for one in clients]
    stacked = {name: value.expand(len(rows), *value.shape) for name, value in values.items()}
    solver = solver_of(model, rows)
    options = {"tolerance": 1e-6, "max_steps": 2, "groups": ()}
    step = solver.step(model.prior.with_values(stacked), start=[None] * len(rows), **options)
    return hessians(model, solver, stacked, names, step)


# ---- second derivatives -----------------------------------------------------------------------------------------------


def test_of_regression_they_are_those_of_the_normal_density():
    """Autograd twice through one dense covariance, written here by hand."""
    data = [client(np.random.default_rng(i), n=9, kinds=("regression",)) for i in range(2)]
    model, values, names = parts_of(data[0], {"n_latents": 2})
    found = found_hessians(model, values, names, data)
    for one, mine in zip(data, found, strict=True):
        at, y = one.labels["regression"]
        x, y = torch.from_numpy(one.x[at]), torch.from_numpy(y)

        def log_evidence(vector, x=x, y=y):
            v = shaped(vector, values, names)
            K = v["noise.regression"].exp() * torch.eye(len(x), dtype=torch.float64)
            squares = (x[:, None] - x[None]).square().sum(-1)
            for b in range(2):
                phi0, phi1 = v[f"kernels.{b}.log_amplitude"].exp(), v[f"kernels.{b}.log_phi1"].exp()
                K = K + v["mixing.regression"][0, b] ** 2 * phi0 * (-0.5 * phi1 * squares).exp()
            return torch.distributions.MultivariateNormal(torch.zeros(len(x), dtype=torch.float64), K).log_prob(y)

        exact = torch.autograd.functional.hessian(log_evidence, flat(values, names))
        assert torch.allclose(mine, exact, atol=2e-3 * float(exact.abs().max()))


@pytest.mark.parametrize("bound", ["polya-gamma", "gaussian"])
def test_of_other_kinds_they_are_second_differences_of_the_bound_whose_sites_follow(bound):
    kinds = ("regression", "binary", "count")
    data = client(np.random.default_rng(5), n=10, kinds=kinds)
    model, values, names = parts_of(data, {"bound": bound})
    found = found_hessians(model, values, names, [data])[0]
    rows, at = prepared_rows(data, model.likelihoods), flat(values, names)

    def bound_at(vector):
        prior = model.prior.with_values(values | shaped(vector, values, names))
        gp = ExactModel(prior, rows)
        return float(gp.bound(infer(gp, tolerance=1e-12, max_steps=3000).q).detach())

    rng, h = np.random.default_rng(0), 0.03
    centre = bound_at(at)
    for _ in range(4):
        d = torch.from_numpy(rng.standard_normal(len(at)))
        d = d / d.norm()
        second = (bound_at(at + h * d) - 2 * centre + bound_at(at - h * d)) / h**2
        assert second == pytest.approx(float(d @ found @ d), abs=0.01 * float(found.abs().max()))


# ---- the approximation ------------------------------------------------------------------------------------------------


def test_directions_without_information_are_as_wide_as_the_prior_and_no_wider():
    _, data = federation(2)
    model, values, names = parts_of(data["client 0"], {"per_dimension": True})
    widths = HyperPrior().densities(model.prior)
    root = prior_root(widths, {name: values[name] for name in names})
    # Its covariance is that whose gradient the prior of Θ has: C ∇log p = −(Θ − mean).
    pull = flat(hyperprior.gradient(values, widths), names)
    mean = flat({name: torch.full_like(values[name], float(widths[name][0])) for name in names}, names)
    torch.testing.assert_close(root @ root.mT @ pull, mean - flat(values, names))
    n = len(root)
    upwards = torch.eye(n, dtype=torch.float64) * 1e6  # a bound that curves upwards says nothing of where Θ is
    torch.testing.assert_close(root_covariance(upwards, root) @ root_covariance(upwards, root).mT, root @ root.mT)
    sharp = torch.zeros(n, n, dtype=torch.float64)
    sharp[0, 0] = -1e12
    covariance = root_covariance(sharp, root) @ root_covariance(sharp, root).mT
    assert covariance[0, 0] == pytest.approx(1e-12, rel=1e-3)
    H = torch.from_numpy(np.random.default_rng(0).standard_normal((n, n)))
    H = -H @ H.mT
    exact = torch.linalg.inv(torch.linalg.inv(root @ root.mT) - H)
    torch.testing.assert_close(root_covariance(H, root) @ root_covariance(H, root).mT, exact)
    torch.testing.assert_close(symmetric(triangle(H), n), H)


NAMES = [
    "kernels.0.log_phi1",
    "mixing.regression",
    "noise.regression",
]  # the parameters that are free, all else is held


def laplace(kinds, n_draws=2000):
    """Twenty clients of twenty rows, the mode of Σ L_c + log p, and draws of the approximation there."""
    data = [client(np.random.default_rng(i), n=20, n_features=1, kinds=kinds) for i in range(20)]
    model, values, _ = parts_of(data[0], {"n_latents": 1})
    widths = {name: d for name, d in HyperPrior().densities(model.prior).items() if name in NAMES}
    rows = [prepared_rows(one, model.likelihoods) for one in data]
    log_density = density(model, values, rows, widths)
    best = flat(values, NAMES)
    for _ in range(12):  # Newton to the mode, by the very matrices that are under test
        hessian = hessians(*expanded(model, values | shaped(best, values, NAMES), rows)).sum(0)
        root = root_covariance(hessian, prior_root(widths, {name: values[name] for name in NAMES}))
        step = root @ root.mT @ log_density(best[None], slope=True)[1][0]
        best = best + step * min(1.0, 0.5 / float(step.abs().max()))
        if float(step.abs().max()) < 1e-6:
            break
    assert float(step.abs().max()) < 1e-4
    like = values | shaped(best, values, NAMES)
    server = Server(theta={name: like[name] for name in NAMES}, n_clients=torch.tensor(1.0))
    server = begun(server, HyperPrior(), model.prior, n_draws, START)
    draws = flat(drawn(server, like, triangle(hessian), n_draws), NAMES, dims=1)
    return data, model, values, log_density, best, root, draws


def expanded(model, values, rows):
    stacked = {name: value.expand(len(rows), *value.shape) for name, value in values.items()}
    solver = solver_of(model, rows)
    step = solver.step(
        model.prior.with_values(stacked), start=[None] * len(rows), tolerance=1e-8, max_steps=200, groups=()
    )
    return model, solver, stacked, NAMES, step


def density(model, values, rows, widths):
    mean, sd = (torch.tensor([float(widths[name][i]) for name in NAMES]).double() for i in (0, 1))

    def log_density(vectors, slope=False):
        """Of many Θ at once: each is a client of its own in one batch."""
        k = len(vectors)
        total, slopes = torch.zeros(k, dtype=torch.float64), torch.zeros_like(vectors)
        moved = shaped(vectors, values, NAMES)
        prior = model.prior.with_values({n: moved.get(n, v.expand(k, *v.shape)) for n, v in values.items()})
        for mine in rows:
            solver = solver_of(model, [replace(mine) for _ in range(k)])
            groups = ("kernels", "mixing", "noise") if slope else ()
            step = solver.step(prior, start=[None] * k, tolerance=1e-9, max_steps=200, groups=groups)
            total += step.bound
            if slope:
                slopes += flat(step.gradient, NAMES, dims=1)
        total = total + torch.distributions.Normal(mean, sd).log_prob(vectors).sum(1)
        return (total, slopes - (vectors - mean) / sd**2) if slope else total

    return log_density


def of_regression(data):
    at, y = data.labels["regression"]
    return data.x[at], y


@pytest.mark.slow
def test_it_agrees_with_a_long_sampler_of_theta():
    """Metropolis on the density of all regression labels and the prior of Θ, which is written here by hand."""
    data, model, values, _, _, root, draws = laplace(("regression",))
    widths = HyperPrior().densities(model.prior)
    mean, sd = (torch.tensor([float(widths[name][i]) for name in NAMES]).double() for i in (0, 1))
    amplitude = values["kernels.0.log_amplitude"].exp()
    x, y = (torch.stack([torch.from_numpy(v) for v in some]) for some in zip(*map(of_regression, data), strict=True))
    squares, unit = (x - x.mT).square(), torch.eye(x.shape[1], dtype=torch.float64)

    def log_density(theta):
        log_phi1, weight, log_noise = theta[:, :, None, None, None].unbind(1)
        K = weight**2 * amplitude * (-0.5 * log_phi1.exp() * squares).exp() + log_noise.exp() * unit
        L = torch.linalg.cholesky(K)  # (chains, clients, rows, rows)
        white = torch.linalg.solve_triangular(L, y[..., None].expand(len(theta), *y.shape, 1), upper=False)
        labels = -0.5 * white.square().sum((1, 2, 3)) - L.diagonal(dim1=2, dim2=3).log().sum((1, 2))
        return labels + torch.distributions.Normal(mean, sd).log_prob(theta).sum(1)

    rng, n_chains = np.random.default_rng(1), 100
    chains = draws[:n_chains].clone()
    kept, current = [], log_density(chains)
    for i in range(400):
        proposal = chains + 1.2 * torch.from_numpy(rng.standard_normal((n_chains, 3))) @ root.mT
        new = log_density(proposal)
        accept = torch.from_numpy(rng.random(n_chains)).log() < new - current
        chains, current = torch.where(accept[:, None], proposal, chains), torch.where(accept, new, current)
        if i >= 40:
            kept.append(chains.clone())
    sampled = torch.cat(kept)
    # A mode is not a mean: the density of the mixing weight is skewed, as that of any scale is (0.23 deviations here).
    assert ((draws.mean(0) - sampled.mean(0)).abs() < torch.tensor([0.1, 0.3, 0.1]) * sampled.std(0)).all()
    assert ((draws.std(0) / sampled.std(0) - 1).abs() < 0.08).all()
    assert ((torch.corrcoef(draws.mT) - torch.corrcoef(sampled.mT)).abs() < 0.1).all()

    def predicted(thetas):
        parts = [model.predict(values | shaped(one, values, NAMES), data[0]) for one in thetas]
        return Averaged(parts)(np.linspace(-2, 2, 5)[:, None])["regression"]

    ours, theirs = predicted(draws[::20]), predicted(sampled[:: len(sampled) // 100])
    for q in (0.025, 0.5, 0.975):
        assert (np.abs(ours.quantile(q) - theirs.quantile(q)) < 0.1 * theirs.std).all()


@pytest.mark.slow
def test_with_classes_too_it_agrees_with_weighted_draws_of_the_density():
    """Self-normalised importance sampling of Σ L_c + log p, from a normal that is wider than the approximation."""
    _, _, _, log_density, best, root, draws = laplace(("regression", "binary"))
    normals = torch.from_numpy(np.random.default_rng(2).standard_normal((600, 3)))
    wider = 1.4 * normals
    log_weights = log_density(best + wider @ root.mT) + 0.5 * normals.square().sum(1)
    weights = torch.softmax(log_weights, 0)
    assert 1 / float(weights.square().sum()) > 200  # draws that count
    theta = best + wider @ root.mT
    mean = weights @ theta
    sd = (weights @ (theta - mean).square()).sqrt()
    assert ((draws.mean(0) - mean).abs() < torch.tensor([0.15, 0.3, 0.15]) * sd).all()
    assert ((draws.std(0) / sd - 1).abs() < 0.1).all()


# ---- in a federation ----------------------------------------------------------------------------------------------------


def completed(made, data, spec, rounds=3, **settings):
    progress, settings = FederationState(0, made.init(spec, START), {}), Settings(rounds=rounds, **settings)
    events = []
    for _ in range(rounds):
        progress, event = run_round(made, progress, data, settings)
        events.append(event)
    return progress, events


def answer(made, progress, data, name):
    return made.predictor(progress.server, progress.clients.get(name), data[name])(AT)


@pytest.mark.parametrize("kind", [PFedMul, PFedSt])
def test_draws_change_nothing_of_what_is_learned_and_widen_what_is_said(kind):
    spec, data = federation(3)
    without, _ = completed(kind(), data, spec)
    with_draws, events = completed(kind(theta_draws=6), data, spec)
    for name, value in without.server.items():
        assert torch.equal(with_draws.server[name], value)
    for name in data:
        for key, value in without.clients[name].items():
            assert torch.equal(with_draws.clients[name][key], value)
    assert [event["bytes_up"] for event in events[:2]] == [events[0]["bytes_up"]] * 2 < [events[2]["bytes_up"]] * 2
    plain, wide = (answer(kind(theta_draws=n), p, data, "client 0") for n, p in ((0, without), (6, with_draws)))
    assert np.mean(wide["regression"].latent_std) > np.mean(plain["regression"].latent_std)
    assert wide.keys() == plain.keys()


def test_draws_are_around_theta_in_pairs_and_of_the_last_round_alone():
    spec, data = federation(3)
    made = PFedMul(theta_draws=5)
    progress, _ = completed(made, data, spec, rounds=2)
    draws = strip_prefix(progress.server, "draw")
    values = Served.from_arrays(progress.server).values
    for name, drawn_ones in draws.items():
        assert len(drawn_ones) == 5
        torch.testing.assert_close(drawn_ones[0] + drawn_ones[3], 2 * values[name])
    assert draws.keys() == {name for name in values if group_of(name) != "features"}
    later, _ = run_round(made, progress, data, Settings(rounds=9))
    assert not strip_prefix(later.server, "draw")
    prediction_state = made.prediction_state(progress.server, "client 0")
    assert strip_prefix(prediction_state, "draw").keys() == draws.keys()
    assert not [name for name in prediction_state if name.startswith(("width", "normals", "curving"))]


def test_many_at_once_say_what_each_says():
    spec, data = federation(3)
    made = PFedMul(theta_draws=4)
    progress, _ = completed(made, data, spec)
    asked = [Question(progress.clients[name], data[name], AT) for name in data]
    for name, said in zip(data, made.predict_many(progress.server, asked), strict=True):
        alone = answer(made, progress, data, name)
        for task in said:
            np.testing.assert_allclose(said[task].latent_mean, alone[task].latent_mean, atol=1e-4)
            np.testing.assert_allclose(said[task].latent_std, alone[task].latent_std, atol=1e-4)


def test_the_order_of_clients_does_not_matter_and_not_all_need_take_part():
    spec, data = federation(4)
    made = PFedMul(theta_draws=4)
    one, _ = completed(made, data, spec)
    other, _ = completed(made, dict(reversed(data.items())), spec)
    for name, value in one.server.items():
        assert torch.allclose(other.server[name], value, atol=1e-9)
    half, events = completed(made, data, spec, sample=2)
    assert len(events[-1]["sampled"]) == 2
    assert len(strip_prefix(half.server, "draw")) == len(strip_prefix(one.server, "draw"))


def test_a_run_that_is_resumed_is_one_that_was_planned_so(tmp_path):
    federation = make_federation()
    straight = pf.simulate("pfed-mul", federation, rounds=4, theta_draws=4)
    pf.simulate("pfed-mul", federation, rounds=2, theta_draws=4, folder=tmp_path / "run")
    resumed = pf.load(tmp_path / "run").resume(4)
    for name, value in straight.federation_state.server.items():
        assert torch.equal(resumed.federation_state.server[name], value)
    assert strip_prefix(straight.federation_state.server, "draw")


@pytest.mark.slow
def test_the_contract_holds():
    check_method(PFedMul(theta_draws=3))


# ---- errors -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"theta_draws": -1}, "theta_draws is -1; give a whole number from 0 up and at most 1000."),
        ({"theta_draws": 2.5}, "theta_draws is 2.5; give a whole number from 0 up and at most 1000."),
        ({"theta_draws": 10**6}, "theta_draws is 1000000; give a whole number from 0 up and at most 1000."),
        (
            {"theta_draws": 4, "mode": "average"},
            "theta_draws is 4, and mode is 'average', in which the server sees no gra",
        ),
        (
            {"theta_draws": 4, "projection": 2},
            "theta_draws is 4, and features are learned, of which there are too many",
        ),
        (
            {"theta_draws": 4, "client_noise": True},
            "theta_draws is 4, and each client has a noise level of its own; le",
        ),
    ],
)
def test_wrong_options_are_told(options, text):
    with pytest.raises(ConfigError) as caught:
        PFedMul(**options)
    assert str(caught.value).startswith(text)


def test_methods_without_a_shared_theta_are_told():
    with pytest.raises(ConfigError, match="the server learns neither kernels nor mixing weights nor noise"):
        method("local", theta_draws=4)
    with pytest.raises(ConfigError, match="theta_draws is 4, and clients share functions"):
        PFedHier(theta_draws=4)
    PFedHier(theta_draws=4, n_shared=0, n_personal=2)


def test_a_run_that_may_end_early_has_no_last_round():
    with pytest.raises(ConfigError, match="stop is 'validation', and theta_draws are found in the last round"):
        pf.simulate("pfed-mul", make_federation(), rounds=2, stop="validation", evaluate_every=1, theta_draws=4)
