"""Rows of tables are written, filled, packed and dealt to as NumPy would do it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.core.table_rows import deal_rows, fill_rows, packed_rows, push, put_row, put_rows, row_bytes


@given(st.data(), st.sampled_from(["int64", "int32", "gaps"]))
def test_one_row(data: st.DataObject, kind: str) -> None:
    plain = np.arange(12).reshape(3, 4)
    table = np.repeat(plain, 2, axis=1)[:, ::2] if kind == "gaps" else plain.astype(kind)
    slot, start = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 4))
    values = np.arange(50, 50 + data.draw(st.integers(0, 4)), dtype=np.int32)
    put_row(table, slot, values)
    expected = [*range(50, 50 + len(values)), *range(slot * 4 + len(values), slot * 4 + 4)]
    assert table[slot].tolist() == expected
    assert table.sum() == 66 - sum(range(slot * 4, slot * 4 + 4)) + sum(expected)
    stop = data.draw(st.integers(start, 4))
    assert np.frombuffer(row_bytes(table, slot, start, stop), np.int32).tolist() == expected[start:stop]
    with pytest.raises(ValueError, match="broadcast"):
        put_row(table, slot, np.zeros(5, np.int32))
    with pytest.raises(IndexError):
        put_row(table, 3, values)


@given(st.data(), st.integers(1, 4), st.booleans())
def test_values_come_behind_what_rows_hold(data: st.DataObject, width: int, gaps: bool) -> None:
    slots = data.draw(st.lists(st.integers(0, 5), unique=True, max_size=6))
    held = [data.draw(st.integers(0, width - 1)) for _ in range(6)]
    counts = np.array([100 + 10 * slot + number for slot, number in enumerate(held)])
    origins = np.array([100 + 10 * slot - slot * width for slot in range(6)])
    lasts = np.arange(1, 7) * width - 1
    table, values = np.zeros(6 * width, np.int64), np.arange(1, 1 + len(slots))
    at = np.repeat(np.array(slots, np.int64), 2)[::2] if gaps else np.array(slots, np.int64)
    now, full = push(table, at, values, counts, origins, lasts)
    assert now.tolist() == [100 + 10 * slot + held[slot] + 1 for slot in slots]
    assert counts.tolist() == [100 + 10 * slot + held[slot] + (slot in slots) for slot in range(6)]
    assert table[[slot * width + held[slot] for slot in slots]].tolist() == values.tolist()
    assert np.count_nonzero(table) == len(slots)
    assert full.dtype == np.int64
    assert full.tolist() == [row for row, slot in enumerate(slots) if held[slot] == width - 1]


def test_nothing_comes_behind_a_row_that_is_none() -> None:
    table, slots, column = np.zeros(4, np.int64), np.array([0, 1]), np.array([0, 4])
    with pytest.raises(IndexError):
        push(table, slots, slots, column, np.zeros(2, np.int64), column)
    for read_only in (table, column):
        read_only.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            push(table, slots[:1], slots[:1], column, column.copy(), column)
        read_only.flags.writeable = True
    with pytest.raises(IndexError, match="out of bounds"):
        push(table, np.array([2]), slots[:1], column, column, column)


@given(st.data(), st.integers(1, 4), st.integers(0, 9), st.booleans())
def test_rows_fill_and_begin_anew(data: st.DataObject, width: int, steps: int, gaps: bool) -> None:
    slots = data.draw(st.lists(st.integers(0, 5), unique=True, max_size=6))
    filled = [data.draw(st.integers(0, width - 1)) for _ in slots]
    table = np.arange(6 * width).reshape(6, width)
    values = np.arange(100, 100 + len(slots) * steps).reshape(len(slots), steps)
    streams = [
        [*table[slot, :before].tolist(), *new] for slot, before, new in zip(slots, filled, values.tolist(), strict=True)
    ]
    expected = table.tolist()
    full = []
    for slot, stream in zip(slots, streams, strict=True):
        end = len(stream) // width * width
        full += stream[:end]
        expected[slot][: len(stream) - end] = stream[end:]
    at = np.repeat(np.array(slots, np.int64), 2)[::2] if gaps else np.array(slots, np.int64)
    packed = fill_rows(table, at, np.array(filled, np.int64), values)
    assert np.frombuffer(packed, np.int32).tolist() == full
    for slot, stream in zip(slots, streams, strict=True):
        left = len(stream) % width
        assert table[slot, :left].tolist() == expected[slot][:left]
    others = [slot for slot in range(6) if slot not in slots]
    assert table[others].tolist() == [expected[slot] for slot in others]
    assert [np.frombuffer(row, np.int32).tolist() for row in packed_rows(table, at)] == table[slots].tolist()


@pytest.mark.parametrize("step", [1, 2])
def test_rows_begin_with_others(step: int) -> None:
    """``step``: of 2, there are gaps."""
    table, slots = np.zeros((4, 3 * step), np.int64)[:, ::step], np.array([3, 0])
    put_rows(table, slots, np.array([[1, 2], [3, 4]]))
    assert table.tolist() == [[3, 4, 0], [0, 0, 0], [0, 0, 0], [1, 2, 0]]
    put_rows(table, slots[:1], np.array([[7, 8, 9]], np.int32))
    assert table[3].tolist() == [7, 8, 9]
    with pytest.raises(ValueError, match="shape"):
        put_rows(table, slots, np.ones((2, 4), np.int64))
    with pytest.raises(IndexError):
        put_rows(table, slots + 1, np.ones((2, 2), np.int64))


@given(st.data(), st.booleans())
def test_values_are_dealt_out_to_rows(data: st.DataObject, gaps: bool) -> None:
    slots = data.draw(st.lists(st.integers(0, 49), unique=True, min_size=1, max_size=40))
    starts = [data.draw(st.integers(0, 4)) for _ in slots]
    counts = [data.draw(st.integers(1, 3)) for _ in slots]
    values = np.arange(1, 1 + sum(counts), dtype=np.int32)
    table = np.zeros((50, 14), np.int32)[:, ::2] if gaps else np.zeros((50, 7), np.int32)
    deal_rows(table, np.array(slots), np.array(starts), np.array(counts), values)
    dealt = iter(values.tolist())
    for slot, start, count in zip(slots, starts, counts, strict=True):
        assert table[slot, start : start + count].tolist() == [next(dealt) for _ in range(count)]
    assert np.count_nonzero(table) == len(values)
    for last in (1, 2):  # one each, and several
        with pytest.raises(IndexError):
            deal_rows(table, np.array([3, 4]), np.array([0, 7]), np.array([1, last]), np.ones(1 + last, np.int32))


def test_rows_are_filled_and_dealt_to_by_numpy_where_c_must_not_walk() -> None:
    slots, none = np.array([0, 1, 2]), np.zeros(3, np.int64)
    for few in (0, 2):
        with pytest.raises(IndexError):
            fill_rows(np.zeros((4, 3), np.int64), slots, none, np.ones((few, 3), np.int64))
    tails, blocks = np.zeros((4, 3), np.int64), np.zeros((4, 3), np.int32)
    tails.flags.writeable = blocks.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        fill_rows(tails, slots, none, np.ones((3, 2), np.int64))
    with pytest.raises(ValueError, match="read-only"):
        deal_rows(blocks, slots, none, np.ones(3, np.int64), np.ones(3, np.int32))
    assert not tails.any()
    assert not blocks.any()
