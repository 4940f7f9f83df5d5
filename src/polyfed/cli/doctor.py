"""`polyfed doctor`: is all there that polyfed needs, and does it work on this machine?"""

from __future__ import annotations

import importlib.metadata
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from math import isclose
from pathlib import Path
from pkgutil import resolve_name

from polyfed.errors import PolyfedError

LIBRARIES = ("torch", "numpy", "scipy", "scikit-learn", "pandas", "pyarrow", "safetensors", "pydantic", "typer", "rich")
SAME = 1e-9  # of a prediction: where memory lies decides its last bits when several threads share the work
EXTRAS = {
    "numba": "a faster inner loop",
    "palmerpenguins": "the demo",
    "flwr": "many machines",
    "torchvision": "images",
}


def examined() -> Iterator[tuple[str, bool, bool, str]]:
    yield "python", sys.version_info >= (3, 11), True, f"{platform.python_version()}, {platform.platform(terse=True)}"
    for name in (*LIBRARIES, "jinja2"):
        version = _version(name)
        yield name, version is not None, True, version or "not installed"
    for name, purpose in EXTRAS.items():
        version = _version(name)
        yield name, version is not None, False, f"{version or 'not installed'}; for {purpose}"
    threads = "torch:get_num_threads"
    yield _tried("threads", lambda: f"torch uses {resolve_name(threads)()}; a GPU is not needed")
    yield _tried("write access", _write_access)
    yield _tried("a run from end to end", _tiny_run)


def _tried(name: str, look: Callable[[], str]) -> tuple[str, bool, bool, str]:
    try:
        return name, True, True, look()
    except Exception as error:
        return name, False, True, " ".join(f"{type(error).__name__}: {error}".split())


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _write_access() -> str:
    here = Path.cwd()
    with tempfile.TemporaryFile(dir=here):
        return f"{here} can be written"


def _tiny_run() -> str:
    from polyfed.data.datasets import load_dataset
    from polyfed.engine import load, simulate

    with tempfile.TemporaryDirectory() as folder:
        data = load_dataset("synthetic", n_clients=2, n_regression=10, n_binary=10)
        run = simulate(data, rounds=2, seed=0, folder=Path(folder) / "run")
        again = load(Path(folder) / "run")
        here, there = (r.client(run.clients[0]).predict([[50.0]])["regression"].mean[0] for r in (run, again))
        if not isclose(here, there, rel_tol=SAME):
            raise PolyfedError("a run that was stored and loaded predicts other numbers")
    return "2 clients, 2 rounds, stored, loaded, predicted"
