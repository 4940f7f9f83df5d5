"""A file of JSON lines that someone else writes, read on from where one was.

A run that is resumed cuts its events back to its last checkpoint and may write as much again before the next look, so
the size alone does not tell; what was read last must still stand where it stood.

    tail = Tail(Path("runs/a/events.jsonl"))
    fresh, lines = tail.read()       # fresh: forget what came before, the lines are from the beginning
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from polyfed.report.folders import parse_lines


class Tail:
    """Where one is in a file, and the line before that place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.last_line = b""

    def read(self) -> tuple[bool, list[dict[str, Any]]]:
        """Whether to begin anew, and the whole lines that are new."""
        try:
            with self.path.open("rb") as file:
                fresh = not self._still_there(file)
                if fresh:
                    self.offset, self.last_line = 0, b""
                file.seek(self.offset)
                content = file.read()
        except FileNotFoundError:
            fresh, content = self.offset > 0, b""
            self.offset, self.last_line = 0, b""
        content = content[: content.rfind(b"\n") + 1]  # the rest is still being written
        lines = list(parse_lines(content, self.path))
        if content:
            self.offset += len(content)
            self.last_line = content.splitlines(keepends=True)[-1]
        return fresh, lines

    def _still_there(self, file: Any) -> bool:
        file.seek(self.offset - len(self.last_line))
        return file.read(len(self.last_line)) == self.last_line
