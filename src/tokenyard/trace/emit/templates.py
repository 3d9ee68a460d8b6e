"""Records as templates, for the three records that every step writes.

A template is the encoding of a schema record with gaps where values will stand: names and order of the fields come from
the schema alone. Filling in the templates of many steps together costs a fraction of making and encoding their records.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["GAP", "LATER", "NUMBER", "filled", "merge_gaps", "more_fields", "template_of"]

_GAP = b"\0"
_NUMBER = b"\1"
_LATER = b"\2"
NUMBER: Any = msgspec.Raw(_NUMBER)
"""In a record's field: a number goes here."""
GAP: Any = msgspec.Raw(_GAP)
"""A piece of JSON goes here."""
LATER: Any = msgspec.Raw(_LATER)
"""Something that ``filled`` puts into the template itself, because it seldom changes."""


def template_of(record: msgspec.Struct) -> bytes:
    """The encoding of ``record`` without its closing brace, as ``Lines`` wants it."""
    return msgspec.json.encode(record)[:-1].replace(b"%", b"%%").replace(_NUMBER, b"%b")


def filled(template: bytes, *values: int) -> bytes:
    """``template`` with these numbers where it said ``LATER``."""
    for value in values:
        template = template.replace(_LATER, b"%d" % value, 1)
    return template


def merge_gaps(template: bytes, count: int) -> tuple[bytes, list[bytes]]:
    """``template`` with one gap in place of its first ``count``, and what stood between these: names of fields."""
    first, *rest = template.split(_GAP)
    return _GAP.join((first, *rest[count - 1 :])), rest[: count - 1]


def more_fields(**fields: int | None) -> bytes:
    """What to put behind a template: the fields that are not None, the closing brace and the line's end."""
    given = {name: value for name, value in fields.items() if value is not None}
    return b"," + msgspec.json.encode(given)[1:] + b"\n" if given else b"}\n"
