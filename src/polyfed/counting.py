"""The order in which people count: site 2 before site 10."""

from __future__ import annotations

import re


def as_people_count(name: str) -> list[tuple[int, int, str]]:
    """A key to sort names by, their numbers as numbers.

    >>> sorted(["site 10", "b", "site 2", "3", "10"], key=as_people_count)
    ['3', '10', 'b', 'site 2', 'site 10']
    """
    parts = re.findall(r"[0-9]+|[^0-9]+", str(name))
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts]
