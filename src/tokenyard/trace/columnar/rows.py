"""Lines as rows of a table, and back.

A line as our own writer writes it goes into the columns of its fields and comes back byte by byte. Of any other JSON
object the fields come back with their values: what has no column, or does not fit it exactly, is kept as JSON beside
the columns. A line that is no JSON object is kept as it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from tokenyard.files.bounds import Bounds
from tokenyard.files.nesting import is_nested_deeper
from tokenyard.trace.columnar.arrow import arrow
from tokenyard.trace.columnar.columns import EXTRA, RAW, arrow_schema, row_type
from tokenyard.trace.format.schema import STEP_EVENTS, RequestRecord, StepEvent

__all__ = ["Row", "TableRows"]

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
