"""Questions to columns: as NumPy would answer them."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.core.columns import (
    ONE,
    IntArray,
    all_ones,
    any_true,
    are_within,
    below,
    constant,
    count_places,
    difference,
    either,
    extended,
    first_entries,
    frozen,
    parted,
    prompt_sums,
    reached,
    rows_above,
    same,
    shifted,
    summed,
    token_column,
    total,
    units,
)
from tokenyard.core.table_rows import (
    add_at,
    capped_sum,
    entry,
    gather,
    least_difference,
    less,
    mark,
    put,
    put_all,
    rows_among,
    rows_from,
    rows_unlike,
    scatter,
)


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


# ---- entries of a table's columns for some slots: whether C walks over them or NumPy does, the answers are the same


@st.composite
def tables(draw: st.DrawFn) -> tuple[IntArray, IntArray, IntArray]:
    """A column, some of its slots, and a value for each of those; with gaps, or in another type, now and then."""
    numbers = st.integers(-(2**40), 2**40)
    column = np.array(draw(st.lists(numbers, min_size=1, max_size=12)), np.int64)
    slots = np.array(draw(st.lists(st.integers(0, len(column) - 1), unique=True)), np.int64)
    values = np.array(draw(st.lists(numbers, min_size=len(slots), max_size=len(slots))), np.int64)
    kinds = st.sampled_from(["plain", "gaps", "int32"])
    return _as(column, draw(kinds), wide=False), _as(slots, draw(kinds)), _as(values, draw(kinds), wide=False)


def _as(column: IntArray, kind: str, *, wide: bool = True) -> IntArray:
    if kind == "gaps":
        return np.repeat(column, 2)[::2]
    return column.astype(np.int32) if kind == "int32" and wide else column


@given(tables(), st.integers(-3, 3))
def test_entries_of_slots(table: tuple[IntArray, IntArray, IntArray], beyond: int) -> None:
    column, slots, values = table
    assert gather(column, slots).tolist() == column[slots].tolist()
    assert less(values, column, slots).tolist() == (values - column[slots]).tolist()
    assert difference(values, column[slots]).tolist() == (values - column[slots]).tolist()
    sums = values + column[slots]
    assert capped_sum(values, column, slots, 7).tolist() == [min(each, 7) for each in sums.tolist()]
    value = column.item(0)
    assert rows_unlike(column, slots, value).tolist() == (column[slots] != value).nonzero()[0].tolist()
    assert shifted(values, beyond).tolist() == [number + beyond for number in values.tolist()]
    assert units(values, 3).tolist() == [-(-number // 3) for number in values.tolist()]
    rows = rows_from(values, column, slots, beyond)
    assert rows.dtype == np.int64
    assert rows.tolist() == (values - beyond >= column[slots]).nonzero()[0].tolist()


@given(tables(), st.integers(0, 3), st.data())
def test_values_among_several_entries(
    table: tuple[IntArray, IntArray, IntArray], width: int, data: st.DataObject
) -> None:
    """Entries of one slot: one number, or ``width`` of them."""
    column, slots, values = table
    entries = np.array([[data.draw(st.integers(0, 3)) for _ in range(width)] for _ in column], np.int64)
    few = values % 4
    for among in (column % 4, entries.reshape(len(column), width), entries.reshape(len(column), width)[:, ::-1]):
        found = rows_among(few, among, slots)
        assert found.dtype == np.int64
        of = among.reshape(len(column), -1)
        assert found.tolist() == [row for row, slot in enumerate(slots.tolist()) if few[row] in of[slot]]
    with pytest.raises(IndexError):
        rows_among(np.array([1]), entries, np.array([len(column)]))


@given(st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)))
def test_rows_of_either(one: set[int], other: set[int]) -> None:
    rows = either(np.array(sorted(one), np.int64), np.array(sorted(other), np.int64))
    assert rows.dtype == np.int64
    assert rows.tolist() == sorted(one | other)


@given(tables(), st.sampled_from([1, -1]))
def test_entries_change(table: tuple[IntArray, IntArray, IntArray], sign: int) -> None:
    column, slots, values = table
    changed, more, ones = column.copy(), column.copy(), column.copy()
    scatter(changed, slots, values)
    assert add_at(more, slots, values, sign).tolist() == (column[slots] + sign * values).tolist()
    assert add_at(ones, slots, ONE, sign).tolist() == (column[slots] + sign).tolist()
    for row, slot in enumerate(slots.tolist()):
        assert changed[slot] == values[row]
        assert more[slot] == column[slot] + sign * values[row]
        assert ones[slot] == column[slot] + sign
    others = np.setdiff1d(np.arange(len(column)), slots)
    for each in (changed, more, ones):
        assert each[others].tolist() == column[others].tolist()


@given(tables(), st.booleans())
def test_one_entry(table: tuple[IntArray, IntArray, IntArray], flag: bool) -> None:
    column, slots, values = table
    flags = column > 0
    for slot, value in zip(slots.tolist(), values.tolist(), strict=True):
        put(column, slot, value)
        assert column[slot] == entry(column, slot) == value
        put(flags, slot, flag)
        put(flags[::-1], 0, not flag)
        assert flags[slot] == (flag != (slot == len(flags) - 1))


@given(tables(), st.booleans(), st.booleans())
def test_many_entries(table: tuple[IntArray, IntArray, IntArray], gaps: bool, any_flag: bool) -> None:
    column, slots, values = table
    flags = np.repeat(column > 0, 2)[::2] if gaps else column > 0
    chosen = values > 0 if any_flag else None
    expected = flags.copy()
    expected[slots] = values > 0 if any_flag else False
    mark(flags, slots, chosen)
    assert flags.tolist() == expected.tolist()
    put_all(column, slots, 7)
    assert set(column[slots].tolist()) <= {7}
    assert first_entries(column, len(slots)).tolist() == column.tolist()[: len(slots)]


@given(st.lists(st.tuples(st.integers(-2, 3), st.integers(-2, 3)), min_size=1, max_size=6), st.booleans())
def test_two_columns_side_by_side(pairs: list[tuple[int, int]], gaps: bool) -> None:
    one, other = (_as(np.array(each, np.int64), "gaps" if gaps else "plain") for each in zip(*pairs, strict=True))
    assert summed(one, other).tolist() == (one + other).tolist()
    smaller = [left < right for left, right in pairs]
    mask = below(one, other)
    assert (None if mask is None else mask.tolist()) == (smaller if any(smaller) else None)


@given(st.lists(st.integers(-2, 3), max_size=6), st.lists(st.integers(-2, 3), max_size=6))
def test_whole_columns(left: list[int], right: list[int]) -> None:
    one, other = np.array(left, np.int64), np.array(right, np.int64)
    assert same(one, other) == (left == right)
    assert all_ones(one) == all(number == 1 for number in left)
    for numbers in (one, np.repeat(one, 2)[::2], one[:, None]):
        assert are_within(numbers, -1, 2) == all(-1 <= number <= 2 for number in left)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 3), st.data())
def test_where_a_sum_is_reached(numbers: list[int], each: int, data: st.DataObject) -> None:
    whole = sum(numbers) + each * (len(numbers) - 1)
    most = data.draw(st.integers(1, whole))
    sums = [sum(numbers[: row + 1]) + each * row for row in range(len(numbers))]
    first = next(row for row, spent in enumerate(sums) if spent >= most)
    column = np.array(numbers, np.int64)
    assert reached(column, most, each) == (first, sums[first] - most)
    with pytest.raises(IndexError):
        reached(column, whole + 1, each)


@given(tables(), st.lists(st.integers(-2, 2**40), max_size=6))
def test_columns_parted_and_extended(table: tuple[IntArray, IntArray, IntArray], more: list[int]) -> None:
    column = table[0]
    above, others = parted(column)
    assert above.dtype == others.dtype == np.int64
    assert above.tolist() == [row for row, number in enumerate(column.tolist()) if number > 0]
    assert others.tolist() == [row for row, number in enumerate(column.tolist()) if number <= 0]
    longer = extended(column, more)
    assert longer.tolist() == column.tolist() + more
    assert frozen(longer) is longer
    assert not longer.flags.writeable


def test_no_entry_is_out_of_bounds_whatever_the_shape() -> None:
    for shape in ((0,), (2, 0), (0, 2)):
        for kind in (np.int64, np.int32):
            assert are_within(np.zeros(shape, kind), 1, 2)


def test_what_is_no_slot_or_read_only_is_an_error() -> None:
    column, slots = np.arange(3), np.array([1, 3])
    for ask in (
        lambda: gather(column, slots),
        lambda: less(slots, column, slots),
        lambda: rows_from(slots, column, slots),
        lambda: rows_unlike(column, slots, 0),
        lambda: capped_sum(slots, column, slots, 7),
        lambda: scatter(column, slots, slots),
        lambda: add_at(column, slots, ONE),
        lambda: put(column, 3, 1),
        lambda: put_all(column, slots, 1),
        lambda: mark(column > 7, slots, None),
        lambda: entry(column, 3),
    ):
        with pytest.raises(IndexError, match="out of bounds"):
            ask()
    assert column.tolist() == [0, 1, 2]
    column.flags.writeable = False
    for change in (lambda: scatter(column, slots[:1], slots[:1]), lambda: add_at(column, slots[:1], ONE)):
        with pytest.raises(ValueError, match="read-only"):
            change()


@given(st.lists(st.integers(0, 4), max_size=6))
def test_places_are_counted(counts: list[int]) -> None:
    counters = np.array([5, 6, 7, 8])
    assert count_places(counters, np.array(counts, np.int64)) == sum(counts)
    assert counters.tolist() == [
        first + sum(count > place for count in counts) for place, first in enumerate((5, 6, 7, 8))
    ]


@given(tables(), st.integers(-3, 3))
def test_rows_above_a_number(table: tuple[IntArray, IntArray, IntArray], most: int) -> None:
    for column in table:
        rows = rows_above(column, most)
        assert rows.dtype == np.int64
        assert rows.tolist() == [row for row, value in enumerate(column.tolist()) if value > most]


@given(tables(), st.randoms(use_true_random=False))
def test_the_least_difference(table: tuple[IntArray, IntArray, IntArray], random: Random) -> None:
    column, slots, _ = table
    other = np.array(random.sample(range(-9, 99), len(column)), np.int64)
    if len(slots):
        assert least_difference(column, other, slots) == min((column[slots] - other[slots]).tolist())
    else:
        with pytest.raises(ValueError, match="no identity"):
            least_difference(column, other, slots)


@given(rows=st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 200_000)), max_size=12), gaps=st.booleans())
def test_sums_over_prompts(rows: list[tuple[int, int]], *, gaps: bool) -> None:
    column = np.array(rows, np.int64).reshape(-1, 2).T
    new, computed = column if gaps else (each.copy() for each in column)
    prompts = [(tokens, before) for tokens, before in rows if tokens > 1]
    assert prompt_sums(new, computed) == (
        len(prompts),
        sum(before for _, before in prompts),
        sum(tokens * before for tokens, before in prompts),
        sum(tokens * tokens for tokens, _ in prompts),
    )
