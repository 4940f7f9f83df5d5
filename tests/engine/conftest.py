"""A small federation in users' terms: two correlated tasks and a count, clients that lack one."""

from __future__ import annotations

import pytest

from federations import make_federation


@pytest.fixture
def federation():
    return make_federation()
