"""Lines as rows of a table, and back, in portions of bounded size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import inspect

from tokenyard.files import Bounds, arrow, is_nested_deeper
from tokenyard.trace.schema import STEP_EVENTS, RequestRecord, StepEvent

# ---------------------------------------------------------------------------------------------------------------------
# pyarrow, imported when it is needed: it belongs to the extra ``analysis``.


def parquet() -> Any:
    """The module ``pyarrow.parquet``; MissingExtraError without it."""
    arrow()
    import pyarrow.parquet as pq  # noqa: PLC0415 - an extra

    return pq


# ---------------------------------------------------------------------------------------------------------------------
# The columns of a Parquet trace, taken from the schema of its records: names and types stand there alone.
#
# All events share one table, so a row is a line and most of its columns are null, which costs next to nothing.

KINDS = ("steps", "requests")
"""Kinds of files of a trace."""
EXTRA = "_extra"
"""Column of what has no column, as a JSON object."""
RAW = "_raw"
"""Column of a line's own bytes, for lines that are no JSON object."""
_WIDE = frozenset({"bytes_per_block", "max_tokens", "priority"})
"""Whole numbers that are no counts of something in memory: they get 64 bits."""


@cache
def row_type(kind: str) -> type[msgspec.Struct]:
    """A struct with every column of a ``steps`` or ``requests`` file as an optional field, in the schema's order."""
    fields: dict[str, Any] = {} if kind == "requests" else {"event": str | None}
    for record in (RequestRecord,) if kind == "requests" else STEP_EVENTS.values():
        for field in msgspec.structs.fields(record):
            fields.setdefault(field.name, field.type | None)
    return msgspec.defstruct("Row", [(name, type_, None) for name, type_ in fields.items()], omit_defaults=True)


def columns_of(kind: str) -> tuple[str, ...]:
    """The names of the columns that hold fields."""
    return row_type(kind).__struct_fields__


@cache
def arrow_schema(kind: str) -> Any:
    """The Arrow schema of such a file. Raises MissingExtraError without pyarrow."""
    pa = arrow()
    info = inspect.type_info(row_type(kind))
    assert isinstance(info, inspect.StructType)
    fields = [
        (each.name, _arrow_type(each.type, pa.int64() if each.name in _WIDE else pa.int32())) for each in info.fields
    ]
    return pa.schema([*fields, (EXTRA, pa.string()), (RAW, pa.binary())])


def _arrow_type(type_: inspect.Type, whole: Any) -> Any:
    """The Arrow type that holds ``type_``, with ``whole`` for whole numbers."""
    pa = arrow()
    plain = {
        inspect.IntType: whole,
        inspect.FloatType: pa.float64(),
        inspect.BoolType: pa.bool_(),
        inspect.StrType: pa.string(),
    }
    match type_:
        case inspect.UnionType(types=types):  # of one type and None
            (other,) = (each for each in types if not isinstance(each, inspect.NoneType))
            return _arrow_type(other, whole)
        case inspect.ListType(item_type=item):
            return pa.list_(_arrow_type(item, whole))
        case inspect.DictType(value_type=inspect.AnyType()):
            return pa.string()  # as JSON
        case inspect.DictType(value_type=value):
            return pa.map_(pa.string(), _arrow_type(value, whole))
        case inspect.StructType(fields=fields):
            return pa.struct([(each.name, _arrow_type(each.type, whole)) for each in fields])
        case _:
            return plain[type(type_)]


# ---------------------------------------------------------------------------------------------------------------------
# How much text some rows make, counted while their texts still are dictionaries; and rows in pieces that memory holds.

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


# ---------------------------------------------------------------------------------------------------------------------
# Lines as rows of a table, and back.
#
# A line as our own writer writes it goes into the columns of its fields and comes back byte by byte. Of any other
# JSON object the fields come back with their values: what has no column, or does not fit it exactly, is kept as JSON
# beside the columns. A line that is no JSON object is kept as it is.

Row = dict[str, Any]
"""Column -> value; a column that is absent or None is null."""
_JSON_COLUMNS = frozenset({"config", EXTRA})
"""Objects of any content, held as JSON text."""
_ORDER = {event: ("event", *record.__struct_fields__) for event, record in STEP_EVENTS.items()}
"""Event -> its fields in the order in which our writer writes them."""


