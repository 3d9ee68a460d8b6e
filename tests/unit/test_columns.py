"""Questions to columns: as NumPy would answer them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.core.basics import ONE, any_true, constant, token_column, total


@given(st.lists(st.booleans(), max_size=40))
def test_anywhere(mask: list[bool]) -> None:
    assert any_true(np.array(mask, np.bool_)) is any(mask)


def test_anywhere_in_part_of_a_column() -> None:
    mask = np.zeros(40, np.bool_)
    mask[31] = True
    assert any_true(mask[1::2])
    assert not any_true(mask[::2])


@given(st.lists(st.integers(-(2**40), 2**40), max_size=40))
def test_total(numbers: list[int]) -> None:
    assert total(np.array(numbers, np.int64)) == sum(numbers)


def test_constants_stay_what_they_are() -> None:
    assert (np.arange(3) + constant(7)).tolist() == [7, 8, 9]
    with pytest.raises(ValueError, match="read-only"):
        np.add(ONE, 1, out=ONE)


@given(st.lists(st.integers(0, 2**31 - 1), max_size=40))
def test_token_ids_become_a_column_that_stays(ids: list[int]) -> None:
    column = token_column(ids)
    assert column is not None
    assert column.dtype == np.int32
    assert column.tolist() == ids
    assert not column.flags.writeable


@pytest.mark.parametrize("other", [-1, 2**31, 2**64, -(2**64), 1.0, "1", None], ids=str)
def test_what_is_no_token_id_makes_no_column(other: object) -> None:
    assert token_column([1, other, 2]) is None  # type: ignore[list-item]
