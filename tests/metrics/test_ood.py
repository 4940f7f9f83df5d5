"""Foreign rows: against scikit-learn and by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from polyfed.errors import DataError
from polyfed.metrics import auroc, fpr95

SCORES = st.lists(st.integers(0, 9), min_size=1, max_size=60)  # integers, so that there are ties


@given(SCORES, SCORES)
def test_both_are_scikit_learns(scores_in, scores_out):
    foreign = np.repeat([0, 1], [len(scores_in), len(scores_out)])
    scores = np.concatenate([scores_in, scores_out])
    assert auroc(scores_in, scores_out) == pytest.approx(roc_auc_score(foreign, scores))
    fpr, tpr, _ = roc_curve(foreign, scores, drop_intermediate=False)
    assert fpr95(scores_in, scores_out) == pytest.approx(fpr[np.argmax(tpr >= 0.95 - 1e-12)])


def test_by_hand():
    assert auroc([1, 2], [3, 4]) == 1.0
    assert auroc([3, 4], [1, 2]) == 0.0
    assert auroc([1, 1], [1]) == 0.5
    # 95% of twenty foreign rows are nineteen: the threshold is the second lowest, 2, which 2 of 4 familiar ones reach.
    assert fpr95([0, 1, 2, 30], range(1, 21)) == 0.5


def test_rows_of_both_sorts_are_needed():
    with pytest.raises(DataError, match=r"^scores_out is empty; give at least one row\.$"):
        auroc([1.0], [])
    with pytest.raises(DataError, match=r"^scores_in has shape \(1, 1\); give one column\.$"):
        fpr95([[1.0]], [1.0])
