"""What the footer of a Parquet file says of its columns and row groups, read before any library looks at the file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tokenyard.errors import TraceError
from tokenyard.files.bounds import Bounds
from tokenyard.trace.columnar.thrift import BYTES, I32, I64, Keep, ThriftReader

__all__ = ["Column", "RowGroup", "row_groups_of"]

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
_MOST_ELEMENTS, _LONGEST_NAME, _MOST_NESTED = 5_000, 1_000, 20
"""Of a schema. Libraries keep the whole path of every column."""
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
        if len(left) > _MOST_NESTED:
            return f"columns nested more than {_MOST_NESTED} deep"
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
