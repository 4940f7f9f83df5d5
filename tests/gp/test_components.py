"""Principal components from sums of clients, against those of the pooled rows by an SVD."""

from __future__ import annotations

import pytest
import torch

from polyfed.gp.components import Products, basis_of, first_basis, leading
from polyfed.methods import PFedHier


def rows(n, dims, decay, seed=0):
    """Around a mean that is not zero, with standard deviations that fall as a power."""
    generator = torch.Generator().manual_seed(seed)
    turned = torch.linalg.qr(torch.randn(dims, dims, generator=generator, dtype=torch.float64)).Q
    x = torch.randn(n, dims, generator=generator, dtype=torch.float64)
    return (x * torch.arange(1, dims + 1, dtype=torch.float64) ** -decay) @ turned + 0.7


def by_passes(x, n, passes, n_clients=4):
    Q = first_basis(x.shape[1], n, torch.Generator().manual_seed(1))
    for i in range(passes):
        each = [Products.of(part, Q) for part in x.chunk(n_clients)]
        sums = sum(each[1:], each[0])
        if i == passes - 1:
            return leading(sums, Q, n)
        Q = basis_of(sums.scatter(Q))
    raise AssertionError


def pooled(x, n):
    _, S, Vt = torch.linalg.svd(x - x.mean(0), full_matrices=False)
    return S[:n].square() / len(x), Vt[:n].mT


def test_they_are_those_of_the_pooled_rows_as_passes_grow():
    x = rows(150, 40, decay=0.5)
    found, (variances, directions) = by_passes(x, 6, passes=60), pooled(x, 6)
    torch.testing.assert_close(found.variances, variances, rtol=1e-9, atol=0)
    unit = found.directions * found.variances.sum().sqrt()
    cosines = torch.linalg.svdvals(unit.mT @ directions)
    assert float((1 - cosines.square()).clamp_min(0).max().sqrt()) < 1e-6  # the sine of the largest angle
    torch.testing.assert_close((unit * directions).sum(0).abs(), torch.ones(6, dtype=torch.float64), rtol=1e-6, atol=0)


@pytest.mark.parametrize("decay", [0.5, 1.0])
def test_the_passes_that_are_used_capture_nearly_all_that_the_pooled_components_do(decay):
    """Also of a spectrum that falls as slowly as that of features of images, with more dimensions than rows."""
    x = rows(400, 600, decay)
    for n in (64, 128):
        found, (variances, _) = by_passes(x, n, passes=PFedHier().passes), pooled(x, n)
        unit = torch.linalg.qr(found.directions).Q
        captured = ((x - x.mean(0)) @ unit).square().sum() / len(x)
        assert float(captured / variances.sum()) > 0.999


def test_scores_have_mean_zero_and_mean_square_norm_one():
    x = rows(90, 30, decay=0.7)
    z = by_passes(x, 5, passes=3).scores(x)
    assert float(z.mean(0).abs().max()) < 1e-12
    # Variances of three passes are those of an approximation, a little below the true ones.
    assert float(z.square().sum(1).mean()) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("n_rows", [2, 9])
def test_fewer_rows_than_components_have_as_many_as_they_span(n_rows):
    x = rows(n_rows, 30, decay=0.2)
    found, (variances, _) = by_passes(x, 20, passes=3, n_clients=2), pooled(x, n_rows - 1)
    assert found.directions.shape == (30, n_rows - 1)
    torch.testing.assert_close(found.variances, variances, rtol=1e-6, atol=0)


def test_constant_features_have_no_component_and_one_that_varies_has_one():
    x = torch.full((7, 5), 3.0, dtype=torch.float64)
    assert by_passes(x, 4, passes=1, n_clients=2).directions.shape == (5, 0)
    assert by_passes(x[:1], 4, passes=1, n_clients=1).directions.shape == (5, 0)
    x = x.index_put((torch.arange(7), torch.full((7,), 2)), torch.arange(7.0, dtype=torch.float64))
    found = by_passes(x, 4, passes=2, n_clients=2)
    assert found.directions.shape == (5, 1)
    assert int(found.directions[:, 0].abs().argmax()) == 2


def test_a_basis_has_no_more_columns_than_there_are_features():
    assert first_basis(3, 20, torch.Generator().manual_seed(0)).shape == (3, 3)
