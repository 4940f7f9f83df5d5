"""What `--transform auto` chose, column by column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyfed.cli.output import note, number

if TYPE_CHECKING:
    from polyfed.experiments.config import Config


def with_scales(config: Config, where: str, *, quiet: bool) -> Config:
    """The settings with the scales that held-out rows chose; what was tried is said on stderr."""
    from polyfed.experiments.scales import AS_IT_IS, settled

    def on_trial(column: str, done: int, n_runs: int) -> None:
        if done == 0 and not quiet:
            note(f"note: {n_runs} short runs choose scales on rows that are neither trained nor tested on")

    config, found = settled(config, where, on_trial)
    for scale in found:
        losses = ", ".join(
            f"{'as it is' if how == AS_IT_IS else how} {number(loss)}" for how, loss in scale.losses.items()
        )
        chosen = "left as it is" if scale.chosen == AS_IT_IS else f"taken as {scale.chosen}"
        if not quiet:
            note(f"note: {scale.column} is {chosen} (loss on held-out rows: {losses})")
    return config
