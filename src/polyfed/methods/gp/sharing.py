"""Which groups of Θ the server learns; the others are personal and stay on the client.

The paper's schemes: N shares the network, K the kernels too, W the mixing weights too, A all (tab:ablation).

>>> shared_groups("K"), shared_groups(["mixing"])
(('features', 'kernels'), ('mixing',))
"""

from __future__ import annotations

from collections.abc import Iterable

from polyfed.errors import ConfigError, nearest
from polyfed.gp import GROUPS

SCHEMES = {"N": GROUPS[:1], "K": GROUPS[:2], "W": GROUPS[:3], "A": GROUPS}


def shared_groups(scheme: str | Iterable[str]) -> tuple[str, ...]:
    """The groups of a scheme: N, K, W, A, the name of one group, or any set of groups (an empty one shares nothing)."""
    if isinstance(scheme, str):
        if scheme in SCHEMES:
            return SCHEMES[scheme]
        scheme = [scheme]
    wanted = list(scheme)
    for group in wanted:
        if group not in GROUPS:
            raise ConfigError(f"scheme {group!r} is unknown", remedy=nearest(group, [*SCHEMES, *GROUPS]))
    return tuple(group for group in GROUPS if group in wanted)
