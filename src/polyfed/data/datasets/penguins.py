"""Penguins of the Palmer archipelago: every island and year is a client that weighs, sexes and names its birds.

333 birds have all measurements. Islands differ in which species live there, so clients differ in their classes.
"""

from __future__ import annotations

from polyfed.data.federation import Federation
from polyfed.data.task import Task
from polyfed.errors import MissingExtraError

FEATURES = ("bill_length_mm", "bill_depth_mm", "flipper_length_mm")
TASKS = (
    Task("body_mass_g", "regression"),
    Task("sex", "binary", classes=("female", "male")),
    Task("species", "multiclass", classes=("Adelie", "Chinstrap", "Gentoo")),
)


def penguins() -> Federation:
    """Nine clients such as "Biscoe 2007", three measurements, three tasks of three kinds."""
    try:
        from palmerpenguins import load_penguins
    except ImportError:
        raise MissingExtraError(
            "the data lies in the package palmerpenguins, which is not installed",
            where="data set 'penguins'",
            remedy="pip install 'polyfed[demo]'",
        ) from None
    birds = load_penguins().dropna(subset=[*FEATURES, *(task.name for task in TASKS)])
    birds["colony"] = birds["island"].astype(str) + " " + birds["year"].astype(str)
    return Federation.from_table(birds, client="colony", tasks=TASKS, features=FEATURES)
