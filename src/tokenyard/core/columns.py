"""NumPy columns as every step uses them: made, asked, and changed for some slots, in the form that costs least.

Most columns here have a few entries, where NumPy's own functions cost what they cost before the first entry: a sum
0.7 us, ``any`` 0.7 us, ``x + 1`` twice as much as ``x + ONE`` because the number becomes an array first, ``x += y``
twice as much as ``x + y``, and an assignment twice as much if it has to convert. Compiled, a loop does most of it.
"""

from __future__ import annotations

import struct
from operator import add, getitem, mul, setitem, sub
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenyard.compiled import core_is_compiled

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Index = int
"""A number that C counts with where its variable is annotated so: a place, a count, a slot."""

_FEW = 64
"""Entries up to which Python adds faster than NumPy."""
_FEW_ROWS = 32
"""Rows up to which NumPy copies faster row by row."""

_sum = np.add.reduce
_IS_COMPILED = core_is_compiled()


def constant(value: int) -> IntArray:
    """A number as an array without dimensions, made once and used in every step; read-only."""
    array = np.array(value, np.int64)
    array.flags.writeable = False
    return array


def frozen(column: IntArray) -> IntArray:
    """The column itself, read-only from now on: what a step says of its requests stays as it is."""
    if not _IS_COMPILED:
        column.setflags(False)  # type: ignore[call-arg]  # "write", whose name would double the cost
    elif _may_change(column):
        clear_flags(column, WRITEABLE)  # type: ignore[name-defined]  # noqa: F821 - of columns.pxd
    return column


ONE = constant(1)


NO_ROWS: IntArray = np.zeros(0, np.int64)
"""No row at all; read-only."""
NO_ROWS.flags.writeable = False


_counting = np.arange(4096)
_counting.flags.writeable = False
if _IS_COMPILED:
    import_c()  # type: ignore[name-defined]  # noqa: F821 - of columns.pxd: NumPy's functions for C, before any is called


def counting(n: int) -> IntArray:
    """0, 1, ... ``n - 1``, read-only: mostly a part of one array that is kept."""
    if n <= len(_counting):
        return _counting[:n]
    more = np.arange(n)
    more.flags.writeable = False
    return more


def _new(count: int) -> IntArray:
    """A column of so many entries, to be written."""
    return int64_column(count)  # type: ignore[name-defined,no-any-return]  # noqa: F821 - of columns.pxd


def _new32(count: int) -> Int32Array:
    """The same of int32."""
    return int32_column(count)  # type: ignore[name-defined,no-any-return]  # noqa: F821 - of columns.pxd


def _new_flags(count: int) -> BoolArray:
    """The same of bool."""
    return flag_column(count)  # type: ignore[name-defined,no-any-return]  # noqa: F821 - of columns.pxd


def _new_bytes(count: int) -> bytes:
    """Bytes of so many int32, to be written where they are made and nowhere else."""
    return int32_bytes(count)  # type: ignore[name-defined,no-any-return]  # noqa: F821 - of columns.pxd


def int32s(values: list[int]) -> Int32Array:
    """The numbers as a column, shape ``[n]``; for many the interpreter takes half of NumPy's time with ``struct``."""
    count = len(values)
    if not _IS_COMPILED:
        few = count <= _FEW
        return np.array(values, np.int32) if few else np.frombuffer(struct.Struct(f"{count}i").pack(*values), np.int32)
    column = _new32(count)
    numbers = column.data32  # type: ignore[attr-defined]  # see columns.pxd
    for i, value in enumerate(values):
        numbers[i] = value
    return column


def token_column(ids: list[int]) -> Int32Array | None:
    """Token ids as a column that stays as it is; None where one is no ``int`` from 0 to 2**31 - 1.

    Of other kinds of whole numbers, which say by ``__index__`` what they are, it makes a column or None: ask them then.
    """
    if not _IS_COMPILED:
        try:
            # Not struct.pack(form, *ids), which makes a list of all arguments before it makes a tuple of them.
            packed = np.frombuffer(struct.Struct(f"{len(ids)}i").pack(*ids), np.int32)
        except struct.error:
            return None
        return packed if not ids or int(packed.min()) >= 0 else None
    column = _new32(len(ids))
    numbers = column.data32  # type: ignore[attr-defined]  # see columns.pxd
    try:
        for i, value in enumerate(ids):
            if type(value) is not int:
                return None
            number = value
            if number < 0:
                return None
            numbers[i] = number
    except OverflowError:
        return None
    column.flags.writeable = False
    return column


