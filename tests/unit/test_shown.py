"""Values in messages: cut where they are long, and as long as they are short as Python writes them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.errors import shown

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text("ab\n", max_size=300),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab", max_size=200), inner) | st.tuples(inner, inner),
)


@given(VALUES)
def test_it_is_the_beginning_of_what_python_writes(value: Any) -> None:
    whole = repr(value)
    assert shown(value) == (whole if len(whole) <= 120 else whole[:117] + "...")


@pytest.mark.parametrize(
    "make",
    [
        lambda: [[]] * 5_000_000,
        lambda: "a" * 100_000_000,
        lambda: [["a" * 100_000_000] * 9] * 100,
        lambda: {"a": list(range(5_000_000))},
    ],
    ids=["lists", "text", "texts", "numbers"],
)
def test_what_is_cut_costs_nothing(make: Callable[[], object]) -> None:
    value = make()
    tracemalloc.start()
    try:
        assert len(shown(value)) == 120
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1 << 20, "the whole value has megabytes"


def test_a_number_that_python_does_not_write_is_told_by_its_length() -> None:
    assert shown([10**5000, 3]) == "[(a number of 16610 bits), 3]"
