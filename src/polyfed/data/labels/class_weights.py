"""Weights of classes as a user gives them.

>>> checked_class_weights({1.0: 5}), checked_class_weights("balanced")
((('1', 5.0),), 'balanced')
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

BALANCED = "balanced"  # every class that a client has weighs the same there
ClassWeights = str | tuple[tuple[str, float], ...]


def checked_class_weights(given: Any) -> ClassWeights:
    """`balanced`, or the weight of each class that does not have 1, by its name; ValueError says what is wrong."""
    if given == BALANCED:
        return BALANCED
    if isinstance(given, str) or not isinstance(given, (Mapping, tuple, list)):
        raise ValueError(f"class_weights={given!r} is not understood")
    pairs = given.items() if isinstance(given, Mapping) else [tuple(pair) for pair in given]
    checked = {}
    for label, weight in pairs:
        is_number = isinstance(weight, Real) and not isinstance(weight, bool)
        if not is_number or not 0 < float(weight) < math.inf:
            raise ValueError(f"the weight of class {label!r} is {weight!r}, not a positive number")
        checked[class_name(label)] = float(weight)
    return tuple(checked.items())


def class_name(label: Any) -> str:
    """A class as settings write it: 1.0 is 1."""
    return str(int(label) if isinstance(label, float) and label.is_integer() else label)
