"""What a table holds for a slot, read and written by C where it can walk over it, else by NumPy."""

from __future__ import annotations

from operator import getitem, setitem
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenyard.compiled import core_is_compiled
from tokenyard.core.columns import (
    NO_ROWS,
    ONE,
    BoolArray,
    Int32Array,
    IntArray,
    are_alike,
    are_places,
    counting,
    first_entries,
    have_entries,
    have_rows,
    int64s,
    is_flags,
    is_plain,
    is_walked,
    is_walked32,
    length_of,
    like,
    may_change,
)

_FEW_ROWS = 32
"""Rows up to which NumPy copies faster row by row."""

_IS_COMPILED = core_is_compiled()
if _IS_COMPILED:
    import_c()  # type: ignore[name-defined]  # noqa: F821 - of columns.pxd: NumPy's functions for C, for this module


# ---------------------------------------------------------------------------------------------------------------------
# Single entries of a column, for the slots of a step's rows.


def gather(column: IntArray, slots: IntArray) -> IntArray:
    """The entries of ``slots``, shape ``[n]``."""
    if not (is_plain(slots) and is_plain(column)):
        return column[slots]
    taken, most = like(slots), length_of(column)
    entries, at, into = column.data, slots.data, taken.data
    for i in range(length_of(slots)):
        if not 0 <= at[i] < most:
            return column[slots]
        into[i] = entries[at[i]]
    return taken


def less(values: IntArray, column: IntArray, slots: IntArray) -> IntArray:
    """``values`` less the entries of ``slots``, shape ``[n]``."""
    if not (_IS_COMPILED and are_alike(values, slots) and have_entries(slots, column)):
        return values - column[slots]
    taken = like(slots)
    of, entries, at, into = values.data, column.data, slots.data, taken.data
    for i in range(length_of(slots)):
        into[i] = of[i] - entries[at[i]]
    return taken


def capped_sum(values: IntArray, column: IntArray, slots: IntArray, most: int) -> IntArray:
    """``values`` and the entries of ``slots``, but ``most`` at most, shape ``[n]``."""
    if not (_IS_COMPILED and are_alike(values, slots) and have_entries(slots, column)):
        capped: IntArray = np.minimum(values + column[slots], most)
        return capped
    taken = like(slots)
    of, entries, at, into = values.data, column.data, slots.data, taken.data
    for i in range(length_of(slots)):
        into[i] = min(of[i] + entries[at[i]], most)
    return taken


def least_difference(column: IntArray, other: IntArray, slots: IntArray) -> int:
    """The least that an entry of ``slots``, of which there is one or several, exceeds the ``other`` column's by."""
    if not (_IS_COMPILED and have_entries(slots, column) and have_entries(slots, other)) or not length_of(slots):
        return int(np.minimum.reduce(column[slots] - other[slots]))
    entries, off, at = column.data, other.data, slots.data
    result = entries[at[0]] - off[at[0]]
    for i in range(1, length_of(slots)):
        result = min(result, entries[at[i]] - off[at[i]])
    return result


def scatter(column: IntArray, slots: IntArray, values: IntArray) -> None:
    """The entries of ``slots``, which are distinct, become ``values``."""
    if not (may_change(column) and is_plain(column) and are_alike(values, slots)):
        column[slots] = values
        return
    entries, at, of, most = column.data, slots.data, values.data, length_of(column)
    for i in range(length_of(slots)):
        if not 0 <= at[i] < most:
            column[slots] = values
            return
        entries[at[i]] = of[i]


def put(column: npt.NDArray[Any], slot: int, value: int) -> None:
    """The entry of ``slot``, a number or a flag, becomes ``value``."""
    if not (may_change(column) and 0 <= slot < length_of(column)):
        column[slot] = value
    elif is_plain(column):
        column.data[slot] = value  # see columns.pxd
    elif is_flags(column):
        column.flags_data[slot] = value != 0  # type: ignore[attr-defined]  # see columns.pxd
    else:
        column[slot] = value


def entry(column: IntArray, slot: int) -> int:
    """The entry of ``slot``."""
    if not (is_plain(column) and 0 <= slot < length_of(column)):
        return column.item(slot)
    return column.data[slot]  # see columns.pxd


