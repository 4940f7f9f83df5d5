"""The public face: what `import polyfed` offers, and what it costs."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import subprocess
import sys
from pathlib import Path

import pytest

import polyfed


def run_python(code: str) -> str:
    """What a fresh interpreter prints: this one has imported torch for other tests already."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("use", ["", "dir(polyfed)", "polyfed.__version__", "polyfed.DataError"])
def test_the_import_is_quick(use):
    heavy = "{'torch', 'sklearn', 'pandas', 'scipy', 'numpy'}"
    assert run_python(f"import sys, polyfed\n{use}\nprint(sorted({heavy} & set(sys.modules)))") == "[]"


def test_describing_a_task_does_not_wait_for_torch():
    assert run_python("import sys, polyfed\npolyfed.Task\nprint('torch' in sys.modules)") == "False"


@pytest.mark.parametrize("name", polyfed.__all__)
def test_a_public_name_resolves(name):
    thing = getattr(polyfed, name)
    assert thing.__name__ == name
    assert getattr(polyfed, name) is thing
    assert thing.__doc__, "a public name explains itself"


def test_dir_lists_the_public_names_before_their_first_use():
    assert run_python("import polyfed\nprint(set(polyfed.__all__) <= set(dir(polyfed)))") == "True"


def test_a_star_import_brings_the_public_names():
    assert run_python("from polyfed import *\nprint(Task.__name__)") == "Task"


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(AttributeError) as caught:
        _ = polyfed.MultiTaskGp
    text = str(caught.value)
    assert text.startswith("module 'polyfed' has no attribute 'MultiTaskGp'; did you mean 'MultiTaskGP'?")
    assert all(repr(name) in text for name in polyfed.__all__)


def test_a_name_like_none_is_answered_with_all():
    with pytest.raises(
        AttributeError, match=r"has no attribute 'zzz'; known are 'ClientUpdate', 'ConfigError', 'DataError'"
    ):
        _ = polyfed.zzz


def test_the_version_is_the_installed_one():
    assert polyfed.__version__ == importlib.metadata.version("polyfed")


def test_the_types_are_shipped():
    assert importlib.resources.files("polyfed").joinpath("py.typed").is_file()


def test_tests_lie_in_the_rooms_of_their_source():
    tests, source = Path(__file__).parent, Path(polyfed.__file__).parent
    rooms = {path.parent.relative_to(source) for path in source.rglob("*.py")}
    rooms |= {path.parent.relative_to(tests.parent) for path in (tests.parent / "bench").rglob("*.py")}
    of_several = {Path("docs"), Path("browser"), Path("deployment"), Path("gp/laws"), Path("gp/oracles")}
    assert {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")} <= rooms | of_several
