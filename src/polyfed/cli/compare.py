"""`polyfed compare`: several methods and seeds on the same data, one table and one report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from polyfed.cli.comparison import run_comparison
from polyfed.cli.grouping import grouped
from polyfed.cli.names import completion
from polyfed.cli.options import DataOptions, RunOptions, settings, split_names
from polyfed.cli.scales import with_scales
from polyfed.defaults import COMPARED
from polyfed.errors import UsageError


@grouped
def command(
    context: typer.Context,
    data: DataOptions,
    how: RunOptions,
    config: Annotated[
        Path | None, typer.Argument(help="File of settings (TOML), with what is to be compared.", metavar="[CONFIG]")
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Methods ({','.join(COMPARED)}): see polyfed methods.",
            metavar="A,B",
            autocompletion=completion("methods"),
        ),
    ] = None,
    seeds: Annotated[
        list[str] | None, typer.Option(help="Seeds (0); each method runs with each.", metavar="0,1,2")
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(help="Values of an option; validation rows choose one.", metavar="METHOD.OPTION=A,B"),
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes that share out the runs.", min=1)] = 1,
    out: Annotated[Path | None, typer.Option(help="Folder of all runs. By default runs/<data>-compare.")] = None,
    report: Annotated[bool, typer.Option(help="Write report.html at the end.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Compare methods over seeds; the same command again goes on where it was stopped."""
    from polyfed.data.tables.files import stem_of
    from polyfed.experiments.reading import read_grid

    extra: dict[tuple[str, ...], Any] = {
        ("compare", "methods"): split_names(methods),
        ("compare", "seeds"): _whole(split_names(seeds)),
    }
    for keys, values in map(read_grid, grid or ()):
        extra.setdefault(("compare", "grid", *keys), []).extend(values)
    chosen, where = settings(config, data, how, extra=extra)
    chosen = with_scales(chosen, where, quiet=quiet)
    name = chosen.data.dataset or stem_of(chosen.data.source or "data")
    folder = out or Path(chosen.run.folder or Path("runs") / f"{name}-compare")
    run_comparison(chosen, folder, where, argv=context.obj["argv"], jobs=jobs, report=report, json=json, quiet=quiet)


def _whole(seeds: list[str] | None) -> list[int] | None:
    if seeds is None:
        return None
    for seed in seeds:
        if not seed.isdecimal():
            raise UsageError(
                f"{seed!r} is no seed", where="--seeds", remedy="give whole numbers from 0 up, as in 0,1,2"
            )
    return [int(seed) for seed in seeds]