def put_all(column: IntArray, slots: IntArray, value: int) -> None:
    """The entries of ``slots`` become ``value``."""
    if not (_IS_COMPILED and may_change(column) and have_entries(slots, column)):
        column[slots] = value
        return
    entries, at = column.data, slots.data
    for i in range(length_of(slots)):
        entries[at[i]] = value


def mark(column: BoolArray, slots: IntArray, flags: BoolArray | None) -> None:
    """The flags of ``slots``, which are distinct, become ``flags``; None: all false."""
    if not (
        (_IS_COMPILED and may_change(column) and is_flags(column) and are_places(slots, length_of(column)))
        and (flags is None or (is_flags(flags) and length_of(flags) == length_of(slots)))
    ):
        column[slots] = False if flags is None else flags
        return
    into, at = column.flags_data, slots.data  # type: ignore[attr-defined]  # see columns.pxd
    if flags is None:
        for i in range(length_of(slots)):
            into[at[i]] = 0
    else:
        of = flags.flags_data  # type: ignore[attr-defined]  # see columns.pxd
        for i in range(length_of(slots)):
            into[at[i]] = of[i]


def add_at(column: IntArray, slots: IntArray, amounts: IntArray, times: int = 1) -> IntArray:
    """``amounts`` come to the entries of ``slots`` so many ``times``, or go (-1); returns what they are then.

    ``slots`` are distinct; ``amounts`` has shape ``[n]``, or is :data:`ONE`.
    """
    if not (_IS_COMPILED and may_change(column) and have_entries(slots, column)) or not (
        amounts is ONE or are_alike(amounts, slots)
    ):
        column[slots] = sums = column[slots] + (amounts if times == 1 else amounts * times)
        return sums
    one, sums = amounts is ONE, like(slots)
    entries, at, of, into = column.data, slots.data, amounts.data, sums.data
    for i in range(length_of(slots)):
        entries[at[i]] = into[i] = entries[at[i]] + times * (1 if one else of[i])
    return sums


def rows_from(values: IntArray, column: IntArray, slots: IntArray, beyond: int = 0) -> IntArray:
    """Rows whose value is the entry of their slot at least, or so much ``beyond`` it; mostly none."""
    if not (_IS_COMPILED and are_alike(values, slots) and have_entries(slots, column)):
        reached = (values - beyond if beyond else values) >= column[slots]
        return reached.nonzero()[0] if 1 in reached.tobytes() else NO_ROWS
    of, entries, at = values.data, column.data, slots.data
    rows, found = NO_ROWS, 0
    into = rows.data
    for i in range(length_of(slots)):
        if of[i] - beyond >= entries[at[i]]:
            if not found:
                rows = like(slots)
                into = rows.data
            into[found] = i
            found += 1
    return first_entries(rows, found) if found else rows


def rows_unlike(column: IntArray, slots: IntArray, value: int) -> IntArray:
    """Rows whose slot's entry is not ``value``; mostly none."""
    if not (_IS_COMPILED and have_entries(slots, column)):
        others: IntArray = (column[slots] != value).nonzero()[0]
        return others
    entries, at = column.data, slots.data
    found = []
    for i in range(length_of(slots)):
        if entries[at[i]] != value:
            found.append(i)  # noqa: PERF401 - a comprehension's i is no number of C
    return int64s(found) if found else NO_ROWS


if not _IS_COMPILED:
    # These are what NumPy does in one call, for which the interpreter need not pass a function of ours.
    globals().update(gather=getitem, scatter=setitem, put=setitem, entry=np.ndarray.item)


# ---------------------------------------------------------------------------------------------------------------------
# Whole rows of a table that has several entries for each slot.


