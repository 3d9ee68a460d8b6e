"""What a file may ask for before it is refused, and the environment variable that raises each bound.

A file must never cost more than its size warrants: a few kilobytes of compressed data can stand for gigabytes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields

from tokenyard.errors import ConfigError, FileError

__all__ = ["MIB", "Bounds"]

MIB = 1 << 20
_MOST = 1 << 40
_MOST_NESTING = 400
"""Beyond it Python's own stack ends."""
_FREE_RATIO = 250
"""A file may unpack to so many times its size, whatever the bound: traces reach some fifty times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The largest of each that is read. :meth:`from_env` reads the variables that raise (or lower) them.

    An object in memory takes some 25 times the room of its JSON, so the defaults keep a command below 1 GB.
    """

    line_mb: int = 16
    """MiB of one line, unpacked. ``TOKENYARD_MAX_LINE_MB``."""
    row_group_mb: int = 512
    """MiB of a Parquet row group, unpacked, as its footer and its pages tell. ``TOKENYARD_MAX_ROW_GROUP_MB``."""
    column_mb: int = 256
    """MiB of a column in a row group, unpacked, as its footer and its pages tell. ``TOKENYARD_MAX_COLUMN_MB``."""
    footer_mb: int = 4
    """MiB of a Parquet file's footer. ``TOKENYARD_MAX_FOOTER_MB``."""
    nesting: int = 100
    """Depth of lists and objects in a line of JSON. ``TOKENYARD_MAX_NESTING``."""
    unpacked_mb: int = 4
    """MiB that a compressed file may hold beyond 250 times its size. ``TOKENYARD_MAX_UNPACKED_MB``."""

    @classmethod
    def from_env(cls) -> Bounds:
        """The defaults, with what the environment names. Raises ConfigError for what is no whole number above 0."""
        given = {field.name: _from_env(field.name) for field in fields(cls)}
        return cls(**{name: value for name, value in given.items() if value is not None})

    @property
    def line_bytes(self) -> int:
        return self.line_mb * MIB

    @property
    def row_group_bytes(self) -> int:
        return self.row_group_mb * MIB

    @property
    def column_bytes(self) -> int:
        return self.column_mb * MIB

    @property
    def footer_bytes(self) -> int:
        return self.footer_mb * MIB

    def unpacked_bytes(self, packed_bytes: int) -> int:
        """Bytes that a compressed file of ``packed_bytes`` may hold."""
        return max(self.unpacked_mb * MIB, _FREE_RATIO * packed_bytes)

    def too_much(self, path: object) -> FileError:
        """The error for a file that holds more than :meth:`unpacked_bytes`."""
        return self.exceeded(path, f"it unpacks to more than {_FREE_RATIO} times its size, and to more", "unpacked_mb")

    def exceeded(self, path: object, what: str, bound: str) -> FileError:
        """The error for a file with something larger than ``bound``, the name of a field."""
        value, unit = getattr(self, bound), " MiB" if bound.endswith("_mb") else " levels"
        return FileError(path, f"{what} than {value}{unit}: if you trust it, set {_variable(bound)} higher")


def _variable(bound: str) -> str:
    return f"TOKENYARD_MAX_{bound.upper()}"


def _from_env(bound: str) -> int | None:
    text = os.environ.get(_variable(bound))
    if not text:
        return None
    most = _MOST_NESTING if bound == "nesting" else _MOST // MIB
    value = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    if not 1 <= value <= most:
        raise ConfigError(_variable(bound), text, f"give a whole number from 1 to {most}")
    return value
