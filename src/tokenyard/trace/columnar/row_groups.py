"""What the footer of a Parquet file says of its row groups, column by column."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from tokenyard.trace.columnar.thrift import Keep, ThriftReader

__all__ = ["Column", "row_groups_of"]

_END = b"PAR1"
_TYPE, _PATH, _NUM_VALUES, _UNPACKED, _PACKED, _DATA_PAGES, _DICTIONARY, _STATISTICS = 1, 3, 5, 6, 7, 9, 11, 12
_GREATEST, _LEAST = 5, 6
_COLUMN: Keep = {
    **dict.fromkeys((_TYPE, _NUM_VALUES, _UNPACKED, _PACKED, _DATA_PAGES, _DICTIONARY), int),
    _PATH: [bytes],
    _STATISTICS: {_GREATEST: bytes, _LEAST: bytes},
}
_ROW_GROUPS, _COLUMNS, _META_DATA = 4, 1, 3
_FOOTER: Keep = {_ROW_GROUPS: [{_COLUMNS: [{_META_DATA: _COLUMN}]}]}
"""Numbers of fields in Parquet's definition."""
_INTEGER_BYTES = {1: 4, 2: 8}
"""Physical type -> bytes of a value."""


class Column(NamedTuple):
    """A column of a row group; sizes in bytes."""

    path: str
    num_values: int
    unpacked: int
    packed: int
    start: int
    """Where its first page begins."""
    bounds: tuple[int, int] | None
    """Least and greatest value, of integers; None: not told."""


def row_groups_of(file: int) -> list[list[Column]]:
    """The columns of every row group; ``file`` is a descriptor.

    Raises ValueError or LookupError for what is no footer.
    """
    size = os.fstat(file).st_size
    end = os.pread(file, 8, max(size - 8, 0))
    length = int.from_bytes(end[:4], "little")
    if end[4:] != _END or length > size - 8:
        raise ValueError("its footer is encrypted, or its end is missing")
    footer = ThriftReader(os.pread(file, length, size - 8 - length)).struct(_FOOTER)
    return [[_column(each[_META_DATA]) for each in group[_COLUMNS]] for group in footer.get(_ROW_GROUPS, ())]


def _column(fields: dict[int, Any]) -> Column:
    start, dictionary = fields[_DATA_PAGES], fields.get(_DICTIONARY, 0)
    return Column(
        b".".join(fields[_PATH]).decode(errors="replace"),
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
