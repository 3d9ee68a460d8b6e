"""A trace in Chrome's JSON format: for chrome://tracing, Speedscope, and whatever reads no protobuf.

Microseconds, as the format wants them. Each job is a process and each request a thread in it, so that slices nest
nowhere; the scheduler is process 1. A further engine's processes are numbered on from there.
"""

from __future__ import annotations

from typing import IO, Any

import msgspec

from tokenyard.trace.export.timeline import COUNTERS, PreviousTurn, StepSlice, TimelineSegment, numbers_of
from tokenyard.trace.facts import RequestTimeline


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
