"""NumPy columns as every step uses them: made and asked, in the form that costs least.

Most columns here have a few entries, where NumPy's own functions cost what they cost before the first entry: a sum
0.7 us, ``any`` 0.7 us, ``x + 1`` twice as much as ``x + ONE`` because the number becomes an array first, ``x += y``
twice as much as ``x + y``, and an assignment twice as much if it has to convert. Compiled, a loop does most of it.
"""

from __future__ import annotations

import struct
from operator import add, mul, sub
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
    elif may_change(column):
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
        if not (is_walked32(column) and column.ndim == 1):
            return np.concatenate(columns)
        count += length_of(column)
    longer, place = _new32(count), 0
    into = longer.data32  # type: ignore[attr-defined]  # see columns.pxd
    for column in columns:
        numbers = column.data32  # type: ignore[attr-defined]
        for i in range(length_of(column)):
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
    if not (_IS_COMPILED and is_plain(column) and 0 <= count <= length_of(column)):
        return column[:count].copy()
    taken = _new(count)
    entries, into = column.data, taken.data
    for i in range(count):
        into[i] = entries[i]
    return taken


def extended(column: IntArray, values: list[int]) -> IntArray:
    """The column, and the numbers behind it."""
    if not (_IS_COMPILED and is_plain(column)):
        return np.concatenate((column, values))
    count = length_of(column)
    longer = _new(count + len(values))
    entries, numbers = column.data, longer.data
    for i in range(count):
        numbers[i] = entries[i]
    for i, value in enumerate(values, count):
        numbers[i] = value
    return longer


# ---------------------------------------------------------------------------------------------------------------------
# Whole columns: whether C can walk over them, and what every step does to a dozen of them.
#
# NumPy does each in a call or two of 0.1 to 0.3 us, with a pass over memory for each; compiled, one loop does, where C
# can walk over the columns. Where it cannot (another type, gaps, a slot that is none) NumPy answers.


def is_plain(column: IntArray) -> bool:
    """Whether C can walk over the column: int64, one dimension, no gaps."""
    return column.is_plain  # type: ignore[attr-defined,no-any-return]  # see columns.pxd


def is_walked(column: IntArray) -> bool:
    """The same of an array of any shape."""
    return column.is_walked  # type: ignore[attr-defined,no-any-return]  # see columns.pxd


def is_walked32(column: Int32Array) -> bool:
    """The same of int32."""
    return column.is_walked32  # type: ignore[attr-defined,no-any-return]  # see columns.pxd


def is_flags(column: npt.NDArray[Any]) -> bool:
    """The same of a column of bool."""
    return column.is_flags  # type: ignore[attr-defined,no-any-return]  # see columns.pxd


def length_of(column: npt.NDArray[Any]) -> int:
    """Entries of a plain column, or slots of a table."""
    return column.length  # type: ignore[attr-defined,no-any-return]  # see columns.pxd


def have_entries(slots: IntArray, column: IntArray) -> bool:
    """Whether C can walk over both, and there is an entry for each slot."""
    return is_plain(column) and have_rows(slots, column)


def have_rows(slots: IntArray, table: IntArray) -> bool:
    """The same of an array of any shape, whose first dimension are slots."""
    return is_walked(table) and are_places(slots, length_of(table))


def are_places(slots: IntArray, count: int) -> bool:
    """Whether C can walk over the slots, and they are among the first ``count``."""
    if not is_plain(slots):
        return False
    at = slots.data
    for i in range(length_of(slots)):  # noqa: SIM110 - C makes no generator
        if not 0 <= at[i] < count:
            return False
    return True


def may_change(column: npt.NDArray[Any]) -> bool:
    """Whether the column is not read-only."""
    return column.may_change  # type: ignore[attr-defined,no-any-return]  # see columns.pxd


def are_alike(one: IntArray, other: IntArray) -> bool:
    """Whether C can walk over both, and they have the same length."""
    return is_plain(one) and is_plain(other) and length_of(one) == length_of(other)


def like(column: IntArray) -> IntArray:
    """A new column, as long as this one."""
    return column.like  # type: ignore[attr-defined,no-any-return]  # see columns.pxd


def prompt_sums(new: IntArray, computed: IntArray) -> tuple[int, int, int, int]:
    """How many rows have more than one ``new`` token, and over them the sum of their ``computed`` ones, that of both
    multiplied, and that of the squares of the new ones.
    """
    if not (_IS_COMPILED and are_alike(new, computed)):
        rows = (new > ONE).nonzero()[0]
        chunks, before = new[rows].tolist(), computed[rows].tolist()  # mostly of one prompt
        return len(chunks), sum(before), sum(map(mul, chunks, before)), sum(map(mul, chunks, chunks))
    count = context = products = squares = 0
    of, behind = new.data, computed.data
    for i in range(length_of(new)):
        if of[i] > 1:
            count += 1
            context += behind[i]
            products += of[i] * behind[i]
            squares += of[i] * of[i]
    return count, context, products, squares


def difference(one: IntArray, other: IntArray) -> IntArray:
    """``one - other``, both of shape ``[n]``."""
    if not are_alike(one, other):
        return one - other
    taken = like(one)
    of, off, into = one.data, other.data, taken.data
    for i in range(length_of(one)):
        into[i] = of[i] - off[i]
    return taken


def summed(one: IntArray, other: IntArray) -> IntArray:
    """``one + other``, both of shape ``[n]``."""
    if not are_alike(one, other):
        return one + other
    taken = like(one)
    of, more, into = one.data, other.data, taken.data
    for i in range(length_of(one)):
        into[i] = of[i] + more[i]
    return taken


