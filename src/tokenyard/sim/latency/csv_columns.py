"""Columns of a CSV table of timings, plain or gzipped."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from pathlib import Path

from tokenyard.errors import ConfigError

__all__ = ["find_table", "numbers", "read_columns"]

_GZIP_MAGIC = b"\x1f\x8b"


def find_table(folder: Path, name: str) -> Path | None:
    """``folder/name.csv`` or ``folder/name.csv.gz``, whichever exists."""
    for suffix in (".csv", ".csv.gz"):
        path = folder / (name + suffix)
        if path.is_file():
            return path
    return None


def read_columns(path: Path, *columns: str) -> list[tuple[str, ...]]:
    """The named columns of every row. Raises ConfigError naming file and line."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data.startswith(_GZIP_MAGIC) else data).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ConfigError("latency", str(path), f"cannot be read: {error}") from None
    rows = csv.reader(io.StringIO(text))
    header = next(rows, [])
    missing = [name for name in columns if name not in header]
    if missing:
        raise ConfigError("latency", str(path), f"has no column {missing[0]!r}")
    at = [header.index(name) for name in columns]
    found = []
    for row in rows:
        if len(row) != len(header):
            raise ConfigError("latency", f"{path}:{rows.line_num}", f"has {len(row)} columns, not {len(header)}")
        found.append(tuple([row[i] for i in at]))
    if not found:
        raise ConfigError("latency", str(path), "holds no rows")
    return found


def numbers(path: Path, row: tuple[str, ...]) -> tuple[float, ...]:
    """All cells of a row as numbers that are not negative."""
    try:
        values = tuple(map(float, row))
    except ValueError:
        values = (-1.0,)
    if not all(0 <= value < float("inf") for value in values):
        raise ConfigError("latency", f"{path}: {','.join(row)}", "give numbers that are not negative")
    return values
