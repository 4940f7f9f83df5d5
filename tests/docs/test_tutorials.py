"""A tutorial ends with what its own output shows: figures from the run, claims that the build checks."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib

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


def test_the_method_of_the_how_to_is_found_and_compared_as_the_page_says(tmp_path):
    """Its two files, laid out as an installation would, and its commands but for pip."""
    text = pages.text_of(pages.DOCS / "howto" / "add-a-method.md")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    (project,) = re.findall(r"```toml\n(.*?)```", text, re.S)
    described = tomllib.loads(project)["project"]
    (tmp_path / "fedmedian.py").write_text(code)
    installed = tmp_path / f"{described['name'].replace('-', '_')}-{described['version']}.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Name: {described['name']}\nVersion: {described['version']}\n")
    entries = described["entry-points"]["polyfed.methods"]
    lines = ["[polyfed.methods]", *(f"{name} = {where}" for name, where in entries.items())]
    (installed / "entry_points.txt").write_text("\n".join(lines) + "\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    printed = {}
    for line in (line for block in re.findall(r"```sh\n(.*?)```", text, re.S) for line in block.splitlines()):
        words = shlex.split(line, comments=True)
        if words[0] != "pip":
            words = [sys.executable, *(["-m", *words] if words[0] == "polyfed" else words[1:])]
            done = subprocess.run(
                words, cwd=tmp_path, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
            )
            assert done.returncode == 0, f"{line}\n{done.stderr}"
            printed[line] = done.stdout
    assert sum("fedmedian" in said for said in printed.values()) >= 3
    assert (tmp_path / "runs" / "mine" / "fedmedian-0").is_dir()
