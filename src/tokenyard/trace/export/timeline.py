"""A trace as a timeline for Perfetto and Chrome."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import IO, Any, Protocol

import msgspec

from tokenyard.trace.facts import RequestTimeline, Wait, micros
from tokenyard.trace.held_back import held_by_reason, main_reason
from tokenyard.trace.steps import Step, facts_of
from tokenyard.vocabulary import WaitState

# ---------------------------------------------------------------------------------------------------------------------
# A timeline in segments: queued, prefill, decode, preempted, stalled, one after the other without overlap.


class TimelineSegment(msgspec.Struct, frozen=True):
    """A piece of a request's timeline."""

    name: str
    start_us: int
    end_us: int
    wait: Wait | None = None
    """What it waited for, unless it ran."""
    resumes: bool = False
    """It runs again after a preemption."""


def segments_of(timeline: RequestTimeline) -> list[TimelineSegment]:
    """Segments in order of time; they touch, and cover the timeline from arrival to end."""
    segments: list[TimelineSegment] = []
    cursor = timeline.arrived_us if timeline.arrived_us is not None else timeline.until_us
    resumes = False
    for wait in timeline.waits:
        segments += _running(timeline, cursor, wait.start_us, resumes=resumes)
        segments.append(TimelineSegment(wait.state.value, wait.start_us, wait.end_us, wait))
        resumes = wait.state is WaitState.PREEMPTED
        cursor = wait.end_us
    return segments + _running(timeline, cursor, timeline.until_us, resumes=resumes)


def _running(timeline: RequestTimeline, start: int, end: int, *, resumes: bool) -> list[TimelineSegment]:
    """From ``start`` to ``end`` it ran: until its first token prefill, from there decode."""
    if end <= start or timeline.first_scheduled_us is None:
        return []
    token = end if timeline.first_token_us is None else min(max(timeline.first_token_us, start), end)
    pieces = (("prefill", start, token), ("decode", token, end))
    found = [TimelineSegment(name, begin, until) for name, begin, until in pieces if until > begin]
    found[0] = msgspec.structs.replace(found[0], resumes=resumes)
    return found


def numbers_of(timeline: RequestTimeline) -> dict[str, int | str]:
    """What is known of a request, under the names that every export uses."""
    known: dict[str, int | str | None] = {
        "request": timeline.request_id,
        "job": timeline.job_id,
        "prompt_tokens": timeline.num_prompt_tokens,
        "output_tokens": timeline.num_output_tokens,
        "local_hit_tokens": timeline.local_hit_tokens,
        "external_hit_tokens": timeline.external_hit_tokens,
        "preemptions": len(timeline.preemptions),
        "waited_us": timeline.waited_us,
        "finish_reason": timeline.finish_reason,
    }
    return {name: value for name, value in known.items() if value is not None}


# ---------------------------------------------------------------------------------------------------------------------
# A trace as a timeline: what the exporters for Perfetto and Chrome draw, each in its own format.
#
#     steps       one slice per step, named after what held requests back; steps in flight lie on further lanes
#     counters    running, waiting, free and pinned KV blocks, scheduled tokens; a point where they change
#     jobs        one group per job, one track per request, in segments that do not overlap
#     flows       arrival -> first schedule, preemption -> resume, end of a turn -> arrival of the next turn

COUNTERS = {
    "running": "requests",
    "waiting": "requests",
    "free KV blocks": "blocks",
    "pinned KV blocks": "blocks",
    "scheduled tokens": "tokens",
}
"""Counter -> what it counts."""


class StepSlice(msgspec.Struct, frozen=True):
    """One step; ``lane`` is 0 unless an earlier one was still in flight."""

    number: int
    lane: int
    start_us: int
    end_us: int
    name: str
    """The recorded reason that held requests back, else ``step``."""
    numbers: Mapping[str, int]


class PreviousTurn(msgspec.Struct, frozen=True):
    """The turn of the same job that ended before this one arrived."""

    request_id: str
    end_us: int


