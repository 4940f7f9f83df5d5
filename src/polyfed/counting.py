"""How people count: site 2 before site 10, and bytes by the thousand."""

from __future__ import annotations

import re


def as_people_count(name: str) -> list[tuple[int, int, str]]:
    """A key to sort names by, their numbers as numbers.

    >>> sorted(["site 10", "b", "site 2", "3", "10"], key=as_people_count)
    ['3', '10', 'b', 'site 2', 'site 10']
    """
    parts = re.findall(r"[0-9]+|[^0-9]+", str(name))
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts]


def in_bytes(n: float, one: str = "B") -> str:
    """A size as people say it.

    >>> in_bytes(512), in_bytes(2_500_000), in_bytes(812, "bytes"), in_bytes(40_800, "bytes")
    ('512 B', '2.5 MB', '812 bytes', '40.8 kB')
    """
    for unit in (one, "kB", "MB"):
        if n < 1000:
            return f"{n:.0f} {unit}" if unit == one else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} GB"
