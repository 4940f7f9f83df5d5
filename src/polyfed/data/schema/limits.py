"""What may leave a client at all (limits that are applied where the data are, before anything is sent), and what did.

A statistic of one row is that row. So a client speaks of a task only if it has `min_rows` labels of it, and of a text
only if `min_count` of its training rows hold it; a client that may speak of no task is silent.

>>> DEPLOYED.reported({"pulse": 12, "sick": 3}), DEPLOYED.reported({"sick": 3})
(('pulse',), ())
>>> OPEN.at_least(DEPLOYED).min_rows
10
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from polyfed.data.features.matrix import Described
from polyfed.errors import ConfigError

OTHER = "other"  # what all levels with too few rows are called
MOST_CATEGORIES = 100  # of one text column; more is an identifier or free text, and as many columns of zeros
LONGEST_TEXT = 1000  # characters of a name, level or class; longer ones are no names


@dataclass(frozen=True)
class Limits(Described):
    """The limits of one client.

    Attributes:
        min_rows: training labels of a task, or values of a column, below which nothing of it is sent.
        min_count: training rows with a level of a text column, or a class, below which it is not named; test rows with
            labels of a task below which no score of it is sent.
    """

    min_rows: int = 1
    min_count: int = 1

    def __post_init__(self) -> None:
        for option in ("min_rows", "min_count"):
            value = getattr(self, option)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 10**9:
                raise ConfigError(f"{option} is {value!r}", remedy="give a whole number from 1 up")

    def reported(self, labels: Mapping[str, int]) -> tuple[str, ...]:
        """The tasks of which a client with these numbers of training labels may speak; without any it is silent."""
        return tuple(task for task, n in labels.items() if n >= self.min_rows)

    def at_least(self, other: Limits) -> Limits:
        """The stricter of both: a study may ask for more caution than a client's owner does, never for less."""
        return Limits(max(self.min_rows, other.min_rows), max(self.min_count, other.min_count))


OPEN = Limits()  # in one process, where all data are in one place already
DEPLOYED = Limits(min_rows=10, min_count=5)  # on a node, unless its owner says otherwise in the node's own file


@dataclass(frozen=True)
class Round0(Described):
    """What came of round 0 beside the schema: who takes part with how many labels, who was rejected, what was left out.

    >>> after = Round0(labels={"basel": {"pulse": 40}, "bern": {}}, rejected={"thun": "its summary lacks 'labels'"})
    >>> after.silent, Round0.from_dict(after.to_dict()) == after
    (('bern',), True)
    """

    limits: Limits = OPEN  # of the clients whose data are here; those of others are their own business
    # member → task → how many training labels it declared; none if it is silent. Later it may use fewer, never more
    labels: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    rejected: Mapping[str, str] = field(default_factory=dict)  # who takes no part → why
    # client whose data are here → task → its labels of classes that no client named; they are not used
    unknown: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def silent(self) -> tuple[str, ...]:
        """Members that send and train nothing: they receive the shared model and use it like clients that join late."""
        return tuple(name for name, labels in self.labels.items() if not labels)

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> Round0:
        return cls(**{**described, "limits": Limits(**described["limits"])})