def joined(columns: list[Int32Array]) -> Int32Array:
    """The columns, one at least, as one, in order."""
    if len(columns) == 1:
        return columns[0]
    if not _IS_COMPILED:
        return np.concatenate(columns)
    count = 0
    for column in columns:
        if not (_is_walked32(column) and column.ndim == 1):
            return np.concatenate(columns)
        count += _length(column)
    longer, place = _new32(count), 0
    into = longer.data32  # type: ignore[attr-defined]  # see columns.pxd
    for column in columns:
        numbers = column.data32  # type: ignore[attr-defined]
        for i in range(_length(column)):
            into[place] = numbers[i]
            place += 1
    return longer


def int64s(values: list[int]) -> IntArray:
    """The numbers as a column, shape ``[n]``."""
    if not _IS_COMPILED:
        return np.array(values, np.int64)
    column = _new(len(values))
    numbers = column.data
    for i, value in enumerate(values):
        numbers[i] = value
    return column


def first_entries(column: IntArray, count: int) -> IntArray:
    """A copy of the first ``count`` entries, of which there are so many."""
    if not (_IS_COMPILED and _is_plain(column) and 0 <= count <= _length(column)):
        return column[:count].copy()
    taken = _new(count)
    entries, into = column.data, taken.data
    for i in range(count):
        into[i] = entries[i]
    return taken


def extended(column: IntArray, values: list[int]) -> IntArray:
    """The column, and the numbers behind it."""
    if not (_IS_COMPILED and _is_plain(column)):
        return np.concatenate((column, values))
    count = _length(column)
    longer = _new(count + len(values))
    entries, numbers = column.data, longer.data
    for i in range(count):
        numbers[i] = entries[i]
    for i, value in enumerate(values, count):
        numbers[i] = value
    return longer


# ---------------------------------------------------------------------------------------------------------------------
# Entries of a table's columns, for the slots of a step's rows: what every step does to a dozen columns.
#
# NumPy does each in a call or two of 0.1 to 0.3 us, with a pass over memory for each; compiled, one loop does, where C
# can walk over the columns. Where it cannot (another type, gaps, a slot that is none) NumPy answers.


def _is_plain(column: IntArray) -> bool:
    """Whether C can walk over the column: int64, one dimension, no gaps."""
    return column.is_plain  # type: ignore[attr-defined,no-any-return]  # see columns.pxd


def _is_walked(column: IntArray) -> bool:
    """The same of an array of any shape."""
    return column.is_walked  # type: ignore[attr-defined,no-any-return]  # see columns.pxd


def _is_walked32(column: Int32Array) -> bool:
    """The same of int32."""
    return column.is_walked32  # type: ignore[attr-defined,no-any-return]  # see columns.pxd


def _is_flags(column: npt.NDArray[Any]) -> bool:
    """The same of a column of bool."""
    return column.is_flags  # type: ignore[attr-defined,no-any-return]  # see columns.pxd


def _length(column: npt.NDArray[Any]) -> int:
    """Entries of a plain column, or slots of a table."""
    return column.length  # type: ignore[attr-defined,no-any-return]  # see columns.pxd


def _have_entries(slots: IntArray, column: IntArray) -> bool:
    """Whether C can walk over both, and there is an entry for each slot."""
    return _is_plain(column) and _have_rows(slots, column)


def _have_rows(slots: IntArray, table: IntArray) -> bool:
    """The same of an array of any shape, whose first dimension are slots."""
    return _is_walked(table) and _are_places(slots, _length(table))


