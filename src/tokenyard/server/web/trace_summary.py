"""What a trace says about itself in its first and last lines, without reading what lies between."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import msgspec

from tokenyard.errors import TokenyardError
from tokenyard.files.opening import open_input
from tokenyard.trace.columnar.reading import columnar_reader
from tokenyard.trace.format.schema import StepSnapshot, TraceStart
from tokenyard.trace.read.files import is_columnar, open_packed
from tokenyard.trace.read.line_decoder import ReadNotes, StepDecoder
from tokenyard.trace.read.partial import is_at_step_limit

__all__ = ["TraceFacts", "facts_of_file"]

_LINES = 200
"""A snapshot comes within so many lines, arrivals before the first step aside."""
_LONGEST = 1 << 20
"""Of a longer line only the beginning is read, which is no record then."""
_TAIL = 1 << 20


class TraceFacts(msgspec.Struct, kw_only=True):
    """None where the trace does not tell."""

    policy: str | None = None
    host: str | None = None
    model: str | None = None
    gpu: str | None = None
    total_blocks: int | None = None
    cpu_total_blocks: int | None = None
    block_size: int | None = None
    bytes_per_block: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    first_step: int | None = None
    last_step: int | None = None
    partial: bool | None = None
    """Its end shows that the run went on after it; None as well where only the whole file would tell."""


def facts_of_file(path: Path) -> TraceFacts:
    """The facts of a steps file; none at all if it cannot be read."""
    facts = TraceFacts()
    with suppress(TokenyardError, OSError, EOFError, zlib.error):
        if is_columnar(path):
            return _facts_of_footer(path)
        decoder = StepDecoder(path.name, ReadNotes(), keep_unknown=False)
        start = None
        for number, line in enumerate(islice(_first_lines(path), _LINES), start=1):
            record, _ = decoder.decode(number, line) or (None, None)
            if isinstance(record, TraceStart):
                start = record
                _take_start(facts, record)
            elif isinstance(record, StepSnapshot):
                _take_snapshot(facts, record)
                break
        # Only of a plain file the end can be had without reading all of it.
        if path.suffix == ".jsonl":
            _take_end(facts, start, *_last_lines(path))
    return facts


def _facts_of_footer(path: Path) -> TraceFacts:
    """A Parquet trace is not decoded for a list."""
    with columnar_reader(path) as reader:
        bounds = reader.step_bounds()
        last = bounds[1] if bounds else None
        return TraceFacts(**msgspec.structs.asdict(reader.facts()), last_step=last)


def _first_lines(path: Path) -> Iterator[bytes]:
    with open_packed(path) as file:
        yield from iter(lambda: file.readline(_LONGEST), b"")


def _take_start(facts: TraceFacts, start: TraceStart) -> None:
    facts.policy, facts.host, facts.model, facts.gpu = start.policy, start.host, start.model, start.gpu
    facts.block_size, facts.bytes_per_block = start.block_size, start.bytes_per_block


def _take_snapshot(facts: TraceFacts, snapshot: StepSnapshot) -> None:
    facts.policy = snapshot.policy or facts.policy
    facts.total_blocks, facts.cpu_total_blocks = snapshot.total_blocks, snapshot.cpu_total_blocks
    facts.max_num_seqs = snapshot.max_num_running_reqs
    facts.max_num_batched_tokens = snapshot.max_num_scheduled_tokens
    facts.first_step = snapshot.step


def _take_end(facts: TraceFacts, start: TraceStart | None, lines: Iterator[bytes], rest: bytes) -> None:
    """The last step, and whether the run went on after it, as far as the end alone tells (``trace.read.partial``)."""
    arrived = finished = 0
    unfinished = None
    for line in lines:
        with suppress(ValueError, RecursionError):
            record = msgspec.json.decode(line, type=_AtEnd)
            if facts.last_step is None:
                facts.last_step = record.step
            arrived += record.event == "request_arrived"
            finished += record.event == "request_finished"
            if record.event == "step_snapshot":
                if record.num_running is not None and record.num_waiting is not None:
                    unfinished = record.num_running + record.num_waiting + arrived - finished
                break
    if start is not None:
        at_limit = is_at_step_limit(start, facts.first_step, facts.last_step)
        facts.partial = at_limit or _is_cut_off(rest) or (None if unfinished is None else unfinished > 0)


class _AtEnd(msgspec.Struct):
    step: int | None = None
    event: str | None = None
    num_running: int | None = None
    num_waiting: int | None = None


def _is_cut_off(rest: bytes) -> bool:
    """What follows the last line feed is the beginning of a record."""
    try:
        msgspec.json.decode(rest or b"0")
    except (ValueError, RecursionError):
        return True
    return False


def _last_lines(path: Path) -> tuple[Iterator[bytes], bytes]:
    """Whole lines from the end of a file backwards, as far as a bound, and what follows the last line feed."""
    with open_input(path) as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _TAIL))
        lines = file.read(_TAIL).split(b"\n")
    whole = lines[:-1] if size <= _TAIL else lines[1:-1]
    return reversed(whole), lines[-1]
