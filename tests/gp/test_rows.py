"""Rows: which input and which outputs each one sees, and whose it is."""

from __future__ import annotations

import pytest
import torch

from polyfed.gp import Rows
from polyfed.gp.likelihoods import Bernoulli, Binomial, Gaussian, LogisticSoftmax, OneVsEach

X = torch.arange(8.0, dtype=torch.float64).reshape(4, 2)
LIKELIHOODS = {"level": Gaussian(), "stage": OneVsEach(3), "rate": Binomial(), "mood": LogisticSoftmax(2)}


def coded(*values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.fixture
def rows() -> Rows:
    seen = {
        "mood": (torch.tensor([3, 3]), coded(0, 1)),  # two labels of one input
        "level": (torch.tensor([2, 0]), coded(0.5, -0.5)),
        "stage": (torch.tensor([1]), coded(2)),
    }
    return Rows.of(X, seen, LIKELIHOODS)


def test_the_order_is_that_of_the_likelihoods(rows):
    assert [block.task for block in rows.blocks] == ["level", "stage", "mood"]  # no label of "rate": no block
    assert [block.rows.tolist() for block in rows.blocks] == [[[0], [1]], [[2, 3]], [[4, 5], [6, 7]]]
    assert len(rows) == 8


def test_each_row_sits_at_its_input_and_sees_its_outputs(rows):
    assert rows.at.tolist() == [2, 0, 1, 1, 3, 3, 3, 3]
    # outputs: level | stage 0, 1, 2 | rate | mood 0, 1
    assert rows.A.tolist() == [
        [1, 0, 0, 0, 0, 0, 0],
        [1, 0, 0, 0, 0, 0, 0],
        [0, -1, 0, 1, 0, 0, 0],
        [0, 0, -1, 1, 0, 0, 0],
        [0, 0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 0, 0, 1],
        [0, 0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 0, 0, 1],
    ]


def test_a_block_finds_its_part_of_a_vector(rows):
    assert rows.blocks[2].of(torch.arange(8)).tolist() == [[4, 5], [6, 7]]


def test_a_row_knows_its_task(rows):
    assert [rows.task_of(row) for row in range(8)] == ["level"] * 2 + ["stage"] * 2 + ["mood"] * 4


@pytest.mark.parametrize(
    "seen", [{}, {"level": (torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.float64))}]
)
def test_no_labels_no_rows(seen):
    rows = Rows.of(X, seen, LIKELIHOODS)
    assert len(rows) == 0
    assert rows.blocks == ()
    assert rows.A.shape == (0, 7)
    assert rows.at.dtype == torch.int64


def test_a_datum_of_two_numbers_is_one_row():
    rows = Rows.of(X, {"rate": (torch.tensor([1]), coded([2, 5]))}, LIKELIHOODS)
    assert rows.A.tolist() == [[0, 0, 0, 0, 1, 0, 0]]
    assert rows.blocks[0].y.tolist() == [[2, 5]]


def test_inputs_with_one_row_each_are_in_the_order_of_the_rows():
    """The regression of these comes first, its inputs last: nothing may have to be looked up for that."""
    x = torch.arange(4, dtype=torch.float64)[:, None]
    seen = {"stage": (torch.tensor([0, 2]), torch.tensor([1.0, -1.0])), "pulse": (torch.tensor([3, 1]), torch.ones(2))}
    rows = Rows.of(x, seen, {"stage": Bernoulli(), "pulse": Gaussian()})
    assert [block.task for block in rows.blocks] == ["pulse", "stage"]
    assert rows.x[:, 0].tolist() == [3.0, 1.0, 0.0, 2.0]
    assert rows.at.tolist() == [0, 1, 2, 3]
    shared = Rows.of(
        x, {**seen, "pulse": (torch.tensor([2, 1]), torch.ones(2))}, {"stage": Bernoulli(), "pulse": Gaussian()}
    )
    assert torch.equal(shared.x, x[:3])  # two rows of one input stay where they are; an input without a row is left out
    assert shared.at.tolist() == [2, 1, 0, 2]