def _are_places(slots: IntArray, count: int) -> bool:
    """Whether C can walk over the slots, and they are among the first ``count``."""
    if not _is_plain(slots):
        return False
    at = slots.data
    for i in range(_length(slots)):  # noqa: SIM110 - C makes no generator
        if not 0 <= at[i] < count:
            return False
    return True


def _may_change(column: npt.NDArray[Any]) -> bool:
    """Whether the column is not read-only."""
    return column.may_change  # type: ignore[attr-defined,no-any-return]  # see columns.pxd


def _are_alike(one: IntArray, other: IntArray) -> bool:
    """Whether C can walk over both, and they have the same length."""
    return _is_plain(one) and _is_plain(other) and _length(one) == _length(other)


def _like(column: IntArray) -> IntArray:
    """A new column, as long as this one."""
    return column.like  # type: ignore[attr-defined,no-any-return]  # see columns.pxd


def gather(column: IntArray, slots: IntArray) -> IntArray:
    """The entries of ``slots``, shape ``[n]``."""
    if not _have_entries(slots, column):
        return column[slots]
    taken = _like(slots)
    entries, at, into = column.data, slots.data, taken.data
    for i in range(_length(slots)):
        into[i] = entries[at[i]]
    return taken


def less(values: IntArray, column: IntArray, slots: IntArray) -> IntArray:
    """``values`` less the entries of ``slots``, shape ``[n]``."""
    if not (_IS_COMPILED and _are_alike(values, slots) and _have_entries(slots, column)):
        return values - column[slots]
    taken = _like(slots)
    of, entries, at, into = values.data, column.data, slots.data, taken.data
    for i in range(_length(slots)):
        into[i] = of[i] - entries[at[i]]
    return taken


def capped_sum(values: IntArray, column: IntArray, slots: IntArray, most: int) -> IntArray:
    """``values`` and the entries of ``slots``, but ``most`` at most, shape ``[n]``."""
    if not (_IS_COMPILED and _are_alike(values, slots) and _have_entries(slots, column)):
        capped: IntArray = np.minimum(values + column[slots], most)
        return capped
    taken = _like(slots)
    of, entries, at, into = values.data, column.data, slots.data, taken.data
    for i in range(_length(slots)):
        into[i] = min(of[i] + entries[at[i]], most)
    return taken


def least_difference(column: IntArray, other: IntArray, slots: IntArray) -> int:
    """The least that an entry of ``slots``, of which there is one or several, exceeds the ``other`` column's by."""
    if not (_IS_COMPILED and _have_entries(slots, column) and _have_entries(slots, other)) or not _length(slots):
        return int(np.minimum.reduce(column[slots] - other[slots]))
    entries, off, at = column.data, other.data, slots.data
    result = entries[at[0]] - off[at[0]]
    for i in range(1, _length(slots)):
        result = min(result, entries[at[i]] - off[at[i]])
    return result


def prompt_sums(new: IntArray, computed: IntArray) -> tuple[int, int, int, int]:
    """How many rows have more than one ``new`` token, and over them the sum of their ``computed`` ones, that of both
    multiplied, and that of the squares of the new ones.
    """
    if not (_IS_COMPILED and _are_alike(new, computed)):
        rows = (new > ONE).nonzero()[0]
        chunks, before = new[rows].tolist(), computed[rows].tolist()  # mostly of one prompt
        return len(chunks), sum(before), sum(map(mul, chunks, before)), sum(map(mul, chunks, chunks))
    count = context = products = squares = 0
    of, behind = new.data, computed.data
    for i in range(_length(new)):
        if of[i] > 1:
            count += 1
            context += behind[i]
            products += of[i] * behind[i]
            squares += of[i] * of[i]
    return count, context, products, squares


def difference(one: IntArray, other: IntArray) -> IntArray:
    """``one - other``, both of shape ``[n]``."""
    if not _are_alike(one, other):
        return one - other
    taken = _like(one)
    of, off, into = one.data, other.data, taken.data
    for i in range(_length(one)):
        into[i] = of[i] - off[i]
    return taken


def summed(one: IntArray, other: IntArray) -> IntArray:
    """``one + other``, both of shape ``[n]``."""
    if not _are_alike(one, other):
        return one + other
    taken = _like(one)
    of, more, into = one.data, other.data, taken.data
    for i in range(_length(one)):
        into[i] = of[i] + more[i]
    return taken


