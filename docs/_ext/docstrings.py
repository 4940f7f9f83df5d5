"""Docstrings of this code as reStructuredText: lists of aligned names become definitions, signs of algebra stay signs."""

from __future__ import annotations

import re

ALIGNED = re.compile(r"^(?P<indent> *)(?P<name>[A-Za-z_][\w, ./*]*?) {2,}(?P<text>\S.*)$")
SPECIAL = re.compile(r"(?<![\\`\w])([*|])(?=\S)|(?<=\w)_(?=[\s,.;:)]|$)")


def converted(lines: list[str]) -> list[str]:
    """The same text as Sphinx reads it."""
    out: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.lstrip().startswith((">>>", "...")):
            at = _example(lines, at, out)
        elif _is_aligned(lines, at):
            at = _definitions(lines, at, out)
        elif line.startswith("    ") and (not out or not out[-1].strip()) and _is_code(lines, at):
            at = _literal(lines, at, out)
        else:
            out.append(_escaped(line))
            at += 1
    return out


def _example(lines: list[str], at: int, out: list[str]) -> int:
    if out and out[-1].strip():
        out.append("")
    while at < len(lines) and lines[at].strip():
        out.append(lines[at])
        at += 1
    return at


def _is_aligned(lines: list[str], at: int) -> bool:
    """Two or more lines of `name   what it is`, or one whose text goes on below itself."""
    found = ALIGNED.match(lines[at])
    if not found or (at and lines[at - 1].strip() and not ALIGNED.match(lines[at - 1])):
        return False
    column = found.start("text")
    following = lines[at + 1] if at + 1 < len(lines) else ""
    again = ALIGNED.match(following)
    return (bool(again) and again.start("text") == column) or following.startswith(" " * column)


def _definitions(lines: list[str], at: int, out: list[str]) -> int:
    found = ALIGNED.match(lines[at])
    assert found
    column, indent = found.start("text"), found["indent"]
    if out and out[-1].strip():
        out.append("")
    while at < len(lines) and lines[at].strip():
        found = ALIGNED.match(lines[at])
        if found and found.start("text") == column:
            out += [f"{indent}``{found['name'].strip()}``", f"{indent}    {_escaped(found['text'])}"]
        elif lines[at].startswith(" " * column):
            out.append(f"{indent}    {_escaped(lines[at].strip())}")
        else:
            break
        at += 1
    out.append("")
    return at


def _is_code(lines: list[str], at: int) -> bool:
    """An indented block after an empty line, which is no part of a section such as `Args:`."""
    before = next((line for line in reversed(lines[:at]) if line.strip()), "")
    return not before.startswith(" ") and not re.match(r"\w+:$", before)


def _literal(lines: list[str], at: int, out: list[str]) -> int:
    out += ["::", ""]
    while at < len(lines) and (not lines[at].strip() or lines[at].startswith("    ")):
        out.append(lines[at])
        at += 1
    out.append("")
    return at


def _escaped(line: str) -> str:
    """Stars and bars that are no markup; what stands between backticks stays."""
    parts = re.split(r"(`[^`]*`)", re.sub(r"(`[^`]+`)(?=[^\W\d_])", r"\1\\ ", line))  # `Task`s
    return "".join(part if part.startswith("`") else SPECIAL.sub(r"\\\g<0>", part) for part in parts)


def _process(app, what, name, obj, options, lines):
    # napoleon takes what stands before a colon in the first line of a property for its type; an empty line has none
    lines[:] = [""] * (what in ("attribute", "property", "data")) + converted(lines)


def setup(app):
    app.connect("autodoc-process-docstring", _process, priority=400)  # before napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}
