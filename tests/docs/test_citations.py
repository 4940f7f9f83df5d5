"""Papers and equations: every file that implements a paper names it, the bibliography has it, and numbers stand by labels."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import unicodedata
from pathlib import Path

import pages
import pytest

sys.path.insert(0, str(pages.DOCS / "_ext"))

from papers import PAPERS

from polyfed.gp import likelihoods
from polyfed.methods import known_methods

SOURCE = pages.ROOT / "src/polyfed"
IDENTIFIER = re.compile(r"(arXiv:\d{4}\.\d{4,5}|doi:10\.\d+/[^\s,]+?)(?=[.;:,)]*(?:\s|$))")
OWN = {"pfed-hier", "local", "pooled"}  # methods of polyfed itself


def entries() -> dict[str, str]:
    """Key → the entry's text."""
    text = (pages.DOCS / "references.bib").read_text(encoding="utf-8")
    return {
        part.split("{", 1)[1].split(",", 1)[0]: part for part in re.split(r"^(?=@)", text, flags=re.M) if part.strip()
    }


def field(entry: str, name: str) -> str | None:
    found = re.search(rf"\b{name} = \{{((?:[^{{}}]|\{{(?:[^{{}}]|\{{[^{{}}]*\}})*\}})*)\}}", entry)
    return None if found is None else found[1]


def plain(text: str) -> str:
    """Letters and digits alone, without accents and TeX."""
    ascii_only = unicodedata.normalize("NFKD", text.replace("\\'", "")).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", " ", re.sub(r"[{}\\]", "", ascii_only).lower()).strip()


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def names(text: str, entry: str) -> bool:
    """Whether a text names this paper: by arXiv, DOI or title."""
    eprint, doi, title = (field(entry, name) for name in ("eprint", "doi", "title"))
    by_number = [f"arXiv:{eprint}" if eprint else None, f"doi:{doi}" if doi else None]
    return any(number is not None and number in text for number in by_number) or plain(title or "?") in plain(text)


def implementing() -> dict[str, Path]:
    """Files that implement a paper: methods but for polyfed's own, likelihoods, kernels, metrics."""
    found = {name: Path(inspect.getfile(made)) for name, made in known_methods().items() if name not in OWN}
    made = {value for value in vars(likelihoods).values() if isinstance(value, type)} - {likelihoods.Likelihood}
    found |= {f"likelihood {one.__name__}": Path(inspect.getfile(one)) for one in sorted(made, key=str)}
    found |= {f"kernel {name}": SOURCE / f"gp/kernels/{name}.py" for name in ("metric", "periodic")}
    found |= {f"metric {n}": SOURCE / f"metrics/{n}.py" for n in ("classes", "regression", "scores")}
    return found


@pytest.mark.parametrize("what", implementing())
def test_a_file_that_implements_a_paper_names_one_of_the_bibliography(what):
    text = docstring(implementing()[what])
    named = {key for key, entry in entries().items() if names(text, entry)}
    assert named, f"{implementing()[what]} names no paper"
    assert set(PAPERS.get(what, ())) <= named


def test_every_number_of_a_paper_in_the_code_is_in_the_bibliography():
    known = {f"arXiv:{field(e, 'eprint')}" for e in entries().values()}
    known |= {f"doi:{field(e, 'doi')}" for e in entries().values()}
    for path in SOURCE.rglob("*.py"):
        text = " ".join(path.read_text(encoding="utf-8").split())
        missing = [number for number in IDENTIFIER.findall(text) if number not in known]
        assert not missing, f"{path} names {missing}"


def test_entries_are_whole_and_named_once():
    found = re.findall(r"^@\w+\{([^,]+),", (pages.DOCS / "references.bib").read_text(encoding="utf-8"), re.M)
    assert len(found) == len(set(found))
    for key, entry in entries().items():
        assert all(field(entry, name) for name in ("author", "title", "year")), key


# ---- equations ----------------------------------------------------------------------------------------------------------


def equations() -> dict[str, tuple[str, list[str]]]:
    """Label → its number, and the files that the page says implement it."""
    rows = re.findall(
        r"^\|[^|]*\| ((?:eq|sec|app)\. \w+(?:\.\d)?) \| `([^`]+)` \| (.*) \|$", pages.text_of(MODEL), re.M
    )
    return {label: (number, re.findall(r"`([\w/]+\.py)`", files)) for number, label, files in rows}


MODEL = pages.DOCS / "model.md"


def mentions(label: str, text: str) -> list[str]:
    """What follows each mention of a label."""
    return re.findall(rf"(?<![\w:.\"'/]){re.escape(label)}(?![\w\"'])(.{{0,12}})", text)


def test_the_numbers_of_equations_stand_beside_their_labels():
    table = equations()
    assert len(table) == 13
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for label, (number, _) in table.items():
            wrong = [after for after in mentions(label, text) if not after.startswith(f", {number}")]
            assert not wrong, f"{path}: {label} without its number, {number}"


@pytest.mark.parametrize("label", equations())
def test_the_map_of_equations_is_that_of_the_code(label):
    """Files that the page names have the label, and so has no other that nobody would find."""
    _, files = equations()[label]
    assert files
    for name in files:
        assert mentions(label, (SOURCE / name).read_text(encoding="utf-8")), f"{name} does not name {label}"
    rooms = {path.relative_to(SOURCE).parts[0] for path in SOURCE.rglob("*.py") if mentions(label, path.read_text())}
    assert rooms <= {name.split("/")[0] for name in files} | {"methods"}


def test_labels_of_the_code_are_those_of_the_page():
    """What looks like a label of the paper, followed by a number, is in the table."""
    for path in SOURCE.rglob("*.py"):
        for label in re.findall(r"([\w:.-]+|optimial sigma), (?:eq|app|sec)\. \w", path.read_text(encoding="utf-8")):
            known = {*equations(), "sigma", "(a)", "15"}
            assert label in known, f"{path}: {label}"
