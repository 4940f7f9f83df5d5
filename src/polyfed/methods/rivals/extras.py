"""Libraries that come with the extra `rivals`, and other libraries' warnings."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from polyfed.errors import MissingExtraError


def require(library: str, method: str) -> Any:
    """The library, or how to get it."""
    try:
        return import_module(library)
    except ImportError:
        raise MissingExtraError(
            f"{library} is not installed", where=f"method {method!r}", remedy="pip install 'polyfed[rivals]'"
        ) from None


@contextmanager
def quietly() -> Iterator[None]:
    """Optimisers of other libraries warn where few labels say little; what they found is used all the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