class TimelineSink(Protocol):
    """Draws."""

    def step(self, slice_: StepSlice) -> None:
        """A step ran."""

    def counter(self, name: str, us: int, value: int) -> None:
        """One of ``COUNTERS`` has changed."""

    def request(
        self, timeline: RequestTimeline, segments: list[TimelineSegment], previous: PreviousTurn | None
    ) -> None:
        """A request has ended, or the trace has."""


def emit_timeline(steps: Iterable[tuple[Step, list[RequestTimeline]]], sink: TimelineSink) -> None:
    """Hand a whole trace to ``sink``. Memory holds one entry per job."""
    emitter = _TimelineEmitter(sink)
    for step, timelines in steps:
        emitter.step(step)
        for timeline in timelines:
            emitter.request(timeline)
    emitter.end()


class _TimelineEmitter:
    def __init__(self, sink: TimelineSink) -> None:
        self._sink = sink
        self._before: Step | None = None
        self._lanes: list[int] = []
        """Lane -> when its last step ended."""
        self._values: dict[str, int] = {}
        self._turns: dict[str, PreviousTurn] = {}

    def step(self, step: Step) -> None:
        if step.ts is None:
            return
        self._draw(micros(step.ts))
        self._before = step
        for name, value in _counts(step).items():
            if self._values.get(name) != value:
                self._values[name] = value
                self._sink.counter(name, micros(step.ts), value)

    def end(self) -> None:
        self._draw(None)

    def _draw(self, next_us: int | None) -> None:
        """Draw the step before, which lasts until its model ran or, where that is not recorded, until the next one."""
        step, self._before = self._before, None
        if step is None or step.ts is None:
            return
        start = micros(step.ts)
        end = next_us if next_us is not None else start
        if step.completed is not None and step.completed.ts is not None:
            end = micros(step.completed.ts)
        lane = next((lane for lane, ended in enumerate(self._lanes) if ended <= start), len(self._lanes))
        self._lanes[lane : lane + 1] = [max(end, start)]
        name = (main_reason(step.outcome) if step.outcome is not None else None) or "step"
        self._sink.step(StepSlice(step.number, lane, start, max(end, start), name, _numbers(step)))

    def request(self, timeline: RequestTimeline) -> None:
        previous = None
        if timeline.job_id is not None:
            turn = self._turns.get(timeline.job_id)
            if turn is not None and timeline.arrived_us is not None and turn.end_us <= timeline.arrived_us:
                previous = turn
            self._turns[timeline.job_id] = PreviousTurn(timeline.request_id, timeline.until_us)
        self._sink.request(timeline, segments_of(timeline), previous)


def _counts(step: Step) -> dict[str, int]:
    facts, snapshot = facts_of(step), step.snapshot
    pinned = snapshot.pinned_blocks if snapshot is not None else None
    values = (facts.num_running, facts.num_waiting, facts.free_blocks, pinned, facts.token_sum)
    return {name: value for name, value in zip(COUNTERS, values, strict=True) if value is not None}


def _numbers(step: Step) -> dict[str, int]:
    facts, outcome = facts_of(step), step.outcome
    kv = outcome.kv if outcome is not None else None
    held = held_by_reason(outcome) if outcome is not None else {}
    found = {
        "step": step.number,
        "running": facts.num_running,
        "waiting": facts.num_waiting,
        "admitted": facts.num_new,
        "resumed": facts.num_resumed,
        "preempted": facts.num_preempted,
        "tokens": facts.token_sum,
        "free_blocks": facts.free_blocks,
        "held_back": sum(held.values()) if outcome is not None else None,
        "needed_blocks": kv.needed if kv is not None else None,
        **{f"held_back {reason}": count for reason, count in held.items()},
    }
    return {name: value for name, value in found.items() if value is not None}


# ---------------------------------------------------------------------------------------------------------------------
# A trace in Chrome's JSON format: for chrome://tracing, Speedscope, and whatever reads no protobuf.
#
# Microseconds, as the format wants them. Each job is a process and each request a thread in it, so that slices nest
# nowhere; the scheduler is process 1. A further engine's processes are numbered on from there.


