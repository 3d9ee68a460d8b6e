"""Columns of a CSV table of timings, plain or gzipped."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from tokenyard.errors import ConfigError, FileError
from tokenyard.files.lines import read_unpacked

__all__ = ["find_table", "numbers", "read_columns"]

_LARGEST = 1e12
"""Beyond it a sum of times no longer resolves a step."""
_MOST_BYTES = 64 << 20
"""Unpacked; the largest tables that are known hold some ten megabytes."""


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
        text = read_unpacked(path, _MOST_BYTES).decode("utf-8-sig")
    except FileError as error:
        raise ConfigError("latency", str(path), error.problem) from None
    except UnicodeDecodeError as error:
        raise ConfigError("latency", str(path), f"is not UTF-8 text: {error.reason}") from None
    header, *rows = _rows(path, text) or [[]]
    missing = [name for name in columns if name not in header]
    if missing:
        raise ConfigError("latency", str(path), f"has no column {missing[0]!r}")
    at = [header.index(name) for name in columns]
    if not rows:
        raise ConfigError("latency", str(path), "holds no rows")
    return [tuple([row[i] for i in at]) for row in rows]


def _rows(path: Path, text: str) -> list[list[str]]:
    """The header and the rows, all of its length; blank lines are none."""
    reader = csv.reader(io.StringIO(text))
    rows: list[list[str]] = []
    try:
        for row in reader:
            if row and rows and len(row) != len(rows[0]):
                fix = f"has {len(row)} columns, not {len(rows[0])}"
                raise ConfigError("latency", f"{path}:{reader.line_num}", fix)
            if row:
                rows.append(row)
    except csv.Error as error:
        raise ConfigError("latency", f"{path}:{reader.line_num}", f"is no CSV: {error}") from None
    return rows


def numbers(path: Path, row: tuple[str, ...], *, positive: bool = False) -> tuple[float, ...]:
    """All cells of a row as numbers that are not negative, or even above 0."""
    try:
        values = tuple(map(float, row))
    except ValueError:
        values = (-1.0,)
    if not all(0 <= value <= _LARGEST for value in values) or (positive and not all(values)):
        low = "above 0" if positive else "from 0"
        raise ConfigError("latency", f"{path}: {','.join(row)}", f"give numbers {low} to {_LARGEST:g}")
    return values
