"""How much text some rows make, told while their texts still are dictionaries; and rows in pieces that memory holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tokenyard.files.bounds import Bounds
from tokenyard.trace.columnar.arrow import arrow

__all__ = ["is_plain", "pieces"]

_ELEMENT_BYTES = 2
"""A number, or an element of a list, takes so many characters of JSON at least."""
_FIELD_BYTES = 4
"""Quotes, colon and comma of a field."""


def is_plain(kind: Any) -> bool:
    """Whether :func:`pieces` can tell how much text a column of this Arrow type makes."""
    types = arrow().types
    if types.is_list(kind):
        return is_plain(kind.value_type)
    if types.is_map(kind):
        return is_plain(kind.key_type) and is_plain(kind.item_type)
    if types.is_struct(kind):
        return all(is_plain(kind.field(i).type) for i in range(kind.num_fields))
    if types.is_dictionary(kind):
        return bool(types.is_string(kind.value_type) or types.is_binary(kind.value_type))
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_null(kind))


def pieces(batch: Any, piece_bytes: int, bounds: Bounds, path: Path, first_line: int) -> Iterator[Any]:
    """The rows of a record batch in pieces that make at most ``piece_bytes`` of text, or of one row.

    Raises FileError for a row whose line is longer than the bound; ``first_line`` is the number of the first row's.
    """
    size = sum(_text_bytes(column) for column in batch.columns)
    if size <= piece_bytes or (batch.num_rows <= 1 and size <= bounds.line_bytes):
        yield batch
        return
    if batch.num_rows <= 1:
        raise bounds.exceeded(path, f"line {first_line:,} is longer", "line_mb")
    half = batch.num_rows // 2
    yield from pieces(batch.slice(0, half), piece_bytes, bounds, path, first_line)
    yield from pieces(batch.slice(half), piece_bytes, bounds, path, first_line + half)


def _text_bytes(array: Any) -> int:
    """Characters that the values of an array make, and the lists and structs around them, about."""
    pa = arrow()
    types = pa.types
    if types.is_dictionary(array.type):
        lengths = pa.compute.fill_null(pa.compute.binary_length(array.dictionary), 0).to_numpy(zero_copy_only=False)
        used = array.indices.drop_null().to_numpy(zero_copy_only=False)
        return int(lengths.astype(np.int64)[used].sum()) if len(lengths) else 0
    if types.is_map(array.type):
        offsets = array.offsets
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        inside = (array.keys.slice(first, last - first), array.items.slice(first, last - first))
        return sum(map(_text_bytes, inside)) + _ELEMENT_BYTES * int(last - first)
    if types.is_list(array.type):
        elements = array.flatten()
        return _text_bytes(elements) + _ELEMENT_BYTES * len(elements)
    if types.is_struct(array.type):
        names = sum(len(array.type.field(i).name) + _FIELD_BYTES for i in range(array.type.num_fields))
        return int(sum(map(_text_bytes, array.flatten())) + names * (len(array) - array.null_count))
    return int(_ELEMENT_BYTES * (len(array) - array.null_count))
