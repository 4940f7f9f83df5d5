"""Networks under kernels: in chunks, and one for each latent."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from polyfed.gp import ExactModel, Prior, Rows, SparseModel, infer
from polyfed.gp.likelihoods import Bernoulli, Gaussian
from polyfed.nets import SideBySide

N, D, WIDTH = 17, 3, 4
LIKELIHOODS = {"pulse": Gaussian(), "sick": Bernoulli()}


def network(seed=0, hidden=6):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = nn.Linear(D, hidden), nn.Tanh(), nn.BatchNorm1d(hidden), nn.Tanh(), nn.Linear(hidden, WIDTH)
        return nn.Sequential(*layers).double().eval()


def prior_of(features, *, projection=None, **options):
    prior = Prior(
        kernels=["rbf", "matern52"],
        dims=projection or WIDTH,
        projected=None if projection is None else WIDTH,
        outputs={"pulse": 1, "sick": 1},
        noise={"pulse": 0.2},
        features=features,
        **options,
    )
    rng = np.random.default_rng(1)
    own = {name: value for name, value in prior.state().items() if not name.startswith("features.") or "proj" in name}
    return prior.load({name: torch.from_numpy(rng.normal(0, 0.6, tuple(v.shape))) for name, v in own.items()})


def rows():
    rng = np.random.default_rng(2)
    seen = {
        "pulse": (torch.arange(N), torch.from_numpy(rng.standard_normal(N))),
        "sick": (torch.arange(0, N, 2), torch.from_numpy(np.where(rng.random((N + 1) // 2) < 0.5, -1.0, 1.0))),
    }
    return Rows.of(torch.from_numpy(rng.standard_normal((N, D))), seen, LIKELIHOODS)


def bound_of(prior, sparse=False):
    model = SparseModel(prior, rows(), rows().x[:6]) if sparse else ExactModel(prior, rows())
    return model.bound(infer(model, tolerance=1e-13, max_steps=2000).q)


def gradient_of(prior, sparse=False):
    found = torch.autograd.grad(bound_of(prior, sparse), list(prior.parameters.values()))
    return dict(zip(prior.parameters, found, strict=True))


# ---- chunks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("chunk", [1, 5, N, 100])
def test_the_gradient_does_not_depend_on_chunks(chunk, sparse):
    whole, parts = (prior_of(network(), projection=2, chunk=c) for c in (None, chunk))
    expected, found = gradient_of(whole, sparse), gradient_of(parts, sparse)
    assert {name for name in expected if name.startswith("features.0")} == {"features.0.weight", "features.0.bias"}
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-9, atol=1e-9)
        assert gradient.abs().max() > 0 or name.endswith(".bias")  # a shift changes no distance, so no kernel


def test_in_float32_the_gradient_is_the_same_to_six_digits():
    whole, parts = (prior_of(network().float(), chunk=c) for c in (None, 4))
    expected, found = gradient_of(whole), gradient_of(parts)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-5, atol=1e-6)


class Watched(nn.Module):
    """Knows the largest number of inputs that it has seen at once."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.most, self.labels = inner, 0, 0

    def forward(self, x):
        self.most, self.labels = max(self.most, len(x)), self.labels + len(x)
        return self.inner(x)


def test_no_activations_but_those_of_one_chunk_are_kept():
    """All that is saved for the backward pass, and how much the network works on at once when it comes."""
    saved, watched = {}, {}
    for chunk in (None, 3):
        watched[chunk] = Watched(network(hidden=500))
        prior = prior_of(watched[chunk], chunk=chunk)
        kept = {}

        def pack(tensor, kept=kept):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with saved_tensors_hooks(pack, lambda tensor: tensor):
            features = prior.eta(rows().x)
        own = {value.untyped_storage().data_ptr() for value in prior.parameters.values()}
        saved[chunk] = sum(size for place, size in kept.items() if place not in own)
        assert watched[chunk].labels == N
        features.sum().backward()
    assert saved[None] >= 2 * N * 500 * 8  # what the two tanh made of every input
    assert saved[3] < N * 500 * 8 / 10  # no more than inputs and features
    assert (watched[None].most, watched[None].labels) == (N, N)
    assert (watched[3].most, watched[3].labels) == (3, 2 * N)  # once more, three at a time


def test_a_batch_norm_uses_the_statistics_that_it_has():
    """By hand: a row of features does not depend on who else is there."""
    prior = prior_of(network())
    norm = prior.features[2]
    norm.running_mean.fill_(0.5)
    norm.running_var.fill_(4.0)
    x = rows().x
    first, last = prior.features[0], prior.features[4]
    hidden = torch.tanh((torch.tanh(first(x)) - 0.5) / (4.0 + norm.eps) ** 0.5)
    torch.testing.assert_close(prior.eta(x), last(hidden))
    torch.testing.assert_close(prior.eta(x[3:4]), prior.eta(x)[3:4])
    assert norm.running_mean.unique().tolist() == [0.5]


# ---- one for each latent -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("projection", [None, 2])
def test_identical_networks_are_one_that_is_shared(projection):
    net = network()
    shared = prior_of(net, projection=projection)
    apart = prior_of(SideBySide(deepcopy(net), 2), projection=projection, apart=True)
    torch.testing.assert_close(bound_of(apart), bound_of(shared), rtol=0, atol=1e-10)
    together, own = gradient_of(shared), gradient_of(apart)
    for name, gradient in together.items():
        if name in own:
            torch.testing.assert_close(own[name], gradient, rtol=1e-8, atol=1e-9)
        else:  # what moves the shared network moves either of the two
            both = [own[name.replace("features.", f"features.{b}.")] for b in (0, 1)]
            torch.testing.assert_close(both[0] + both[1], gradient, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("projection", [None, 2])
def test_a_latent_sees_its_own_network_alone(projection):
    nets = SideBySide(network(), 2)
    prior = prior_of(nets, projection=projection, apart=True)
    nets[1].load_state_dict(network(seed=5).state_dict())
    x = rows().x
    before = [prior.of_latent(b, prior.eta(x)).detach() for b in (0, 1)]
    if projection is None:
        torch.testing.assert_close(before[1], network(seed=5)(x))
    else:
        P = prior.state()["features.projection"]
        torch.testing.assert_close(before[1], network(seed=5)(x) @ P[:, 2:] * 4 / WIDTH)
    with torch.no_grad():
        nets[1][4].bias += 1.0
    after = [prior.of_latent(b, prior.eta(x)).detach() for b in (0, 1)]
    assert torch.equal(after[0], before[0])
    assert (after[1] - before[1]).abs().min() > 1e-3


@pytest.mark.parametrize(("projection", "chunk", "sparse"), [(None, None, False), (2, 5, False), (2, None, True)])
def test_gradients_of_networks_apart_are_those_of_finite_differences(projection, chunk, sparse):
    nets = SideBySide(network(), 2)
    nets[1].load_state_dict(network(seed=5).state_dict())
    prior = prior_of(nets, projection=projection, apart=True, chunk=chunk)
    gradient, state = gradient_of(prior, sparse), prior.state()
    for name, place in (("features.0.0.weight", (1, 2)), ("features.1.0.weight", (0, 1)), ("features.1.4.bias", (2,))):
        step = torch.zeros_like(state[name])
        step[place] = 1e-5
        up, down = (bound_of(prior.with_values({**state, name: state[name] + s * step}), sparse) for s in (1, -1))
        slope = ((up - down) / 2e-5).detach()
        torch.testing.assert_close(gradient[name][place], slope, rtol=1e-5, atol=2e-6)
