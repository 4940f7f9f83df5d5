"""What came of round 0 beside the schema: who takes part with how many labels, who was rejected, what was left out.

>>> after = Round0(labels={"basel": {"pulse": 40}, "bern": {}}, rejected={"thun": "its summary lacks 'labels'"})
>>> after.silent, Round0.from_dict(after.to_dict()) == after
(('bern',), True)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from polyfed.data.schema.limits import OPEN, Limits


@dataclass(frozen=True)
class Round0:
    """Round 0, looked back upon.

    Attributes:
        limits: of the clients whose data are here; those of others are their own business.
        labels: member → task → how many training labels it declared; none if it is silent. Later it may use fewer, never more.
        rejected: who takes no part → why.
        unknown: client whose data are here → task → its labels of classes that no client named; they are not used.
    """

    limits: Limits = OPEN
    labels: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    rejected: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def silent(self) -> tuple[str, ...]:
        """Members that tell nothing and train nothing: they get the shared model and use it as clients do that join late."""
        return tuple(name for name, labels in self.labels.items() if not labels)

    def to_dict(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> Round0:
        """What `to_dict` described."""
        return cls(**{**described, "limits": Limits(**described["limits"])})
