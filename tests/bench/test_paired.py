"""Methods beside each other, image by image: counts and losses that can be done by hand."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from bench.paired import Scores, losses, methods_in, pairs, read


def test_an_image_counts_once_with_what_most_clients_say_and_their_mean_loss():
    proba = np.array([[0.9, 0.4, 0.2], [0.6, 0.7, 0.1], [0.3, 0.6, 0.4]])
    y = np.array([[1, 0, 0]] * 3)
    scores = Scores.of(proba, y)
    assert scores.wrong.tolist() == [[False, True, False]]
    by_hand = [-np.log(of_image).mean() for of_image in ([0.9, 0.6, 0.3], [0.6, 0.3, 0.4], [0.8, 0.9, 0.6])]
    np.testing.assert_allclose(scores.loss, [by_hand])
    assert math.isfinite(Scores.of(np.zeros((1, 1)), np.ones((1, 1))).loss.item())


def test_the_sign_test_is_the_binomial_one_and_ranks_go_by_loss():
    wrong = np.zeros((2, 10), bool)
    ours, other = wrong.copy(), wrong.copy()
    ours[0, :3], other[1, 0] = True, True
    found = {
        "celeba-10x20": {"a": Scores(other, np.full((2, 10), 0.2)), "pfed-hier": Scores(ours, np.full((2, 10), 0.1))}
    }
    row = next(line for line in pairs(found, "pfed-hier") if "| a |" in line)
    p = 2 * (1 + 4) / 2**4  # one or none of four, either way
    assert f"| 1 | 1 | 3 | {p:.2g} |" in row
    assert "-0.1000 ± 0.0000" in row
    text = "\n".join(losses(found))
    assert "| a | 0.200 ± 0.000 (2) |" in text
    assert "| pfed-hier | 0.100 ± 0.000 (1) |" in text


def test_a_method_without_all_its_seeds_is_left_out(tmp_path):
    folder = tmp_path / "celeba-10x20" / "pfed-mul-0"
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps({}))
    assert methods_in(tmp_path) == ["pfed-mul"]
    assert read(tmp_path, "celeba-10x20", "pfed-mul", ["1"]) is None


def test_seeds_are_put_together_in_order():
    one = Scores.of(np.array([[0.9]]), np.array([[1]]))
    two = Scores.of(np.array([[0.2]]), np.array([[1]]))
    np.testing.assert_allclose(one.and_(two).loss.ravel(), [-math.log(0.9), -math.log(0.2)])
    assert pytest.approx(one.and_(two).wrong.mean()) == 0.5
