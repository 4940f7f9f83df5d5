"""Penguins of the Palmer archipelago: every island and year is a client that weighs, sexes and names its birds.

333 birds have all measurements. Islands differ in which species live there, so clients differ in their classes.

With `labelled` only that many birds of a colony have labels, the colony `SILENT` has none at all, the colony `UNSEXED` has
none of the sex; all other birds are there to be predicted.
"""

from __future__ import annotations

import numpy as np

from polyfed.data.features.matrix import reject_unless_whole
from polyfed.data.federation import Federation
from polyfed.data.task import Task
from polyfed.errors import MissingExtraError

FEATURES = ("bill_length_mm", "bill_depth_mm", "flipper_length_mm")
TASKS = (
    Task("body_mass_g", "regression"),
    Task("sex", "binary", classes=("female", "male")),
    Task("species", "multiclass", classes=("Adelie", "Chinstrap", "Gentoo")),
)
SILENT, UNSEXED = "Torgersen 2009", "Dream 2008"


def penguins(labelled: int | None = None, draw: int = 0) -> Federation:
    """Nine clients such as "Biscoe 2007", three measurements, three tasks of three kinds.

    `labelled` is the number of birds with labels in each colony, None for all; `draw` decides which.
    """
    try:
        from palmerpenguins import load_penguins
    except ImportError:
        what = "the data lies in the package palmerpenguins, which is not installed"
        raise MissingExtraError(what, where="data set 'penguins'", remedy="pip install 'polyfed[demo]'") from None
    birds = load_penguins().dropna(subset=[*FEATURES, *(task.name for task in TASKS)])
    birds["colony"] = birds["island"].astype(str) + " " + birds["year"].astype(str)
    if labelled is None:
        return Federation.from_table(birds, client="colony", tasks=TASKS, features=FEATURES)
    reject_unless_whole("data set 'penguins'", 1, labelled=labelled)
    reject_unless_whole("data set 'penguins'", 0, draw=draw)
    rng = np.random.default_rng(draw)
    train, test = {}, {}
    for colony, members in birds.groupby("colony"):
        members = members.iloc[rng.permutation(len(members))]
        known, rest = members.iloc[:labelled], members.iloc[labelled:]
        hidden = {SILENT: {task.name for task in TASKS}, UNSEXED: {"sex"}}.get(str(colony), set())
        labels = {t.name: [None] * len(known) if t.name in hidden else known[t.name].tolist() for t in TASKS}
        train[colony] = (known[list(FEATURES)], labels)
        test[colony] = (rest[list(FEATURES)], {task.name: rest[task.name].tolist() for task in TASKS})
    return Federation.from_clients(train, TASKS, test=test)
