"""Between validated updates and a method's `aggregate`: a pipeline of named parts, the same for every method and engine.

`aggregation="clip"` is a pipeline of one part, `"clip+median"` one of two that run from left to right. A part is a function
that takes the updates of a round and returns those that the next part, or the method, gets to see: it may shorten, replace,
perturb or drop updates, and never changes them in place. The parts of polyfed are in engine/robust.py; other packages register
theirs under the entry point `polyfed.aggregation`, a script calls `register`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

from polyfed.engine.robust import RULES, Aggregation, Updates, by_rule
from polyfed.errors import ConfigError
from polyfed.methods import ClientUpdate, Method, State
from polyfed.methods.options import check_choice
from polyfed.plugins import registered
from polyfed.seeds import Stream

Part = Callable[[Updates, Aggregation], Mapping[str, ClientUpdate]]
PARTS: dict[str, Part] = {"mean": lambda updates, context: updates}
PARTS |= {name: partial(by_rule, rule) for name, rule in RULES.items()}


def register(name: str, part: Part) -> None:
    """Make a part known by a name, for this process; a package does so for all by the entry point."""
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name) or name in PARTS:
        raise ConfigError(f"a part cannot be named {name!r}", remedy="give a new name of small letters, digits and -")
    PARTS[name] = part


def known_parts() -> dict[str, Part]:
    """The parts that are registered, and those of other packages; one that cannot be imported is left out with a warning."""
    return registered("aggregation", "aggregation") | PARTS


def parts_of(aggregation: str) -> dict[str, Part]:
    """The parts of a pipeline by their names, in their order.

    >>> list(parts_of("clip + median"))
    ['clip', 'median']
    """
    names = [name.strip() for name in str(aggregation).split("+")]
    if len(set(names)) < len(names):
        raise ConfigError(f"aggregation {aggregation!r} names a part twice", remedy="name each part once")
    known = PARTS if set(names) <= PARTS.keys() else known_parts()
    for name in names:
        check_choice("aggregation", name, list(known))
    return {name: known[name] for name in names}


def prepared(
    method: Method, server: State, updates: Updates, aggregation: str, trim: float, stream: Stream
) -> dict[str, ClientUpdate]:
    """The updates that `aggregate` may use, in the order of the clients' names; the same objects where no part changes them."""
    now = {client: updates[client] for client in sorted(updates)}
    for name, part in parts_of(aggregation).items():
        after = part(now, Aggregation(method, server, trim, Stream(stream.seed, f"aggregation {name}", stream.round)))
        are_clients = isinstance(after, Mapping) and len(after) > 0 and after.keys() <= now.keys()
        if not are_clients or not all(isinstance(update, ClientUpdate) for update in after.values()):
            what = f"aggregation {name!r} returned no updates of clients of this round, or something else"
            raise ConfigError(what, remedy="let it return a mapping of at least one of its clients to a ClientUpdate")
        now = {client: after[client] for client in sorted(after)}
    return now
