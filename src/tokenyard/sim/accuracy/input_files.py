"""Files of measurements, opened and bounded as every input is."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenyard.errors import FileError, WorkloadError
from tokenyard.files.bounds import Bounds
from tokenyard.files.lines import bounded_lines, read_unpacked
from tokenyard.files.nesting import is_nested_deeper

__all__ = ["json_object", "json_rows", "table_rows"]

_MOST_BYTES = 256 << 20
"""Unpacked; results with the times of every token hold some hundred bytes per token."""


def json_object(path: Path) -> Mapping[str, Any]:
    """The JSON object that a file holds. Raises WorkloadError."""
    found = _decoded(_whole(path), path, 1)
    if not isinstance(found, dict):
        raise WorkloadError(str(path), 1, "is no JSON object")
    return found


def json_rows(path: Path) -> Iterator[tuple[int, object]]:
    """Numbers and values of the lines that are not blank. Raises WorkloadError."""
    try:
        for number, line in enumerate(bounded_lines(path), 1):
            if line.strip():
                yield number, _decoded(line, path, number)
    except FileError as error:
        raise _unreadable(path, error) from None


def table_rows(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Column names and rows of a CSV, plain or gzipped. Raises WorkloadError."""
    try:
        text = _whole(path).decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""))
        return list(reader.fieldnames or ()), list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise WorkloadError(str(path), 0, f"cannot be read: {error}") from None


def _whole(path: Path) -> bytes:
    try:
        return read_unpacked(path, _MOST_BYTES)
    except FileError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: FileError) -> WorkloadError:
    return WorkloadError(str(path), 0, error.problem)


def _decoded(data: bytes, path: Path, line: int) -> object:
    bounds = Bounds.from_env()
    if is_nested_deeper(data, bounds.nesting):
        problem = bounds.exceeded(path, "lists and objects nest deeper", "nesting").problem
        raise WorkloadError(str(path), line, problem)
    try:
        return json.loads(data)
    except ValueError as error:
        raise WorkloadError(str(path), line, f"is no JSON: {error}") from None
