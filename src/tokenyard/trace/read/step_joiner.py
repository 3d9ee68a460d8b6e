"""Records to steps: everything a trace says about one step, put together while it is read.

Records of a step come close to each other but not always next to each other (a step may complete after the next was
decided), so the last few steps are kept open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from tokenyard.trace.format.schema import (
    AdmissionOutcome,
    CacheReset,
    HostEvent,
    PauseChanged,
    PrefixCacheLookup,
    RequestArrived,
    RequestFinished,
    RequestRecord,
    StepCompleted,
    StepDecision,
    StepEvent,
    StepSnapshot,
    TraceStart,
)
from tokenyard.trace.read.line_decoder import ReadNotes

__all__ = ["Step", "StepJoiner"]

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
        """Of this step, and of steps before it that were sampled away."""
        self.arrived: list[RequestArrived] = []
        """Since the step before."""
        self.arrived_after: list[RequestArrived] = []
        """After the last step of the trace."""
        self.finished: list[RequestFinished] = []
        """Until the next step."""
        self.host_events: list[HostEvent] = []
        """Until the next step; before the first one those since the trace began as well."""
        self.requests: list[RequestRecord] = []
        self.unknown: dict[str, dict[str, Any]] = {}
        """Event -> fields the schema does not know, if the reader keeps them."""
        self.request_unknown: list[dict[str, Any]] = []
        """Parallel to ``requests``, if the reader keeps them."""

    @property
    def ts(self) -> float | None:
        """When it began, as far as the trace tells."""
        for record in (self.snapshot, self.decision, *self.requests[:1]):
            if record is not None and record.ts is not None:
                return record.ts
        return None


class StepJoiner:
    """Takes the records of a steps file in order and gives out whole steps in order."""

    def __init__(self, notes: ReadNotes) -> None:
        self.start: TraceStart | None = None
        self._notes = notes
        self._open: deque[Step] = deque()
        self._by_number: dict[int, Step] = {}
        self._last_number: int | None = None
        self._waiting = Step(-1)
        """Holds records that came before any step they could belong to."""

    def add(self, record: StepEvent, unknown: dict[str, Any]) -> Iterator[Step]:
        """Take one record; gives out steps to which nothing more is expected."""
        if isinstance(record, TraceStart):
            self.start = self.start or record
        elif isinstance(record, RequestArrived):
            self._waiting.arrived.append(record)
        elif isinstance(record, RequestFinished):
            self._newest().finished.append(record)
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
