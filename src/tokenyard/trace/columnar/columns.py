"""The columns of a Parquet trace, taken from the schema of its records: names and types stand there alone.

All events share one table, so a row is a line and most of its columns are null, which costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from tokenyard.trace.columnar.shapes import Flag, Json, ListOf, MapOf, Number, Record, Shape, Text, Whole
from tokenyard.trace.format.schema import STEP_EVENTS, RequestRecord

__all__ = ["EXTRA", "KINDS", "LAYOUT", "RAW", "arrow_schema", "columns_of"]

KINDS = ("steps", "requests")
"""Of files."""
EXTRA = "_extra"
"""Column of what has no column, as a JSON object."""
RAW = "_raw"
"""Column of a line's own bytes, where the other columns would not give them back."""
LAYOUT = "_layout"
"""Column of the number of a row's layout."""
_WIDE = frozenset({"bytes_per_block", "max_tokens", "priority"})
"""Whole numbers that are no counts of something in memory: they get 64 bits."""


@cache
def columns_of(kind: str) -> dict[str, Shape]:
    """Column -> shape for a ``steps`` or ``requests`` file, in the order of the schema."""
    if kind == "requests":
        return _shapes([RequestRecord])
    return {"event": Text()} | _shapes(STEP_EVENTS.values())


def arrow_schema(kind: str, pa: Any) -> Any:
    """The Arrow schema of such a file."""
    fields = [(name, shape.arrow_type(pa)) for name, shape in columns_of(kind).items()]
    return pa.schema([*fields, (EXTRA, pa.string()), (RAW, pa.binary()), (LAYOUT, pa.int32())])


def _shapes(records: Iterable[type[msgspec.Struct]]) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    for record in records:
        info = inspect.type_info(record)
        assert isinstance(info, inspect.StructType)
        for field in info.fields:
            shapes.setdefault(field.name, _shape(field.name, field.type))
    return shapes


def _shape(name: str, type_: inspect.Type) -> Shape:
    type_, _ = _without_none(type_)
    match type_:
        case inspect.IntType():
            return Whole(64 if name in _WIDE else 32)
        case inspect.FloatType():
            return Number()
        case inspect.BoolType():
            return Flag()
        case inspect.StrType():
            return Text()
        case inspect.ListType(item_type=item):
            item, nullable = _without_none(item)
            return ListOf(_shape(name, item), nullable=nullable)
        case inspect.DictType(value_type=inspect.AnyType()):
            return Json()
        case inspect.DictType(value_type=value):
            return MapOf(_shape(name, value))
        case inspect.StructType(fields=fields):
            return Record({field.name: _shape(field.name, field.type) for field in fields})
        case _:
            raise TypeError(f"{name}: no column can hold {type_}")


def _without_none(type_: inspect.Type) -> tuple[inspect.Type, bool]:
    """The type behind ``| None``, and whether there was one."""
    if isinstance(type_, inspect.UnionType):
        (other,) = (each for each in type_.types if not isinstance(each, inspect.NoneType))
        return other, True
    return type_, False
