"""Θ: names, groups, copies, and what `load` rejects."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from polyfed.errors import ConfigError
from polyfed.gp import GROUPS, ExactModel, Prior, Rows, group_of, infer, predict_latents
from polyfed.gp.likelihoods import Bernoulli, Gaussian


def prior(**options) -> Prior:
    given = {"kernels": ["rbf", "linear", "laplace"], "dims": 2, "outputs": {"heart.rate": 1, "stage": 3}}
    return Prior(**(given | {"noise": {"heart.rate": 0.5}} | options))


NAMES = [
    "kernels.0.log_amplitude",
    "kernels.0.log_phi1",
    "kernels.1.log_amplitude",
    "kernels.2.log_amplitude",
    "kernels.2.log_phi1",
    "mixing.heart.rate",
    "mixing.stage",
    "noise.heart.rate",
]


def test_the_names_and_shapes():
    state = prior().state()
    assert sorted(state) == NAMES  # a linear kernel has no length-scale; dots in a task's name do no harm
    assert state["kernels.0.log_phi1"].shape == (1,)
    assert state["mixing.stage"].shape == (3, 3)
    assert all(value.dtype == torch.float64 for value in state.values())
    assert prior(per_dimension=True).state()["kernels.2.log_phi1"].shape == (2,)


def test_every_parameter_is_in_one_group():
    theta = prior(features=nn.Linear(4, 2))
    assert {group_of(name) for name in theta.parameters} == set(GROUPS)
    assert list(theta.group("mixing")) == ["mixing.heart.rate", "mixing.stage"]
    assert list(theta.group("noise", "features")) == ["features.weight", "features.bias", "noise.heart.rate"]
    assert theta.group() == {}
    together = [name for group in GROUPS for name in theta.group(group)]
    assert sorted(together) == sorted(theta.parameters)


def test_a_group_is_live_and_a_state_is_a_copy():
    theta = prior()
    state = theta.state()
    with torch.no_grad():
        theta.group("mixing")["mixing.stage"].fill_(7.0)
    assert (theta.W_of("stage") == 7.0).all()
    assert (state["mixing.stage"] == 1.0).all()
    assert not state["mixing.stage"].requires_grad


def test_a_state_makes_the_round_trip():
    there, back = prior(features=nn.Linear(4, 2)), prior(features=nn.Linear(4, 2))
    with torch.no_grad():
        for i, value in enumerate(there.parameters.values()):
            value.add_(0.1 * i)
    leaves = list(back.parameters.values())
    assert back.load(there.state()) is back
    assert all(a is b for a, b in zip(leaves, back.parameters.values(), strict=True)), "still the same leaves"
    assert all(value.requires_grad for value in leaves)
    for name, value in there.state().items():
        assert value.equal(back.state()[name]), name


def test_a_part_of_a_state_leaves_the_rest():
    theta = prior().load({"noise.heart.rate": torch.tensor(2.0)})
    assert theta.noise_of("heart.rate").item() == pytest.approx(torch.tensor(2.0).exp().item())
    assert (theta.W == 1.0).all()


HEALTHY = {"mixing.stage": torch.full((3, 3), 5.0, dtype=torch.float64)}


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (
            {"mixing.stag": torch.zeros(3, 3)},
            "parameter 'mixing.stag' is not part of this prior; did you mean 'mixing.stage'? known are "
            + ", ".join(repr(name) for name in NAMES)
            + ".",
        ),
        (
            {"kernels.0.log_phi1": torch.zeros(2)},
            "parameter 'kernels.0.log_phi1' has shape (2,), not (1,); "
            "load a state of a prior with the same tasks, kernels and inputs.",
        ),
        (
            {"noise.heart.rate": torch.tensor(float("nan"))},
            "parameter 'noise.heart.rate' is not finite; load a state of a healthy prior.",
        ),
        (
            {"mixing.heart.rate": torch.tensor([[0.0, float("inf"), 0.0]])},
            "parameter 'mixing.heart.rate' is not finite; load a state of a healthy prior.",
        ),
    ],
)
@pytest.mark.parametrize("last", [True, False])
def test_load_takes_all_or_nothing(bad, text, last):
    theta = prior()
    before = theta.state()
    with pytest.raises(ConfigError) as caught:
        theta.load(HEALTHY | bad if last else bad | HEALTHY)
    assert str(caught.value) == text
    for name, value in theta.state().items():
        assert value.equal(before[name]), name


def test_a_wrong_kernel_or_group_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match=r"^kernel 'mattern32' is unknown; did you mean 'matern32'\? known are 'rbf'"):
        prior(kernels=["rbf", "mattern32"])
    with pytest.raises(ConfigError, match=r"^a prior without latent functions; give at least one kernel\.$"):
        prior(kernels=[])
    with pytest.raises(ConfigError, match=r"^group 'mixin' is unknown; did you mean 'mixing'\? known are 'features'"):
        prior().group("mixin")


def test_the_rows_of_w_follow_the_outputs():
    theta = prior().load({"mixing.heart.rate": torch.full((1, 3), 2.0)})
    assert theta.W[:, 0].tolist() == [2.0, 1.0, 1.0, 1.0]
    assert theta.W_of("stage").shape == (3, 3)
    assert theta.n_latents == 3


def test_only_some_tasks_have_noise():
    theta = prior()
    assert theta.noise_of("heart.rate").item() == pytest.approx(0.5)
    assert theta.noise_of("stage") is None


def test_length_scales_are_in_units_of_the_inputs():
    theta = prior().load({"kernels.0.log_phi1": torch.tensor([0.25]).log()})
    ((_, rbf),), linear, ((_, laplace),) = theta.length_scales()
    assert linear == []
    assert rbf.tolist() == pytest.approx([2.0])  # φ₁ = 1/ℓ²
    assert laplace.tolist() == pytest.approx([2.0])  # exp(−½φ₁ d) = exp(−d/ℓ)


# ---- deep kernels --------------------------------------------------------------------------------------------


def test_a_network_in_float32_under_a_gp_in_float64():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 2), nn.Tanh())
    outputs = {"level": 1, "sick": 1}
    theta = Prior(kernels=["rbf"], dims=2, outputs=outputs, noise={"level": 0.1}, features=net)
    x = torch.linspace(-1.0, 1.0, 30, dtype=torch.float64).reshape(6, 5)
    assert theta.eta(x).dtype == torch.float64
    torch.testing.assert_close(theta.eta(x), net(x.float()).double(), rtol=0.0, atol=0.0)

    y = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
    seen = {"level": (torch.arange(3), y), "sick": (torch.arange(3, 6), y)}
    model = ExactModel(theta, Rows.of(x, seen, {"level": Gaussian(), "sick": Bernoulli()}))
    posterior = infer(model)
    assert model.K.dtype == posterior.q.m.dtype == torch.float64
    gradients = torch.autograd.grad(model.bound(posterior.q), list(theta.parameters.values()))
    for (name, value), gradient in zip(theta.parameters.items(), gradients, strict=True):
        assert gradient.dtype == value.dtype == (torch.float32 if name.startswith("features") else torch.float64)
        assert torch.isfinite(gradient).all()
    assert any(g.abs().sum() > 0.0 for g in gradients[:2]), "the network learns"
    assert predict_latents(model, posterior.q, x).mean.dtype == torch.float64


def test_a_state_in_float64_fits_a_network_in_float32():
    theta = prior(features=nn.Linear(4, 2))
    theta.load({"features.bias": torch.tensor([0.5, 0.25], dtype=torch.float64)})
    assert theta.state()["features.bias"].dtype == torch.float32
    assert theta.state()["features.bias"].tolist() == [0.5, 0.25]
