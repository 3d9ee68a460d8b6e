"""What the footer of a Parquet trace says beside the columns."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tokenyard.trace.columnar.layout import Layout

__all__ = ["VERSION", "Footer"]

VERSION = 1
"""Raised when a reader of the version before would read something wrong."""
_PREFIX = b"tokenyard."


class Footer(msgspec.Struct, kw_only=True):
    """The footer's key-value pairs; of a file that another program wrote, none is known."""

    kind: str | None = None
    """``steps`` or ``requests``."""
    columnar_version: int | None = None
    lines: int | None = None
    """Lines of the JSON file, blank and bad ones included: the rows."""
    bad_lines: int = 0
    final_newline: bool = True
    """The last line ended with a line feed."""
    sha256: str | None = None
    """Of the JSON file, uncompressed."""
    layouts: list[Layout] = []

    def pairs(self) -> dict[bytes, bytes]:
        """As Parquet keeps it: every value is JSON, but for plain texts."""
        fields = msgspec.structs.asdict(self)
        return {_PREFIX + name.encode(): _text(value) for name, value in fields.items()}

    @classmethod
    def of(cls, pairs: Mapping[bytes, bytes] | None) -> Footer:
        """The footer that ``pairs`` hold. Raises ValueError if they were damaged."""
        ours = {key.removeprefix(_PREFIX).decode(): value for key, value in (pairs or {}).items() if _is_ours(key)}
        texts = {name: ours.pop(name).decode() for name in ("kind", "sha256") if name in ours}
        return msgspec.convert({name: msgspec.json.decode(value) for name, value in ours.items()} | texts, cls)


def _is_ours(key: bytes) -> bool:
    return key.startswith(_PREFIX)


def _text(value: object) -> bytes:
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)
