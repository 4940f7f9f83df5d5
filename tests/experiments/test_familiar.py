"""Which of the rows that are asked about were trained on."""

from __future__ import annotations

import numpy as np

from polyfed.data import ClientData, LabelCodec, Task
from polyfed.experiments.predicting import trained_on


def coded(x, **seen):
    codec = LabelCodec(Task("pulse"), None, 0.0, 1.0)
    pairs = {task: (np.array(list(labels)), np.array(list(labels.values()))) for task, labels in seen.items()}
    return ClientData(np.array(x, dtype=float), pairs, dict.fromkeys(seen, codec))


def test_each_training_row_answers_for_one_row():
    known = coded([[1], [1], [2], [0.0], [3]], pulse={0: 5.0, 1: 6.0, 2: 7.0, 3: 8.0}, rate={2: [1.0, 3.0]})
    asked = coded(
        [[1], [1], [1], [2], [2], [-0.0], [3]],
        pulse={0: 5.0, 1: 5.0, 2: 6.0, 3: 7.0, 6: 1.0},
        rate={3: [1.0, 3.0], 4: [2.0, 3.0]},
    )
    # The second has a label that is taken; the fifth another label; the sixth has none, and is known by its features; of the
    # last a training row had the features and no label, so that nothing was learned from it.
    assert trained_on(asked, [known]).tolist() == [True, False, True, True, False, True, False]
    assert not trained_on(asked, []).any()