def below(one: IntArray, other: IntArray) -> BoolArray | None:
    """Where ``one``, which is as long as ``other``, has the smaller number; None: nowhere, as mostly."""
    if one is other:
        return None
    if not (_IS_COMPILED and _are_alike(one, other)):
        if one.tobytes() == other.tobytes():
            return None
        mask = one < other
        return mask if any_true(mask) else None
    of, than, found = one.data, other.data, 0
    for i in range(_length(one)):
        found += of[i] < than[i]
    if not found:
        return None
    flags = _new_flags(_length(one))
    into = flags.flags_data  # type: ignore[attr-defined]  # see columns.pxd
    for i in range(_length(one)):
        into[i] = of[i] < than[i]
    return flags


def shifted(column: IntArray, by: int) -> IntArray:
    """The column, each entry larger by so much."""
    if not (_IS_COMPILED and _is_plain(column)):
        return column + by
    taken = _like(column)
    of, into = column.data, taken.data
    for i in range(_length(column)):
        into[i] = of[i] + by
    return taken


def units(column: IntArray, size: int) -> IntArray:
    """How many units of ``size`` each number takes."""
    if not (_IS_COMPILED and _is_plain(column)):
        return (column + (size - 1)) // size
    taken = _like(column)
    of, into = column.data, taken.data
    for i in range(_length(column)):
        into[i] = (of[i] + (size - 1)) // size
    return taken


def scatter(column: IntArray, slots: IntArray, values: IntArray) -> None:
    """The entries of ``slots``, which are distinct, become ``values``."""
    if not (_may_change(column) and _are_alike(values, slots) and _have_entries(slots, column)):
        column[slots] = values
        return
    entries, at, of = column.data, slots.data, values.data
    for i in range(_length(slots)):
        entries[at[i]] = of[i]


def put(column: npt.NDArray[Any], slot: int, value: int) -> None:
    """The entry of ``slot``, a number or a flag, becomes ``value``."""
    if not (_may_change(column) and 0 <= slot < _length(column)):
        column[slot] = value
    elif _is_plain(column):
        column.data[slot] = value  # see columns.pxd
    elif _is_flags(column):
        column.flags_data[slot] = value != 0  # type: ignore[attr-defined]  # see columns.pxd
    else:
        column[slot] = value


def entry(column: IntArray, slot: int) -> int:
    """The entry of ``slot``."""
    if not (_is_plain(column) and 0 <= slot < _length(column)):
        return column.item(slot)
    return column.data[slot]  # see columns.pxd


def put_all(column: IntArray, slots: IntArray, value: int) -> None:
    """The entries of ``slots`` become ``value``."""
    if not (_IS_COMPILED and _may_change(column) and _have_entries(slots, column)):
        column[slots] = value
        return
    entries, at = column.data, slots.data
    for i in range(_length(slots)):
        entries[at[i]] = value


def mark(column: BoolArray, slots: IntArray, flags: BoolArray | None) -> None:
    """The flags of ``slots``, which are distinct, become ``flags``; None: all false."""
    if not (
        (_IS_COMPILED and _may_change(column) and _is_flags(column) and _are_places(slots, _length(column)))
        and (flags is None or (_is_flags(flags) and _length(flags) == _length(slots)))
    ):
        column[slots] = False if flags is None else flags
        return
    into, at = column.flags_data, slots.data  # type: ignore[attr-defined]  # see columns.pxd
    if flags is None:
        for i in range(_length(slots)):
            into[at[i]] = 0
    else:
        of = flags.flags_data  # type: ignore[attr-defined]  # see columns.pxd
        for i in range(_length(slots)):
            into[at[i]] = of[i]