def below(one: IntArray, other: IntArray) -> BoolArray | None:
    """Where ``one``, which is as long as ``other``, has the smaller number; None: nowhere, as mostly."""
    if one is other:
        return None
    if not (_IS_COMPILED and are_alike(one, other)):
        if one.tobytes() == other.tobytes():
            return None
        mask = one < other
        return mask if any_true(mask) else None
    of, than, found = one.data, other.data, 0
    for i in range(length_of(one)):
        found += of[i] < than[i]
    if not found:
        return None
    flags = _new_flags(length_of(one))
    into = flags.flags_data  # type: ignore[attr-defined]  # see columns.pxd
    for i in range(length_of(one)):
        into[i] = of[i] < than[i]
    return flags


def shifted(column: IntArray, by: int) -> IntArray:
    """The column, each entry larger by so much."""
    if not (_IS_COMPILED and is_plain(column)):
        return column + by
    taken = like(column)
    of, into = column.data, taken.data
    for i in range(length_of(column)):
        into[i] = of[i] + by
    return taken


def units(column: IntArray, size: int) -> IntArray:
    """How many units of ``size`` each number takes."""
    if not (_IS_COMPILED and is_plain(column)):
        return (column + (size - 1)) // size
    taken = like(column)
    of, into = column.data, taken.data
    for i in range(length_of(column)):
        into[i] = (of[i] + (size - 1)) // size
    return taken


def reached(column: IntArray, most: int, each: int = 0) -> tuple[int, int]:
    """The first row with which the sum of entries above zero reaches ``most``, and by how much it exceeds that then.

    ``each`` comes on top for every row before it. IndexError if all do not reach it.
    """
    if not (_IS_COMPILED and is_plain(column)):
        sums = column.cumsum()
        if each:
            sums += each * counting(len(sums))
        row = int(sums.searchsorted(most))
        return row, int(sums[row]) - most
    summed, entries = -each, column.data
    for row in range(length_of(column)):
        summed += each + entries[row]
        if summed >= most:
            return row, summed - most
    raise IndexError(f"{most} is never reached")


def parted(column: IntArray) -> tuple[IntArray, IntArray]:
    """Rows whose entry is above zero, and all others."""
    if not (_IS_COMPILED and is_plain(column)):
        above = column > 0
        return above.nonzero()[0], (~above).nonzero()[0]
    entries, count, found = column.data, length_of(column), 0
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
    if not (_IS_COMPILED and is_plain(values)):
        rows: IntArray = (values > most).nonzero()[0]
        return rows
    rows, of, found = like(values), values.data, 0
    into = rows.data
    for i in range(length_of(values)):
        if of[i] > most:
            into[found] = i
            found += 1
    return first_entries(rows, found)


def count_places(counters: IntArray, counts: IntArray) -> int:
    """The first ``counts[i]`` counters go up by one, for every row; returns by how much they have gone up together."""
    if not (_IS_COMPILED and may_change(counters) and is_plain(counters) and is_plain(counts)):
        rows = np.bincount(counts, minlength=len(counters) + 1)
        counters += rows[::-1].cumsum()[-2::-1]
        return total(counts)
    into, of, count, most = counters.data, counts.data, 0, length_of(counters)
    for i in range(length_of(counts)):
        for k in range(min(of[i], most)):
            into[k] += 1
            count += 1
    return count


def either(rows: IntArray, others: IntArray) -> IntArray:
    """Rows that are among the one or the other, both in order; mostly none is."""
    if not len(rows) or not len(others):
        return rows if len(rows) else others
    union: IntArray = np.union1d(rows, others)
    return union


if not _IS_COMPILED:
    # These are what NumPy does in one call, for which the interpreter need not pass a function of ours.
    globals().update(difference=sub, summed=add)


def as_whole_numbers(column: npt.NDArray[np.integer[Any]]) -> IntArray:
    """The same numbers as a plain array of int64, of which the questions below read the bytes; a number beyond that
    becomes negative.
    """
    return column.astype(np.int64, subok=False, copy=False)


def any_true(mask: npt.NDArray[np.bool_]) -> bool:
    """Whether any entry is true."""
    return 1 in mask.tobytes()


_ones = np.ones(4096, np.int64).tobytes()
_MOST_ONES = len(_ones)


def all_ones(column: IntArray) -> bool:
    """Whether every entry is 1, as where all requests decode."""
    if not (_IS_COMPILED and is_plain(column)):
        told = column.tobytes()
        size = len(told)
        return told == _ones[:size] if size <= _MOST_ONES else bool((column == ONE).all())
    entries = column.data
    for i in range(length_of(column)):  # noqa: SIM110 - as above
        if entries[i] != 1:
            return False
    return True


def same(one: IntArray, other: IntArray) -> bool:
    """Whether both have the same entries; neither is a view with gaps."""
    if not (_IS_COMPILED and are_alike(one, other)):
        return one.tobytes() == other.tobytes()
    entries, others = one.data, other.data
    for i in range(length_of(one)):  # noqa: SIM110 - as above
        if entries[i] != others[i]:
            return False
    return True


def are_within(numbers: IntArray, least: int, most: int) -> bool:
    """Whether all entries, of any shape, are from ``least`` to ``most``; checked for every answer of a model."""
    if _IS_COMPILED and is_walked(numbers):
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
    if not (_IS_COMPILED and is_plain(column)):
        if all_ones(column):
            return len(column)
        return sum(column.tolist()) if len(column) <= _FEW else int(_sum(column))
    result, entries = 0, column.data
    for i in range(length_of(column)):
        result += entries[i]
    return result
