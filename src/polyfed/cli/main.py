"""From arguments to an exit code: whatever happens, the user sees one sentence and never a traceback."""

from __future__ import annotations

import atexit
import difflib
import gc
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from polyfed.errors import PolyfedError, UsageError, in_words


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; the table of codes is in `docs/cli.md`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    state: dict[str, object] = {"argv": ["polyfed", *arguments]}
    with warnings.catch_warnings(), _few_collections():
        _report_warnings()
        try:
            # No shell can hand one over, but a program can; the parser would stumble over it.
            if odd := [argument for argument in arguments if "\0" in argument]:
                raise UsageError(f"argument {odd[0]!r} has a null character in it", remedy="leave it out")
            from polyfed.cli.app import command

            code = command().main(arguments or ["--help"], prog_name="polyfed", standalone_mode=False, obj=state)
            sys.stdout.flush()
            return code if isinstance(code, int) else 0
        except KeyboardInterrupt:
            return _fail("interrupted.", 130, state)
        except BrokenPipeError:
            return _unread()
        except SystemExit as stop:
            if isinstance(stop.__context__, BrokenPipeError):  # typer leaves then
                return _unread()
            if isinstance(stop.code, str):
                return _fail(stop.code, 1, state)
            return stop.code or 0
        except Exception as error:
            # Errors of usage are click's, or those of the copy of click that is part of newer versions of typer.
            if hasattr(error, "format_message"):
                return _fail(_usage(error), 2, state)
            error = in_words(error)
            if isinstance(error, PolyfedError):
                return _fail(str(error), error.exit_code, state)
            return _fail(f"{type(error).__name__}: {error}", 1, state)


@contextmanager
def _few_collections() -> Iterator[None]:
    """Imports make nearly two hundred thousand objects that stay: to look for garbage among them, meanwhile and again at the
    exit of the process, would take a quarter of a short command."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, *before[1:])
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _unread() -> int:
    """Whoever read our output has seen enough; what is left of it goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def _fail(sentence: str, code: int, state: Mapping[str, object]) -> int:
    if state.get("debug"):
        traceback.print_exc()
    sys.stderr.write(f"error: {' '.join(sentence.split())}\n")
    return code


def _usage(error: Any) -> str:
    """What click says, in one sentence with the nearest name and the way to the help."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "polyfed"
    what = re.sub(r"\(?Did you mean.*", "", error.format_message(), flags=re.S).strip().rstrip(".")
    close: list[str] = []
    if hasattr(error, "option_name") and "No such option" in what and context is not None:
        known = [name for parameter in context.command.params for name in parameter.opts if name.startswith("--")]
        close = difflib.get_close_matches(error.option_name, known, n=1)
    elif (found := re.match(r"No such command '(.*)'", what)) and context is not None:
        close = difflib.get_close_matches(found[1], context.command.list_commands(context), n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{what[:1].lower()}{what[1:]}; {hint}see {path} --help."


def _report_warnings() -> None:
    """Warnings of polyfed in one line each; those of libraries are for developers."""
    warnings.simplefilter("ignore")
    warnings.filterwarnings("always", category=UserWarning, module=r"polyfed\.")

    def show(message: Warning | str, *_: object, **__: object) -> None:
        sys.stderr.write(f"warning: {' '.join(str(message).split())}\n")

    warnings.showwarning = show
