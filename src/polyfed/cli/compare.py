"""`polyfed compare`: several methods and seeds on the same data, one table and one report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from polyfed.cli.arguments import AsJson, Jobs, Names, Quiet, WriteReport, argument, grouped, option
from polyfed.cli.comparison import run_comparison
from polyfed.cli.options import DataOptions, RunOptions, settings, split_names, with_scales
from polyfed.defaults import COMPARED
from polyfed.errors import UsageError


@grouped
def command(
    context: typer.Context,
    data: DataOptions,
    how: RunOptions,
    config: Annotated[
        Path | None, argument("File of settings (TOML), with what is to be compared.", "[CONFIG]")
    ] = None,
    methods: Annotated[
        Names, option(f"Methods ({','.join(COMPARED)}): see polyfed methods.", "A,B", names="methods")
    ] = None,
    seeds: Annotated[Names, option("Seeds (0); each method runs with each.", "0,1,2")] = None,
    grid: Annotated[Names, option("Values of an option; validation rows choose one.", "METHOD.OPTION=A,B")] = None,
    jobs: Jobs = 1,
    out: Annotated[Path | None, option("Folder of all runs. By default runs/<data>-compare.")] = None,
    report: WriteReport = True,
    json: AsJson = False,
    quiet: Quiet = False,
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
            what = f"{seed!r} is no seed"
            raise UsageError(what, where="--seeds", remedy="give whole numbers from 0 up, as in 0,1,2")
    return [int(seed) for seed in seeds]
