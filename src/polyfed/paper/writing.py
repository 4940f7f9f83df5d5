"""What an experiment leaves in its folder: results.json, results.md, report.html and the pictures as plotly's JSON.

Beside the numbers a reader must know what was done differently, how long it took, on which machine, and with what.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from polyfed.files import SHOWN, write_whole
from polyfed.paper.beside import with_rows
from polyfed.paper.presets import Block, Preset
from polyfed.paper.records import Published, Record, holds, tables
from polyfed.report.charts.base import Chart
from polyfed.report.templates import PAGES, as_json, figures_of, render

PACKAGES = ("polyfed", "torch", "numpy", "scipy", "scikit-learn", "torchvision", "Pillow")
PAPERS_BACKBONE = "resnet18"
Document = dict[str, Any]  # results.json


def says(preset: str) -> str:
    """What a number in the table is."""
    rows = "All clients' test rows together" if preset == "calibration" else "Mean over the clients"
    return f"{rows}, ± standard deviation over the seeds, (rank) among the rows."


def describe(records: Sequence[Record], known: Published, about: Document) -> Document:
    """The document: numbers, what the publication says, and what must be known beside them."""
    found = [(claim.text, *holds(claim, records)) for claim in known.claims]
    claims = [{"text": text, "holds": right, "of": looked} for text, right, looked in found]
    figures = [
        {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in asdict(record).items()}
        for record in records
    ]
    return {**about, "source": known.source, "figures": figures, "claims": claims}


def write_all(
    folder: Path, document: Document, records: Sequence[Record], charts: Sequence[Chart], page: str | None = None
) -> None:
    """All files; `document` already says where they are, and the rows go into the tables of a `page`, if there is one."""
    made = tables(records)
    pictures = folder / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    for chart in charts:
        content = json.dumps(coloured(chart.figures[""]), allow_nan=False).encode()
        write_whole(pictures / f"{chart.id}.json", content, SHOWN)
    write_whole(folder / "results.json", json.dumps(document, indent=2, allow_nan=False).encode(), SHOWN)
    text = markdown(document, records) if page is None else with_rows(page, made, beside(document))
    write_whole(folder / "results.md", text.encode(), SHOWN)
    html = render(
        "reproduction.html",
        title=document["title"],
        says=says(document["preset"]),
        facts=facts(document),
        tables=[(table.title, table.headings, table.rows) for table in made],
        claims=[(claim["text"], reported(claim)) for claim in document["claims"]],
        differences=document["differences"],
        charts=charts,
        figures=as_json(figures_of(charts)),
    )
    write_whole(folder / "report.html", html.encode(), SHOWN)


def markdown(document: Document, records: Sequence[Record]) -> str:
    """The tables with all that belongs below them."""
    published = f" Published: `{document['source']}`." if document["source"] else ""  # not so of an extension
    parts = [f"# {document['title']}", f"{says(document['preset'])}{published}"]
    parts += [table.markdown() for table in tables(records)]
    if document["claims"]:
        lines = [f"- {claim['text']} (`{document['source']}`): {reported(claim)}" for claim in document["claims"]]
        parts.append("\n".join(["What the publication says, and whether it is so here:", "", *lines]))
    if failed := _failures(document["cells"]):
        parts.append("\n".join(["Runs that failed:", "", *(f"- {line}" for line in failed)]))
    parts.append("\n".join(["Differences to the publication:", "", *(f"- {one}" for one in document["differences"])]))
    parts.append("\n".join(f"- {fact}" for fact in [f"command: `{document['invoked']}`", *facts(document)]))
    return "\n\n".join(parts) + "\n"


def beside(document: Document) -> list[str]:
    """What is said of rows that were run after the others of a page."""
    methods = ", ".join(dict.fromkeys(cell["method"] for cell in document["cells"] if not cell["error"]))
    return [f"run later than the others: {methods}, by `{document['invoked']}`", *facts(document)]


def _failures(cells: Sequence[Document]) -> list[str]:
    """What went wrong, once for all runs of which it is the same.

    >>> _failures([{"folder": name, "error": "no weights."} for name in ("a", "b")])
    ['a and 1 more: no weights.']
    """
    by_error: dict[str, list[str]] = {}
    for cell in cells:
        if cell["error"]:
            by_error.setdefault(cell["error"], []).append(cell["folder"])
    others = {error: f" and {len(folders) - 1} more" if len(folders) > 1 else "" for error, folders in by_error.items()}
    return [f"{folders[0]}{others[error]}: {error}" for error, folders in by_error.items()]


def facts(document: Document) -> list[str]:
    """Time, machine and versions."""
    machine = document["machine"]
    completed = {cell["folder"] for cell in document["cells"] if not cell["error"]}  # variants may share one
    memory = f", {machine['memory_gb']:g} GB of memory" if machine["memory_gb"] else ""
    return [
        f"{len(completed)} runs, {document['seconds']:.0f} s of computing",
        f"{machine['cores']} cores{memory}",
        ", ".join(f"{name} {number}" for name, number in document["versions"].items()),
    ]


def reported(claim: Document) -> str:
    """
    >>> reported({"holds": 2, "of": 2}), reported({"holds": 1, "of": 2}), reported({"holds": 0, "of": 0})
    ('yes', 'in 1 of 2 cases', 'not measured')
    """
    right, looked = claim["holds"], claim["of"]
    if looked == 0:
        return "not measured"
    return "yes" if right == looked else "no" if right == 0 else f"in {right} of {looked} cases"


def coloured(figure: Any) -> Any:
    """A figure with the colours of the light theme instead of their names, for programs that do not know the page.

    >>> coloured({"data": [{"marker": {"color": "--green"}}]})
    {'data': [{'marker': {'color': '#23835f'}}]}
    """
    if isinstance(figure, dict):
        return {key: coloured(inner) for key, inner in figure.items()}
    if isinstance(figure, list):
        return [coloured(inner) for inner in figure]
    return _colours().get(figure, figure) if isinstance(figure, str) else figure


@cache
def _colours() -> dict[str, str]:
    style = (PAGES / "style.css").read_text(encoding="utf-8")
    light = style[: style.index("@media")]
    return dict(re.findall(r"(--[\w-]+): (#\w+);", light))


def differences(original: Preset, chosen: Preset, blocks: Sequence[Block], quick: bool, made_up: bool) -> list[str]:
    """In what this differs from the publication: what the preset says, and what follows from the choices."""
    found = []
    if quick:
        found.append("a quick run: federations, rounds and seeds are smaller than in the publication")
    if made_up:
        found.append("the images are made up (discs and crosses): the numbers say nothing about the data sets")
    rounds, published = (preset.base["run"]["rounds"] for preset in (chosen, original))
    if rounds != published:
        found.append(f"{rounds} rounds instead of {published}")
    if len(chosen.seeds) > 1:
        found.append(f"{len(chosen.seeds)} seeds and their std; the publication has one number for each cell")
    varied = any(variant.backbone for variant in chosen.variants)
    used = {block.config.data.images.backbone for block in blocks if block.config.data.images is not None}
    others = sorted(used - {PAPERS_BACKBONE})
    if others and not varied:
        found.append(f"the backbone is {', '.join(others)} instead of ResNet-18")
    if missing := [method for method in original.methods if method not in chosen.methods]:
        found.append(f"without {', '.join(missing)}")
    return [*found, *chosen.differences]


def machine() -> dict[str, float | None]:
    """Its size, not its name."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        memory = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (AttributeError, OSError, ValueError):  # not on every system
        memory = None
    return {"cores": cores, "memory_gb": memory}


def versions() -> dict[str, str]:
    """Of Python and of the packages that the numbers depend on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
