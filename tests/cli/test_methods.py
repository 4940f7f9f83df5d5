"""`polyfed methods`: those of other packages among them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

from polyfed.methods import PFedMul


@dataclass(frozen=True)
class Ours(PFedMul):
    """Ours.

    Args:
        depth: how deep it goes.
    """

    name: ClassVar[str] = "ours"
    summary: ClassVar[str] = "a method of another package"
    depth: int = 3


class Entry:
    name, value = "ours", "ours:Ours"

    def load(self):
        return Ours


class Broken(Entry):
    name = "broken"

    def load(self):
        raise ImportError("it is not there")


def test_methods_of_other_packages_are_listed(monkeypatch, polyfed):

    monkeypatch.setattr(
        "polyfed.plugins.entry_points", lambda group: [Entry(), Broken()] if group == "polyfed.methods" else []
    )
    done = polyfed("methods", "--json")
    listed = {entry["name"]: entry for entry in json.loads(done.out)["methods"]}
    assert listed["ours"]["summary"] == "a method of another package"
    assert {"name": "depth", "default": 3, "help": "how deep it goes"} in listed["ours"]["options"]
    assert "pfed-mul" in listed
    assert done.err == "warning: method 'broken' of 'ours:Ours' cannot be loaded: it is not there\n"
    assert [entry["name"] for entry in json.loads(polyfed("methods", "ours", "--json").out)["methods"]] == ["ours"]
    assert "a method of another package" in polyfed("methods").out
