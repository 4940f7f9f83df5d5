"""Which versions the nodes of a study have, as they say themselves: the server asks every node who it is.

>>> read({"versions": {"polyfed": "0.2.0", "flwr": "1.41.0"}})
{'polyfed': '0.2.0', 'flwr': '1.41.0'}
>>> read({"versions": {"polyfed": "a\\nb"}})
{}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from polyfed import __version__
from polyfed.errors import DataError
from polyfed.folders.documents import read_document
from polyfed.folders.schemas import FlowerDocument

VERSION = re.compile(r"[0-9A-Za-z.+!_-]{1,40}")  # whatever PEP 440 allows


def mine() -> dict[str, str]:
    return {"polyfed": __version__, "flwr": version("flwr")}


def read(reported: Mapping[str, object]) -> dict[str, str]:
    """The versions in what a node says of itself; what is none is left out."""
    given = reported.get("versions")
    found = [(name, given.get(name)) for name in ("polyfed", "flwr")] if isinstance(given, dict) else []
    return {name: text for name, text in found if isinstance(text, str) and VERSION.fullmatch(text)}


def of_nodes(runs: Path) -> dict[str, dict[str, str]]:
    """Flower's number of a node → its versions, as of the latest of these runs in which it said so."""
    known: dict[str, dict[str, str]] = {}
    for path in sorted(runs.glob("*/flower.json"), key=lambda path: path.stat().st_mtime):
        try:
            known |= read_document(path, FlowerDocument).get("nodes", {})
        except DataError:  # a run that is being made, or that somebody damaged: others know too
            continue
    return known
