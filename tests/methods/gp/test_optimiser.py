"""Adam as a function against torch's own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from polyfed.errors import ConfigError
from polyfed.methods.gp.optimiser import Adam, Halving, checked_betas
from polyfed.methods.gp.states import Moments


def test_one_client_is_torchs_adam():
    generator = torch.Generator().manual_seed(0)
    values = {"kernels.a": torch.randn(3, generator=generator), "mixing.b": torch.randn(2, 2, generator=generator)}
    values = {name: value.double() for name, value in values.items()}
    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    theirs = torch.optim.Adam(
        [{"params": [leaves["kernels.a"]], "lr": 0.1}, {"params": [leaves["mixing.b"]], "lr": 0.02}], maximize=True
    )
    ours = Adam({"kernels": 0.1, "mixing": 0.02})
    state = ours.start(values)
    for _ in range(7):
        gradient = {name: torch.randn(v.shape, generator=generator).double() for name, v in values.items()}
        values, state = ours.step(values, gradient, state)
        for name, leaf in leaves.items():
            leaf.grad = gradient[name]
        theirs.step()
    for name, leaf in leaves.items():
        torch.testing.assert_close(values[name], leaf.detach(), rtol=0, atol=1e-13)


def test_with_decay_it_is_torchs_adamw():
    """In float32 too; what is not named does not decay."""
    generator = torch.Generator().manual_seed(2)
    values = {"features.a": torch.randn(4, 3, generator=generator), "kernels.b": torch.randn(2, generator=generator)}
    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    theirs = torch.optim.AdamW(
        [
            {"params": [leaves["features.a"]], "lr": 0.01, "weight_decay": 0.3},
            {"params": [leaves["kernels.b"]], "lr": 0.1, "weight_decay": 0.0},
        ],
        maximize=True,
    )
    ours = Adam({"features": 0.01, "kernels": 0.1}, {"features": 0.3})
    state = ours.start(values)
    for _ in range(9):
        gradient = {name: torch.randn(v.shape, generator=generator) for name, v in values.items()}
        values, state = ours.step(values, gradient, state)
        for name, leaf in leaves.items():
            leaf.grad = gradient[name]
        theirs.step()
    for name, leaf in leaves.items():
        torch.testing.assert_close(values[name], leaf.detach(), rtol=0, atol=1e-6)


def test_entries_of_a_projection_move_by_what_they_say():
    """The first step of Adam is of size one for every entry; of a projection, of size one in the mean square alone."""
    gradient = {"features.projection": torch.tensor([[3.0, 0.0], [4.0, 0.0]], dtype=torch.float64)}
    values = {"features.projection": torch.zeros(2, 2, dtype=torch.float64)}
    adam = Adam({"features": 0.1})
    moved, _ = adam.step(values, gradient, adam.start(values))
    wanted = 0.1 * torch.tensor([[3.0, 0.0], [4.0, 0.0]]).double() / (25 / 4) ** 0.5
    torch.testing.assert_close(moved["features.projection"], wanted)
    # Again with two clients at once, the second of which has ten times the gradient: each has a moment of its own.
    both = {"features.projection": torch.stack([g * f for f in (1.0, 10.0) for g in gradient.values()])}
    start = adam.start({"features.projection": torch.zeros(2, 2, 2, dtype=torch.float64)}, 2)
    again, _ = adam.step({"features.projection": torch.zeros(2, 2, 2, dtype=torch.float64)}, both, start)
    torch.testing.assert_close(again["features.projection"], wanted.expand(2, 2, 2))


def test_many_clients_are_each_by_itself():
    """Two clients, the second of which has taken three steps more."""
    adam = Adam({"kernels": 0.1})
    generator = torch.Generator().manual_seed(1)
    draw = lambda: {"kernels.a": torch.randn(2, generator=generator).double()}  # noqa: E731
    values = [draw(), draw()]
    states = [adam.start(v) for v in values]
    for _ in range(3):
        values[1], states[1] = adam.step(values[1], draw(), states[1])
    gradients = [draw(), draw()]
    expected = [adam.step(*triple)[0]["kernels.a"] for triple in zip(values, gradients, states, strict=True)]
    stack = lambda parts: {name: torch.stack([part[name] for part in parts]) for name in parts[0]}  # noqa: E731
    memory = Moments.from_arrays(stack([state.to_arrays() for state in states]))
    moved, after = adam.step(stack(values), stack(gradients), memory)
    torch.testing.assert_close(moved["kernels.a"], torch.stack(expected), rtol=0, atol=1e-15)
    assert after.steps.tolist() == [1, 4]


def test_halving_is_torchs_adam_with_a_schedule():
    """Other betas, and rates that torch's LambdaLR halves after the fourth, sixth and eighth step, to a fifth at the least."""
    generator = torch.Generator().manual_seed(3)
    values = {"kernels.a": torch.randn(3, generator=generator, dtype=torch.float64)}
    leaf = values["kernels.a"].clone().requires_grad_()
    theirs = torch.optim.Adam([leaf], lr=0.3, betas=(0.7, 0.95), maximize=True)
    factors = [1, 1, 1, 1, 0.5, 0.5, 0.25, 0.25, 0.2, 0.2, 0.2]
    scheduler = torch.optim.lr_scheduler.LambdaLR(theirs, lambda i: factors[i])
    ours = Adam({"kernels": 0.3}, beta1=0.7, beta2=0.95, schedule=Halving(every=2, after=2, least=0.2))
    state = ours.start(values)
    for _ in range(10):
        gradient = {"kernels.a": torch.randn(3, generator=generator, dtype=torch.float64)}
        values, state = ours.step(values, gradient, state)
        leaf.grad = gradient["kernels.a"]
        theirs.step()
        scheduler.step()
    torch.testing.assert_close(values["kernels.a"], leaf.detach(), rtol=0, atol=1e-13)


def test_halving_counts_passes_over_the_clients():
    """A third of the clients in each step: the first halving after three times as many, and each client has its own count."""
    ours = Adam({"kernels": 0.1}, beta1=0.0, beta2=0.0, schedule=Halving(every=1, after=1))
    values, gradient = {"kernels.a": torch.zeros(1).double()}, {"kernels.a": torch.ones(1).double()}
    state, steps = ours.start(values), []
    for _ in range(8):
        moved, state = ours.step(values, gradient, state, share=1 / 3)
        steps.append(moved["kernels.a"].item() - values["kernels.a"].item())
        values = moved
    assert steps == pytest.approx([0.1] * 6 + [0.05] * 2)
    both = ours.start({"kernels.a": torch.zeros(2, 1).double()}, 2)
    both = replace(both, passes=torch.tensor([0.0, 2.0]).double())
    moved, after = ours.step({"kernels.a": torch.zeros(2, 1).double()}, {"kernels.a": torch.ones(2, 1).double()}, both)
    assert moved["kernels.a"].flatten().tolist() == pytest.approx([0.1, 0.05])
    assert after.passes.tolist() == [1, 3]


@pytest.mark.parametrize("given", [0.9, "0.9", (0.9,), (0.9, 0.99, 0.999)])
def test_betas_are_two(given):
    with pytest.raises(ConfigError, match=r"give two numbers, such as \[0.9, 0.999\]"):
        checked_betas(given)
