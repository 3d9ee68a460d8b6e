"""Who was there when the first steps ran.

A first step that schedules few requests and leaves budget over looks like a scheduler that holds requests back. Often
the others had simply not arrived; this says so, with numbers.
"""

from __future__ import annotations

import msgspec

from tokenyard.trace.format.request_timeline import micros
from tokenyard.trace.format.schema import RequestArrived, RequestFinished
from tokenyard.trace.format.step_facts import StepFacts

__all__ = ["STEPS_KEPT", "ArrivalRow", "Arrivals", "ArrivalsCounter"]

STEPS_KEPT = 8
"""Of the first steps, one row each."""


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
    """A sentence, when the first step left budget over because the others came later: within the first eight steps, or
    so few that one step could have taken them all."""


class ArrivalsCounter:
    """Counts arrivals, and how long they went unseen: until the next step began."""

    def __init__(self) -> None:
        self.arrived = 0
        self.unseen_micros = 0
        """Time between arrivals and the first snapshot that could show them, over all requests."""
        self._unseen: dict[str, int] = {}
        """Arrived since the last step -> when."""
        self._since = 0
        self._prompt_tokens: int | None = 0
        """Of all that arrived; None if one does not say."""
        self._most_running: int | None = None
        self._last_step: int | None = None
        self._rows: list[ArrivalRow] = []

    def arrive(self, record: RequestArrived) -> None:
        """One more request is there."""
        self.arrived += 1
        self._since += 1
        if self._prompt_tokens is not None:
            prompt = record.num_prompt_tokens
            self._prompt_tokens = None if prompt is None else self._prompt_tokens + prompt
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
        if not self._rows:
            self._most_running = facts.max_running
        if len(self._rows) < STEPS_KEPT:
            admitted = (facts.num_new or 0) + (facts.num_resumed or 0)
            self._rows.append(
                ArrivalRow(
                    facts.step, facts.ts, self.arrived, admitted, unadmitted, facts.token_sum, facts.token_budget
                )
            )

    def join(self, other: ArrivalsCounter) -> None:
        """The arrivals at another engine, too; first steps are those of one engine, and are forgotten."""
        self.arrived += other.arrived
        self.unseen_micros += other.unseen_micros
        self._rows, self._last_step = [], None

    def result(self) -> Arrivals:
        """Arrivals so far."""
        first = self._rows[0] if self._rows else None
        missing = self.arrived - first.arrived if first is not None else 0
        return Arrivals(self.arrived, missing, self._last_step, list(self._rows), self._explanation(missing))

    def _fits_one_step(self, token_budget: int) -> bool:
        """Whether a single step could have taken every request there ever was."""
        tokens, most = self._prompt_tokens, self._most_running
        return tokens is not None and tokens <= token_budget and most is not None and self.arrived <= most

    def _explanation(self, missing: int) -> str | None:
        first = self._rows[0] if self._rows else None
        if first is None or missing <= 0 or first.left_waiting != 0:
            return None
        if first.tokens is None or first.token_budget is None or first.tokens >= first.token_budget:
            return None
        if self._last_step is None:
            return None
        if self._last_step > self._rows[-1].step and not self._fits_one_step(first.token_budget):
            return None  # requests went on arriving: nobody expects them all in the first step
        left = first.token_budget - first.tokens
        return (
            f"Step {first.step} scheduled every request there was ({first.arrived:,} of {self.arrived:,}) and left "
            f"{left:,} of {first.token_budget:,} tokens unused because the queue was empty: "
            f"the other {missing:,} had not arrived. All had arrived when step {self._last_step} ran."
        )
