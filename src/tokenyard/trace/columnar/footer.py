"""What a Parquet file says of itself, read before any library opens it: Thrift structs, row groups, page headers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from tokenyard.errors import TraceError
from tokenyard.files import Bounds
from tokenyard.trace.schema import StepSnapshot, TraceStart

# ---------------------------------------------------------------------------------------------------------------------
# Structs in Thrift's compact protocol, as Parquet's footer and page headers are: what is wanted is kept.
#
# pyarrow reads them too, but a column of a footer that contradicts itself ends the whole process there (an exception
# crosses code that must not throw), and it does not show page headers at all.

Keep: TypeAlias = Mapping[int, Any]
"""Number of a field to keep -> ``I32``, ``I64``, ``BYTES``, what to keep of the struct that it is, or a list of one of
these."""

I32, I64, BYTES = 5, 6, 8
"""Kinds, as the protocol numbers them. Other readers pass over a field of another kind, or take the first of two: where
they could read something else than this one, nothing is read."""

_TRUE, _FALSE, _BYTE, _DOUBLE, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 9, 10, 12
_INTEGERS = (4, I32, I64)
_MOST_FIELD = 0x7FFF
_MOST_NESTED = 16
_NOTHING: Keep = {}


class ThriftReader:
    """Bytes that begin with a struct. IndexError where they end within it, ValueError where they are none."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0
        """Bytes read."""

    def struct(self, keep: Keep, depth: int = 0) -> dict[int, Any]:
        """Field -> its value, of the type that ``keep`` says, where there is one."""
        if depth > _MOST_NESTED:
            raise ValueError("its metadata is nested too deep")
        kept: dict[int, Any] = {}
        field = 0
        while kind := self._byte():
            step, kind = kind >> 4, kind & 15
            field = field + step if step else self._integer()
            if not 0 <= field <= _MOST_FIELD or field in kept:
                raise ValueError(f"its metadata has field {field} twice, or where none can be")
            if field in keep:
                kept[field] = self._value(kind, keep[field], depth)
            else:
                self._pass_over(kind, depth)
        return kept

    def _value(self, kind: int, wanted: Any, depth: int) -> Any:
        if wanted == kind and kind in _INTEGERS:
            return self._integer()
        if wanted == kind == BYTES:
            return self._bytes()
        if isinstance(wanted, Mapping) and kind == _STRUCT:
            return self.struct(wanted, depth + 1)
        if isinstance(wanted, list) and kind in (_LIST, _SET):
            each, count = self._list()
            return [self._value(each, wanted[0], depth + 1) for _ in range(count)]
        raise ValueError(f"its metadata has a field of kind {kind} where none can be")

    def _pass_over(self, kind: int, depth: int) -> None:
        if kind in _INTEGERS:
            self._unsigned()
        elif kind == BYTES:
            self._bytes()
        elif kind == _STRUCT:
            self.struct(_NOTHING, depth + 1)
        elif kind in (_LIST, _SET):
            each, count = self._list()
            for _ in range(count):
                self._pass_over(_BYTE if each in (_TRUE, _FALSE) else each, depth + 1)
        elif kind in (_BYTE, _DOUBLE):
            self._skip(1 if kind == _BYTE else 8)
        elif kind not in (_TRUE, _FALSE):  # the value is in the kind; Parquet has no maps
            raise ValueError(f"its metadata has a field of kind {kind}")

    def _list(self) -> tuple[int, int]:
        """The kind of the elements, and how many there are; each takes a byte at least."""
        head = self._byte()
        count, each = head >> 4, head & 15
        if count == 15:
            count = self._unsigned()
        if count > len(self._data) - self.at:
            raise IndexError(count)
        return each, count

    def _bytes(self) -> bytes:
        count = self._unsigned()
        self._skip(count)
        return self._data[self.at - count : self.at]

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self._data):
            raise IndexError(self.at)

    def _byte(self) -> int:
        value = self._data[self.at]
        self.at += 1
        return value

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("its metadata holds a number of more than 64 bits")

    def _integer(self) -> int:
        value = self._unsigned()
        return value >> 1 ^ -(value & 1)


# ---------------------------------------------------------------------------------------------------------------------
# What the pages of a Parquet column say of their size, each in its header: a footer may say something else.
#
# Readers allocate the size that a page header gives before they unpack the page.

_FIRST_LOOK = 1 << 12
"""Bytes read for a header, which has a few dozen; more are read if it goes on."""
_UNPACKED_SIZE, _PACKED_SIZE = 2, 3
_SIZES: Keep = {_UNPACKED_SIZE: I32, _PACKED_SIZE: I32}
"""Fields of a page header."""
_MOST_BYTES, _PAGE_BYTES = 4 << 20, 64
"""Headers may take so many bytes, and a sixteenth of the file beside it; each takes at least so many."""


