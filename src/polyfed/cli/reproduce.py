"""`polyfed reproduce`: an experiment of the paper, its numbers beside those that were published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyfed.cli.arguments import AsJson, Jobs, Names, Quiet, argument, option, reject_run
from polyfed.cli.options import COMMAND_LINE, split_names, split_seeds
from polyfed.cli.output import emit, note, say, show_table
from polyfed.cli.progress import images_bar, shared_bar
from polyfed.errors import Interrupted, PolyfedError, UsageError

if TYPE_CHECKING:
    from polyfed.paper.presets import Block
    from polyfed.paper.records import Record
    from polyfed.paper.reproduce import Document, Experiment

IMAGES = "Images"


def command(
    context: typer.Context,
    preset: Annotated[str, argument("table1, synthetic, calibration, ood, convergence, ablation or mean.", "PRESET")],
    data_dir: Annotated[Path | None, option("Folder with celeba/ and dogcat/ in it.", "DIR", panel=IMAGES)] = None,
    backbone: Annotated[str | None, option("Network that sees the images.", "NAME", panel=IMAGES)] = None,
    weights_dir: Annotated[Path | None, option("Folder with weights of networks.", "DIR", panel=IMAGES)] = None,
    methods: Annotated[Names, option("Only these methods.", "A,B")] = None,
    seeds: Annotated[Names, option("Seeds instead of the preset's.", "0,1,2")] = None,
    rounds: Annotated[int | None, option("Rounds instead of the preset's.", "N", min=1)] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version, in minutes; images are made up if there are none.")
    ] = False,
    trained: Annotated[
        bool,
        typer.Option(
            "--trained/--frozen",
            help="Train the network that sees the images, or only what comes after it.",
            rich_help_panel=IMAGES,
        ),
    ] = False,
    jobs: Jobs = 1,
    out: Annotated[Path | None, option("Folder. By default runs/reproduce-<preset>.")] = None,
    runs: Annotated[
        Path | None,
        option("Folder of the runs; presets that share it run what they have in common once. By default in --out."),
    ] = None,
    beside: Annotated[
        Path | None,
        option("A results.md of this preset: rows that are run now go into its tables, whose own rows stay.", "PAGE"),
    ] = None,
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment of the paper; the same command again goes on where it was stopped."""
    from polyfed.cli.documents import ReproduceDocument
    from polyfed.nets.vision.weights import weights_in
    from polyfed.paper.beside import read_page
    from polyfed.paper.presets import Choices, read_preset
    from polyfed.paper.reproduce import image_folders, prepare, write

    def looks_at(block: Block) -> None:
        what = " ".join(filter(None, [block.data, block.setting.name, block.variant.title]))
        note(f"{what}, seed {block.seed}: looking at the images")

    original, argv = read_preset(preset), context.obj["argv"]
    page = None if beside is None else read_page(beside)
    if quick and trained:
        raise UsageError("--quick has no trained networks", remedy="leave one of the two out")
    folder = out or Path("runs") / f"reproduce-{preset}{'-quick' if quick else '-trained' if trained else ''}"
    reject_run(folder, "experiments")
    if original.family != "images" and (data_dir or backbone or weights_dir):
        what = f"preset {preset!r} has no images"
        raise UsageError(what, remedy="leave --data-dir, --backbone and --weights-dir out")
    images = {"backbone": backbone, "weights_dir": weights_dir}
    try:
        given = {key: str(value) for key, value in images.items() if value is not None}
        folders = image_folders(original, data_dir, folder, quick=quick)
        choices = Choices(split_seeds(seeds), split_names(methods), rounds, quick, trained, given, folders)
        with weights_in(weights_dir):  # networks that methods train are in it too
            with images_bar(quiet=quiet or json):
                reported = None if quiet or json or not folders else looks_at
                experiment = prepare(original, choices, folder, COMMAND_LINE, reported, runs)
            failed = _run_all(experiment, jobs, argv, quiet)
    except KeyboardInterrupt:
        raise Interrupted("stopped", where=folder, remedy="the same command goes on with what is left") from None
    n_runs = len(experiment.cells) + len(experiment.unfinished)
    if len(failed) == n_runs:
        raise next(iter(failed.values()))
    with images_bar(quiet=quiet or json):  # corrupted images are seen only now
        document, records = write(experiment, failed, argv, page)
    emit(ReproduceDocument.model_validate(document)) if json else _show(document, records)
    if failed:
        first = str(next(iter(failed.values()))).rstrip(".")
        raise PolyfedError(f"{len(failed)} of {n_runs} runs failed, the first with: {first}")


def _run_all(experiment: Experiment, jobs: int, argv: Sequence[str], quiet: bool) -> dict[Path, PolyfedError]:
    """The runs that failed; one bar over all rounds."""
    from polyfed.experiments.comparing import run_cells

    cells, failed = experiment.cells, experiment.unfinished
    for error in dict.fromkeys(map(str, failed.values())):
        note(f"warning: {error}")
    with shared_bar(cells, quiet=quiet) as bar:
        for outcome in run_cells(cells, experiment.federation, COMMAND_LINE, jobs=jobs, on_event=bar, command=argv):
            bar(outcome.cell)
            if outcome.error is not None:
                failed[outcome.cell.folder] = outcome.error
                note(f"warning: {outcome.cell.folder} failed: {outcome.error}")
    return failed


def _show(document: Document, records: Sequence[Record]) -> None:
    from polyfed.paper.reproduce import reported, says
    from polyfed.paper.tables import tables

    say(f"{document['title']}. {says(document['preset'])}")
    for table in tables(records):
        show_table(table.title, table.headings, table.rows)
    for claim in document["claims"]:
        say(f"Published ({document['source']}): {claim['text']}. Here: {reported(claim)}")
    say("Differences to the publication:")
    for one in document["differences"]:
        say(f"- {one}")
    say(f"The numbers are in {document['markdown']}, the report is {document['report']}")