class TableRows:
    """Turns the lines of a ``steps`` or ``requests`` file into rows and record batches, and those into lines."""

    def __init__(self, kind: str) -> None:
        self.schema = arrow_schema(kind)
        self.record: object = None
        """The record of the line that was turned into a row last, if it is one as our writer writes it."""
        self._pa = arrow()
        self._nesting = Bounds.from_env().nesting
        self._row_type = row_type(kind)
        self._ours: msgspec.json.Decoder[Any] = msgspec.json.Decoder(RequestRecord if kind == "requests" else StepEvent)

    def row(self, line: bytes) -> Row:
        """The row of one line, given without its line feed."""
        self.record = None
        if not line:
            return {RAW: line}
        if is_nested_deeper(line, self._nesting):
            return {RAW: line}
        with suppress(ValueError, RecursionError):
            self.record = record = self._ours.decode(line)
            if msgspec.json.encode(record) == line:
                return {"event": record.__struct_config__.tag, **msgspec.structs.asdict(record)}
        with suppress(ValueError, RecursionError):
            parsed = msgspec.json.decode(line)
            if isinstance(parsed, dict):
                row = self._fitting(parsed)
                extra = {name: value for name, value in parsed.items() if name not in row}
                return row | {EXTRA: extra} if extra else row
        return {RAW: line}

    def _fitting(self, record: Row) -> Row:
        """The fields of a record that have a column and come back from it unchanged; null does not."""
        try:
            known = msgspec.to_builtins(msgspec.convert(record, self._row_type))
        except msgspec.ValidationError:
            known = {}
            for name, value in record.items():
                with suppress(msgspec.ValidationError):
                    known |= msgspec.to_builtins(msgspec.convert({name: value}, self._row_type))
        return {name: value for name, value in known.items() if record[name] == value}

    def batch(self, rows: Sequence[Row]) -> Any:
        """The record batch of some rows."""
        columns: defaultdict[str, list[Any]] = defaultdict(lambda: [None] * len(rows))
        for i, row in enumerate(rows):
            for name, value in row.items():
                if value is not None:
                    columns[name][i] = value
        arrays = [
            self._array(field, columns) if field.name in columns else self._pa.nulls(len(rows), field.type)
            for field in self.schema
        ]
        return self._pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, field: Any, columns: defaultdict[str, list[Any]]) -> Any:
        """One column. What is too large a number for it moves on to the column of what has no column."""
        values = columns[field.name]
        if field.name in _JSON_COLUMNS:
            values = [None if value is None else msgspec.json.encode(value).decode() for value in values]
        elif self._has_structs(field.type):
            values = msgspec.to_builtins(values)
        try:
            return self._pa.array(values, field.type)
        except (self._pa.ArrowInvalid, OverflowError):
            extra = columns[EXTRA]
            for i, value in enumerate(values):
                if not self._fits(value, field.type):
                    extra[i] = (extra[i] or {}) | {field.name: value}
                    values[i] = None
            return self._pa.array(values, field.type)

    def lines(self, batch: Any) -> list[bytes]:
        """The lines of a record batch, without line feeds. Raises ValueError if a text that must be JSON is none."""
        rows: list[Row] = [{} for _ in range(batch.num_rows)]
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            places = self._pa.compute.indices_nonzero(column.is_valid()).to_pylist()
            for place, value in zip(places, self._values(name, column.drop_null()), strict=True):
                rows[place][name] = value
        return [_line(row) for row in rows]

    def _values(self, name: str, column: Any) -> list[Any]:
        """The values of a column without nulls. NumPy makes them several times faster than Arrow does."""
        types = self._pa.types
        if name in _JSON_COLUMNS:
            return [msgspec.json.decode(text, type=dict) for text in column.to_pylist()]
        if self._has_structs(column.type):
            return [_without_nulls(value) for value in column.to_pylist()]
        if types.is_map(column.type):
            return [dict(pairs) for pairs in column.to_pylist()]
        values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return [value.tolist() for value in values] if types.is_list(column.type) else values

    def _fits(self, value: Any, type_: Any) -> bool:
        try:
            self._pa.array([value], type_)
        except (self._pa.ArrowInvalid, OverflowError):
            return False
        return True

    def _has_structs(self, type_: Any) -> bool:
        types = self._pa.types
        return bool(types.is_struct(type_) or (types.is_list(type_) and types.is_struct(type_.value_type)))


def _line(row: Row) -> bytes:
    raw: bytes | None = row.get(RAW)
    if raw is not None:
        return raw
    order = _ORDER.get(row.get("event", ""), ())
    extra = row.pop(EXTRA, {})
    record = row | extra
    return msgspec.json.encode({name: record[name] for name in order if name in record} | record)


def _without_nulls(value: Any) -> Any:
    """A struct as it was: what Arrow filled up is left out again."""
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return value