class PageSizes:
    """The sizes of the pages of an open file."""

    def __init__(self, file: int) -> None:
        """``file`` is a descriptor."""
        self._file = file
        self._left = _MOST_BYTES + os.fstat(file).st_size // 16
        """Bytes of headers that are still looked at: columns can lie on top of each other."""

    def unpacked(self, start: int, length: int, most: int) -> int:
        """Unpacked bytes of the pages that lie in ``length`` bytes from ``start`` on.

        What comes after the first page with which they are more than ``most`` is not looked at. Raises ValueError if
        there is no page header where one has to be, or the file has too many pages.
        """
        total, at, end = 0, start, start + length
        while at < end and total <= most:
            unpacked, size, header = self._page_at(at, end - at)
            self._left -= max(header, _PAGE_BYTES)
            if self._left < 0:
                raise ValueError("too many pages for its size")
            total += unpacked
            at += size
        return total

    def _page_at(self, at: int, length: int) -> tuple[int, int, int]:
        """Unpacked bytes of the page whose header begins at ``at``, its bytes here, and of them the header's."""
        look = min(_FIRST_LOOK, length)
        while True:
            header = ThriftReader(os.pread(self._file, look, at))
            try:
                sizes = header.struct(_SIZES)
            except IndexError:
                if look >= length:
                    raise ValueError(f"no page header at byte {at}") from None
                look = min(16 * look, length)
                continue
            unpacked, packed = sizes.get(_UNPACKED_SIZE, -1), sizes.get(_PACKED_SIZE, -1)
            if unpacked < 0 or packed < 0:
                raise ValueError(f"no page header at byte {at}")
            return unpacked, header.at + packed, header.at


# ---------------------------------------------------------------------------------------------------------------------
# What the footer of a Parquet file says of its columns and row groups, read before any library looks at the file.

_END = b"PAR1"
_TYPE, _PATH, _NUM_VALUES, _UNPACKED, _PACKED, _DATA_PAGES, _DICTIONARY, _STATISTICS = 1, 3, 5, 6, 7, 9, 11, 12
_GREATEST, _LEAST = 5, 6
_COLUMN: Keep = {
    **dict.fromkeys((_NUM_VALUES, _UNPACKED, _PACKED, _DATA_PAGES, _DICTIONARY), I64),
    _TYPE: I32,
    _PATH: [BYTES],
    _STATISTICS: {_GREATEST: BYTES, _LEAST: BYTES},
}
_COLUMNS, _NUM_ROWS, _META_DATA = 1, 3, 3
_NAME, _CHILDREN = 4, 5
_SCHEMA, _ROW_GROUPS = 2, 4
_FOOTER: Keep = {
    _SCHEMA: [{_NAME: BYTES, _CHILDREN: I32}],
    _ROW_GROUPS: [{_COLUMNS: [{_META_DATA: _COLUMN}], _NUM_ROWS: I64}],
}
"""Numbers of fields in Parquet's definition."""
_INTEGER_BYTES = {1: 4, 2: 8}
"""Physical type -> bytes of a value."""
_MOST_ELEMENTS, _LONGEST_NAME, _ROW_GROUPS_MOST_NESTED = 5_000, 1_000, 20
"""Bounds of a schema. Libraries keep the whole path of every column."""
_MOST_GROUPS = 20_000


class Column(NamedTuple):
    """A column of a row group; sizes in bytes."""

    path: str
    type: int
    """Parquet's physical type."""
    num_values: int
    unpacked: int
    packed: int
    start: int
    """Where its first page begins."""
    bounds: tuple[int, int] | None
    """Least and greatest value, of integers; None: not told."""


class RowGroup(NamedTuple):
    """Rows that are stored together."""

    num_rows: int
    columns: Sequence[Column]


