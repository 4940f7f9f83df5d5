"""Where compiled code is kept, what is said about it, and that torch does the same without."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from polyfed.gp import compiled, infer
from problems import build

pytestmark = pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")
LOG = logging.getLogger("polyfed")


@pytest.fixture
def keeping():
    from polyfed.gp.compiled import keeping

    return keeping


def test_the_folder_is_beside_the_sources_or_the_users_or_none(keeping, monkeypatch, tmp_path):
    """A folder below a file can be made by nobody, not even by root."""
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "users"))
    monkeypatch.setattr(keeping, "digest", lambda: "0")
    monkeypatch.setattr(keeping, "HERE", tmp_path / "sources")
    assert keeping.folder() == tmp_path / "sources" / "__pycache__" / "compiled-0"
    monkeypatch.setattr(keeping, "HERE", file)
    assert keeping.folder() == tmp_path / "users" / "polyfed" / "compiled-0"
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    assert keeping.folder() is None
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "asked"))
    assert keeping.folder() == tmp_path / "asked" / "compiled-0"


def test_other_sources_have_another_folder(keeping, monkeypatch, tmp_path):
    for name in ("jit.py", "a.py"):
        (tmp_path / name).write_text("from polyfed.gp.compiled.jit import jit\n")
    monkeypatch.setattr(keeping, "HERE", tmp_path)
    before = keeping.digest()
    assert keeping.digest() == before
    (tmp_path / "a.py").write_text("from polyfed.gp.compiled.jit import jit_exact\n")
    assert keeping.digest() != before


def test_compiling_is_announced_once_and_only_if_it_happens(keeping, monkeypatch, tmp_path, caplog):
    from numba import njit

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    before = keeping.config.CACHE_DIR
    with keeping.kept(LOG):
        pass
    assert not caplog.records
    with keeping.kept(LOG):
        assert str(tmp_path) in keeping.config.CACHE_DIR
        for n in (1, 2):
            assert njit(lambda x, n=n: x + n)(1) == 1 + n
    assert [str(tmp_path) in record.getMessage() for record in caplog.records] == [True]
    assert before == keeping.config.CACHE_DIR


def test_without_any_folder_it_says_what_to_do(keeping, monkeypatch, caplog):
    monkeypatch.setattr(keeping, "folder", lambda: None)
    with keeping.kept(LOG):
        assert not keeping.config.CACHE_DIR
    (record,) = caplog.records
    assert "NUMBA_CACHE_DIR" in record.getMessage()


def test_without_numba_torch_does_it_and_one_line_says_so(monkeypatch, caplog):
    problem = build(["gaussian", "bernoulli"], seed=0)
    with torch.no_grad():
        expected = infer(problem.model()).bound
        caplog.clear()  # it may have been compiled just now
        monkeypatch.setitem(sys.modules, "numba", None)
        monkeypatch.delitem(sys.modules, "polyfed.gp.compiled.keeping")
        compiled.load.cache_clear()
        try:
            assert compiled.solver() is None
            assert infer(problem.model()).bound == pytest.approx(expected, abs=1e-9)
        finally:
            monkeypatch.undo()
            compiled.load.cache_clear()
    (record,) = caplog.records
    assert "pip install numba" in record.getMessage()
    assert compiled.solver() is not None


def test_what_cannot_be_compiled_torch_does(monkeypatch, caplog):
    def full(name):
        raise OSError(28, "No space left on device")

    assert compiled.solver() is not None
    monkeypatch.setattr(compiled, "import_module", full)
    compiled.load.cache_clear()
    try:
        assert compiled.solver() is None
    finally:
        monkeypatch.undo()
        compiled.load.cache_clear()
    (record,) = caplog.records
    assert "No space left on device" in record.getMessage()


@pytest.mark.slow
def test_another_processor_compiles_for_itself_and_says_so(tmp_path):
    """A folder of compiled code that two machines share: each finds its own there, and the same posterior."""
    script = "import logging; logging.basicConfig(); from problems import build; from polyfed.gp import infer\n"
    script += "print(float(infer(build(['gaussian', 'bernoulli'], seed=0).model()).bound))"

    def on(**processor: str) -> tuple[float, bool]:
        where = {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
        run = subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | where | processor,
            capture_output=True,
            text=True,
            check=True,
        )
        return float(run.stdout), "compiling the inner loop" in run.stderr

    here, compiles = on()
    there, compiles_too = on(NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")
    assert compiles
    assert compiles_too
    assert there == pytest.approx(here, abs=1e-9)
    assert on() == (here, False)
