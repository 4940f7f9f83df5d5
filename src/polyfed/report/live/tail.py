"""A file of JSON lines that someone else writes, read on from where one was.

A run that is resumed cuts its events back to its last checkpoint and may write as much again before the next look, so
the size alone does not tell; what was read last must still stand where it stood.

    tail = Tail(Path("runs/a/events.jsonl"), parse_events)
    fresh, lines = tail.read()       # fresh: forget what came before, the lines are from the beginning
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from polyfed.errors import DataError


class Tail:
    """Where one is in a file, and the line before that place."""

    def __init__(self, path: Path, parse: Callable[[bytes, Path, int], Iterator[dict[str, Any]]]) -> None:
        self.path, self._parse = path, parse
        self._fresh = False  # what came before is to be forgotten, which nobody has heard of yet
        self._begin()

    def _begin(self) -> None:
        self.offset, self.n_lines, self.last_line = 0, 0, b""

    def read(self) -> tuple[bool, list[dict[str, Any]]]:
        """Whether to begin anew, and the whole lines that are new."""
        try:
            fresh, content = self._content()
        except FileNotFoundError:
            fresh, content = self.offset > 0, b""
            self._begin()
        except OSError as error:
            raise DataError(f"cannot be read ({error.strerror})", where=str(self.path), remedy="restore it") from error
        self._fresh |= fresh  # a line that cannot be read must not make it forgotten
        content = content[: content.rfind(b"\n") + 1]  # the rest is still being written
        lines = list(self._parse(content, self.path, self.n_lines + 1))
        if content:
            self.offset += len(content)
            self.n_lines += content.count(b"\n")
            self.last_line = content[content.rfind(b"\n", 0, -1) + 1 :]
        fresh, self._fresh = self._fresh, False
        return fresh, lines

    def _content(self) -> tuple[bool, bytes]:
        if self.path.exists() and not self.path.is_file():
            raise DataError("is not a file", where=str(self.path), remedy="restore it")
        with self.path.open("rb") as file:
            fresh = not self._still_there(file)
            if fresh:
                self._begin()
            file.seek(self.offset)
            return fresh, file.read()

    def _still_there(self, file: Any) -> bool:
        file.seek(self.offset - len(self.last_line))
        return file.read(len(self.last_line)) == self.last_line
