"""Every link and anchor of the documents leads somewhere; those of the built site are followed by its build."""

from __future__ import annotations

import pkgutil
import re

import pages
import pytest
from links import broken_links

SOURCES = pages.sources()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(pages.ROOT)))
def test_the_links_of_a_page_lead_somewhere(path):
    wrong = []
    for target in pages.links(path):
        file, _, anchor = target.partition("#")
        other = (path.parent / file).resolve() if file else path
        if not pages.exists(other):
            wrong.append(f"{target} is no file")
        elif anchor and other.suffix == ".md" and anchor not in pages.anchors(other):
            wrong.append(f"{target} has no such heading")
    assert wrong == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(pages.ROOT)))
def test_the_files_of_the_code_that_a_page_names_exist(path):
    rooms = "|".join(room.name for room in (pages.ROOT / "src/polyfed").iterdir() if room.is_dir())
    named = re.findall(rf"`((?:{rooms})/[\w/]+\.py)`", pages.text_of(path))
    folders = ["src/polyfed", "."]
    assert [name for name in named if not any((pages.ROOT / folder / name).is_file() for folder in folders)] == []
    tests = re.findall(r"`((?:tests|bench|docs|examples)/[\w/.-]+)`", pages.text_of(path))
    assert [name for name in tests if "*" not in name and not (pages.ROOT / name).exists()] == []


def unknown_names(text: str) -> list[str]:
    """Names of the code in backquotes that nobody finds: `polyfed.room.name`, or `room/file.py::name`."""
    dotted = re.findall(r"`(polyfed(?!\.toml`)(?:\.\w+)+)(?:\(\))?`", text)  # polyfed.toml is a file
    placed = re.findall(r"`([\w/]+)\.py::([\w.]+)(?:\(\))?`", text)
    dotted += [f"polyfed.{file.replace('/', '.')}.{name}" for file, name in placed]
    return [name for name in dotted if not is_name(name)]


def is_name(dotted: str) -> bool:
    try:
        pkgutil.resolve_name(dotted)
    except (ImportError, AttributeError):
        return False
    return True


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(pages.ROOT)))
def test_the_names_of_the_code_that_a_page_gives_exist(path):
    assert unknown_names(pages.text_of(path)) == []


def test_a_name_that_is_not_in_the_code_is_found():
    text = "`polyfed.gp.infer`, `gp/exact.py::ExactModel.predict`, `polyfed.gp.gone`, `gp/gone.py::infer`, `gp/exact.py::Gone`"
    assert unknown_names(text) == ["polyfed.gp.gone", "polyfed.gp.gone.infer", "polyfed.gp.exact.Gone"]


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "a.html").write_text('<a href="b.html#here">x</a><a href="b.html#gone">x</a><a href="c.html">x</a>')
    (tmp_path / "b.html").write_text('<h1 id="here">b</h1><a href="https://example.org/x">x</a><img src="no.png">')
    assert broken_links(tmp_path) == [
        "a.html: b.html#gone has no such anchor",
        "a.html: c.html is no file",
        "b.html: no.png is no file",
    ]
