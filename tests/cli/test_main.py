"""How the command ends: exit codes of others, readers that have seen enough, and memory that is full."""

from __future__ import annotations

import sys

import pytest


@pytest.mark.parametrize(("given", "code", "said"), [(3, 3, ""), (None, 0, ""), (0, 0, ""), ("No.", 1, "error: No.\n")])
def test_whoever_leaves_leaves_with_its_own_code(monkeypatch, polyfed, given, code, said):
    from polyfed.cli import app

    class Leaves:
        def main(self, *_, **__):
            raise SystemExit(given)

    monkeypatch.setattr(app, "command", Leaves)
    done = polyfed("methods")
    assert (done.code, done.err) == (code, said)


def test_a_reader_that_has_seen_enough_is_no_failure(monkeypatch):
    from polyfed.cli import app

    class Leaves:
        def main(self, *_, **__):
            try:
                raise BrokenPipeError(32, "Broken pipe")
            except OSError:
                raise SystemExit(1)  # noqa: B904 (as click does)

    monkeypatch.setattr(app, "command", Leaves)
    module = sys.modules["polyfed.cli.main"]
    monkeypatch.setattr(module, "_unread", lambda: 0)
    assert module.main(["methods"]) == 0


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried ...")]
)
def test_no_memory_left_is_a_sentence(monkeypatch, polyfed, error):
    from polyfed.cli import app

    class Leaves:
        def main(self, *_, **__):
            raise error

    monkeypatch.setattr(app, "command", Leaves)
    done = polyfed("methods")
    said = "memory does not hold what this takes; use fewer rows, or inducing='auto' where the method has it."
    assert (done.code, done.err) == (5, f"error: {said}\n")
