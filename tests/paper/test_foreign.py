"""Scores of uncertainty: against sampling, and for predictions without a posterior."""

from __future__ import annotations

import numpy as np
import pytest

from polyfed.paper.measures import mutual_information, uncertainties
from polyfed.predictions import BinaryPrediction


def test_mutual_information_is_what_sampling_finds():
    mean, std = np.array([0.0, 1.0, -2.0]), np.array([2.0, 0.7, 1.5])
    p = 1 / (1 + np.exp(-(mean + std * np.random.default_rng(0).standard_normal((400_000, 3)))))

    def entropy(p):
        return -p * np.log(p) - (1 - p) * np.log1p(-p)

    assert mutual_information(mean, std) == pytest.approx(entropy(p.mean(0)) - entropy(p).mean(0), abs=2e-3)


def test_a_method_without_a_posterior_has_an_entropy_alone():
    sure = BinaryPrediction([0.5, 1.0], ("no", "yes"), [0.0, 40.0], [0.0, 0.0])
    found = uncertainties(sure)
    assert list(found) == ["entropy"]
    assert found["entropy"] == pytest.approx([np.log(2), 0.0])
    unsure = BinaryPrediction([0.5, 0.7], ("no", "yes"), [0.0, 1.0], [3.0, 0.5])
    assert uncertainties(unsure)["variance"] == pytest.approx([9.0, 0.25])
