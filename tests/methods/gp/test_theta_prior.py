"""The prior of Θ in a federation, against the same model in one place."""

from __future__ import annotations

import pytest
import torch
from scipy import optimize

from federations import START, federation, one_round, run_rounds
from polyfed.errors import ConfigError
from polyfed.gp import ExactModel, Prior, infer
from polyfed.gp.hyperprior import HyperPrior, log_density
from polyfed.methods import Local, PFedMul, method
from polyfed.methods.gp.states import Server
from polyfed.methods.gp.theta_prior import balanced
from polyfed.modelling.rows import likelihoods_of, rows_of

NOISE = "noise.regression"


def theta(server):
    names = ("initial/", "theta/", "pooled/")
    return {name.partition("/")[2]: value for name, value in server.items() if name.startswith(names)}


def prior_of(spec, values):
    likelihoods = likelihoods_of(spec.codecs, "polya-gamma")
    noise = {task: lik.initial_noise for task, lik in likelihoods.items() if lik.initial_noise is not None}
    outputs = {task: lik.n_outputs for task, lik in likelihoods.items()}
    prior = Prior(
        kernels=["rbf"] * len(outputs), dims=spec.n_features, outputs=outputs, noise=noise, per_dimension=True
    )
    return prior.load(values), likelihoods


def best_noise(squares, count, hyper, weight=1.0):
    def cost(t):
        at = torch.tensor(hyper.noise_at).log().item()
        return (
            0.5 * count * t
            + 0.5 * squares * torch.tensor(-t).exp().item()
            + weight * 0.5 * ((t - at) / hyper.noise) ** 2
        )

    return optimize.minimize_scalar(cost, bounds=(-12.0, 6.0), method="bounded", options={"xatol": 1e-10}).x


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("who", [4, 2])
def test_a_round_is_a_step_on_the_average_bound_and_one_prior(weighting, who):
    """Three rounds by torch's Adam on mean F + log p / N; with two of four clients in a round it is still N that counts."""
    spec, data = federation(4)
    hyper = HyperPrior(mixing=0.5, ard=0.2, noise=0.4)
    options = {"weighting": weighting, "learning_rate": 0.07, "per_dimension": True, "betas": (0.7, 0.95)}
    made = PFedMul(theta_prior={"mixing": 0.5, "ard": 0.2, "noise": 0.4}, **options)
    server, states = made.init(spec, START), {name: made.start(mine, START) for name, mine in data.items()}
    prior, likelihoods = prior_of(spec, theta(server))
    densities = hyper.densities(prior)
    learned = {name: p for name, p in prior.parameters.items() if name != NOISE}
    adam = torch.optim.Adam(learned.values(), lr=0.07, betas=(0.7, 0.95), maximize=True)
    warm = dict.fromkeys(data)
    for round in range(3):
        chosen = list(data) if who == 4 else [list(data)[(round + i) % 4] for i in range(2)]
        bound, squares, count = 0.0, 0.0, 0.0
        total = sum(data[name].n_labels for name in chosen)
        for name in chosen:
            model = ExactModel(prior, rows_of(data[name], likelihoods))
            posterior = infer(model, start=warm[name], max_steps=2)
            warm[name] = posterior.marginals
            share = 1 / len(chosen) if weighting == "uniform" else data[name].n_labels / total
            bound = bound + share * model.bound(posterior.q)
            mine = model.rows.noise_statistics(prior, *posterior.marginals).get("regression", (0.0, 0.0))
            squares, count = squares + float(mine[0]), count + float(mine[1])
        adam.zero_grad()
        (bound + log_density(learned, densities) / 4).backward()
        adam.step()
        if count:
            prior.load({NOISE: torch.tensor(best_noise(squares, count, hyper, who / 4), dtype=torch.float64)})
        server, _ = one_round(made, server, states, data, chosen, round + 1)
    found = theta(server)
    for name, wanted in prior.state().items():
        torch.testing.assert_close(found[name], wanted, rtol=0, atol=1e-6 if name == NOISE else 1e-7)


def test_without_it_nothing_changes():
    """Neither a number nor a name in any state: the paper's method as it was."""
    spec, data = federation(3)
    server, states, _ = run_rounds(PFedMul(), spec, data)
    assert {name.partition("/")[0] for name in server} == {"theta", "pooled", "adam"}
    assert "adam/passes" not in server
    assert not any(name.endswith("passes") for state in states.values() for name in state)


def test_personal_groups_have_the_whole_prior():
    """A client alone: its own Θ moves as a federation of that one client with the prior would move the shared one."""
    spec, data = federation(1)
    options = {"learning_rate": 0.05, "theta_prior": "weak", "halve_every": 1, "halve_after": 1}
    server, _, _ = run_rounds(PFedMul(**options), spec, data, rounds=4)
    _, states, _ = run_rounds(Local(**options), spec, data, rounds=4)
    for name, wanted in theta(server).items():
        torch.testing.assert_close(states["client 0"][f"personal/{name}"], wanted, rtol=0, atol=1e-12)


