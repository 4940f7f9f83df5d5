"""TOML as it is written, against the standard library's reader."""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from polyfed.experiments.toml_text import to_toml

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=12
)


@given(st.dictionaries(texts, values, max_size=4))
def test_what_is_written_is_read_again(document):
    assert tomllib.loads(to_toml(document)) == document