def row_groups_of(path: Path, file: int, bounds: Bounds) -> list[RowGroup]:
    """Every row group; ``file`` is a descriptor.

    Raises TraceError for a schema that no trace has, FileError for a footer larger than what is read, and ValueError or
    LookupError for what is no footer.
    """
    size = os.fstat(file).st_size
    end = os.pread(file, 8, max(size - 8, 0))
    length = int.from_bytes(end[:4], "little")
    if end[4:] != _END or length > size - 8:
        raise ValueError("not a Parquet file, or encrypted, or its end is missing")
    if length > bounds.footer_bytes:
        raise bounds.exceeded(path, "its footer is larger", "footer_mb")
    footer = ThriftReader(os.pread(file, length, size - 8 - length)).struct(_FOOTER)
    problem = _schema_problem(footer[_SCHEMA])
    groups = footer.get(_ROW_GROUPS, [])
    if len(groups) > _MOST_GROUPS:
        problem = f"{len(groups):,} row groups"
    if problem is not None:
        raise TraceError(f"{path}: no trace: it has {problem}")
    return [RowGroup(each[_NUM_ROWS], [_column(one[_META_DATA]) for one in each[_COLUMNS]]) for each in groups]


def _schema_problem(elements: Sequence[dict[int, Any]]) -> str | None:
    """What no trace has."""
    if len(elements) > _MOST_ELEMENTS:
        return f"{len(elements):,} columns"
    left: list[int] = []
    for each in elements:
        if len(each.get(_NAME, b"")) > _LONGEST_NAME:
            return f"a column with a name of {len(each[_NAME]):,} bytes"
        while left and left[-1] == 0:
            left.pop()
        if left:
            left[-1] -= 1
        left.append(max(each.get(_CHILDREN, 0), 0))
        if len(left) > _ROW_GROUPS_MOST_NESTED:
            return f"columns nested more than {_ROW_GROUPS_MOST_NESTED} deep"
    return None


def _column(fields: dict[int, Any]) -> Column:
    start, dictionary = fields[_DATA_PAGES], fields.get(_DICTIONARY, 0)
    return Column(
        b".".join(fields[_PATH]).decode(errors="replace"),
        fields[_TYPE],
        fields[_NUM_VALUES],
        fields[_UNPACKED],
        fields[_PACKED],
        dictionary if 0 < dictionary < start else start,
        _bounds(fields.get(_STATISTICS, {}), _INTEGER_BYTES.get(fields[_TYPE], 0)),
    )


def _bounds(statistics: dict[int, Any], size: int) -> tuple[int, int] | None:
    least, greatest = statistics.get(_LEAST, b""), statistics.get(_GREATEST, b"")
    if not size or len(least) != size or len(greatest) != size:
        return None
    return int.from_bytes(least, "little", signed=True), int.from_bytes(greatest, "little", signed=True)


# ---------------------------------------------------------------------------------------------------------------------
# What a Parquet trace tells before anything is decoded: facts for a list, and the size of its row groups.

_VALUE_BYTES = 8
"""Memory that a value takes at least, be it stored in next to no room."""


class FooterFacts(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A trace in a list; None where it does not tell."""

    policy: str | None = None
    host: str | None = None
    model: str | None = None
    gpu: str | None = None
    total_blocks: int | None = None
    cpu_total_blocks: int | None = None
    block_size: int | None = None
    bytes_per_block: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    first_step: int | None = None

    def take(self, record: object) -> bool:
        """Learn from a record; True if there is nothing more to learn."""
        if isinstance(record, TraceStart):
            self.policy, self.host, self.model, self.gpu = record.policy, record.host, record.model, record.gpu
            self.block_size, self.bytes_per_block = record.block_size, record.bytes_per_block
        elif isinstance(record, StepSnapshot):
            self.policy = record.policy or self.policy
            self.total_blocks, self.cpu_total_blocks = record.total_blocks, record.cpu_total_blocks
            self.max_num_seqs = record.max_num_running_reqs
            self.max_num_batched_tokens = record.max_num_scheduled_tokens
            self.first_step = record.step
            return True
        return False


def check_group(path: Path, number: int, group: RowGroup, pages: PageSizes, bounds: Bounds) -> None:
    """Raise FileError if row group ``number``, or a column of it, is larger than what is decoded.

    A column is as large as its footer says, or its pages, whichever is more. Raises ValueError for sizes below 0.
    """
    total = group.num_rows * _VALUE_BYTES
    least = group.num_rows
    for column in group.columns:
        least = min(least, column.num_values, column.unpacked, column.packed, column.start)
        size = max(column.unpacked, column.num_values * _VALUE_BYTES)
        if size <= bounds.column_bytes:
            size = max(size, pages.unpacked(column.start, column.packed, bounds.column_bytes))
        if size > bounds.column_bytes:
            what = f"column {column.path!r} of row group {number} is larger"
            raise bounds.exceeded(path, what, "column_mb")
        total += size
    if least < 0:
        raise ValueError(f"row group {number} has a size below 0")
    if total > bounds.row_group_bytes:
        raise bounds.exceeded(path, f"row group {number} is larger", "row_group_mb")
