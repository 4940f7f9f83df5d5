"""The option `kernel` of methods: names, expressions and kernels; the same run either way, by torch and compiled."""

from __future__ import annotations

import json

import pytest
import torch

from federations import START, federation
from polyfed.engine.storage import options_of
from polyfed.errors import ConfigError
from polyfed.gp import compiled
from polyfed.gp.kernels import Periodic, periodic, rbf
from polyfed.methods import method

WITH_KERNELS = ["pfed-mul", "pfed-hier", "pfed-st", "local", "pooled"]


@pytest.mark.parametrize("name", WITH_KERNELS)
def test_options_are_kept_as_text(name):
    made = method(name, kernel=rbf + Periodic(2.0))
    assert made == method(name, kernel=" rbf+periodic(period=2)")
    assert json.loads(json.dumps(options_of(made)))["kernel"] == "rbf + periodic(period=2.0)"
    with pytest.raises(ConfigError, match="kernel 'periodc' is unknown; did you mean 'periodic'"):
        method(name, kernel="rbf + periodc")
    with pytest.raises(ConfigError, match="kernel 3 is unknown"):
        method(name, kernel=3)


def test_one_kernel_for_each_latent():
    made = method("pfed-mul", kernel=[rbf, "rbf*periodic"])
    assert made.kernel == ("rbf", "rbf * periodic")
    _, data = federation()
    assert made.model(data["client 0"]).prior.kernels == (rbf, rbf * periodic)


@pytest.mark.parametrize("inducing", [None, 4])
@pytest.mark.parametrize("name", ["pfed-mul", "pfed-hier"])
def test_torch_and_compiled_code_give_the_same_run(name, inducing, monkeypatch):
    pytest.importorskip("numba", reason="numba is not installed")
    spec, data = federation()
    made = method(name, kernel="rbf * (periodic + matern52)", inducing=inducing)

    def gradients():
        server = made.init(spec, START)
        updates = {}
        for client, own in data.items():
            _, updates[client] = made.local({}, made.broadcast(server, client), own, START)
        return updates, made.aggregate(server, updates)

    monkeypatch.setenv(compiled.SWITCH, "0")
    by_torch, server = gradients()
    monkeypatch.setenv(compiled.SWITCH, "1")
    again, server_again = gradients()
    for client, update in by_torch.items():
        for key, value in update.arrays.items():
            torch.testing.assert_close(again[client].arrays[key], value, rtol=1e-8, atol=1e-8, msg=key)
    assert any(key.endswith("1.1.log_phi1") for key in server)  # matern52 within the sum within the product
    assert all(torch.isfinite(value).all() for value in server_again.values())


def test_a_sum_of_one_kernel_with_itself_is_that_kernel():
    """Where both parts have the same φ₁ a sum is its parts, whatever their shares: every gradient, through another path."""
    spec, data = federation()
    plain, doubled = (method("pfed-mul", kernel=[text, "linear"], theta_prior="none") for text in ("rbf", "rbf + rbf"))
    gradients = []
    for made in (plain, doubled):
        server = made.init(spec, START)
        gradients.append(made.local({}, made.broadcast(server, "client 0"), data["client 0"], START)[1].arrays)
    of_plain, of_sum = gradients
    summed = {name: value for name, value in of_sum.items() if name in of_plain}
    assert summed.keys() == of_plain.keys() - {"kernels.0.log_phi1"}
    for name, value in summed.items():
        torch.testing.assert_close(value, of_plain[name], rtol=1e-9, atol=1e-9, msg=name)
    both = of_sum["kernels.0.0.log_phi1"] + of_sum["kernels.0.1.log_phi1"]
    torch.testing.assert_close(both, of_plain["kernels.0.log_phi1"], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(of_sum["kernels.0.log_ratio"], torch.zeros(1, dtype=torch.float64), rtol=0, atol=1e-10)
