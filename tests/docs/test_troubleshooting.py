"""Messages that the page of errors quotes are messages of the code."""

from __future__ import annotations

import ast
import functools
import re

import pages
import pytest

PAGE = pages.DOCS / "troubleshooting.md"


def quoted() -> list[str]:
    """The first column of the tables of messages."""
    rows = re.findall(r"^\| (.+?) \| (?:`\w+`|\d|–) \| .+ \|$", pages.text_of(PAGE), re.M)
    return [row.replace("`", "") for row in rows]


@functools.cache
def said() -> str:
    """All texts of the code, a line each, with … for what is filled in."""
    texts: list[str] = []
    for path in (pages.ROOT / "src" / "polyfed").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                texts.append(
                    "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(" ".join(text.split()) for text in texts)


@pytest.mark.parametrize("message", quoted())
def test_the_code_says_what_the_page_quotes(message):
    pieces = [piece.strip(" ,:") for piece in re.split(r"…|; |, |nan is missing", message)]
    pieces = [piece for piece in pieces if len(piece.split()) > 1]
    assert pieces, "nothing of it can be looked for"
    assert [piece for piece in pieces if piece not in said()] == []


def test_every_table_of_the_page_is_looked_at():
    assert len(quoted()) > 50
    heads = re.findall(r"^\| text \|.*\n\|[-|]+\n((?:\|.*\n)+)", pages.text_of(PAGE), re.M)
    assert sum(len(rows.splitlines()) for rows in heads) == len(quoted())
