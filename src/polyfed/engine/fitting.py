"""States that came from a disk and are sound as files, but that a method cannot work with: whoever changed them knew how to
give them a digest, or the method is no longer what it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from polyfed.errors import DataError, PolyfedError

# What Python and torch raise when a name, a shape or a type is not as a method left it.
UNFIT = (LookupError, TypeError, ValueError, RuntimeError, AttributeError, AssertionError, ArithmeticError)


@contextmanager
def fitting(folder: Path | None) -> Iterator[None]:
    """Say in a sentence that what is in a folder does not fit its method; without a folder, errors are as they are."""
    try:
        yield
    except UNFIT as error:
        if folder is None or isinstance(error, PolyfedError):
            raise
        reported = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        what = f"what is stored does not fit the method ({reported})"
        raise DataError(what, where=str(folder), remedy="restore the folder, or start the run anew") from error


def fitted(predictor: Callable[[Any], Any], folder: Path | None) -> Callable[[Any], Any]:
    """The same predictor, which may look at the state only when it is called."""

    def predict(x: Any) -> Any:
        with fitting(folder):
            return predictor(x)

    return predict
