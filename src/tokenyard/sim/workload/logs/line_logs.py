"""Logs with a record per request: JSON objects, one a line or in a list, or the rows of a CSV file.

What the fields are called is looked up among the names that services use, or named by the user: ``LogOptions.columns``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tokenyard.errors import WorkloadError, shown
from tokenyard.sim.workload.logs.fields import request_from
from tokenyard.sim.workload.logs.logged import LoggedRequest, Reading, TimeUnit
from tokenyard.sim.workload.logs.names import normal
from tokenyard.sim.workload.logs.source import Source, lists_in
from tokenyard.sim.workload.logs.view import View, payload_of

__all__ = [
    "best_list",
    "first_row",
    "header_of",
    "read_csv_log",
    "read_envoy",
    "read_json_log",
    "read_ollama",
    "records_in",
]

_MARKS = ",;\t|"
"""What stands between the cells of CSV."""
_MOST_LINES = 1000
"""Lines of one row: a quote that never ends would take the rest of the file."""
_LARGEST_CELL = 1 << 24
_LOOKED_AT = 16
"""Records that tell which list of a document is about requests."""


def read_json_log(source: Source, reading: Reading, default: TimeUnit | None = None) -> Iterator[LoggedRequest]:
    """JSON objects, for example OpenAI responses with their ``usage``; ``default``: unit of durations."""
    for number, record in records_in(source, reading):
        yield from _one(record, number, reading, default)


def read_envoy(source: Source, reading: Reading) -> Iterator[LoggedRequest]:
    """Envoy's access log, whose durations are milliseconds."""
    return read_json_log(source, reading, TimeUnit.MILLISECONDS)


def read_ollama(source: Source, reading: Reading) -> Iterator[LoggedRequest]:
    """Ollama's answers, whose durations are nanoseconds; ``created_at`` is when the last part of one was made."""
    for number, record in records_in(source, reading):
        ended = {"end_time" if key == "created_at" else key: value for key, value in record.items()}
        yield from _one(ended, number, reading, TimeUnit.NANOSECONDS)


def records_in(source: Source, reading: Reading) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The objects that requests are told from: of a document the list that says lengths, freed of its collector's."""
    if source.is_json_lines:
        for number, record in source.records(reading.bad):
            lines = [record] if View(record).has_a_length else best_list(record) or [record]
            yield from ((number, payload_of(each)) for each in lines)
        return
    document = source.require_document()
    found = best_list(document)
    for number, record in enumerate(found if found is not None else [document], 1):
        if isinstance(record, Mapping):
            yield number, payload_of(record)
        else:
            reading.bad(number, f"holds {shown(record)}, not an object with fields")


def best_list(document: object) -> list[Any] | None:
    """The list of objects of a document of which most say lengths, or the longest one; None if it has none."""
    lists = [_rows(each) for each in lists_in(document)]

    def told(records: list[Any]) -> tuple[int, int]:
        some = [each for each in records[:_LOOKED_AT] if isinstance(each, Mapping)]
        return sum(View(payload_of(each)).has_a_length for each in some), len(records)

    return max(lists, key=told, default=None)


def _rows(records: list[Any]) -> list[Any]:
    """Records as objects: rows that are lists of {field, value}, and streams of [time, line], as queries answer."""
    rows: list[Any] = []
    for each in records:
        if isinstance(each, list):
            rows.append({str(cell.get("field")): cell.get("value") for cell in each if isinstance(cell, Mapping)})
        elif isinstance(each, Mapping) and isinstance(each.get("values"), list) and "stream" in each:
            lines = (line for line in each["values"] if isinstance(line, list) and len(line) > 1)
            rows += ({"time": line[0], "line": line[1]} for line in lines)
        else:
            rows.append(each)
    return rows


def header_of(line: bytes) -> tuple[str, list[str]]:
    """What stands between the cells of a CSV's first line, and the cells; ValueError if it is none."""
    text = line.decode("utf-8", "replace")
    try:
        cells = {mark: next(csv.reader([text], delimiter=mark), []) for mark in _MARKS}
    except csv.Error as error:
        raise ValueError(str(error)) from None
    mark = max(_MARKS, key=lambda each: len(cells[each]))
    return mark, [cell.strip() for cell in cells[mark]]


def read_csv_log(source: Source, reading: Reading) -> Iterator[LoggedRequest]:
    """CSV with a header; what stands between cells (a comma, a semicolon, a tab, a bar) is told by it."""
    at = source.first_number
    try:
        mark, names = header_of(source.first)
    except ValueError as error:
        raise WorkloadError(source.path, at, f"the header is no CSV: {error}") from None
    known = {normal(name) for name in names}
    missing = [column for column in reading.options.columns.values() if normal(column) not in known]
    if missing:
        raise WorkloadError(source.path, at, f"the header has no column {shown(missing[0])}; it has {', '.join(names)}")
    for number, cells in _cells(source, mark, reading):
        if cells is None or number <= at:
            continue
        if len(cells) != len(names):
            reading.bad(number, f"has {len(cells)} columns, the header has {len(names)}")
            continue
        yield from _one(_row(names, cells, mark), number, reading)


def _row(names: list[str], cells: list[str], mark: str) -> Mapping[str, Any]:
    """A row under its names, with what a cell of JSON says."""
    values = [_decimal(cell.strip()) if mark == ";" else cell.strip() for cell in cells]
    row = dict(zip(names, values, strict=True))
    return payload_of(row) if any(value[:1] == "{" for value in values) else row


def first_row(source: Source) -> Mapping[str, Any]:
    """The first row of CSV that has as many cells as the header; nothing if there is none."""
    try:
        mark, names = header_of(source.first)
    except ValueError:
        return {}
    lines = (line.decode("utf-8", "replace") + "\n" for line in source.beginning[1:])
    rows = csv.reader(lines, delimiter=mark)
    try:
        return next((_row(names, cells, mark) for cells in rows if len(cells) == len(names)), {})
    except csv.Error:
        return {}


def _decimal(cell: str) -> str:
    """Where semicolons stand between cells, commas stand in numbers."""
    whole, comma, rest = cell.partition(",")
    return f"{whole}.{rest}" if comma and whole.lstrip("-").isdecimal() and rest.isdecimal() else cell


def _cells(source: Source, mark: str, reading: Reading) -> Iterator[tuple[int, list[str] | None]]:
    """``(line it begins in, cells)`` of each row, which may go over several lines within quotes."""
    csv.field_size_limit(_LARGEST_CELL)
    began = 0

    def texts(lines: Iterable[tuple[int, bytes]]) -> Iterator[str]:
        nonlocal began
        for number, line in lines:
            began = began or number
            if number - began > _MOST_LINES:
                problem = f"a quote that is opened in this row is not closed within {_MOST_LINES:,} lines"
                raise WorkloadError(source.path, began, problem)
            yield line.decode("utf-8", "replace") + "\n"

    rows = csv.reader(texts(source.lines()), delimiter=mark)
    while True:
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            reading.bad(began, f"is no CSV: {error}")
            cells = None
        yield began, cells
        began = 0


def _one(
    record: Mapping[str, Any], number: int, reading: Reading, default: TimeUnit | None = None
) -> Iterator[LoggedRequest]:
    try:
        logged = request_from(record, reading, default)
    except ValueError as error:
        reading.bad(number, str(error))
        return
    if logged is not None:
        yield logged
