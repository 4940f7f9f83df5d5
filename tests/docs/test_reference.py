"""The reference and the tables that people wrote say what the code does."""

from __future__ import annotations

import dataclasses
import re

import pages
import pytest
from generated import commands
from papers import PAPERS
from typer.testing import CliRunner

import polyfed
from polyfed.cli.app import app
from polyfed.errors import PolyfedError
from polyfed.experiments.config import CompareConfig, DataConfig, ImagesConfig, RunConfig, TaskConfig
from polyfed.kinds import KINDS
from polyfed.methods import METHODS

GENERATED = pages.DOCS / "reference" / "generated"


def section(page: str, title: str) -> str:
    """What stands below a heading, up to the next of its level or a higher one."""
    text = pages.text_of(GENERATED / f"{page}.md")
    found = re.search(rf"^(#+) {re.escape(title)}$\n(.*?)(?=^#{{1,2}} |\Z)", text, re.M | re.S)
    assert found, f"{page} has no section {title!r}"
    return found[2]


def listed(page: str, title: str) -> set[str]:
    return set(re.findall(r"^\| `([^`]+)`", section(page, title), re.M))


# ---- the command line: what `--help` prints, against the page and against every command that the documents show ---------


def help_of(name: str) -> str:
    done = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "300", "TERM": "dumb", "NO_COLOR": "1"})
    assert done.exit_code == 0, done.output
    return done.output


def flags(name: str) -> set[str]:
    """The options at the beginning of the lines of a help, with their other names."""
    lines = [line.strip("│ ") for line in help_of(name).splitlines()]
    heads = [re.split(r"\s{3,}[A-Z]", line)[0] for line in lines if re.match(r"\*?\s*--?\w", line)]
    return {flag for head in heads for flag in re.findall(r"--[\w-]+", head)} - {"--help"}


@pytest.mark.parametrize("name", list(commands()))
def test_the_page_lists_the_options_of_a_command(name):
    shown = set(re.findall(r"`(--[\w-]+)`", section("cli", f"polyfed {name}").split("| option")[-1]))
    assert flags(name) <= shown
    assert flags(name) or "[OPTIONS]" not in section("cli", f"polyfed {name}")
    known = {flag for p in commands()[name].params for flag in [*p.opts, *p.secondary_opts] if flag.startswith("--")}
    mentioned = set(re.findall(r"^\| `(--[\w-]+)`", section("cli", f"polyfed {name}"), re.M))
    assert mentioned <= known


def test_every_command_is_on_both_pages():
    printed = set(re.findall(r"^[│ ]+([a-z][\w-]*) {2,}\S", help_of(""), re.M))
    assert printed == {name.split()[0] for name in commands()}
    text = pages.text_of(pages.DOCS / "cli.md") + pages.text_of(pages.DOCS / "deploy.md")
    assert [name for name in commands() if not re.search(rf"`(polyfed )?{name}|polyfed {name}\b", text)] == []


def shown_commands() -> list[tuple[str, str, str]]:
    """(page, command, its line) of all that the documents tell to type, in blocks and in the middle of a sentence."""
    found = []
    longest = sorted(commands(), key=len, reverse=True)
    for path in pages.sources():
        if path.name == "CHANGELOG.md":
            continue  # tells of what was
        text = pages.text_of(path).replace("\\\n", " ")
        blocks = "\n".join(re.findall(r"^```[^\n]*\n(.*?)^```", text, re.M | re.S))
        lines = re.findall(r"^[$ ]*(?:\.venv/bin/)?polyfed [^\n]*", blocks, re.M) + re.findall(
            r"`(polyfed [^`\n]+)`", text
        )
        for line in lines:
            rest = line.strip("$ ").partition("polyfed ")[2]
            name = next((name for name in longest if re.match(rf"{name}(?![\w-])", rest)), None)
            found.append((str(path.relative_to(pages.ROOT)), name or "", rest.partition("  # ")[0]))
    return found


def test_every_command_that_the_documents_show_exists_with_its_options():
    shown, there = shown_commands(), commands()
    assert len(shown) > 50
    wrong = []
    for page, name, line in shown:
        word = line.split()[0]
        if not name:
            if word.isalpha() and word.islower() and line.strip() != "deploy":
                wrong.append(f"{page}: polyfed {line}")
            continue
        known = {flag for p in there[name].params for flag in [*p.opts, *p.secondary_opts]} | {"--help"}
        wrong += [
            f"{page}: polyfed {name} {flag}" for flag in re.findall(r"(?<=\s)--[a-z][\w-]*", line) if flag not in known
        ]
    assert wrong == []


