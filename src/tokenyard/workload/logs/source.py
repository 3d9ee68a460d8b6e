"""What a log's file holds, before it is known what it is: lines of text, lines of JSON, or one JSON document."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from tokenyard.errors import WorkloadError, shown
from tokenyard.files import Bounds, is_nested_deeper
from tokenyard.workload.readers.lines import describe_bad_json, text_lines

BAD_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding JSON raises."""
LINE_TIME = "log_line_time"
"""Under this name a record has the time that stands in front of it, if it says none itself."""
_TIME_IN_FRONT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z| ?[+-]\d\d:?\d\d)?")
_FIRST_LINES = 64
_DEEPEST_LIST = 4
"""Levels at which a document's list of records is looked for."""

Unreadable = Callable[[int, str], None]
"""A function that takes the number of a line and what is wrong with it."""


def decode_json(text: bytes, nesting: int) -> object:
    """A text of JSON as plain values; ``BAD_JSON`` if it is none, or nested deeper than ``nesting``."""
    if is_nested_deeper(text, nesting):
        raise msgspec.DecodeError(f"it is nested deeper than {nesting} levels")
    return msgspec.json.decode(text)


class Source:
    """One file. It is read again each time that its lines are requested, but for a document, which is kept."""

    def __init__(self, path: Path) -> None:
        """Raises WorkloadError if the file cannot be read or holds nothing."""
        self.path = path
        self._nesting = Bounds.from_env().nesting
        first = next(iter(self.lines()), None)
        if first is None:
            raise WorkloadError(path, 0, "is empty")
        self.first_number, self.first = first
        """The first line that is not blank."""

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """``(line number, line)`` of every line that is not blank."""
        return text_lines(self.path)

    @cached_property
    def beginning(self) -> list[bytes]:
        """The first lines."""
        lines = []
        for _, line in self.lines():
            lines.append(line)
            if len(lines) == _FIRST_LINES:
                break
        return lines

    @cached_property
    def is_json(self) -> bool:
        """Whether it is JSON: a document, or a value in most of the first lines."""
        if self.has_prefixes:
            return True
        if self.first.lstrip()[:1] not in (b"{", b"["):
            return False
        return self.is_json_lines or self.document is not None

    @cached_property
    def has_prefixes(self) -> bool:
        """Whether lines are objects behind something else: a container's name, a time, a logger's."""
        if sum(line.lstrip()[:1] == b"{" for line in self.beginning) * 2 >= len(self.beginning):
            return False
        behind = sum(b"{" in line and isinstance(self._tried(_bare(line)[1]), dict) for line in self.beginning)
        return behind * 2 >= len(self.beginning)

    @cached_property
    def is_json_lines(self) -> bool:
        """Whether lines are objects of their own, but for some that are damaged."""
        if self.has_prefixes:
            return True
        whole = sum(isinstance(self._tried(line), dict) for line in self.beginning)
        return whole > 0 and len(self.beginning) <= 2 * whole

    @cached_property
    def document(self) -> object | None:
        """The whole file as JSON; several values, one after the other, become a list. None if it is none."""
        text = b"\n".join(line for _, line in self.lines())
        try:
            return decode_json(text, self._nesting)
        except BAD_JSON as error:
            self._problem = describe_bad_json(error)
        return _values_in(text) if not is_nested_deeper(text, self._nesting) else None

    def require_document(self) -> object:
        """The document. WorkloadError if the file is none."""
        if self.document is None:
            raise WorkloadError(self.path, 0, self._problem)
        return self.document

    def require_json(self) -> None:
        """WorkloadError saying what is wrong with the first line, or with the whole."""
        try:
            decode_json(self.first, self._nesting)
        except BAD_JSON as error:
            raise WorkloadError(self.path, self.first_number, describe_bad_json(error)) from None

    def records(self, unreadable: Unreadable) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """``(line, or place in the list, object)``; what is no object goes to ``unreadable``."""
        for number, value in self._values(unreadable):
            if isinstance(value, Mapping):
                yield number, value
            else:
                unreadable(number, f"holds {shown(value)}, not an object with fields")

    def _values(self, unreadable: Unreadable) -> Iterator[tuple[int, object]]:
        if not self.is_json_lines:
            document = self.require_document()
            yield from enumerate(document if isinstance(document, list) else [document], 1)
            return
        for number, line in self.lines():
            prefix, text = _bare(line) if self.has_prefixes else (b"", line)
            try:
                value = decode_json(text, self._nesting)
            except BAD_JSON as error:
                unreadable(number, describe_bad_json(error))
                continue
            if (
                prefix
                and isinstance(value, dict)
                and (when := _TIME_IN_FRONT.search(prefix.decode("utf-8", "replace")))
            ):
                value.setdefault(LINE_TIME, when[0])
            yield from ((number, each) for each in value) if isinstance(value, list) else [(number, value)]

    def first_records(self) -> list[Mapping[str, Any]]:
        """The first objects of the file, by which its kind is recognised."""
        some: list[Mapping[str, Any]] = []
        for _, record in self.records(lambda _number, _problem: None):
            some.append(record)
            if len(some) == _FIRST_LINES:
                break
        return some

    def _tried(self, line: bytes) -> object | None:
        try:
            return decode_json(line, self._nesting)
        except BAD_JSON:
            return None


def _bare(line: bytes) -> tuple[bytes, bytes]:
    """What stands in front of an object in a line, and the object."""
    at = line.find(b"{")
    return (b"", line) if at < 0 else (line[:at], line[at:])


def _values_in(text: bytes) -> list[object] | None:
    """JSON values one after the other, as ``jq`` prints them; None if it is not that."""
    decoder, values, at = json.JSONDecoder(), [], 0
    try:
        rest = text.decode()
        while at < len(rest):
            value, at = decoder.raw_decode(rest, at)
            values.append(value)
            while at < len(rest) and rest[at] in " \t\r\n,":
                at += 1
    except (ValueError, RecursionError):
        return None
    return values if len(values) > 1 else None


def lists_in(document: object, depth: int = _DEEPEST_LIST) -> Iterator[list[Any]]:
    """The lists of objects in a document, outer ones first."""
    if isinstance(document, list):
        if any(isinstance(each, Mapping) or _is_row(each) for each in document[:_FIRST_LINES]):
            yield document
    elif isinstance(document, Mapping) and depth:
        for value in document.values():
            if isinstance(value, Mapping | list):
                yield from lists_in(value, depth - 1)


def _is_row(value: object) -> bool:
    """Whether it is a row of cells that name their field, as queries of logs answer."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping) and "field" in value[0]
