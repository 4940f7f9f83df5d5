"""Prints the oldest versions that pyproject.toml allows, as constraints for pip: `make test-minimum` installs these."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

# What polyfed itself imports; tools of the tests are as they are.
OPTIONAL = ("demo", "flower", "vision", "tables", "rivals")


def floors(project: dict) -> list[str]:
    """Of every dependency with a lower bound, name==bound."""
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for extra in OPTIONAL for line in extras[extra])]
    found = (re.match(r"([\w-]+)(?:\[[\w,]+\])?>=([\w.]+)", line) for line in wanted)
    return [f"{match[1]}=={match[2]}" for match in found if match]


if __name__ == "__main__":
    text = Path(__file__).parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8")
    sys.stdout.write("\n".join(floors(tomllib.loads(text)["project"])) + "\n")
