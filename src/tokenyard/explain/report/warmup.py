"""Figures of a run without its beginning: what arrives, and what is decided, before a moment is not counted."""

from __future__ import annotations

import msgspec

from tokenyard.trace.facts import STEADY, Drafts, FactSink, RepeatedFacts, StepFacts, Streams
from tokenyard.trace.schema import PinEnded, PrefixCacheLookup, RequestArrived, RequestFinished, TraceStart


class AfterWarmup:
    """A ``FactSink`` that hands on the requests that arrive from ``warmup`` seconds on, and the steps from then on.

    Requests of the beginning that still wait or run afterwards count in the steps, as they did there.
    """

    def __init__(self, sink: FactSink, warmup: float) -> None:
        self._sink = sink
        self._warmup = warmup
        self._left_out: set[str | None] = set()
        """Requests that arrived too early and have not ended."""
        self._ended: set[str | None] = set()
        """Requests of ``_left_out`` that ended, perhaps with a token of the step that is being taken in."""
        self._last: StepFacts | None = None
        """The last step that was left out."""
        self._first_step: int | None = None
        """The first one that was passed on."""
        self._told = False
        """The last step that has completed was passed on."""

    def trace_started(self, start: TraceStart) -> None:
        """Hand on what runs."""
        self._sink.trace_started(start)

    def request_arrived(self, record: RequestArrived) -> None:
        """Hand on, or leave out for good."""
        moment = record.arrival_time if record.arrival_time is not None else record.ts
        if moment is not None and moment < self._warmup:
            self._left_out.add(record.req_id)
        else:
            self._sink.request_arrived(record)

    def prefix_looked_up(self, record: PrefixCacheLookup) -> None:
        """Hand on the hits of a request that counts."""
        if record.req_id not in self._left_out:
            self._sink.prefix_looked_up(record)

    def step_decided(self, facts: StepFacts) -> None:
        """Pass on a step that is late enough."""
        if facts.ts is not None and facts.ts < self._warmup:
            self._last = facts
            return
        if self._first_step is None:
            self._first_step = facts.step
        self._sink.step_decided(facts)

    def step_repeated(self, step: int, ts: float, free_blocks: int) -> None:
        """Pass on a step like the last one; the first that counts is passed on as a step of its own."""
        if self._first_step is not None:
            self._sink.step_repeated(step, ts, free_blocks)
        elif ts >= self._warmup:
            assert self._last is not None, "a step was decided before"
            self.step_decided(msgspec.structs.replace(self._last, step=step, ts=ts, free_blocks=free_blocks))

    def steps_repeated(self, steps: RepeatedFacts) -> None:
        """Hand on those that count."""
        if self._first_step is not None and steps.completed >= self._first_step:
            self._told = True
            self._sink.steps_repeated(msgspec.structs.replace(steps, streams=self._counted(steps.streams)))
            return
        for i, moment in enumerate(steps.moments):
            streams = STEADY if i else steps.streams
            self.step_completed(steps.completed + i, moment, steps.seconds[i], steps.sampled, streams)
            self.step_decided(steps.step(i))

    def step_completed(
        self, step: int, ts: float | None, seconds: float | None, sampled: int | None, streams: Streams | None
    ) -> None:
        """Hand on the end of a step that counts."""
        self._told = self._first_step is not None and step >= self._first_step
        if self._told:
            counted = None if streams is None else self._counted(streams)
            self._sink.step_completed(step, ts, seconds, sampled, counted)
        elif self._first_step is not None:  # it was in flight: until here the engine was not idle
            self._sink.step_completed(step, ts, 0.0, 0, None)
        self._ended.clear()

    def _counted(self, streams: Streams) -> Streams:
        """Return the changes of requests that count."""
        others = self._left_out | self._ended if streams is not STEADY else ()
        return Streams(*([each for each in ids if each not in others] for ids in streams)) if others else streams

    def drafts_verified(self, drafts: Drafts) -> None:
        """Hand on the drafts of a step that counts."""
        if self._told:
            self._sink.drafts_verified(drafts)

    def request_finished(self, record: RequestFinished) -> None:
        """Hand on the end of a request that counts."""
        if record.req_id in self._left_out:
            self._left_out.discard(record.req_id)
            self._ended.add(record.req_id)
        else:
            self._sink.request_finished(record)

    def pin_ended(self, record: PinEnded) -> None:
        """Hand on the end of a pin, if steps count by now."""
        if self._told:
            self._sink.pin_ended(record)