def put_row(table: npt.NDArray[Any], slot: int, values: Int32Array) -> None:
    """The row of ``slot`` begins with ``values``, which are as many as it has at most."""
    count = len(values)
    if (
        not (_IS_COMPILED and _may_change(table) and _is_walked32(values) and 0 <= slot < _length(table))
        or not (_is_walked(table) or _is_walked32(table))
        or count > table.size // _length(table)
    ):
        table[slot, :count] = values
        return
    first, of = slot * (table.size // _length(table)), values.data32  # type: ignore[attr-defined]  # see columns.pxd
    if _is_walked(table):
        entries = table.data
        for i in range(count):
            entries[first + i] = of[i]  # see columns.pxd
    else:
        entries32 = table.data32  # type: ignore[attr-defined]  # see columns.pxd
        for i in range(count):
            entries32[first + i] = of[i]


def row_bytes(table: IntArray, slot: int, start: int, stop: int) -> bytes:
    """Entries ``start..stop-1`` of the row of ``slot``, as int32."""
    if not (_IS_COMPILED and _is_walked(table) and 0 <= slot < _length(table)) or not (
        0 <= start <= stop <= table.size // _length(table)
    ):
        return table[slot, start:stop].astype(np.int32).tobytes()
    packed = _new_bytes(stop - start)
    entries, first = table.data, slot * (table.size // _length(table)) + start
    into = int32s_of(packed)  # type: ignore[name-defined]  # noqa: F821 - of columns.pxd
    for i in range(stop - start):
        into[i] = entries[first + i]
    return packed


def add_at(column: IntArray, slots: IntArray, amounts: IntArray, times: int = 1) -> IntArray:
    """``amounts`` come to the entries of ``slots`` so many ``times``, or go (-1); returns what they are then.

    ``slots`` are distinct; ``amounts`` has shape ``[n]``, or is :data:`ONE`.
    """
    if not (_IS_COMPILED and _may_change(column) and _have_entries(slots, column)) or not (
        amounts is ONE or _are_alike(amounts, slots)
    ):
        column[slots] = sums = column[slots] + (amounts if times == 1 else amounts * times)
        return sums
    one, sums = amounts is ONE, _like(slots)
    entries, at, of, into = column.data, slots.data, amounts.data, sums.data
    for i in range(_length(slots)):
        entries[at[i]] = into[i] = entries[at[i]] + times * (1 if one else of[i])
    return sums


def rows_from(values: IntArray, column: IntArray, slots: IntArray, beyond: int = 0) -> IntArray:
    """Rows whose value is the entry of their slot at least, or so much ``beyond`` it; mostly none."""
    if not (_IS_COMPILED and _are_alike(values, slots) and _have_entries(slots, column)):
        reached = (values - beyond if beyond else values) >= column[slots]
        return reached.nonzero()[0] if 1 in reached.tobytes() else NO_ROWS
    count, found = _length(slots), 0
    of, entries, at = values.data, column.data, slots.data
    for i in range(count):
        found += of[i] - beyond >= entries[at[i]]
    if not found:
        return NO_ROWS
    rows = _new(found)
    into, found = rows.data, 0
    for i in range(count):
        if of[i] - beyond >= entries[at[i]]:
            into[found] = i
            found += 1
    return rows


def rows_unlike(column: IntArray, slots: IntArray, value: int) -> IntArray:
    """Rows whose slot's entry is not ``value``; mostly none."""
    if not (_IS_COMPILED and _have_entries(slots, column)):
        others: IntArray = (column[slots] != value).nonzero()[0]
        return others
    entries, at = column.data, slots.data
    found = []
    for i in range(_length(slots)):
        if entries[at[i]] != value:
            found.append(i)  # noqa: PERF401 - a comprehension's i is no number of C
    return int64s(found) if found else NO_ROWS


def reached(column: IntArray, most: int, each: int = 0) -> tuple[int, int]:
    """The first row with which the sum of entries above zero reaches ``most``, and by how much it exceeds that then.

    ``each`` comes on top for every row before it. IndexError if all do not reach it.
    """
    if not (_IS_COMPILED and _is_plain(column)):
        sums = column.cumsum()
        if each:
            sums += each * counting(len(sums))
        row = int(sums.searchsorted(most))
        return row, int(sums[row]) - most
    summed, entries = -each, column.data
    for row in range(_length(column)):
        summed += each + entries[row]
        if summed >= most:
            return row, summed - most
    raise IndexError(f"{most} is never reached")


def parted(column: IntArray) -> tuple[IntArray, IntArray]:
    """Rows whose entry is above zero, and all others."""
    if not (_IS_COMPILED and _is_plain(column)):
        above = column > 0
        return above.nonzero()[0], (~above).nonzero()[0]
    entries, count, found = column.data, _length(column), 0
    for i in range(count):
        found += entries[i] > 0
    high, low = _new(found), _new(count - found)
    into, others, found = high.data, low.data, 0
    for i in range(count):
        if entries[i] > 0:
            into[found] = i
            found += 1
        else:
            others[i - found] = i
    return high, low


def rows_above(values: IntArray, most: int) -> IntArray:
    """Rows whose value is more than ``most``."""
    if not (_IS_COMPILED and _is_plain(values)):
        rows: IntArray = (values > most).nonzero()[0]
        return rows
    count, found = _length(values), 0
    of = values.data
    for i in range(count):
        found += of[i] > most
    rows = _new(found)
    into, found = rows.data, 0
    for i in range(count):
        if of[i] > most:
            into[found] = i
            found += 1
    return rows


def rows_among(values: IntArray, table: IntArray, slots: IntArray) -> IntArray:
    """Rows whose value is among the entries of their slot, of which there are one or several; mostly none."""
    if not (_IS_COMPILED and _are_alike(values, slots) and _have_rows(slots, table)):
        entries = table[slots]
        are_equal = entries == (values if entries.ndim == 1 else values[:, None])
        if 1 not in are_equal.tobytes():
            return NO_ROWS
        rows: IntArray = (are_equal if entries.ndim == 1 else are_equal.any(axis=1)).nonzero()[0]
        return rows
    width = table.size // _length(table)
    of, entries_of, at = values.data, table.data, slots.data
    found = []
    for i in range(_length(slots)):
        for k in range(at[i] * width, (at[i] + 1) * width):
            if entries_of[k] == of[i]:
                found.append(i)
                break
    return int64s(found) if found else NO_ROWS


def count_places(counters: IntArray, counts: IntArray) -> int:
    """The first ``counts[i]`` counters go up by one, for every row; returns by how much they have gone up together."""
    if not (_IS_COMPILED and _may_change(counters) and _is_plain(counters) and _is_plain(counts)):
        rows = np.bincount(counts, minlength=len(counters) + 1)
        counters += rows[::-1].cumsum()[-2::-1]
        return total(counts)
    into, of, count, most = counters.data, counts.data, 0, _length(counters)
    for i in range(_length(counts)):
        for k in range(min(of[i], most)):
            into[k] += 1
            count += 1
    return count


def packed_rows(table: IntArray, slots: IntArray) -> bytes:
    """The rows of ``slots``, one behind the other, as int32."""
    if not (_IS_COMPILED and _have_rows(slots, table)):
        return table[slots].astype(np.int32).tobytes()
    width = table.shape[1]
    packed = np.empty(_length(slots) * width, np.int32)
    entries, at, into, place = table.data, slots.data, packed.data32, 0  # type: ignore[attr-defined]  # see columns.pxd
    for i in range(_length(slots)):
        for k in range(at[i] * width, (at[i] + 1) * width):
            into[place] = entries[k]
            place += 1
    return packed.tobytes()


def fill_rows(table: IntArray, slots: IntArray, filled: IntArray, values: IntArray) -> bytes:
    """``values[i]`` come behind the first ``filled[i]`` entries of the row of ``slots[i]``, which begins anew whenever
    it is full; returns what has been full, as int32, in the order of ``slots``.
    """
    steps, width = values.shape[1], table.shape[1]
    if not (_IS_COMPILED and _may_change(table) and _have_rows(slots, table)) or not (
        _are_alike(filled, slots) and _is_walked(values) and _length(values) == _length(slots)
    ):
        return _fill_in_numpy(table, slots, filled, values)
    at, before, of, entries = slots.data, filled.data, values.data, table.data
    count = 0
    for i in range(_length(slots)):
        if not 0 <= before[i] < width:
            raise IndexError("a row is not open")
        count += (before[i] + steps) // width
    packed = np.empty(count * width, np.int32)
    into, place = packed.data32, 0  # type: ignore[attr-defined]  # see columns.pxd
    for i in range(_length(slots)):
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


def deal_rows(table: Int32Array, slots: IntArray, starts: IntArray, counts: IntArray, values: Int32Array) -> None:
    """Deal ``values`` out: ``counts[i]`` go to the row of ``slots[i]``, from place ``starts[i]`` on.

    IndexError, and some may have been dealt, where a row is too short.
    """
    if not (
        (_IS_COMPILED and _may_change(table) and _is_walked32(table) and _is_walked32(values))
        and (_are_alike(starts, slots) and _are_alike(counts, slots))
    ):
        _deal_in_numpy(table, slots, starts, counts, values)
        return
    width, place = table.size // max(_length(table), 1), 0
    at, first, many = slots.data, starts.data, counts.data
    of, into = values.data32, table.data32  # type: ignore[attr-defined]  # see columns.pxd
    for i in range(_length(slots)):
        if not (0 <= at[i] < _length(table) and first[i] >= 0 and 0 <= many[i] <= width - first[i]):
            raise IndexError("a row is too short")
        if place + many[i] > _length(values):
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


def either(rows: IntArray, others: IntArray) -> IntArray:
    """Rows that are among the one or the other, both in order; mostly none is."""
    if not len(rows) or not len(others):
        return rows if len(rows) else others
    union: IntArray = np.union1d(rows, others)
    return union


if not _IS_COMPILED:
    # These are what NumPy does in one call, for which the interpreter need not pass a function of ours.
    globals().update(gather=getitem, difference=sub, summed=add, scatter=setitem, put=setitem, entry=np.ndarray.item)


def as_whole_numbers(column: npt.NDArray[np.integer[Any]]) -> IntArray:
    """The same numbers as int64, of which the questions below read the bytes; a number beyond that becomes negative."""
    return column.astype(np.int64, copy=False)


def any_true(mask: npt.NDArray[np.bool_]) -> bool:
    """Whether any entry is true."""
    return 1 in mask.tobytes()


_ones = np.ones(4096, np.int64).tobytes()
_MOST_ONES = len(_ones)


def all_ones(column: IntArray) -> bool:
    """Whether every entry is 1, as where all requests decode."""
    if not (_IS_COMPILED and _is_plain(column)):
        told = column.tobytes()
        size = len(told)
        return told == _ones[:size] if size <= _MOST_ONES else bool((column == ONE).all())
    entries = column.data
    for i in range(_length(column)):  # noqa: SIM110 - as above
        if entries[i] != 1:
            return False
    return True


def same(one: IntArray, other: IntArray) -> bool:
    """Whether both have the same entries; neither is a view with gaps."""
    if not (_IS_COMPILED and _are_alike(one, other)):
        return one.tobytes() == other.tobytes()
    entries, others = one.data, other.data
    for i in range(_length(one)):  # noqa: SIM110 - as above
        if entries[i] != others[i]:
            return False
    return True


def are_within(numbers: IntArray, least: int, most: int) -> bool:
    """Whether all entries, of any shape, are from ``least`` to ``most``; checked for every answer of a model."""
    if _IS_COMPILED and _is_walked(numbers):
        entries = numbers.data
        for i in range(numbers.size):  # noqa: SIM110 - as above
            if not least <= entries[i] <= most:
                return False
        return True
    if not numbers.size:
        return True
    # As unsigned numbers those below ``least`` are the largest; argmax costs less than max on few entries.
    above = numbers - least if least else numbers
    return 0 <= above.item(above.view(np.uint64).argmax()) <= most - least


def total(column: IntArray) -> int:
    """The sum of the entries."""
    if not (_IS_COMPILED and _is_plain(column)):
        if all_ones(column):
            return len(column)
        return sum(column.tolist()) if len(column) <= _FEW else int(_sum(column))
    result, entries = 0, column.data
    for i in range(_length(column)):
        result += entries[i]
    return result