class ChromeWriter:
    """A ``TimelineSink`` that writes to a binary file, which stays the caller's to close; ``finish`` ends the JSON."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file = file
        self._first = True
        self._processes = 0
        self._threads = 0
        self._flows = 0
        file.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
        self.next_engine(name)

    def next_engine(self, name: str) -> None:
        """What comes from here on happened in another engine, which gets processes of its own."""
        self._processes += 1
        self._scheduler = self._processes
        self._lanes: set[int] = set()
        self._jobs: dict[str | None, int] = {}
        self._last_turn: dict[str, int] = {}
        """Job -> thread of its turn that ended last."""
        self._name("process_name", self._scheduler, 0, f"tokenyard {name}")

    def finish(self) -> None:
        """Close the JSON."""
        self._file.write(b"\n]}\n")

    # ---- events

    def step(self, slice_: StepSlice) -> None:
        lane = slice_.lane + 1
        if lane not in self._lanes:
            self._lanes.add(lane)
            self._name("thread_name", self._scheduler, lane, "steps" if lane == 1 else f"steps in flight {lane - 1}")
        self._slice(self._scheduler, lane, slice_.name, "step", slice_.start_us, slice_.end_us, dict(slice_.numbers))

    def counter(self, name: str, us: int, value: int) -> None:
        self._event({"ph": "C", "pid": self._scheduler, "name": name, "ts": us, "args": {COUNTERS[name]: value}})

    def request(
        self, timeline: RequestTimeline, segments: list[TimelineSegment], previous: PreviousTurn | None
    ) -> None:
        pid = self._process(timeline.job_id)
        self._threads += 1
        tid = self._threads
        self._name("thread_name", pid, tid, timeline.request_id)
        if previous is not None and segments and timeline.job_id is not None:
            self._flow(
                "next turn", pid, (self._last_turn[timeline.job_id], previous.end_us), (tid, segments[0].start_us)
            )
        for number, segment in enumerate(segments):
            args: dict[str, Any] = dict(numbers_of(timeline)) if number == 0 else {}
            if segment.wait is not None:
                parts = segment.wait.parts
                args["waited for"] = [{"reason": each.reason, "place": each.place, "us": each.us} for each in parts]
            self._slice(pid, tid, segment.name, "request", segment.start_us, segment.end_us, args)
            if segment.name in {"queued", "preempted"} and number + 1 < len(segments):
                name = "first schedule" if segment.name == "queued" else "resume"
                self._flow(name, pid, (tid, segment.start_us), (tid, segments[number + 1].start_us))
        if timeline.job_id is not None:
            self._last_turn[timeline.job_id] = tid

    # ---- events

    def _process(self, job_id: str | None) -> int:
        pid = self._jobs.get(job_id)
        if pid is None:
            self._processes += 1
            pid = self._jobs[job_id] = self._processes
            self._name("process_name", pid, 0, "requests of no job" if job_id is None else job_id)
        return pid

    def _slice(self, pid: int, tid: int, name: str, category: str, start: int, end: int, args: dict[str, Any]) -> None:
        event = {"ph": "X", "pid": pid, "tid": tid, "name": name, "cat": category, "ts": start, "dur": end - start}
        self._event(event | {"args": args})

    def _flow(self, name: str, pid: int, start: tuple[int, int], end: tuple[int, int]) -> None:
        """An arrow from one thread and moment to another."""
        self._flows += 1
        common = {"pid": pid, "name": name, "cat": "flow", "id": self._flows}
        self._event({"ph": "s", "tid": start[0], "ts": start[1], **common})
        self._event({"ph": "f", "bp": "e", "tid": end[0], "ts": end[1], **common})

    def _name(self, kind: str, pid: int, tid: int, name: str) -> None:
        self._event({"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": {"name": name}})

    def _event(self, event: dict[str, Any]) -> None:
        if not self._first:
            self._file.write(b",\n")
        self._first = False
        self._file.write(msgspec.json.encode(event))
