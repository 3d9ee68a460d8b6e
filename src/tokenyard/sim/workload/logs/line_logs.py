"""Logs with one request a line: JSON objects, or the rows of a CSV file.

What the fields are called is looked up among the names that services use (OpenAI's usage objects, BurstGPT's and other
public traces' columns), or named by the user: ``LogOptions.columns``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from tokenyard.errors import WorkloadError, shown
from tokenyard.sim.workload.logs.logged import BadLines, LoggedRequest, LogOptions
from tokenyard.sim.workload.logs.records import request_from
from tokenyard.sim.workload.readers.lines import first_line, numbered_lines
from tokenyard.sim.workload.readers.messages import describe_bad_json

__all__ = ["cells_of", "read_csv_log", "read_json_log"]


def read_json_log(path: Path, options: LogOptions, bad: BadLines) -> Iterator[LoggedRequest]:
    """A JSON object per line, for example OpenAI responses with their ``usage``."""
    for number, line in numbered_lines(path):
        try:
            record = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            bad.add(number, describe_bad_json(error))
            continue
        yield from _one(record, number, options, bad)


def read_csv_log(path: Path, options: LogOptions, bad: BadLines) -> Iterator[LoggedRequest]:
    """CSV with a header; column names are compared without regard to case."""
    at, header = first_line(path)
    try:
        names = [name.strip().lower() for name in cells_of(header)]
    except ValueError as error:
        raise WorkloadError(path, at, f"the header is no CSV: {error}") from None
    missing = [column for column in options.columns.values() if column.lower() not in names]
    if missing:
        raise WorkloadError(path, at, f"the header has no column {shown(missing[0])}; it has {', '.join(names)}")
    lowered = {field: column.lower() for field, column in options.columns.items()}
    options = LogOptions(
        columns=lowered, time_unit=options.time_unit, stamped=options.stamped, max_bad_lines=options.max_bad_lines
    )
    for number, line in numbered_lines(path):
        if number == at:
            continue
        try:
            cells = [cell.strip() for cell in cells_of(line)]
        except ValueError as error:
            bad.add(number, f"is no CSV: {error}")
            continue
        if len(cells) != len(names):
            bad.add(number, f"has {len(cells)} columns, the header has {len(names)}")
            continue
        yield from _one(dict(zip(names, cells, strict=True)), number, options, bad)


def cells_of(line: bytes) -> list[str]:
    """The cells of a line of CSV; ValueError if it is none."""
    try:
        return next(csv.reader([line.decode()]), [])
    except csv.Error as error:
        raise ValueError(str(error)) from None


def _one(record: object, number: int, options: LogOptions, bad: BadLines) -> Iterator[LoggedRequest]:
    if not isinstance(record, Mapping):
        bad.add(number, f"holds {shown(record)}, not an object with fields")
        return
    try:
        logged = request_from(record, options)
    except ValueError as error:
        bad.add(number, str(error))
        return
    yield logged
