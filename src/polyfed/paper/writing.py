"""What an experiment leaves in its folder: results.json, results.md, report.html and the pictures as plotly's JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from polyfed.files import SHOWN, write_whole
from polyfed.paper.beside import with_rows
from polyfed.paper.page import coloured, reproduction_html
from polyfed.paper.published import Published
from polyfed.paper.records import Record, holds
from polyfed.paper.tables import tables
from polyfed.report.charts import Chart

NOTE = "± standard deviation over the seeds, (rank) among the rows."


def says(preset: str) -> str:
    """What a number in the table is."""
    rows = "All clients' test rows together" if preset == "calibration" else "Mean over the clients"
    return f"{rows}, {NOTE}"


def describe(records: Sequence[Record], known: Published, about: dict[str, Any]) -> dict[str, Any]:
    """The document: numbers, what the publication says, and what must be known beside them."""
    claims = []
    for claim in known.claims:
        right, looked = holds(claim, records)
        claims.append({"text": claim.text, "holds": right, "of": looked})
    figures = [{key: _finite(value) for key, value in asdict(record).items()} for record in records]
    return {**about, "source": known.source, "figures": figures, "claims": claims}


def write_all(
    folder: Path,
    document: dict[str, Any],
    records: Sequence[Record],
    charts: Sequence[Chart],
    page: str | None = None,
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
    page = reproduction_html(
        title=document["title"],
        says=says(document["preset"]),
        facts=facts(document),
        tables=[(table.title, table.headings, table.rows) for table in made],
        claims=[(claim["text"], reported(claim)) for claim in document["claims"]],
        differences=document["differences"],
        charts=charts,
    )
    write_whole(folder / "report.html", page.encode(), SHOWN)


def markdown(document: dict[str, Any], records: Sequence[Record]) -> str:
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


def beside(document: dict[str, Any]) -> list[str]:
    """What is said of rows that were run after the others of a page."""
    methods = ", ".join(dict.fromkeys(cell["method"] for cell in document["cells"] if not cell["error"]))
    return [f"run later than the others: {methods}, by `{document['invoked']}`", *facts(document)]


def _failures(cells: Sequence[dict[str, Any]]) -> list[str]:
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


def facts(document: dict[str, Any]) -> list[str]:
    """Time, machine and versions."""
    machine = document["machine"]
    completed = {cell["folder"] for cell in document["cells"] if not cell["error"]}  # variants may share one
    memory = f", {machine['memory_gb']:g} GB of memory" if machine["memory_gb"] else ""
    return [
        f"{len(completed)} runs, {document['seconds']:.0f} s of computing",
        f"{machine['cores']} cores{memory}",
        ", ".join(f"{name} {number}" for name, number in document["versions"].items()),
    ]


def reported(claim: dict[str, Any]) -> str:
    """
    >>> reported({"holds": 2, "of": 2}), reported({"holds": 1, "of": 2}), reported({"holds": 0, "of": 0})
    ('yes', 'in 1 of 2 cases', 'not measured')
    """
    right, looked = claim["holds"], claim["of"]
    if looked == 0:
        return "not measured"
    return "yes" if right == looked else "no" if right == 0 else f"in {right} of {looked} cases"


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
