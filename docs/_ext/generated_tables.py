"""Tables of the generated pages, and what docstrings say of names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any


def table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table in Markdown."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines) + "\n"


def _cell(value: Any) -> str:
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")


def code(value: Any) -> str:
    return "" if value is None else f"`{value}`"


def described(made: type) -> dict[str, str]:
    """Name → what `Args:` or `Attributes:` of a class, or of one it is derived from, say of it."""
    found: dict[str, str] = {}
    for kind in reversed(made.__mro__):
        for section in re.split(r"(?:Args|Attributes):\n", kind.__doc__ or "")[1:]:
            for names, said in re.findall(r"^ {8}([\w, ]+): (.+(?:\n {12}.+)*)", section, re.M):
                found |= {name.strip(): " ".join(said.split()).rstrip(".") for name in names.split(",")}
    return found


def sentence(text: str | None) -> str:
    """The first paragraph of a docstring."""
    return " ".join((text or "").strip().split("\n\n")[0].split())
