"""The pages of the documentation as a reader's links see them: headings, anchors, commands, tables."""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SITE = DOCS / "_build" / "html"

sys.path.insert(0, str(DOCS / "_ext"))  # what builds the site

FENCED = re.compile(r"^(?P<fence>```+|~~~+|:::+)[^\n]*\n.*?^(?P=fence)[ \t]*$", re.M | re.S)


def sources() -> list[Path]:
    """Every page in Markdown but those that the code writes."""
    written = [path for path in DOCS.rglob("*.md") if not {"_build", "generated"} & set(path.relative_to(DOCS).parts)]
    return sorted([*written, *ROOT.glob("*.md"), *(ROOT / ".github").rglob("*.md")])


@functools.cache
def text_of(path: Path) -> str:
    """What a page says; pages of the reference are asked from the code, for a clone does not hold them."""
    if path.parent == DOCS / "reference" / "generated":
        from generated import PAGES

        return PAGES[path.stem]() if path.stem in PAGES else ""
    text = path.read_text(encoding="utf-8")
    return re.sub(r"```\{include\} (\S+)\n```", lambda found: text_of((path.parent / found[1]).resolve()), text)


def exists(path: Path) -> bool:
    return bool(text_of(path)) if path.parent == DOCS / "reference" / "generated" else path.exists()


def prose(text: str) -> str:
    """Without code and directives."""
    return re.sub(r"`[^`\n]*`", "``", re.sub(r"^(```+|~~~+).*?^\1[ \t]*$", "", text, flags=re.M | re.S))


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip()).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


@functools.cache
def anchors(path: Path) -> frozenset[str]:
    unfenced = re.sub(r"^(```+|~~~+).*?^\1[ \t]*$", "", text_of(path), flags=re.M | re.S)
    return frozenset(slug(found) for found in re.findall(r"^#+ (.+)$", unfenced, re.M))


def links(path: Path) -> list[str]:
    """Where the links and pictures of a page lead, those of other machines left out."""
    text = prose(text_of(path)) if path.suffix == ".md" else ""
    return [
        target
        for target in re.findall(r"\]\(<?([^)\s>]+)>?\)", text)
        if "://" not in target and not target.startswith("mailto:")
    ]


def first_column(text: str, head: str) -> list[str]:
    """Names in backquotes in the first column of the table whose first column has this head."""
    found: list[str] = []
    inside = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.lstrip().startswith("|") else []
        inside = bool(cells) and (inside or cells[0] == head)
        if inside:
            found += re.findall(r"`([^`]+)`", cells[0])
    return found
