"""The report: one HTML file that needs nothing else, made from the folders of one run or of several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from polyfed.errors import UsageError
from polyfed.files import SHOWN, write_whole
from polyfed.report.charts import scores
from polyfed.report.details import BRIEF, WHOLE, counted, details
from polyfed.report.folders import RunFolder, read_run
from polyfed.report.tables.comparison import comparison, grouped
from polyfed.report.templates import as_json, figures_of, render

FEW = 4  # runs of which everything is shown
MOST_DETAILED = 12  # runs that have a section of their own


class Tried(NamedTuple):
    """A combination of options that a method was tried with, and how it did on the validation rows."""

    method: str
    options: str
    loss: str
    chosen: bool


def write_report(
    folders: Sequence[Path], out: Path, *, tried: Sequence[Tried | tuple[str, str, str, bool]] = ()
) -> Path:
    """Read the runs in these folders, finished or not, and write the report about them.

    Runs of several methods and seeds are compared. `tried` reports how the options of these runs were chosen.
    """
    if not folders:
        raise UsageError("there is no run to report on", where="write_report", remedy="give the folder of a run")
    runs = [read_run(folder) for folder in dict.fromkeys(Path(folder).resolve() for folder in folders)]
    out, html = Path(out), report_html(runs, [Tried(*one) for one in tried])
    if out.is_dir():
        raise UsageError("is a folder", where=out, remedy=f"give a file, such as {out / 'report.html'}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(out, html.encode(), SHOWN)
    except OSError as error:
        what = f"cannot be written ({error.strerror})"
        raise UsageError(what, where=out, remedy="choose a place where you may write") from error
    return out


def report_html(runs: Sequence[RunFolder], tried: Sequence[Tried] = ()) -> str:
    groups = grouped(runs)
    names = {id(run): group.name for group in groups for run in group.runs}
    detailed = runs if len(runs) <= MOST_DETAILED else [group.runs[0] for group in groups][:MOST_DETAILED]
    amount = WHOLE if len(detailed) <= FEW else BRIEF
    shown = [
        details(run, f"run{i}", f"{names.get(id(run), run.method)}, seed {run.seed}", amount)
        for i, run in enumerate(detailed)
    ]
    histories = {group.name: [run.history for run in group.runs] for group in groups}
    by_round = scores.compared("all", histories) if len(groups) > 1 else []
    gained, headline = scores.gains("all", groups), comparison(groups)
    ranks = [scores.ranked("all-ranks", headline.ranking)] if headline.ranking else []
    charts = [*ranks, *gained, *by_round, *(chart for one in shown for found in one.charts.values() for chart in found)]
    counts = {
        "method": len(groups),
        "seed": len({run.seed for run in runs}),
        "client": len({client for run in runs for client in run.history.clients}),
        "task": len({task for run in runs for task in run.history.kinds}),
    }
    return render(
        "report.html",
        title=f"Report on {groups[0].name}" if len(groups) == 1 else f"Comparison of {len(groups)} methods",
        facts=[counted(n, thing) for thing, n in counts.items()],
        headline=headline,
        ranks=ranks,
        gains=gained,
        every_metric=comparison(groups, every_metric=True),
        # Numbers of runs about different clients or tasks are not comparable.
        unlike=len({(frozenset(run.history.clients), frozenset(run.history.kinds.items())) for run in runs}) > 1,
        tried=tried,
        validation_only=any(run.history.part == "validation" for run in runs),
        curves=by_round,
        runs=shown,
        n_runs=len(runs),
        choices={one.id: f"{one.name} ({one.folder})" for one in shown},
        figures=as_json(figures_of(charts)),
    )
