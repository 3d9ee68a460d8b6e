"""Numbers on the command line: what is no number is refused in words for users, not for programmers."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import NoneType
from typing import Any, get_args

from tyro.constructors import PrimitiveConstructorSpec, PrimitiveTypeInfo

from tokenyard.errors import shown

__all__ = ["number_rule"]

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
"""More digits than any count or seed has."""


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{shown(text)} is not a whole number of at most 18 digits")
    return int(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{shown(text)} is not a number") from None


_READERS: dict[type, tuple[str, Callable[[str], Any]]] = {int: ("INT", _whole), float: ("FLOAT", _number)}


def number_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """How tyro reads whole numbers and numbers, also where they may be left out."""
    kinds = [each for each in get_args(info.type) or (info.type,) if each is not NoneType]
    if len(kinds) != 1 or kinds[0] not in _READERS:
        return None
    kind: type = kinds[0]
    metavar, read = _READERS[kind]
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda texts: read(texts[0]),
        is_instance=lambda value: value is None or isinstance(value, kind),
        str_from_instance=lambda value: [str(value)],
    )
