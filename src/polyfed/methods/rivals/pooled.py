"""What rivals on pooled rows share: an intercept for each client, or the client as a category."""

from __future__ import annotations

from typing import ClassVar

from polyfed.methods.rivals.base import Rival


class PooledRival(Rival):
    """With the client of each row among its inputs."""

    pools_data: ClassVar[bool] = True
    needs_client: ClassVar[bool] = True
