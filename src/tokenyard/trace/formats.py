"""Records as byte formats, for the three records that every step writes.

A format is the encoding of a schema record that holds a conversion such as ``%d`` where a value will stand: names and
order of the fields come from the schema alone. Filling one in costs a third of making and encoding a record.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["DECIMAL", "FLOAT", "HOLE", "TEXT", "format_of", "more_fields"]

_NUL = b"\0"
DECIMAL: Any = msgspec.Raw(b"%d")
"""In a record's field: a whole number goes here."""
FLOAT: Any = msgspec.Raw(b"%a")
"""A float goes here."""
TEXT: Any = msgspec.Raw(b"%b")
"""A short piece of JSON goes here."""
HOLE: Any = msgspec.Raw(_NUL)
"""A long piece of JSON goes here: the format is cut in two at this place."""


def format_of(record: msgspec.Struct) -> list[bytes]:
    """The encoding of ``record`` without its closing brace, cut at its holes. Its texts must hold no ``%``."""
    return msgspec.json.encode(record)[:-1].split(_NUL)


def more_fields(**fields: int | None) -> bytes:
    """What to put behind a format: the fields that are not None, and the closing brace."""
    given = {name: value for name, value in fields.items() if value is not None}
    return b"," + msgspec.json.encode(given)[1:] + b"\n" if given else b"}\n"
