"""From the bytes of a body to a request, or one error that names the field, its value and what to do."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, TypeVar

import msgspec
from starlette.requests import Request

from tokenyard.errors import shown
from tokenyard.files.nesting import has_more_brackets, is_nested_deeper
from tokenyard.server.openai.errors import ApiError, bad_field
from tokenyard.server.openai.fields import IGNORED, WITHOUT_EFFECT
from tokenyard.server.web.body import json_body

__all__ = ["MOST_NESTED", "Decoded", "decoded"]

_Kind = TypeVar("_Kind", bound=msgspec.Struct)

MOST_NESTED = 64
"""Levels of lists and objects in each other."""
_MOST_BRACKETS = 100_000
_LONGEST_NAME = 100
_PROBLEM = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)
_LONE_SURROGATE = re.compile(
    rb"(?<!\\)(?:\\\\)*(\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|[c-fC-F][0-9a-fA-F]{2}))"
)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_PART = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


class Decoded(NamedTuple):
    """A body."""

    request: Any
    ignored: tuple[str, ...]
    """Fields that were there and have no effect."""


async def decoded(request: Request, kind: type[_Kind], most_bytes: int) -> Decoded:
    """The body as ``kind``. Raises ApiError and RefusedError."""
    body = await json_body(request, most_bytes)
    if has_more_brackets(body, _MOST_BRACKETS):
        raise ApiError(400, f"the body has more than {_MOST_BRACKETS} lists and objects")
    if is_nested_deeper(body, MOST_NESTED):
        raise ApiError(400, f"the body nests deeper than {MOST_NESTED} levels")
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(400, _no_json(body, error)) from None
    if not isinstance(fields, dict):
        raise ApiError(400, f"the body = {shown(fields)}: give an object")
    ignored = _without_effect(fields, kind)
    try:
        return Decoded(msgspec.convert(fields, kind), ignored)
    except msgspec.ValidationError as error:
        raise _problem(str(error), fields) from None


def _no_json(body: bytes, error: Exception) -> str:
    lone = _LONE_SURROGATE.search(body)
    if lone is not None and any(word in str(error) for word in ("truncated", "surrogate")):
        return f"the body holds {lone[1].decode()}, a lone surrogate, half of a character: give both halves or none"
    return f"the body is no JSON: {error}"


def _shortened(name: str) -> str:
    """A name of the client's; a long one without its middle."""
    half = _LONGEST_NAME // 2
    return name if len(name) <= _LONGEST_NAME else f"{name[:half]}...{name[-half:]}"


def _without_effect(fields: dict[str, Any], kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Take out what cannot be heeded; ApiError where that would be missed. The names of what is ignored."""
    known = set(kind.__struct_fields__)
    for name in (WITHOUT_EFFECT.keys() - known) & fields.keys():
        value, allowed = fields.pop(name), WITHOUT_EFFECT[name]
        if not any(value == each and type(value) is type(each) for each in allowed):
            raise bad_field(name, value, "this server cannot do that: leave it out", code="unsupported_field")
    ignored = tuple(sorted((IGNORED - known) & fields.keys()))
    for name in ignored:
        del fields[name]
    return ignored


def _problem(text: str, fields: dict[str, Any]) -> ApiError:
    """What msgspec says, with the field and its value."""
    matched = _PROBLEM.fullmatch(text)
    assert matched is not None, "the pattern takes any text"
    what, path = matched["what"], matched["path"] or ""
    if unknown := _UNKNOWN.fullmatch(what):
        name = _shortened(".".join(filter(None, (path, unknown[1]))))
        return ApiError(400, f"{name}: no such field: leave it out", param=name, code="unknown_field")
    if missing := _MISSING.fullmatch(what):
        name = ".".join(filter(None, (path, missing[1])))
        return ApiError(400, f"{name}: is missing, and has to be given", param=name, code="missing_field")
    what = what.replace("`", "")
    return bad_field(_shortened(path), _value_at(fields, path), what[:1].lower() + what[1:])


def _value_at(value: Any, path: str) -> Any:
    for name, index in _PART.findall(path):
        try:
            value = value[int(index)] if index else value[name]
        except (LookupError, TypeError):
            return "..."  # msgspec writes [...] for keys and items that it does not number
    return value
