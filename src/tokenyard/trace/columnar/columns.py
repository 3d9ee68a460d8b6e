"""The columns of a Parquet trace, taken from the schema of its records: names and types stand there alone.

All events share one table, so a row is a line and most of its columns are null, which costs next to nothing.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from tokenyard.trace.columnar.arrow import arrow
from tokenyard.trace.format.schema import STEP_EVENTS, RequestRecord

__all__ = ["EXTRA", "KINDS", "RAW", "arrow_schema", "columns_of", "row_type"]

KINDS = ("steps", "requests")
"""Of files."""
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
