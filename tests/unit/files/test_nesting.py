"""How deep a text of JSON nests, without decoding it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.files import is_nested_deeper

values = st.recursive(
    st.none() | st.integers() | st.text(alphabet='[]{}"\\a,é'),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='[]{}"\\a', max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)


def depth(value: Any) -> int:
    """Levels of lists and objects."""
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@given(values, st.booleans())
def test_it_is_the_depth_of_the_value(value: Any, ascii_only: bool) -> None:
    text, levels = json.dumps(value, ensure_ascii=ascii_only).encode(), depth(value)
    assert not is_nested_deeper(text, levels)
    if levels:
        assert is_nested_deeper(text, levels - 1)


@pytest.mark.parametrize(
    "text", [b"[" * 200, b'{"a":' * 200, b"]" * 5 + b"[" * 200, b'"[[' + b"[" * 300 + b'"' + b"[" * 101]
)
def test_text_that_is_no_json_is_judged_too(text: bytes) -> None:
    assert is_nested_deeper(text, 100)


def test_wide_is_not_deep() -> None:
    assert not is_nested_deeper(json.dumps([{"a": []}] * 10_000).encode(), 3)