# ---- configs ------------------------------------------------------------------------------------------------------------

SECTIONS = {
    "[data]": DataConfig,
    "[[data.tasks]]": TaskConfig,
    "[data.images]": ImagesConfig,
    "[run]": RunConfig,
    "[compare]": CompareConfig,
}


@pytest.mark.parametrize("title", list(SECTIONS))
def test_the_page_of_configs_has_every_key(title):
    keys = set(SECTIONS[title].model_json_schema()["properties"])
    assert listed("config", title) == keys


@pytest.mark.parametrize("title", list(SECTIONS))
def test_every_key_is_explained(title):
    rows = re.findall(r"^\| `([^`]+)` \|.*\| ([^|]*) \|$", section("config", title), re.M)
    assert [key for key, said in rows if not said.strip()] == []


def test_the_keys_of_configs_in_the_documents_exist():
    wrong = []
    for path in pages.sources():
        for block in re.findall(r"```toml\n(.*?)```", pages.text_of(path), re.S):
            model = None
            for line in block.splitlines():
                if found := re.match(r"#?\s*(\[+[\w.]+\]+)", line):
                    model = SECTIONS.get(found[1])
                elif (
                    model is not None and (found := re.match(r"(\w+) *=", line)) and found[1] not in model.model_fields
                ):
                    wrong.append(f"{path.name}: {found[1]}")
    assert wrong == []


# ---- methods and kinds --------------------------------------------------------------------------------------------------


def test_the_page_of_methods_has_every_method_with_its_options():
    text = pages.text_of(GENERATED / "methods.md")
    assert set(pages.first_column(text, "method")) == set(METHODS)
    for name, made in METHODS.items():
        (part,) = [part for part in re.split(r"^## ", text, flags=re.M)[1:] if name in part.splitlines()[0].split(", ")]
        options = {field.name for field in dataclasses.fields(made)} if dataclasses.is_dataclass(made) else set()
        assert set(pages.first_column(part, "option")) == options, name


def test_every_method_has_its_papers_and_they_are_in_the_bibliography():
    assert set(METHODS) <= set(PAPERS)
    known = set(re.findall(r"^@\w+\{([^,]+),", (pages.DOCS / "references.bib").read_text(encoding="utf-8"), re.M))
    assert {key for keys in PAPERS.values() for key in keys} <= known


def test_the_page_about_methods_tells_of_each():
    text = pages.text_of(pages.DOCS / "methods.md")
    assert [name for name in METHODS if f"`{name}`" not in text] == []


@pytest.mark.parametrize("page", ["start/choose-a-kind.md", "reference/generated/kinds.md"])
def test_the_tables_of_kinds_have_every_kind(page):
    text = pages.text_of(pages.DOCS / page)
    column = re.findall(r"^\|(?:[^|]*\|)??[^|]*`(\w+)` \|", text, re.M)
    assert set(KINDS) <= set(column)
    assert set(re.findall(r"--(\w+) \w+", text)) - {"derive"} <= set(KINDS)


# ---- Python and errors --------------------------------------------------------------------------------------------------


def test_every_public_name_has_its_place_in_the_api_pages():
    text = "\n".join(pages.text_of(path) for path in (pages.DOCS / "reference" / "api").glob("*.md"))
    named = set(re.findall(r"\.\. auto\w+:: (?:[\w.]+\.)?(\w+)$", text, re.M)) | set(re.findall(r"\w+Error", text))
    assert [name for name in polyfed.__all__ if name not in named] == []


def test_exit_codes_are_those_of_the_errors():
    def family(made):
        return {made.__name__: made.exit_code} | {
            k: v for child in made.__subclasses__() for k, v in family(child).items()
        }

    text = pages.text_of(GENERATED / "errors.md")
    shown = {name: int(code) for name, code in re.findall(r"^\| `(\w+)` \| (\d+) \|", text, re.M)}
    assert shown == {name: code for name, code in family(PolyfedError).items() if name in shown}
    assert {name for name in polyfed.__all__ if name.endswith("Error")} <= set(shown)
