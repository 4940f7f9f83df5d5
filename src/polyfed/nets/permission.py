"""Which code may run: a method's option can name a factory as `package.module:factory`, and whoever writes it decides what is
imported and called. What one types oneself is one's own wish; what comes from a run folder or from a server is not.

>>> reject_code({"network": "polyfed.nets.vision:resnet18?cut=layer3"}, where="the study")
>>> reject_code({"network": "os:system"}, where="the study")
Traceback (most recent call last):
polyfed.errors.ConfigError: the study: network = 'os:system' names code, which is not run unasked; ...
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from urllib.parse import parse_qsl

from polyfed.errors import ConfigError
from polyfed.nets.vision.registry import BACKBONES
from polyfed.nets.vision.weights import RANDOM

_OWN = re.compile(r"polyfed\.nets\.vision:([^?:]+)(?:\?(.*))?", re.DOTALL)


def reject_code(
    options: Mapping[str, object], allowed: Collection[str] = (), *, where: str, paths: bool = True
) -> None:
    """An error about the first option whose text names code that is neither polyfed's own nor allowed by this very name.

    Any text with a colon counts, whatever the option is called, for a method may come from another package. Unless `paths`,
    polyfed's own networks may not name a place of weights on this machine either.
    """
    for option, text in _texts(options):
        if ":" in text and text not in allowed and not is_own(text, paths=paths):
            shown = text if len(text) <= 100 else f"{text[:97]}..."
            raise ConfigError(
                f"{option} = {shown!r} names code, which is not run unasked",
                where=where,
                remedy="allow it by this very name with --allow-code (on a node also as allow_code in node.toml), "
                "if you trust it",
            )


def is_own(text: str, *, paths: bool = True) -> bool:
    found = _OWN.fullmatch(text)
    if found is None or found[1] not in BACKBONES:
        return False
    given = dict(parse_qsl(found[2] or "", keep_blank_values=True))
    return paths or ("weights_dir" not in given and given.get("weights", RANDOM) == RANDOM)


def _texts(value: object, option: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield option, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, option or str(key))
            yield from _texts(str(key) if option else "", option)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner, option)
