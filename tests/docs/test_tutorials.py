"""A tutorial ends with what its own output shows: figures from the run, claims that the build checks."""

from __future__ import annotations

import re

import pages
import pytest

NOTEBOOKS = [path for path in sorted((pages.DOCS / "tutorials").glob("*.md")) if path.name != "index.md"]
EVERY = [path for path in pages.sources() if "```{code-cell}" in pages.text_of(path)]


def cells(path) -> list[str]:
    return re.findall(r"```\{code-cell\}[^\n]*\n(.*?)```", pages.text_of(path), re.S)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_last_paragraph_is_a_statement_that_the_run_fills_in_and_checks(path):
    last = pages.text_of(path).strip().split("\n\n")[-1]
    assert last.startswith("**What the output shows.**")
    assert "{glue:text}" in last
    assert re.search(r"^assert ", cells(path)[-1], re.M), (
        "the claim of the last paragraph is checked when the site is built"
    )
    figures = re.findall(r"(?<![\w.])\d+[.,]\d+", pages.prose(last))
    assert figures == [], "figures come from the run"


@pytest.mark.parametrize("path", EVERY, ids=lambda path: str(path.relative_to(pages.DOCS)))
def test_figures_of_the_text_are_made_by_the_page_and_all_are_used(path):
    text = pages.text_of(path)
    used = set(re.findall(r"\{glue:text\}`([^`:]+)", text))
    made = {name for cell in cells(path) for name in re.findall(r"\bglue\(f?\"([^\"]+)\"", cell)}
    patterns = [
        re.escape(name) if "{" not in name else re.sub(r"\\\{\w+\\\}", r"\\w+", re.escape(name)) for name in made
    ]
    looped = bool(re.search(r"\bglue\(name,", text))
    assert looped or [name for name in used if not any(re.fullmatch(pattern, name) for pattern in patterns)] == []
    assert [pattern for pattern in patterns if not any(re.fullmatch(pattern, name) for name in used)] == []