def put_row(table: npt.NDArray[Any], slot: int, values: Int32Array) -> None:
    """The row of ``slot`` begins with ``values``, which are as many as it has at most."""
    count = len(values)
    if (
        not (_IS_COMPILED and may_change(table) and is_walked32(values) and 0 <= slot < length_of(table))
        or not (is_walked(table) or is_walked32(table))
        or count > table.size // length_of(table)
    ):
        table[slot, :count] = values
        return
    first, of = slot * (table.size // length_of(table)), values.data32  # type: ignore[attr-defined]  # see columns.pxd
    if is_walked(table):
        entries = table.data
        for i in range(count):
            entries[first + i] = of[i]  # see columns.pxd
    else:
        entries32 = table.data32  # type: ignore[attr-defined]  # see columns.pxd
        for i in range(count):
            entries32[first + i] = of[i]


def row_bytes(table: IntArray, slot: int, start: int, stop: int) -> bytes:
    """Entries ``start..stop-1`` of the row of ``slot``, as int32."""
    if not (_IS_COMPILED and is_walked(table) and 0 <= slot < length_of(table)) or not (
        0 <= start <= stop <= table.size // length_of(table)
    ):
        return table[slot, start:stop].astype(np.int32).tobytes()
    packed: bytes = new_int32s(stop - start)  # type: ignore[name-defined]  # noqa: F821 - of table_rows.pxd
    entries, first = table.data, slot * (table.size // length_of(table)) + start
    into = int32s_of(packed)  # type: ignore[name-defined]  # noqa: F821 - the same
    for i in range(stop - start):
        into[i] = entries[first + i]
    return packed


def push(
    table: IntArray, slots: IntArray, values: IntArray, counts: IntArray, origins: IntArray, lasts: IntArray
) -> tuple[IntArray, IntArray]:
    """``values[i]`` come behind what the row of ``slots[i]`` in a flat ``table`` holds, and are counted.

    A row holds ``counts`` less ``origins``, from the table's beginning on, and is full behind ``lasts``. ``slots`` are
    distinct. Returns the counts then, and the rows of ``slots`` whose rows in the table are full.
    """
    if not (
        (_IS_COMPILED and are_alike(values, slots) and have_entries(slots, counts) and may_change(counts))
        and (is_plain(table) and may_change(table) and are_alike(origins, counts) and are_alike(lasts, counts))
    ):
        before = counts[slots]
        places = before - origins[slots]
        table[places] = values
        counts[slots] = now = before + ONE
        return now, rows_from(places, lasts, slots)
    now, full, found, room = like(slots), NO_ROWS, 0, length_of(table)
    at, of, into, filled = slots.data, values.data, now.data, full.data
    entries, number, begins, ends = table.data, counts.data, origins.data, lasts.data
    for i in range(length_of(slots)):
        place = number[at[i]] - begins[at[i]]
        if not 0 <= place < room:
            raise IndexError("a row is not open")
        entries[place] = of[i]
        number[at[i]] = into[i] = number[at[i]] + 1
        if place >= ends[at[i]]:
            if not found:
                full = like(slots)
                filled = full.data
            filled[found] = i
            found += 1
    return now, first_entries(full, found) if found else full


def rows_among(values: IntArray, table: IntArray, slots: IntArray) -> IntArray:
    """Rows whose value is among the entries of their slot, of which there are one or several; mostly none."""
    if not (_IS_COMPILED and are_alike(values, slots) and have_rows(slots, table)):
        entries = table[slots]
        are_equal = entries == (values if entries.ndim == 1 else values[:, None])
        if 1 not in are_equal.tobytes():
            return NO_ROWS
        rows: IntArray = (are_equal if entries.ndim == 1 else are_equal.any(axis=1)).nonzero()[0]
        return rows
    width = table.size // length_of(table)
    of, entries_of, at = values.data, table.data, slots.data
    found = []
    for i in range(length_of(slots)):
        for k in range(at[i] * width, (at[i] + 1) * width):
            if entries_of[k] == of[i]:
                found.append(i)
                break
    return int64s(found) if found else NO_ROWS


def packed_rows(table: IntArray, slots: IntArray) -> list[bytes]:
    """The rows of ``slots`` as int32."""
    packed = []
    if not (_IS_COMPILED and have_rows(slots, table)):
        rows = table[slots].astype(np.int32)
        together, stride = rows.tobytes(), rows.itemsize * rows.shape[1]
        for at in range(0, len(together), stride):
            packed.append(together[at : at + stride])  # noqa: PERF401 - C makes no comprehension
        return packed
    width, places = table.size // length_of(table), slots.data
    for i in range(length_of(slots)):
        packed.append(row_bytes(table, places[i], 0, width))  # noqa: PERF401 - the same
    return packed


def fill_rows(table: IntArray, slots: IntArray, filled: IntArray, values: IntArray) -> bytes:
    """``values[i]`` come behind the first ``filled[i]`` entries of the row of ``slots[i]``, which begins anew whenever
    it is full; returns what has been full, as int32, in the order of ``slots``.
    """
    steps, width = values.shape[1], table.shape[1]
    if not (_IS_COMPILED and may_change(table) and have_rows(slots, table)) or not (
        are_alike(filled, slots) and is_walked(values) and length_of(values) == length_of(slots)
    ):
        return _fill_in_numpy(table, slots, filled, values)
    at, before, of, entries = slots.data, filled.data, values.data, table.data
    count = 0
    for i in range(length_of(slots)):
        if not 0 <= before[i] < width:
            raise IndexError("a row is not open")
        count += (before[i] + steps) // width
    packed = np.empty(count * width, np.int32)
    into, place = packed.data32, 0  # type: ignore[attr-defined]  # see columns.pxd
    for i in range(length_of(slots)):
        row, end = at[i] * width, before[i]
        for k in range(i * steps, (i + 1) * steps):
            entries[row + end] = of[k]
            end += 1
            if end == width:
                for j in range(row, row + width):
                    into[place] = entries[j]
                    place += 1
                end = 0
    return packed.tobytes()


def _fill_in_numpy(table: IntArray, slots: IntArray, filled: IntArray, values: IntArray) -> bytes:
    steps, width = values.shape[1], table.shape[1]
    ends = filled + steps
    open_rows, rows = (ends < width).nonzero()[0], (ends >= width).nonzero()[0]
    table[slots[open_rows, None], filled[open_rows, None] + counting(steps)] = values[open_rows]
    if not len(rows):
        return b""
    targets, full = slots[rows], ends[rows] // width * width
    data = np.zeros((len(rows), int(full.max()) + width), np.int64)
    data[:, :width] = table[targets]
    places = counting(len(rows))[:, None]
    data[places, filled[rows, None] + counting(steps)] = values[rows]
    table[targets] = data[places, full[:, None] + counting(width)]
    packed: Int32Array = data[counting(data.shape[1]) < full[:, None]].astype(np.int32)
    return packed.tobytes()


def put_rows(table: IntArray, slots: IntArray, values: IntArray) -> None:
    """The rows of ``slots``, which are distinct, begin with those of ``values``."""
    if not (_IS_COMPILED and may_change(table) and have_rows(slots, table)) or not (
        is_walked(values) and length_of(values) == length_of(slots) and values.shape[1] <= table.shape[1]
    ):
        table[slots, : values.shape[1]] = values
        return
    width, row = values.shape[1], table.shape[1]
    entries, at, of = table.data, slots.data, values.data
    for i in range(length_of(slots)):
        for k in range(width):
            entries[at[i] * row + k] = of[i * width + k]


def deal_rows(table: Int32Array, slots: IntArray, starts: IntArray, counts: IntArray, values: Int32Array) -> None:
    """Deal ``values`` out: ``counts[i]`` go to the row of ``slots[i]``, from place ``starts[i]`` on.

    IndexError, and some may have been dealt, where a row is too short.
    """
    if not (
        (_IS_COMPILED and may_change(table) and is_walked32(table) and is_walked32(values))
        and (are_alike(starts, slots) and are_alike(counts, slots))
    ):
        _deal_in_numpy(table, slots, starts, counts, values)
        return
    width, place = table.size // max(length_of(table), 1), 0
    at, first, many = slots.data, starts.data, counts.data
    of, into = values.data32, table.data32  # type: ignore[attr-defined]  # see columns.pxd
    for i in range(length_of(slots)):
        if not (0 <= at[i] < length_of(table) and first[i] >= 0 and 0 <= many[i] <= width - first[i]):
            raise IndexError("a row is too short")
        if place + many[i] > length_of(values):
            raise IndexError("there are too few values")
        for k in range(at[i] * width + first[i], at[i] * width + first[i] + many[i]):
            into[k] = of[place]
            place += 1


def _deal_in_numpy(table: Int32Array, slots: IntArray, starts: IntArray, counts: IntArray, values: Int32Array) -> None:
    if len(values) == len(slots):
        table[slots, starts] = values
        return
    if int((starts + counts).max()) > table.shape[1]:
        raise IndexError("a row is too short")
    if len(slots) <= _FEW_ROWS:
        at = 0
        for slot, start, count in zip(slots.tolist(), starts.tolist(), counts.tolist(), strict=True):
            table[slot, start : start + count] = values[at : at + count]
            at += count
        return
    within = np.arange(len(values)) - np.repeat(counts.cumsum() - counts, counts)
    table[np.repeat(slots, counts), np.repeat(starts, counts) + within] = values
