"""A trace for Perfetto: its protobuf format, written packet by packet.

Slices on one track must not overlap, so every request has a track of its own below its job's. Names are interned: they
are written once and then referred to by number. Needs the package ``perfetto``, for the messages only.
"""

from __future__ import annotations

from typing import IO, Any

from tokenyard.errors import MissingExtraError
from tokenyard.trace.export.timeline import COUNTERS, PreviousTurn, StepSlice, TimelineSegment, numbers_of
from tokenyard.trace.facts import RequestTimeline

_SEQUENCE = 1
_PROCESS = 1
"""Track of the whole; the others stand below it."""
_LANES = 1_000
_COUNTERS = 2_000
_FIRST_FREE = 1_000_000
_ENGINE = 1 << 40
"""Distance between the tracks of one engine and those of the next."""


def messages() -> Any:
    """The module of Perfetto's messages. Raises MissingExtraError if it is not installed."""
    try:
        import perfetto.protos.perfetto.trace.perfetto_trace_pb2 as perfetto_messages  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtraError("perfetto", "perfetto") from None
    return perfetto_messages


class PerfettoWriter:
    """A ``TimelineSink`` that writes to a binary file, which stays the caller's to close."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._pb = messages()
        self._file = file
        self._cleared = False
        self._interned: dict[tuple[str, str], int] = {}
        self._new: list[tuple[str, str, int]] = []
        """Interned since the last packet."""
        self._next_flow = 1
        self._engines = 0
        self.next_engine(name)

    def next_engine(self, name: str) -> None:
        """What comes from here on happened in another engine, which gets a process of its own."""
        self._base = self._engines * _ENGINE
        self._engines += 1
        self._lanes: set[int] = set()
        self._jobs: dict[str, int] = {}
        self._next_track = _FIRST_FREE
        self._last_turn: dict[str, int] = {}
        """Job -> track of its turn that ended last."""
        packet = self._descriptor(_PROCESS, None, None)
        packet.track_descriptor.process.pid = self._engines
        packet.track_descriptor.process.process_name = f"tokenyard {name}"
        self._write(packet)
        for number, (counter, unit) in enumerate(COUNTERS.items()):
            packet = self._descriptor(_COUNTERS + number, _PROCESS, counter)
            packet.track_descriptor.counter.unit_name = unit
            self._write(packet)
        self._counters = {counter: _COUNTERS + number for number, counter in enumerate(COUNTERS)}

    # ---- events

    def step(self, slice_: StepSlice) -> None:
        track = _LANES + slice_.lane
        if track not in self._lanes:
            self._lanes.add(track)
            name = f"steps in flight {slice_.lane}" if slice_.lane else "steps"
            self._write(self._descriptor(track, _PROCESS, name))
        begin = self._event(track, slice_.start_us, "TYPE_SLICE_BEGIN", slice_.name, "step")
        self._annotate(begin, dict(slice_.numbers))
        self._write(begin)
        self._write(self._event(track, slice_.end_us, "TYPE_SLICE_END"))

    def counter(self, name: str, us: int, value: int) -> None:
        packet = self._event(self._counters[name], us, "TYPE_COUNTER")
        packet.track_event.counter_value = value
        self._write(packet)

    def request(
        self, timeline: RequestTimeline, segments: list[TimelineSegment], previous: PreviousTurn | None
    ) -> None:
        track = self._request_track(timeline)
        flow = None if previous is None else self._leave_turn(timeline, previous)
        for number, segment in enumerate(segments):
            begin = self._event(track, segment.start_us, "TYPE_SLICE_BEGIN", segment.name, "request")
            if flow is not None:
                begin.track_event.flow_ids.append(flow)
            flow = None
            goes_on = number + 1 < len(segments)
            if goes_on and segment.name in {"queued", "preempted"}:
                flow = self._flow()
                begin.track_event.flow_ids.append(flow)
            self._annotate(begin, numbers_of(timeline) if number == 0 else {}, segment)
            self._write(begin)
            self._write(self._event(track, segment.end_us, "TYPE_SLICE_END"))
        if timeline.job_id is not None:
            self._last_turn[timeline.job_id] = track

    # ---- tracks and flows

    def _request_track(self, timeline: RequestTimeline) -> int:
        parent = _PROCESS
        if timeline.job_id is not None:
            parent = self._jobs.get(timeline.job_id, 0)
            if not parent:
                parent = self._jobs[timeline.job_id] = self._track()
                self._write(self._descriptor(parent, _PROCESS, timeline.job_id))
        track = self._track()
        self._write(self._descriptor(track, parent, timeline.request_id))
        return track

    def _leave_turn(self, timeline: RequestTimeline, previous: PreviousTurn) -> int:
        """Mark the end of the turn before on its own track; returns the flow that leads from there."""
        assert timeline.job_id is not None
        flow = self._flow()
        end = self._event(self._last_turn[timeline.job_id], previous.end_us, "TYPE_INSTANT", "next turn", "request")
        end.track_event.flow_ids.append(flow)
        self._write(end)
        return flow

    def _track(self) -> int:
        self._next_track += 1
        return self._next_track

    def _flow(self) -> int:
        self._next_flow += 1
        return self._next_flow

    # ---- packets

    def _descriptor(self, track: int, parent: int | None, name: str | None) -> Any:
        packet = self._pb.TracePacket()
        packet.track_descriptor.uuid = self._base + track
        if parent is not None:
            packet.track_descriptor.parent_uuid = self._base + parent
        if name is not None:
            packet.track_descriptor.name = name
        return packet

    def _event(self, track: int, us: int, kind: str, name: str | None = None, category: str | None = None) -> Any:
        packet = self._pb.TracePacket()
        packet.timestamp = max(us, 0) * 1000
        event = packet.track_event
        event.type = self._pb.TrackEvent.Type.Value(kind)
        event.track_uuid = self._base + track
        if name is not None:
            event.name_iid = self._intern("event_names", name)
        if category is not None:
            event.category_iids.append(self._intern("event_categories", category))
        return packet

    def _annotate(self, packet: Any, values: dict[str, int | str], segment: TimelineSegment | None = None) -> None:
        if segment is not None and segment.wait is not None:
            for part in segment.wait.parts:
                name = f"us {part.reason} ({part.place.value})"
                values[name] = int(values.get(name, 0)) + part.us
        for name, value in values.items():
            annotation = packet.track_event.debug_annotations.add()
            annotation.name_iid = self._intern("debug_annotation_names", name)
            if isinstance(value, str):
                annotation.string_value = value
            else:
                annotation.int_value = value

    def _intern(self, kind: str, name: str) -> int:
        key = (kind, name)
        number = self._interned.get(key)
        if number is None:
            number = self._interned[key] = len(self._interned) + 1
            self._new.append((kind, name, number))
        return number

    def _write(self, packet: Any) -> None:
        """Write a packet as one entry of the trace's list of packets."""
        packet.trusted_packet_sequence_id = _SEQUENCE
        flags = self._pb.TracePacket.SequenceFlags
        packet.sequence_flags = flags.Value("SEQ_NEEDS_INCREMENTAL_STATE")
        if not self._cleared:
            self._cleared = True
            packet.sequence_flags |= flags.Value("SEQ_INCREMENTAL_STATE_CLEARED")
        for kind, name, number in self._new:
            entry = getattr(packet.interned_data, kind).add()
            entry.iid, entry.name = number, name
        self._new.clear()
        self._file.write(self._pb.Trace(packet=[packet]).SerializeToString())
