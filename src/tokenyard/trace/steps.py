"""Records to steps: lines decoded forgivingly, joined, and counted."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, TypeVar, cast

import msgspec

from tokenyard.files import Bounds, is_nested_deeper
from tokenyard.trace.facts import (
    CLASSIFIER_BLOCK_SIZE,
    STEADY,
    StepFacts,
    Streams,
    least_need,
    running_consumed,
)
from tokenyard.trace.schema import (
    STEP_EVENTS,
    AdmissionOutcome,
    CacheReset,
    HostEvent,
    PauseChanged,
    PinEnded,
    PrefixCacheLookup,
    RequestArrived,
    RequestFinished,
    RequestRecord,
    StepCompleted,
    StepDecision,
    StepEvent,
    StepSnapshot,
    TraceEnd,
    TraceStart,
)

# ---------------------------------------------------------------------------------------------------------------------
# Lines to records, forgivingly: what a line of another emitter says is kept, what it lacks is None, what is wrong in
# it is left out and counted.
#
# A line in good order is decoded straight into its record. Only a line that does not fit is taken apart field by
# field.

BAD_LINES_KEPT = 20
"""Bad lines that are listed one by one."""
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
    """Request records whose step is not in the steps file, or out of order; left out."""
    clock_back_s: float = 0.0
    """Seconds by which the clock was set back between two steps, added up: times that span it are too short."""

    def bad(self, file: str, line: int, problem: str) -> None:
        """Count a line that cannot be used."""
        self.bad_lines += 1
        if len(self.first_bad_lines) < BAD_LINES_KEPT:
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


# ---------------------------------------------------------------------------------------------------------------------
# Records to steps: everything a trace says about one step, put together while it is read.
#
# Records of a step come close to each other but not always next to each other (a step may complete after the next was
# decided), so the last few steps are kept open.

_STEPS_OPEN = 8


class Step:
    """One step of a trace; what the trace does not say is None or empty."""

    __slots__ = (
        "arrived",
        "arrived_after",
        "completed",
        "decision",
        "finished",
        "host_events",
        "lookups",
        "number",
        "outcome",
        "pins",
        "request_unknown",
        "requests",
        "snapshot",
        "unknown",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.snapshot: StepSnapshot | None = None
        self.decision: StepDecision | None = None
        self.outcome: AdmissionOutcome | None = None
        self.completed: StepCompleted | None = None
        self.lookups: list[PrefixCacheLookup] = []
        """Lookups of this step, and of steps before it that were sampled away."""
        self.arrived: list[RequestArrived] = []
        """Since the step before."""
        self.arrived_after: list[RequestArrived] = []
        """Requests that arrived after the last step of the trace."""
        self.finished: list[RequestFinished] = []
        """Requests that ended before the next step."""
        self.pins: list[PinEnded] = []
        """Pins that ended before the next step."""
        self.host_events: list[HostEvent] = []
        """Events before the next step; before the first one those since the trace began as well."""
        self.requests: list[RequestRecord] = []
        self.unknown: dict[str, dict[str, Any]] = {}
        """Event -> fields the schema does not know, if the reader keeps them."""
        self.request_unknown: list[dict[str, Any]] = []
        """Parallel to ``requests``, if the reader keeps them."""

    @property
    def ts(self) -> float | None:
        """When it began, as far as the trace shows."""
        for record in (self.snapshot, self.decision, *self.requests[:1]):
            if record is not None and record.ts is not None:
                return record.ts
        return None


class StepJoiner:
    """Takes the records of a steps file in order and gives out whole steps in order."""

    def __init__(self, notes: ReadNotes) -> None:
        self.start: TraceStart | None = None
        self.ended_at: float | None = None
        """When the run was ended, with whatever was unfinished."""
        self._notes = notes
        self._open: deque[Step] = deque()
        self._by_number: dict[int, Step] = {}
        self._last_number: int | None = None
        self._clock = -math.inf
        """The moment of the last step given out."""
        self._waiting = Step(-1)
        """Holds records that came before any step they could belong to."""

    def add(self, record: StepEvent, unknown: dict[str, Any]) -> Iterator[Step]:
        """Take one record; gives out steps to which nothing more is expected."""
        if isinstance(record, TraceStart):
            self.start = self.start or record
        elif isinstance(record, TraceEnd):
            self.ended_at = record.ts
        elif isinstance(record, RequestArrived):
            self._waiting.arrived.append(record)
        elif isinstance(record, RequestFinished):
            self._newest().finished.append(record)
        elif isinstance(record, PinEnded):
            self._newest().pins.append(record)
        elif isinstance(record, PauseChanged | CacheReset):
            self._newest().host_events.append(record)
        elif isinstance(record, PrefixCacheLookup):
            self._by_number.get(record.step, self._newest()).lookups.append(record)
        else:
            self._place(record, unknown)
            while len(self._open) > _STEPS_OPEN:
                yield self._close()

    def rest(self) -> Iterator[Step]:
        """The steps still open, at the end of the file."""
        if self._open:
            self._open[-1].arrived_after = self._waiting.arrived
        while self._open:
            yield self._close()

    def _newest(self) -> Step:
        return self._open[-1] if self._open else self._waiting

    def _place(
        self, record: StepSnapshot | StepDecision | AdmissionOutcome | StepCompleted, unknown: dict[str, Any]
    ) -> None:
        step = self._by_number.get(record.step)
        if isinstance(record, StepSnapshot):
            if step is not None and step.snapshot is not None:
                self._notes.duplicate_records += 1
                step = None
            step = step or self._begin(record.step)
            step.snapshot = record
        else:
            if step is None and self._last_number is not None and record.step <= self._last_number:
                self._notes.late_records += 1
                return
            step = step or self._begin(record.step)
            if not _fill(step, record):
                self._notes.duplicate_records += 1
                return
        if unknown:
            step.unknown[str(record.__struct_config__.tag)] = unknown

    def _begin(self, number: int) -> Step:
        step, self._waiting = self._waiting, Step(-1)
        step.number = number
        self._open.append(step)
        self._by_number[number] = step
        self._last_number = number
        return step

    def _close(self) -> Step:
        step = self._open.popleft()
        moment = step.snapshot.ts if step.snapshot is not None else None
        if moment is not None:
            self._notes.clock_back_s += max(self._clock - moment, 0.0)
            self._clock = moment
        if self._by_number.get(step.number) is step:
            del self._by_number[step.number]
        return step


def _fill(step: Step, record: StepDecision | AdmissionOutcome | StepCompleted) -> bool:
    """Put ``record`` in its place; False if the place is taken."""
    if isinstance(record, StepDecision):
        free = step.decision is None
        step.decision = step.decision or record
    elif isinstance(record, AdmissionOutcome):
        free = step.outcome is None
        step.outcome = step.outcome or record
    else:
        free = step.completed is None
        step.completed = step.completed or record
    return free


# ---------------------------------------------------------------------------------------------------------------------
# Facts of a step from its records: the counts of the trace format, and the quantities its classifier derives.

_NO_SNAPSHOT = StepSnapshot(step=-1)
_NO_DECISION = StepDecision(step=-1)


def facts_of(step: Step, block_size: int = CLASSIFIER_BLOCK_SIZE) -> StepFacts:
    """The counts of ``step``; what its records do not tell is None."""
    snapshot, decision = step.snapshot or _NO_SNAPSHOT, step.decision or _NO_DECISION
    waiting_omitted = snapshot.waiting_req_ids_omitted or 0
    running_omitted = snapshot.running_req_ids_omitted or 0
    return StepFacts(
        step=step.number,
        ts=step.ts,
        policy=snapshot.policy or decision.policy,
        free_blocks=snapshot.free_blocks,
        total_blocks=snapshot.total_blocks,
        cpu_free_blocks=snapshot.cpu_free_blocks,
        cpu_total_blocks=snapshot.cpu_total_blocks,
        pinned_blocks=snapshot.pinned_blocks,
        num_pinned=snapshot.num_pinned,
        token_budget=snapshot.max_num_scheduled_tokens,
        max_running=snapshot.max_num_running_reqs,
        num_running=_queue_length(
            snapshot.num_running, snapshot.running_req_ids, running_omitted, step.requests, "running"
        ),
        num_waiting=_queue_length(
            snapshot.num_waiting, snapshot.waiting_req_ids, waiting_omitted, step.requests, "waiting"
        ),
        num_new=_count(decision.scheduled_new_req_ids, decision.scheduled_new_req_ids_omitted),
        num_resumed=_count(decision.scheduled_resumed_req_ids, decision.scheduled_resumed_req_ids_omitted),
        num_preempted=_count(decision.preempted_req_ids, None),
        token_sum=_token_sum(decision),
        running_consumed=_running_consumed(snapshot, decision, block_size),
        min_need=None if waiting_omitted else least_need(_waiting(step.requests), block_size),
        recomputed_tokens=decision.recomputed_tokens,
        outcome=step.outcome,
        omitted_ids=waiting_omitted + running_omitted,
    )


def streams_of(completed: StepCompleted) -> Streams:
    """Return the flows of tokens that a step changed."""
    changed = (completed.first_token_req_ids, completed.paused_req_ids, completed.resumed_req_ids)
    return Streams(*(each or () for each in changed)) if any(changed) else STEADY


def _queue_length(
    count: int | None, ids: list[str] | None, omitted: int, requests: list[RequestRecord], queue: str
) -> int | None:
    if count is not None:
        return count
    if ids is not None:
        return len(ids) + omitted
    return sum(request.queue == queue for request in requests) if requests else None


def _count(ids: list[str] | None, omitted: int | None) -> int | None:
    return None if ids is None else len(ids) + (omitted or 0)


def _incomplete(decision: StepDecision) -> bool:
    """Scheduled requests were left out of the map of tokens."""
    return bool(
        decision.scheduled_running_req_ids_omitted
        or decision.scheduled_new_req_ids_omitted
        or decision.scheduled_resumed_req_ids_omitted
    )


def _token_sum(decision: StepDecision) -> int | None:
    tokens = decision.num_scheduled_tokens
    if tokens is None or _incomplete(decision):
        return decision.total_scheduled_tokens
    return sum(tokens.values())


def _running_consumed(snapshot: StepSnapshot, decision: StepDecision, block_size: int) -> int | None:
    if decision.running_consumed_blocks is not None:
        return decision.running_consumed_blocks
    tokens, running = decision.num_scheduled_tokens, decision.scheduled_running_req_ids
    if running is None:
        running = snapshot.running_req_ids
    if tokens is None or running is None:
        return None
    return running_consumed([tokens.get(request_id, 0) for request_id in running], block_size)


def _waiting(requests: list[RequestRecord]) -> list[RequestRecord]:
    return [request for request in requests if request.queue == "waiting"]
