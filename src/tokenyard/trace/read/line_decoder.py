"""Lines to records, forgivingly: what a line of another emitter says is kept, what it lacks is None, what is wrong in
it is left out and counted.

A line in good order is decoded straight into its record. Only a line that does not fit is taken apart field by field.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar, cast

import msgspec

from tokenyard.files.bounds import Bounds
from tokenyard.files.nesting import is_nested_deeper
from tokenyard.trace.format.schema import STEP_EVENTS, RequestRecord, StepEvent

__all__ = ["BadLine", "ReadNotes", "RequestDecoder", "StepDecoder"]

_BAD_LINES_KEPT = 20
_Record = TypeVar("_Record", bound=msgspec.Struct)
Unknown = dict[str, Any]
"""Fields of a line that the schema does not know."""


class BadLine(msgspec.Struct, frozen=True):
    """A line that could not be used."""

    file: str
    line: int
    problem: str


class ReadNotes(msgspec.Struct):
    """What a reader could not use, so that a report can say so."""

    cut_off: bool = False
    """The last line of a file is cut off, or its packed data end early; counted in ``bad_lines`` as well."""
    bad_lines: int = 0
    first_bad_lines: list[BadLine] = []
    """The first twenty."""
    unknown_events: dict[str, int] = {}
    """Kind -> records of a kind that is not known, all left out."""
    dropped_fields: dict[str, int] = {}
    """``event.field`` -> values of the wrong type, treated as missing."""
    duplicate_records: int = 0
    """A second snapshot (counted as a step of its own) or a second decision (left out) of a step."""
    late_records: int = 0
    """Records whose step was over already; left out."""
    request_records: int = 0
    """Records read from the requests file."""
    unmatched_request_records: int = 0
    """Of these: those whose step is not in the steps file, or out of order; left out."""

    def bad(self, file: str, line: int, problem: str) -> None:
        """Count a line that cannot be used."""
        self.bad_lines += 1
        if len(self.first_bad_lines) < _BAD_LINES_KEPT:
            self.first_bad_lines.append(BadLine(file, line, problem))


class _Lenient:
    """Field-by-field decoding of one file's lines."""

    def __init__(self, file: str, notes: ReadNotes) -> None:
        self.file = file
        self.notes = notes

    def parsed(self, number: int, line: bytes) -> dict[str, Any] | None:
        """The object of a line, or None if it is bad."""
        try:
            value = msgspec.json.decode(line)
        except ValueError as error:
            self.notes.bad(self.file, number, f"not JSON: {error}")
            return None
        if not isinstance(value, dict):
            self.notes.bad(self.file, number, "not a JSON object")
            return None
        return value

    def fitted(
        self, number: int, record: type[_Record], name: str, fields: dict[str, Any]
    ) -> tuple[_Record, Unknown] | None:
        """``fields`` as a record, with the fields it does not know; None if one that it needs is missing or wrong."""
        good: dict[str, Any] = {}
        for field in msgspec.structs.fields(record):
            value = fields.pop(field.name, None)
            if value is not None:
                try:
                    good[field.name] = msgspec.convert(value, field.type, strict=False)
                    continue
                except ValueError:
                    key = f"{name}.{field.name}"
                    self.notes.dropped_fields[key] = self.notes.dropped_fields.get(key, 0) + 1
            if field.required:
                self.notes.bad(self.file, number, f"{name} without a usable {field.name}")
                return None
        return record(**good), fields


class _LineDecoder(ABC, Generic[_Record]):
    """Lines of a file: at once where a line is as it should be, else field by field."""

    def __init__(self, file: str, notes: ReadNotes, kind: object, *, keep_unknown: bool) -> None:
        self._lenient = _Lenient(file, notes)
        self._keep_unknown = keep_unknown
        self._nesting = Bounds.from_env().nesting
        self._decoder: msgspec.json.Decoder[_Record] = msgspec.json.Decoder(cast(type[_Record], kind))

    def decode(self, number: int, line: bytes) -> tuple[_Record, Unknown] | None:
        """The record and, if they are to be kept, its unknown fields; None for a line that is no record."""
        if is_nested_deeper(line, self._nesting):
            self._lenient.notes.bad(self._lenient.file, number, f"nested deeper than {self._nesting} levels")
            return None
        if not self._keep_unknown:
            try:
                return self._decoder.decode(line), {}
            except (ValueError, RecursionError):
                pass  # taken apart below
        fields = self._lenient.parsed(number, line)
        return None if fields is None else self._fitted(number, fields)

    @abstractmethod
    def _fitted(self, number: int, fields: dict[str, Any]) -> tuple[_Record, Unknown] | None:
        """The record that ``fields`` make, and its unknown fields; None if they make none."""


class StepDecoder(_LineDecoder[StepEvent]):
    """Lines of a steps file."""

    def __init__(self, file: str, notes: ReadNotes, *, keep_unknown: bool) -> None:
        super().__init__(file, notes, StepEvent, keep_unknown=keep_unknown)

    def _fitted(self, number: int, fields: dict[str, Any]) -> tuple[StepEvent, Unknown] | None:
        notes, event = self._lenient.notes, fields.pop("event", None)
        if not isinstance(event, str):
            notes.bad(self._lenient.file, number, "no event")
            return None
        if event not in STEP_EVENTS:
            notes.unknown_events[event] = notes.unknown_events.get(event, 0) + 1
            return None
        return self._lenient.fitted(number, STEP_EVENTS[event], event, fields)


class RequestDecoder(_LineDecoder[RequestRecord]):
    """Lines of a requests file."""

    def __init__(self, file: str, notes: ReadNotes, *, keep_unknown: bool) -> None:
        super().__init__(file, notes, RequestRecord, keep_unknown=keep_unknown)

    def _fitted(self, number: int, fields: dict[str, Any]) -> tuple[RequestRecord, Unknown] | None:
        return self._lenient.fitted(number, RequestRecord, "request", fields)
