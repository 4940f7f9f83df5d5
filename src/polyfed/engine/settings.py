"""How a run goes: rounds, who takes part, what is checked, looked at and kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from polyfed.engine.pipeline import parts_of
from polyfed.engine.validation import MAX_NORM
from polyfed.errors import ConfigError
from polyfed.methods.options import check_choice, check_number
from polyfed.seeds import Stream

STOPS = ("none", "validation")


@dataclass(frozen=True)
class Settings:
    """Options of the engine; none of them belongs to a method.

    Args:
        rounds: number of rounds.
        seed: of everything that is random.
        sample: clients in a round: a number, a share such as 0.5, or None for all.
        evaluate_every: rounds between two evaluations; the last round has one in any case, 0 for that one alone.
        quorum: the share of the sampled clients whose updates must be fit for use.
        max_norm: updates whose norm is over this many times the median are rejected.
        aggregation: what the server averages: `clip` (updates no longer than twice the median), the exact `mean`, or in the
            place of all `median`, `trimmed` or `krum`; several joined by + run in their order (engine/pipeline.py).
        trim: the share of the clients that `trimmed` leaves out at each end, and that `krum` takes for malicious.
        stop: `none`, or `validation`: before the last round if more rounds no longer help (engine/tables.py).
        patience: evaluations without a better one after which it does.
        keep: checkpoints that are kept.
        workers: threads that share out the clients of a round.
    """

    rounds: int = 20
    seed: int = 0
    sample: int | float | None = None
    evaluate_every: int = 5
    quorum: float = 0.5
    max_norm: float = MAX_NORM
    aggregation: str = "clip"
    trim: float = 0.2
    keep: int = 3
    workers: int = 1
    stop: str = "none"
    patience: int = 2

    def __post_init__(self) -> None:
        least = {"rounds": 0, "seed": 0, "evaluate_every": 0, "keep": 1, "workers": 1, "patience": 1}
        for option in least:
            check_number(option, getattr(self, option), whole=True, least=least[option])
        check_number("max_norm", self.max_norm, above=0)
        check_choice("stop", self.stop, STOPS)
        if self.stop != "none" and not self.evaluate_every:
            remedy = "look at the models now and then, or leave stop out"
            raise ConfigError(f"stop is {self.stop!r}, and evaluate_every is 0", remedy=remedy)
        parts_of(self.aggregation)
        check_number("trim", self.trim, least=0, below=0.5)
        if not 0 <= self.quorum <= 1:
            raise ConfigError(f"quorum is {self.quorum!r}", remedy="give a share from 0 to 1")
        if self.sample is not None:
            whole = isinstance(self.sample, int)
            check_number("sample", self.sample, whole=whole, above=0)
            if not whole and self.sample > 1:
                remedy = "give a whole number, or a share from 0 to 1 such as 0.5"
                raise ConfigError(f"sample is {self.sample!r}", remedy=remedy)

    def participants(self, clients: Sequence[str], round: int) -> list[str]:
        """The clients that take part in a round: drawn without replacement, whatever the order of the names."""
        names = sorted(clients)
        if self.sample is None:
            return names
        wanted = self.sample if isinstance(self.sample, int) else ceil(self.sample * len(names))
        if wanted > len(names):
            remedy = f"give at most {len(names)}, or None for all"
            raise ConfigError(f"sample is {wanted}, but {len(names)} clients have training labels", remedy=remedy)
        chosen = Stream(self.seed, "sampling", round).numpy().choice(len(names), wanted, replace=False)
        return [names[i] for i in sorted(chosen)]

    def is_enough(self, n_used: int, n_sampled: int) -> bool:
        return n_used >= max(1, ceil(self.quorum * n_sampled))

    def evaluates(self, round: int) -> bool:
        return round == self.rounds or (self.evaluate_every > 0 and round > 0 and round % self.evaluate_every == 0)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
