"""Curved features of outputs, against the Gaussian process on the points that they stand for."""

from __future__ import annotations

import torch

from polyfed.gp.weight_space import JITTER, LENGTH, N_POINTS, REACH, curved


def test_their_products_are_the_covariance_through_the_points():
    z = torch.linspace(-4, 4, 11, dtype=torch.float64)[:, None]
    points = torch.linspace(-REACH, REACH, N_POINTS, dtype=torch.float64)

    def k(a, b):
        return torch.exp(-0.5 * (a[:, None] - b[None, :]).square() / LENGTH**2)

    inverse = torch.linalg.inv(k(points, points) + JITTER * torch.eye(N_POINTS, dtype=torch.float64))
    wanted = k(z[:, 0], points) @ inverse @ k(points, z[:, 0])
    torch.testing.assert_close(curved(z) @ curved(z).mT, wanted, rtol=0, atol=1e-10)
    inside = z[:, 0].abs() < REACH
    assert float((wanted - k(z[:, 0], z[:, 0]))[inside][:, inside].abs().max()) < 0.01  # nine points are enough there


def test_each_output_has_features_of_its_own_of_norm_one_at_the_most():
    z = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    phi = curved(z)
    assert phi.shape == (20, 3 * N_POINTS)
    for t in range(3):
        torch.testing.assert_close(
            phi[:, t * N_POINTS : (t + 1) * N_POINTS], curved(z[:, t : t + 1]), rtol=0, atol=1e-14
        )
    assert float(phi.square().sum(1).max()) <= 3.0
    assert curved(z[:0]).shape == (0, 3 * N_POINTS)
