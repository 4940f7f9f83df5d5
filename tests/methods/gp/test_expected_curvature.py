"""What labels and Θ let expect of the curvature, against second derivatives of the bound."""

from __future__ import annotations

import pytest
import torch

from federations import START, federation
from polyfed.gp import hyperprior
from polyfed.methods import PFedHier, PFedMul
from polyfed.methods.gp.server_step import LEAST, OF_NOISE, expected_curvature
from polyfed.methods.gp.states import Server


def expected_of(made, server, data):
    known = Server.from_arrays(server)
    return expected_curvature(known.theta, known.pooled, known, [mine.counts() for mine in data.values()])


def test_a_task_with_little_noise_is_held_more_firmly():
    """A tenth of the noise, ten times the curvature of its weights: that of the others does not change."""
    spec, data = federation(3, kinds=("regression", "binary"))
    made = PFedHier(theta_prior="none")
    server = made.init(spec, START)
    noisy = expected_of(made, server, data)
    clear = expected_of(made, server | {"pooled/noise.regression": server["pooled/noise.regression"] - 2.302585}, data)
    torch.testing.assert_close(clear["mixing.regression"], 10 * noisy["mixing.regression"], rtol=1e-6, atol=0)
    torch.testing.assert_close(clear["mixing.binary"], noisy["mixing.binary"])
    assert (clear["kernels.0.log_amplitude"] > noisy["kernels.0.log_amplitude"]).all()


def test_the_curvature_of_a_noise_is_that_of_its_own_bound():
    """½ n log σ² + ½ S/σ² bends by ½ S/σ² in log σ², n/2 at its best; what is expected is as much and half again."""
    spec, data = federation(4, kinds=("regression",), whole=True)
    made = PFedMul()
    server = made.init(spec, START)
    n = sum(mine.counts()["regression"] for mine in data.values()) / 4
    t = torch.tensor(0.3, dtype=torch.float64)
    bends = torch.func.hessian(lambda t: 0.5 * n * t + 0.5 * (n * torch.tensor(0.3).exp()) * (-t).exp())(t)
    assert float(expected_of(made, server, data)["noise.regression"]) == pytest.approx(2 * OF_NOISE * float(bends))


@pytest.mark.parametrize("scheme", ["A", "W", "K", ["mixing"], ["noise"]])
def test_without_labels_the_prior_is_all_there_is(scheme):
    """Its own second derivatives, entry by entry, over the number of clients; whatever of Θ the server learns."""
    spec, _ = federation(4, kinds=("regression", "binary"))
    made = PFedMul(theta_prior="weak", per_dimension=True, scheme=scheme)
    server = Server.from_arrays(made.init(spec, START))
    theta, pooled = server.theta, server.pooled
    found = expected_curvature(theta, pooled, server, [{}])
    assert found.keys() == (theta | pooled).keys()
    densities = server.densities
    for name, value in (theta | pooled).items():
        log_p = torch.func.hessian(lambda x, name=name: hyperprior.log_density({name: x}, densities))(value)
        bends = -log_p.reshape(value.numel(), value.numel()).diagonal().reshape(value.shape) / 4
        torch.testing.assert_close(found[name], bends.clamp_min(LEAST), rtol=1e-9, atol=0)


def test_the_order_of_parameters_does_not_matter():
    """States that were stored and read again are in another order, and have ten latents or more."""
    spec, data = federation(3, kinds=("regression", "binary"))
    made = PFedMul(n_latents=11)
    server = made.init(spec, START)
    server |= {f"theta/kernels.{b}.log_amplitude": torch.tensor(0.1 * b).double() for b in range(11)}
    found = expected_of(made, server, data)
    again = expected_of(made, dict(sorted(server.items())), data)
    assert all(torch.equal(found[name], again[name]) for name in found)
    assert (found["mixing.binary"][0].diff() > 0).all()