def test_it_draws_towards_the_usual_values():
    """A prior that is nearly certain leaves nothing else to learn."""
    spec, data = federation(3)
    certain = {"mixing": 1e-3, "amplitude": 1e-3, "length": 1e-3, "noise": 1e-3, "noise_at": 0.5}
    made = PFedMul(theta_prior=certain, halve_every=10)
    server, _, _ = run_rounds(made, spec, data, rounds=60)
    found = theta(server)
    assert found[NOISE].exp().item() == pytest.approx(0.5, rel=1e-3)
    assert all(v.abs().max() < 0.05 for name, v in found.items() if name.startswith("mixing"))


def test_clients_get_none_of_it():
    spec, _ = federation(3)
    made = PFedMul(theta_prior="weak", halve_every=5)
    server = made.init(spec, START)
    assert server["clients"] == 3
    assert "density/mixing.binary" in server
    plain = PFedMul().init(spec, START)
    assert made.broadcast(server, "client 0").keys() == PFedMul().broadcast(plain, "client 0").keys()
    assert made.prediction_state(server, "client 0").keys() == PFedMul().prediction_state(plain, "client 0").keys()


def test_pooled_data_are_one_client():
    spec, _ = federation(3)
    assert method("pooled", theta_prior="weak").init(spec, START)["clients"] == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"theta_prior": "weka"}, "theta_prior 'weka' is unknown; did you mean 'weak'?"),
        ({"theta_prior": {"mixin": 1.0}}, "theta_prior names 'mixin'; did you mean 'mixing'?"),
        ({"theta_prior": {"mixing": 0.0}}, "mixing of theta_prior is 0.0; give a number above 0."),
        ({"theta_prior": "weak", "mode": "average"}, "theta_prior with mode 'average'"),
        ({"halve_every": 0}, "halve_every is 0; give a number above 0."),
        ({"halve_after": -1}, "halve_after is -1; give a number from 0 up."),
        ({"betas": (0.9, 1.0)}, "one of betas is 1.0; give a number from 0 up and below 1."),
    ],
)
def test_wrong_options(options, text):
    with pytest.raises(ConfigError) as error:
        PFedMul(**options)
    assert text in str(error.value)


@pytest.mark.parametrize("kinds", [("regression",), ("regression", "binary")])
def test_amplitudes_and_weights_are_balanced_where_the_prior_is_highest(kinds):
    """The functions stay as they are, and nothing that leaves them so has a higher density (scipy, latent by latent)."""
    spec, _ = federation(3, kinds=kinds)
    made = PFedMul(theta_prior={"mixing": 0.7, "amplitude": 1.3}, n_latents=3)
    server = made.init(spec, START)
    generator = torch.Generator().manual_seed(0)
    values = {n: torch.randn(v.shape, generator=generator, dtype=torch.float64) for n, v in theta(server).items()}
    found = balanced(values, Server.from_arrays(server).densities)
    densities = {name.partition("/")[2]: value for name, value in server.items() if name.startswith("density/")}
    mixing = [name for name in values if name.startswith("mixing.")]
    for b in range(3):
        name = f"kernels.{b}.log_amplitude"
        for task in mixing:
            functions = [(0.5 * v[name]).exp() * v[task][:, b] for v in (values, found)]
            torch.testing.assert_close(*functions, rtol=1e-12, atol=1e-12)

        def density(t, name=name, b=b):
            moved = {n: v.clone() for n, v in found.items()}
            moved[name] = torch.tensor(t, dtype=torch.float64)
            for task in mixing:
                moved[task][:, b] *= (0.5 * (found[name] - moved[name])).exp()
            return float(log_density(moved, densities))

        best = optimize.minimize_scalar(lambda t: -density(t), bounds=(-6.0, 6.0), method="bounded")
        assert density(float(found[name])) >= -best.fun - 1e-9
    rest = [name for name in values if name not in mixing and not name.endswith(".log_amplitude")]
    assert rest
    assert all(torch.equal(values[name], found[name]) for name in rest)


def test_without_a_prior_or_without_the_weights_nothing_is_balanced():
    spec, _ = federation(3)
    for made in (PFedMul(), PFedMul(theta_prior="weak", scheme="K")):
        server = made.init(spec, START)
        learned = {name.partition("/")[2]: value for name, value in server.items() if name.startswith("theta/")}
        found = balanced(learned, Server.from_arrays(server).densities)
        assert all(found[name] is value for name, value in learned.items())
