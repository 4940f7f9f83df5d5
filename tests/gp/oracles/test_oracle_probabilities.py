"""Class probabilities and logistic averages against adaptive quadrature."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from scipy.integrate import dblquad, quad
from scipy.special import expit, softmax

from polyfed.gp.likelihoods import LogisticSoftmax, OneVsEach
from polyfed.gp.quadrature import expected_logistic, expected_sigmoid

SDS = [0.0, 1e-6, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0]
MEANS = [-30.0, -4.0, -0.7, 0.0, 1.5, 8.0]


def normal_average(function: Callable[[float], float], m: float, sd: float) -> float:
    """E[function(f)], f ~ N(m, sd²), where the function bends at f = 0."""
    if sd == 0.0:
        return function(m)
    bend = [float(np.clip((at - m) / sd, -11.0, 11.0)) for at in (-6.0, 0.0, 6.0)]

    def integrand(z: float) -> float:
        return np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi) * function(m + sd * z)

    points = sorted({*bend, -6.0, 0.0, 6.0})
    return quad(integrand, -12.0, 12.0, points=points, limit=300, epsabs=1e-12, epsrel=1e-11)[0]


def logistic_softmax(f, temperature: float):
    s = expit(np.asarray(f) / temperature)
    return s / s.sum(-1, keepdims=True)


READOUTS = {
    "one-vs-each": (lambda k: OneVsEach(k), lambda f: softmax(f, -1)),
    "logistic-softmax": (lambda k: LogisticSoftmax(k), lambda f: logistic_softmax(f, 1.0)),
    "logistic-softmax-half": (
        lambda k: LogisticSoftmax(k, temperature=0.5),
        lambda f: logistic_softmax(f, 0.5),
    ),
}


def our_probabilities(name: str, mean, cov) -> np.ndarray:
    likelihood = READOUTS[name][0](len(mean))
    return likelihood.readout(torch.tensor(mean)[None], torch.tensor(cov)[None], None)["proba"][0].numpy()


@pytest.mark.parametrize("sd", [*SDS, 0.9, 0.999, 1.001, 1.3, 50.0])
def test_logistic_averages(sd):
    m = torch.tensor(MEANS, dtype=torch.float64)
    v = torch.full_like(m, sd**2)
    functions = (lambda f: np.logaddexp(0.0, f), expit, lambda f: expit(f) * expit(-f))
    for average, function in zip(expected_logistic(m, v), functions, strict=True):
        expected = [normal_average(function, mean, sd) for mean in MEANS]
        np.testing.assert_allclose(average, expected, rtol=0, atol=1e-7)
    np.testing.assert_array_equal(expected_sigmoid(m, v), expected_logistic(m, v)[1])


@pytest.mark.parametrize("sd", SDS)
@pytest.mark.parametrize("name", READOUTS)
def test_two_classes_of_one_direction(name, sd):
    """f = mean + sd·direction·z: one integral, also where the direction moves both classes alike."""
    to_probabilities = READOUTS[name][1]
    for mean, direction in product([(0.0, 0.0), (1.0, -2.0), (-6.0, -5.0)], [(1.0, 0.0), (0.6, -0.8), (0.7, 0.6)]):
        mean, root = np.array(mean), sd * np.array(direction)

        def class_zero(z: float, mean=mean, root=root) -> float:
            return to_probabilities(mean + root * z)[0]

        expected = normal_average(class_zero, 0.0, 1.0) if sd <= 2.0 else _finely(class_zero)
        ours = our_probabilities(name, mean, np.outer(root, root))
        np.testing.assert_allclose(ours, [expected, 1.0 - expected], rtol=0, atol=1e-4)


def _finely(function: Callable[[float], float]) -> float:
    """E[function(z)] by quadrature on sixty pieces, for functions that bend at places unknown."""
    edges = np.linspace(-9.0, 9.0, 61)

    def integrand(z: float) -> float:
        return np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi) * function(z)

    return sum(quad(integrand, low, high, epsabs=1e-9)[0] for low, high in pairwise(edges))


def fine_grid(to_probabilities, mean, root) -> np.ndarray:
    """E[p(mean + root z)] for z of two dimensions, by Simpson's rule on a grid in the given coordinates."""
    n = 401 if np.abs(root).max() <= 2.0 else 1201  # a step of 1/25 or 1/75: a fraction of a unit of the score
    grid = np.linspace(-8.0, 8.0, n)
    weight = np.exp(-0.5 * grid**2) * np.where(np.arange(n) % 2, 4.0, 2.0)
    weight /= weight.sum()
    total = np.zeros(len(mean))
    for z, w in zip(grid, weight, strict=True):
        scores = mean + root[:, 0] * z + root[:, 1] * grid[:, None]
        total += w * (weight @ to_probabilities(scores))
    return total


def roots_of_rank_two(sd: float) -> list[np.ndarray]:
    """(3, 2) mixing of two latents, even and uneven, with rows of length about sd."""
    even = np.array([[1.0, 0.0], [0.0, 1.0], [-0.7, 0.7]])
    uneven = np.array([[1.0, 0.1], [-0.8, 0.2], [0.3, 0.05]])
    return [sd * even, sd * uneven]


@pytest.mark.parametrize("sd", SDS)
@pytest.mark.parametrize("name", READOUTS)
def test_three_classes_of_two_directions(name, sd):
    to_probabilities = READOUTS[name][1]
    for mean, root in zip([np.array([0.2, -0.5, 0.4]), np.array([-3.0, 1.0, 2.0])], roots_of_rank_two(sd), strict=True):
        expected = fine_grid(to_probabilities, mean, root)
        np.testing.assert_allclose(our_probabilities(name, mean, root @ root.T), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", READOUTS)
def test_fine_grid_agrees_with_nested_adaptive_quadrature(name):
    mean, root, to_probabilities = np.array([0.2, -0.5, 0.4]), roots_of_rank_two(2.0)[0], READOUTS[name][1]

    def integrand(a: float, b: float) -> float:
        density = np.exp(-0.5 * (a * a + b * b)) / (2.0 * np.pi)
        return density * to_probabilities(mean + root @ np.array([a, b]))[0]

    nested = dblquad(integrand, -7.0, 7.0, -7.0, 7.0, epsabs=1e-7, epsrel=1e-7)[0]
    assert fine_grid(to_probabilities, mean, root)[0] == pytest.approx(nested, abs=1e-6)
