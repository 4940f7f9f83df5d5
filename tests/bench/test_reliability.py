"""Calibration errors that no method could avoid, and diagrams side by side."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bench.reliability import ideal_ece, of_classes, picture, table

from polyfed.metrics import ece


def test_labels_that_follow_their_probabilities_have_a_calibration_error_all_the_same():
    """Of n images that are right with probability p, in one bin: the mean of |share − p|."""
    mean, _ = ideal_ece(np.full((3, 400), 0.9))
    assert mean == pytest.approx(math.sqrt(2 / math.pi * 0.09 / 400), rel=0.15)
    rng = np.random.default_rng(0)
    proba = rng.uniform(0, 1, (1, 300))
    labels = (rng.random(300) < proba).astype(int)
    results = {
        "tasks": {"a": {"classes": None}, "b": {"classes": ["no", "yes"]}},
        "predictions": {"x": {"a": {}, "b": {"proba": np.column_stack([1 - proba[0], proba[0]]), "y": labels[0]}}},
    }
    found, y = of_classes(results)
    np.testing.assert_array_equal(found, proba)
    np.testing.assert_array_equal(y, labels)
    assert abs(ece(proba.ravel(), labels.ravel()) - ideal_ece(proba)[0]) < 4 * ideal_ece(proba)[1]
    assert len(picture({"one": (proba, labels), "two": (proba, labels)}).axes) == 2
    assert "| one | 0.020 | 0.010 |" in table({"one": [(0.01, 0.01), (0.03, 0.01)]})
