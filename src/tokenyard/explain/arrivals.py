"""Who was there when the first steps ran.

A first step that schedules few requests and leaves budget over looks like a scheduler that holds requests back. Often
the others had simply not arrived; this says so, with numbers.
"""

from __future__ import annotations

import msgspec

from tokenyard.trace.facts import StepFacts
from tokenyard.trace.lives import micros
from tokenyard.trace.schema import RequestArrived, RequestFinished

__all__ = ["ArrivalRow", "Arrivals", "ArrivalsCounter"]

_STEPS_KEPT = 8


class ArrivalRow(msgspec.Struct, frozen=True):
    """One of the first steps."""

    step: int
    ts: float | None
    arrived: int
    """Requests that had arrived when it ran."""
    admitted: int
    left_waiting: int | None
    tokens: int | None
    token_budget: int | None


class Arrivals(msgspec.Struct, frozen=True):
    """Arrivals against the first steps."""

    total: int
    """Requests that arrived during the whole trace."""
    not_arrived_at_first_step: int
    last_arrival_step: int | None
    """First step at which all had arrived."""
    first_steps: list[ArrivalRow]
    """The first eight."""
    explanation: str | None
    """A sentence, when the first step left budget over because the others came within the next few."""


class ArrivalsCounter:
    """Counts arrivals, and how long they went unseen: until the next step began."""

    def __init__(self) -> None:
        self.arrived = 0
        self.unseen_micros = 0
        """Time between arrivals and the first snapshot that could show them, over all requests."""
        self._unseen: dict[str, int] = {}
        """Arrived since the last step -> when."""
        self._since = 0
        self._last_step: int | None = None
        self._rows: list[ArrivalRow] = []

    def arrive(self, record: RequestArrived) -> None:
        """One more request is there."""
        self.arrived += 1
        self._since += 1
        moment = record.arrival_time if record.arrival_time is not None else record.ts
        if record.req_id is not None and moment is not None:
            self._unseen[record.req_id] = micros(moment)

    def finish(self, record: RequestFinished) -> None:
        """A request ended, perhaps before any step could see it."""
        arrived = self._unseen.pop(record.req_id or "", None)
        moment = record.finished_time if record.finished_time is not None else record.ts
        if arrived is not None and moment is not None:
            self.unseen_micros += max(micros(moment) - arrived, 0)

    def step(self, facts: StepFacts, unadmitted: int | None) -> None:
        """A step ran."""
        if self._since:
            self._since = 0
            self._last_step = facts.step
            if facts.ts is not None:
                now = micros(facts.ts)
                self.unseen_micros += sum([max(now - arrived, 0) for arrived in self._unseen.values()])
                self._unseen.clear()
        if len(self._rows) < _STEPS_KEPT:
            admitted = (facts.num_new or 0) + (facts.num_resumed or 0)
            self._rows.append(
                ArrivalRow(
                    facts.step, facts.ts, self.arrived, admitted, unadmitted, facts.token_sum, facts.token_budget
                )
            )

    def result(self) -> Arrivals:
        """Arrivals so far."""
        first = self._rows[0] if self._rows else None
        missing = self.arrived - first.arrived if first is not None else 0
        return Arrivals(self.arrived, missing, self._last_step, list(self._rows), self._explanation(missing))

    def _explanation(self, missing: int) -> str | None:
        first = self._rows[0] if self._rows else None
        if first is None or missing <= 0 or first.left_waiting != 0:
            return None
        if self._last_step is None or self._last_step > self._rows[-1].step:
            return None  # requests went on arriving: nobody expects them all in the first step
        if first.tokens is None or first.token_budget is None or first.tokens >= first.token_budget:
            return None
        left = first.token_budget - first.tokens
        return (
            f"Step {first.step} scheduled every request there was ({first.arrived:,} of {self.arrived:,}) and left "
            f"{left:,} of {first.token_budget:,} tokens unused because the queue was empty: "
            f"the other {missing:,} had not arrived. All had arrived when step {self._last_step} ran."
        )
