"""Metrics of classes: against scikit-learn, torchmetrics and by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as oracle
from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

from polyfed.errors import ConfigError, DataError
from polyfed.metrics import accuracy, balanced_accuracy, brier, calibration_bins, ece, nll


def random_problem(n, n_classes):
    rng = np.random.default_rng(0)
    scores = 2 * rng.normal(size=(n, n_classes))
    proba = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return proba, rng.integers(0, n_classes, n)


def torchmetrics_ece(proba, y, n_bins=15):
    """In single precision, whatever it is given."""
    options = {"num_classes": proba.shape[1], "n_bins": n_bins, "norm": "l1"}
    return multiclass_calibration_error(torch.tensor(proba), torch.tensor(y), **options).item()


# Accuracy


def test_accuracies_are_scikit_learns():
    label, y = np.random.default_rng(0).choice(list("abc"), size=(2, 60), p=[0.7, 0.2, 0.1])
    assert accuracy(label, y) == pytest.approx(oracle.accuracy_score(y, label))
    assert balanced_accuracy(label, y) == pytest.approx(oracle.balanced_accuracy_score(y, label))


def test_balanced_accuracy_by_hand_counts_observed_classes_only():
    # Of "a" 3 of 4 are found, of "b" 0 of 1; "c" was never observed.
    assert balanced_accuracy(["a", "a", "a", "c", "a"], ["a", "a", "a", "a", "b"]) == pytest.approx((3 / 4 + 0) / 2)


def test_labels_may_be_of_any_type():
    mixed = np.array([1, "x", "x", True], dtype=object)
    assert accuracy(mixed, np.array([1, "x", 1, True], dtype=object)) == 0.75
    assert balanced_accuracy(mixed, np.array([1, "x", 1, 1], dtype=object)) == pytest.approx((2 / 3 + 1) / 2)
    assert accuracy([True, False], [1, 1]) == 0.5


# Proper scores


def test_nll_by_hand():
    assert nll(np.log([0.5, 0.125])) == pytest.approx(2 * np.log(2))


def test_nll_is_scikit_learns():
    proba, y = random_problem(40, 3)
    assert nll(np.log(proba[np.arange(40), y])) == pytest.approx(oracle.log_loss(y, proba))


def test_brier_is_scikit_learns_for_two_classes_and_for_more():
    proba, y = random_problem(40, 2)
    assert brier(proba[:, 1], y) == pytest.approx(oracle.brier_score_loss(y, proba[:, 1]))
    proba, y = random_problem(40, 4)
    assert brier(proba, y) == pytest.approx(oracle.brier_score_loss(y, proba, labels=range(4)))


def test_brier_by_hand():
    assert brier([0.7, 0.4], [1, 0]) == pytest.approx((0.09 + 0.16) / 2)
    assert brier([[0.5, 0.3, 0.2]], [1]) == pytest.approx(0.25 + 0.49 + 0.04)
    assert brier([[0, 0, 1]], [0]) == 2.0


def test_two_columns_are_one_column():
    proba, y = random_problem(50, 2)
    assert brier(proba, y) == pytest.approx(brier(proba[:, 1], y), rel=1e-12)
    assert ece(proba, y) == pytest.approx(ece(proba[:, 1], y), rel=1e-12)


# Calibration


@pytest.mark.parametrize("n_classes", [2, 3, 10])
@pytest.mark.parametrize("n_bins", [1, 7, 15])
def test_ece_is_torchmetrics(n_classes, n_bins):
    proba, y = random_problem(300, n_classes)
    assert ece(proba, y, n_bins=n_bins) == pytest.approx(torchmetrics_ece(proba, y, n_bins), abs=1e-6)


def test_a_confidence_on_an_edge_belongs_to_the_bin_above():
    sure = np.array([0.5, 0.625, 0.75, 0.875, 0.75])  # edges of eight bins, exact as doubles
    y = np.array([1, 0, 1, 1, 0])
    bins = calibration_bins(sure, y, n_bins=8)
    assert bins.edges.tolist() == [0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1]
    assert bins.count.tolist() == [0, 0, 0, 0, 1, 1, 2, 1]
    np.testing.assert_array_equal(bins.confidence[4:], [0.5, 0.625, 0.75, 0.875])
    np.testing.assert_array_equal(bins.accuracy[4:], [1, 0, 0.5, 1])
    assert np.isnan([bins.confidence[:4], bins.accuracy[:4]]).all()
    by_hand = (0.5 + 0.625 + 2 * 0.25 + 0.125) / 5
    assert ece(sure, y, n_bins=8) == pytest.approx(by_hand)
    assert torchmetrics_ece(np.column_stack([1 - sure, sure]), y, n_bins=8) == pytest.approx(by_hand)


def test_every_edge_of_the_default_bins_is_torchmetrics():
    sure = np.linspace(0, 1, 16)[8:-1]
    y = np.array([1, 0, 1, 1, 1, 0, 1])
    assert ece(sure, y) == pytest.approx(torchmetrics_ece(np.column_stack([1 - sure, sure]), y), abs=1e-6)


def test_certainty_belongs_to_the_last_bin():
    # Sure of 1 and wrong, sure of 0.95 and right: in one bin |1/2 - 0.975|.
    proba, y = np.array([1.0, 0.95]), np.array([0, 1])
    assert calibration_bins(proba, y).count.tolist() == [0] * 14 + [2]
    assert ece(proba, y) == pytest.approx(0.475)
    # torchmetrics gives certainty a sixteenth bin of its own: |0 - 1| / 2 + |1 - 0.95| / 2.
    assert torchmetrics_ece(np.column_stack([1 - proba, proba]), y) == pytest.approx(0.525)


def test_binary_confidence_is_that_of_the_likelier_class():
    # Never sure of the second class, and right: p = 0.1 is a confidence of 0.9 in the first.
    proba, y = np.full(10, 0.1), np.array([0] * 9 + [1])
    assert ece(proba, y) == pytest.approx(0, abs=1e-15)
    mixed_p, mixed_y = np.array([0.1, 0.9]), np.array([0, 0])
    assert ece(mixed_p, mixed_y) == pytest.approx(0.4)  # one bin: right once in two, sure of 0.9
    binned_by_p = binary_calibration_error(torch.tensor(mixed_p), torch.tensor(mixed_y), n_bins=15, norm="l1")
    assert binned_by_p.item() == pytest.approx(0.5)  # the variant that bins p: (0.1 + 0.9) / 2


def test_half_is_a_vote_for_the_second_class():
    assert calibration_bins([0.5], [1], n_bins=1).accuracy[0] == 1
    assert calibration_bins([0.5], [0], n_bins=1).accuracy[0] == 0


def test_a_probability_that_is_not_known_gives_nan():
    assert np.isnan(ece([np.nan, 0.9], [1, 1]))


# Laws


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1)), min_size=1, max_size=20), st.randoms())
def test_order_does_not_matter(rows, random):
    p, y = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    order = list(range(len(y)))
    random.shuffle(order)
    for metric in (brier, ece, lambda p, y: balanced_accuracy(p > 0.3, y)):
        assert metric(p[order], y[order]) == pytest.approx(metric(p, y), abs=1e-12)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=20))
def test_perfection(y):
    proba = np.eye(4)[y]
    assert accuracy(y, y) == balanced_accuracy(y, y) == 1
    assert brier(proba, y) == ece(proba, y) == 0


# Errors


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: accuracy(["a"], ["a", "b"]), "there are 1 of label but 2 of y; give one of each for every row."),
        (lambda: balanced_accuracy([], []), "label is empty; give at least one row."),
        (lambda: brier([0.5], [1, 0]), "there are 1 of proba but 2 of y; give one of each for every row."),
        (
            lambda: ece([[0.5, 0.5]], [2]),
            "row 0: label 2 is not the position of a class; with 2 classes it is from 0 to 1.",
        ),
        (
            lambda: brier([0.5, 0.5], ["a", "b"]),
            "row 0: label 'a' is not the position of a class; with 2 classes it is from 0 to 1.",
        ),
        (
            lambda: brier([[1.0]], [0]),
            "proba has shape (1, 1) and y (1,); give a column for each class, or one column for the second of two,"
            " and one label for each row.",
        ),
    ],
)
def test_wrong_arguments_are_named(call, text):
    with pytest.raises(DataError) as caught:
        call()
    assert str(caught.value) == text


@pytest.mark.parametrize("n_bins", [0, 1.5, "many"])
def test_bins_are_counted(n_bins):
    with pytest.raises(ConfigError, match=r"^n_bins=.* is not a whole number from 1 up; choose for example 15.$"):
        calibration_bins([0.5], [1], n_bins=n_bins)
