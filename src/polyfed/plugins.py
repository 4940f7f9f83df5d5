"""What other packages register under entry points: methods, kinds, kernels, parts of an aggregation."""

from __future__ import annotations

import warnings
from importlib.metadata import entry_points
from typing import Any


def registered(group: str, what: str, of: type = object) -> dict[str, Any]:
    """name → what is registered under `polyfed.<group>`.

    A package that cannot be imported, or that registers something else, is left out with a warning that calls it `what`; it
    must not take the others with it.
    """
    found: dict[str, Any] = {}
    for entry in entry_points(group=f"polyfed.{group}"):
        try:
            loaded = entry.load()
            if not isinstance(loaded, of):
                raise TypeError(f"{type(loaded).__name__} is no {of.__name__}")
            found.setdefault(entry.name, loaded)
        except Exception as error:  # whatever it is
            warnings.warn(f"{what} {entry.name!r} of {entry.value!r} cannot be loaded: {error}", stacklevel=3)
    return found
