"""What is wrong with a line of JSON, said as all messages here are: the field, its value, and what to give instead.

msgspec says where a record does not fit and what it met there; the type at that place says what would have fitted.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from tokenyard.errors import shown

__all__ = ["describe_bad_json", "describe_misfit"]

_MESSAGE = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(?P<field>[^.\[]+)|\[(?P<index>\d+)\]")
_MISSING = re.compile(r"Object missing required field `(?P<field>.*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>.*)`")
_MALFORMED = "JSON is malformed: "
_PLAIN: dict[type[inspect.Type], str] = {
    inspect.BoolType: "true or false",
    inspect.StrType: "a text",
    inspect.ListType: "a list",
    inspect.StructType: "a JSON object",
}

_NOWHERE = object()


class _Place(NamedTuple):
    """A place in a record."""

    name: str
    """As users know it, ``requests[0].in``; empty for the whole record."""
    type: inspect.Type | None
    """What belongs there, if that is known."""
    value: object
    """What stands there, or ``_NOWHERE``."""

    def child(self, step: str | int) -> _Place:
        """The place of a field or an element."""
        name = f"{self.name}[{step}]" if isinstance(step, int) else f"{self.name}.{step}".lstrip(".")
        return _Place(name, _child_type(self.type, step), _child_value(self.value, step))

    @property
    def described(self) -> str:
        """Name and value."""
        name = self.name or "the line"
        return name if self.value is _NOWHERE else f"{name} = {shown(self.value)}"


def describe_bad_json(error: Exception) -> str:
    """Why a line cannot be read at all."""
    if isinstance(error, UnicodeDecodeError):
        return f"is not UTF-8 text: {error.reason}"
    if isinstance(error, RecursionError):
        return "is not JSON that can be read: it is nested too deeply"
    return f"is not JSON: {str(error).removeprefix(_MALFORMED)}"


def describe_misfit(error: msgspec.ValidationError, record: type[Any], line: bytes) -> str:
    """Why a line that is JSON is no ``record``."""
    found = _MESSAGE.fullmatch(str(error))
    assert found is not None, "every part of the pattern may be empty"
    what, path = found["what"], found["path"] or ""
    place = _Place("", inspect.type_info(record), _decoded(line))
    for step in _STEP.finditer(path):
        place = place.child(step["field"] or int(step["index"]))
    if missing := _MISSING.fullmatch(what):
        absent = place.child(missing["field"])
        return f"{absent.name} is missing: give {_expected(absent.type)}"
    if unknown := _UNKNOWN.fullmatch(what):
        field = unknown["field"]
        return f"{place.child(field).described}: there is no such field; {_advice(field, place.type)}"
    return f"{place.described}: give {_expected(place.type)}"


def _decoded(line: bytes) -> object:
    """The line as plain values; ``_NOWHERE`` if something in it, which a record may pass over, is none."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _NOWHERE


def _advice(field: str, record: inspect.Type | None) -> str:
    known = [each.encode_name for each in record.fields] if isinstance(record, inspect.StructType) else []
    close = get_close_matches(field, known, 1)
    return f"did you mean {close[0]}?" if close else f"use some of: {', '.join(known)}"


def _child_value(value: object, step: str | int) -> object:
    if isinstance(step, int):
        return value[step] if isinstance(value, list) and step < len(value) else _NOWHERE
    return value.get(step, _NOWHERE) if isinstance(value, dict) else _NOWHERE


def _child_type(type_: inspect.Type | None, step: str | int) -> inspect.Type | None:
    for each in type_.types if isinstance(type_, inspect.UnionType) else (type_,):
        if isinstance(each, inspect.StructType):
            return next((field.type for field in each.fields if field.encode_name == step), None)
        if isinstance(each, inspect.ListType):
            return each.item_type
        if isinstance(each, inspect.TupleType) and isinstance(step, int):
            return each.item_types[step]
    return None


def _expected(type_: inspect.Type | None) -> str:
    """What to give where ``type_`` belongs."""
    if isinstance(type_, inspect.UnionType):
        return " or ".join(_expected(each) for each in type_.types if not isinstance(each, inspect.NoneType))
    if isinstance(type_, inspect.IntType):
        return f"a whole number{_bounds(type_)}"
    if isinstance(type_, inspect.FloatType):
        return f"a number{_bounds(type_)}"
    if isinstance(type_, inspect.LiteralType):
        return " or ".join(map(str, type_.values))
    if isinstance(type_, inspect.TupleType):
        return f"a list of {len(type_.item_types)} elements"
    if isinstance(type_, inspect.StrType) and type_.min_length:
        return "a text that is not empty"
    return "another value" if type_ is None else _PLAIN[type(type_)]


def _bounds(type_: inspect.IntType | inspect.FloatType) -> str:
    if type_.ge is None:
        return ""
    return f" from {_number(type_.ge)}" + ("" if type_.le is None else f" to {_number(type_.le)}")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"
