"""Reads a trace step by step: the pair of files or either one, plain or gzipped, of this or of another emitter.

Memory holds a few steps at a time, whatever the size of the files. Nothing in a file is fatal: what cannot be used is
counted in ``notes``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from tokenyard.errors import TraceError
from tokenyard.files.lines import DamagedFileError
from tokenyard.trace.format.schema import RequestRecord, TraceStart
from tokenyard.trace.read.files import TraceFiles, find_trace, open_lines
from tokenyard.trace.read.line_decoder import ReadNotes, RequestDecoder, StepDecoder
from tokenyard.trace.read.step_joiner import Step, StepJoiner

__all__ = ["ReadNotes", "Step", "TraceFiles", "TraceReader"]

_RequestLine = tuple[RequestRecord, dict[str, Any]]


class TraceReader:
    """One pass over a trace.

    ``requests=False`` leaves the requests file alone; ``keep_unknown`` keeps fields that the schema does not know, at a
    third of the speed. Raises TraceError if there is no trace at ``path``.
    """

    def __init__(self, path: Path | str | TraceFiles, *, requests: bool = True, keep_unknown: bool = False) -> None:
        files = path if isinstance(path, TraceFiles) else find_trace(path)
        if not requests and files.steps is not None:
            files = TraceFiles(files.steps, None)
        self.files = files
        self.notes = ReadNotes()
        self._keep_unknown = keep_unknown
        self._joiner = StepJoiner(self.notes)

    @property
    def start(self) -> TraceStart | None:
        """The ``trace_start`` record; known, if there is one, when the first step has been read."""
        return self._joiner.start

    def steps(self) -> Iterator[Step]:
        """All steps in file order. Raises TraceError at the end if there was none."""
        found = False
        for step in self._from_pair() if self.files.steps is not None else self._from_requests():
            found = True
            yield step
        if not found:
            raise TraceError(f"{self.files.source}: holds no step ({self._unusable()})")

    def _unusable(self) -> str:
        notes = self.notes
        if notes.first_bad_lines:
            first = notes.first_bad_lines[0]
            return f"{notes.bad_lines} bad lines, the first is line {first.line}: {first.problem}"
        return "it is empty" if not notes.unknown_events else f"only unknown events: {', '.join(notes.unknown_events)}"

    def _from_pair(self) -> Iterator[Step]:
        requests = _RequestsByStep(self._request_lines(), self.notes) if self.files.requests is not None else None
        for step in self._joined():
            if requests is not None:
                self._attach(step, requests.of(step.number))
            yield step
        if requests is not None:
            requests.skip_rest()

    def _joined(self) -> Iterator[Step]:
        path = self.files.steps
        assert path is not None
        decoder = StepDecoder(path.name, self.notes, keep_unknown=self._keep_unknown)
        for number, line in self._lines(path):
            decoded = decoder.decode(number, line)
            if decoded is not None:
                yield from self._joiner.add(*decoded)
        yield from self._joiner.rest()

    def _from_requests(self) -> Iterator[Step]:
        """Steps as far as the requests file alone shows them: queues without decisions."""
        for number, lines in groupby(self._request_lines(), lambda line: line[0].step):
            step = Step(number)
            self._attach(step, list(lines))
            yield step

    def _attach(self, step: Step, lines: list[_RequestLine]) -> None:
        step.requests = [record for record, _ in lines]
        if self._keep_unknown:
            step.request_unknown = [unknown for _, unknown in lines]

    def _request_lines(self) -> Iterator[_RequestLine]:
        path = self.files.requests
        assert path is not None
        decoder = RequestDecoder(path.name, self.notes, keep_unknown=self._keep_unknown)
        for number, line in self._lines(path):
            decoded = decoder.decode(number, line)
            if decoded is not None:
                self.notes.request_records += 1
                yield decoded

    def _lines(self, path: Path) -> Iterator[tuple[int, bytes]]:
        number = 0
        try:
            for number, line in open_lines(path):
                bad_before = self.notes.bad_lines
                yield number, line
                self.notes.cut_off |= not line.endswith(b"\n") and self.notes.bad_lines > bad_before
        except DamagedFileError as error:
            self.notes.cut_off = True
            self.notes.bad(path.name, number + 1, error.problem)


class _RequestsByStep:
    """Walks the requests file alongside the steps; both are in the order of steps."""

    def __init__(self, lines: Iterator[_RequestLine], notes: ReadNotes) -> None:
        self._lines = lines
        self._notes = notes
        self._next = next(lines, None)

    def of(self, number: int) -> list[_RequestLine]:
        """The records of step ``number``; records of steps before it are passed over."""
        taken: list[_RequestLine] = []
        while self._next is not None and self._next[0].step <= number:
            if self._next[0].step == number:
                taken.append(self._next)
            else:
                self._notes.unmatched_request_records += 1
            self._next = next(self._lines, None)
        return taken

    def skip_rest(self) -> None:
        """Count what belongs to no step."""
        while self._next is not None:
            self._notes.unmatched_request_records += 1
            self._next = next(self._lines, None)
