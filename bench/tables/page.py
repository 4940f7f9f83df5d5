"""The figures as text: short for a terminal, and whole as a page with a second one for all scores."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from polyfed.engine.storage import options_of

from .cells import Cell, Variant
from .drawing import MOST_SCORED, SCENARIOS
from .held_out import HELD_OUT, table_set
from .picture import draw_curves
from .plan import Plan
from .sets import MOST_CLIENTS
from .summary import ahead, averages, mean_ranks

OURS = "pfed-hier"
UNSEEN_TITLE = "# Held-out tables: the defaults on tables that nothing was chosen on"
UNSEEN = "Nothing was chosen on any of them: defaults are those that [other tables](tables.md) led to."
TRIED = Path(__file__).with_name("tried.md")
NAMES = {"rmse": "RMSE", "nlpd": "NLPD", "coverage": "coverage", "log_loss": "log loss", "auroc": "AUROC", "ece": "ECE"}


def reported(scores: pd.DataFrame, lines: Sequence[Mapping[str, Any]]) -> str:
    """Short, for a terminal."""
    parts = []
    for scenario in dict.fromkeys(scores["scenario"]):
        here = scores[scores["scenario"] == scenario]
        parts.append(f"{scenario}: mean ranks\n{mean_ranks(here).round(2).to_string()}")
        parts.append(averages(here, ["table"])["mean"].unstack("method").round(3).to_string())
        covered = averages(here[here["metric"] == "coverage"], ["labels"])["mean"]
        parts.append(covered.unstack("labels").round(3).to_string() if len(covered) else "")
    parts.append(_cost(lines).round(2).to_string() if lines else "")
    return "\n\n".join(filter(None, parts))


def write_page(
    path: Path, scores: pd.DataFrame, lines: Sequence[Mapping[str, Any]], plan: Plan, *, command: str, part: str
) -> None:
    """The page, `<name>_scores.md` with every score, and the picture `<name>.png`."""
    beside = path.with_name(f"{path.stem}_scores.md")
    draw_curves(scores[scores["scenario"] == "few"], path.with_suffix(".png"))
    path.write_text("\n".join(_page(path, beside, scores, lines, plan, command, part)), encoding="utf-8")
    beside.write_text("\n".join(_all_scores(path, scores, part)), encoding="utf-8")


def _page(
    path: Path,
    beside: Path,
    scores: pd.DataFrame,
    lines: Sequence[Mapping[str, Any]],
    plan: Plan,
    command: str,
    part: str,
) -> list[str]:
    cpu, unseen = sum(line["cpu"] for line in lines), all(name in HELD_OUT for name in plan.tables)
    text = [
        UNSEEN_TITLE if unseen else "# Few labels on real tables: every method and what users would pick instead",
        "",
        f"Scores of **{part} rows**. Made by `{command}`:",
        f"{len(lines)} cells, {cpu / 60:.0f} minutes of one core ({platform.machine()}, Python {platform.python_version()}).",
        "No row of these tables is in the project." + (f" {UNSEEN}" if unseen else ""),
        "",
        f"Tables: {', '.join(plan.tables)}; of each the {MOST_CLIENTS} largest clients. Of a client's rows a quarter, at most",
        f"{MOST_SCORED}, are validation rows and as many test rows. Labels of each task are drawn from the rest, on rows apart",
        f"from those of the other tasks: {', '.join(map(str, plan.labels))} of each task and client (or all there are),",
        f"{len(plan.seeds)} seeds. The same encoded rows for all; pooled rivals have the client as a category and no privacy.",
        "",
        *[f"- **{name}**: {SCENARIOS[name]}." for name in plan.scenarios],
        "",
        "Ranks are over RMSE and NLPD of regressions (in stds of the target), log loss and AUROC of classes: each table,",
        "task, number of labels, seed and metric is one place; ± is the std of the mean rank over the tables.",
        "",
    ]
    for scenario in plan.scenarios:
        here = scores[scores["scenario"] == scenario]
        if len(here):
            text += [f"## {scenario}: {SCENARIOS[scenario]}", "", *_ranks(here), *_coverage(here)]
    if "few" in plan.scenarios:
        text += [f"![learning curves]({path.with_suffix('.png').name})", ""]
    text += [
        f"All scores with their spread over the seeds: [{beside.name}]({beside.name}).",
        "",
        *_options(plan, lines),
    ]
    tried = TRIED.is_file() and not unseen
    return [*text, *(TRIED.read_text(encoding="utf-8").splitlines() if tried else []), ""]


def _ranks(here: pd.DataFrame) -> list[str]:
    ranks = mean_ranks(here)
    ours = OURS in ranks.index
    rows = []
    for method, line in ranks.iterrows():
        row = [f"`{method}`", f"{line['rank']:.2f} ± {line['std']:.2f}"]
        if ours and method != OURS:
            pair = ahead(here, OURS, str(method))
            row.append(f"{100 * pair.share:.0f} % of {pair.places}")
        elif ours:
            row.append("")
        rows.append([*row[:1], str(int(line["places"])), *row[1:]])
    return _table(["method", "places", "mean rank", *([f"`{OURS}` is ahead in"] if ours else [])], rows)


def _coverage(here: pd.DataFrame) -> list[str]:
    covered = averages(here[here["metric"] == "coverage"], ["labels"])
    if covered.empty:
        return []
    labels = sorted(set(here["labels"]))
    rows = []
    for method in dict.fromkeys(here["method"]):
        cells = [_cell(covered, (n, "coverage", method)) for n in labels]
        rows.append([f"`{method}`", *cells])
    return ["Coverage of 95 % intervals by number of labels:", "", *_table(["method", *map(str, labels)], rows)]


def _options(plan: Plan, lines: Sequence[Mapping[str, Any]]) -> list[str]:
    cost = _cost(lines)
    rows = []
    for text in (text for text in plan.methods if text in cost.index):
        one = next(line for line in lines if line["variant"]["label"] == text)
        variant = Variant.parse(text)
        # Lines of older runs do not have their options: those of now stand in.
        options = one.get("every_option") or options_of(Cell("", "few", 5, 0, variant, 1).made())
        said = ", ".join(f"{name}={json.dumps(value, default=str)}" for name, value in options.items())
        figures = [str(one["rounds"]), f"{cost.loc[text, 'cpu']:.2f}", f"{cost.loc[text, 'kB']:.0f}"]
        rows.append([f"`{text}`", *figures, said.replace("|", "/")])
    heads = ["method", "rounds", "s a cell", "kB a client and round", "every option"]
    return ["## Options and cost", "", *_table(heads, rows)]


def _cost(lines: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    rows = [{"method": x["variant"]["label"], "cpu": x["cpu"], "kB": x["bytes_up"] / 1000} for x in lines]
    grouped = pd.DataFrame(rows, columns=["method", "cpu", "kB"]).groupby("method")
    return pd.DataFrame({"cpu": grouped["cpu"].mean(), "total": grouped["cpu"].sum(), "kB": grouped["kB"].max()})


def _all_scores(page: Path, scores: pd.DataFrame, part: str) -> list[str]:
    text = [
        "# All scores of the tables",
        "",
        f"Of {part} rows; mean and spread over the seeds, tasks of one table averaged: [{page.name}]({page.name}).",
        "",
    ]
    found = averages(scores, ["table", "scenario", "labels"])
    for table, scenario, labels in dict.fromkeys(
        zip(scores["table"], scores["scenario"], scores["labels"], strict=True)
    ):
        here = scores[(scores["table"] == table) & (scores["scenario"] == scenario) & (scores["labels"] == labels)]
        shown = [metric for metric in NAMES if metric in set(here["metric"])]
        rows = [
            [f"`{m}`", *(_cell(found, (table, scenario, labels, metric, m)) for metric in shown)]
            for m in dict.fromkeys(here["method"])
        ]
        tasks = ", ".join(f"{task} ({kind})" for task, kind in table_set(table).tasks.items())
        text += [f"## {table}, {labels} labels, {scenario}", "", f"{tasks}", ""]
        text += _table(["method", *(NAMES[metric] for metric in shown)], rows)
    return text


def _cell(found: pd.DataFrame, at: tuple[Any, ...]) -> str:
    return f"{found.loc[at, 'mean']:.3f} ± {found.loc[at, 'std']:.3f}" if at in found.index else ""


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return [*("| " + " | ".join(line) + " |" for line in lines), ""]
