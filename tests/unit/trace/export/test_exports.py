"""Exports of a small trace, read back: Perfetto's protobuf, Chrome's JSON, OpenTelemetry spans."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tokenyard.errors import ConfigError
from tokenyard.explain.why.timeline import TimelineReader
from tokenyard.trace.export.perfetto import PerfettoWriter
from tokenyard.trace.export.spans import send_spans
from tokenyard.trace.export.timeline import COUNTERS, ChromeWriter, emit_timeline, segments_of
from tokenyard.trace.facts import RequestTimeline


def test_segments_cover_a_life_without_overlap(timelines: list[RequestTimeline]) -> None:
    names = set()
    for timeline in timelines:
        segments = segments_of(timeline)
        assert segments[0].start_us == timeline.arrived_us
        assert segments[-1].end_us == timeline.until_us
        for earlier, later in pairwise(segments):
            assert earlier.end_us == later.start_us
        assert all(segment.end_us > segment.start_us for segment in segments)
        names |= {segment.name for segment in segments}
    # No request is stalled here: a request whose placeholders cover its limit waits for its own last output.
    assert names == {"queued", "prefill", "decode", "preempted"}


# ---- Perfetto


class Perfetto:
    """A trace as Perfetto's importer understands it: names looked up, slices closed, flows joined."""

    def __init__(self, data: bytes) -> None:
        pb: Any = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="perfetto is absent")
        self.tracks: dict[int, tuple[int, str]] = {}
        self.slices: dict[int, list[tuple[str, int, int]]] = {}
        self.counters: dict[int, list[int]] = {}
        self.flows: dict[int, list[tuple[int, int]]] = {}
        self.annotations: list[dict[str, Any]] = []
        names: dict[str, dict[int, str]] = {}
        kinds = pb.TrackEvent.Type
        open_slices: dict[int, tuple[str, int]] = {}
        trace = pb.Trace.FromString(data)
        assert trace.packet[0].sequence_flags & 1, "the first packet clears the interned names"
        for packet in trace.packet:
            for kind in ("event_names", "event_categories", "debug_annotation_names"):
                for entry in getattr(packet.interned_data, kind):
                    assert entry.iid not in names.setdefault(kind, {}), "interned twice"
                    names[kind][entry.iid] = entry.name
            if packet.HasField("track_descriptor"):
                track = packet.track_descriptor
                assert track.uuid not in self.tracks
                self.tracks[track.uuid] = (track.parent_uuid, track.name or track.process.process_name)
            if not packet.HasField("track_event"):
                continue
            event, now = packet.track_event, packet.timestamp
            assert event.track_uuid in self.tracks, "a track is described before its events"
            if event.type == kinds.Value("TYPE_SLICE_BEGIN"):
                assert event.track_uuid not in open_slices, "slices of a track overlap"
                open_slices[event.track_uuid] = names["event_names"][event.name_iid], now
                held = {names["debug_annotation_names"][a.name_iid]: a for a in event.debug_annotations}
                self.annotations.append(held)
            elif event.type == kinds.Value("TYPE_SLICE_END"):
                name, began = open_slices.pop(event.track_uuid)
                assert now >= began
                self.slices.setdefault(event.track_uuid, []).append((name, began, now))
            elif event.type == kinds.Value("TYPE_COUNTER"):
                self.counters.setdefault(event.track_uuid, []).append(event.counter_value)
            for flow in event.flow_ids:
                self.flows.setdefault(flow, []).append((event.track_uuid, now))
        assert not open_slices

    def named(self, name: str) -> int:
        (found,) = [track for track, (_, called) in self.tracks.items() if called == name]
        return found


def perfetto(path: Path) -> Perfetto:
    pytest.importorskip("perfetto", reason="perfetto is absent")
    file = BytesIO()
    emit_timeline(TimelineReader(path).with_timelines(), PerfettoWriter(file, "test"))
    return Perfetto(file.getvalue())


def test_perfetto_reads_back(trace: Path, timelines: list[RequestTimeline]) -> None:
    read = perfetto(trace)
    for timeline in timelines:
        track = read.named(timeline.request_id)
        segments = [(s.name, s.start_us * 1000, s.end_us * 1000) for s in segments_of(timeline)]
        assert read.slices[track] == segments
        parent, _ = read.tracks[track]
        assert read.tracks[parent][1] == (timeline.job_id or "tokenyard test")
    steps = sum(1 for _ in TimelineReader(trace).steps())
    lanes = [track for track, (_, name) in read.tracks.items() if name.startswith("steps")]
    assert len(lanes) == 2, "two steps are in flight"
    assert sum(len(read.slices[lane]) for lane in lanes) == steps
    for name in COUNTERS:
        values = read.counters[read.named(name)]
        assert all(earlier != later for earlier, later in pairwise(values)), "only changes"


def test_perfetto_flows_lead_forward(trace: Path, timelines: list[RequestTimeline]) -> None:
    read = perfetto(trace)
    assert all(len(ends) == 2 and ends[0][1] <= ends[1][1] for ends in read.flows.values())
    between = [ends for ends in read.flows.values() if ends[0][0] != ends[1][0]]
    assert between, "a turn leads to the next"
    for (left, _), (entered, _) in between:
        assert read.tracks[left][0] == read.tracks[entered][0], "of the same job"
    waits = sum(1 for timeline in timelines for s in segments_of(timeline)[:-1] if s.name in {"queued", "preempted"})
    assert len(read.flows) == waits + len(between)


def test_perfetto_tells_what_was_waited_for(trace: Path, timelines: list[RequestTimeline]) -> None:
    read = perfetto(trace)
    told = sum(a.int_value for held in read.annotations for name, a in held.items() if name.startswith("us "))
    assert told == sum(timeline.waited_us for timeline in timelines)


def test_trace_processor_reads_it(trace: Path) -> None:
    module = pytest.importorskip("perfetto.trace_processor", reason="perfetto is absent")
    file = BytesIO()
    emit_timeline(TimelineReader(trace).with_timelines(), PerfettoWriter(file, "test"))
    shell = next((path for path in (Path("/usr/bin/trace_processor_shell"),) if path.exists()), None)
    if shell is None:
        pytest.skip("no trace_processor_shell: the perfetto package would download it")
    file.seek(0)
    config = module.TraceProcessorConfig(bin_path=str(shell))
    with module.TraceProcessor(trace=file, config=config) as processor:
        (row,) = processor.query("select count(*) as n from slice where name = 'queued'")
        assert row.n > 0


# ---- Chrome


def test_chrome_reads_back(trace: Path, timelines: list[RequestTimeline]) -> None:
    file = BytesIO()
    writer = ChromeWriter(file, "test")
    emit_timeline(TimelineReader(trace).with_timelines(), writer)
    writer.finish()
    events = json.loads(file.getvalue())["traceEvents"]
    threads = {e["args"]["name"]: (e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert len(processes) == 1 + 3 + 1
    for timeline in timelines:
        pid, tid = threads[timeline.request_id]
        assert processes[pid] == (timeline.job_id or "requests of no job")
        slices = [e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == (pid, tid)]
        expected = [(s.name, s.start_us, s.end_us - s.start_us) for s in segments_of(timeline)]
        assert [(e["name"], e["ts"], e["dur"]) for e in slices] == expected
    starts = {e["id"] for e in events if e["ph"] == "s"}
    assert starts == {e["id"] for e in events if e["ph"] == "f"}
    assert {e["name"] for e in events if e["ph"] == "s"} == {"first schedule", "resume", "next turn"}
    assert {e["name"] for e in events if e["ph"] == "C"} == set(COUNTERS)


# ---- OpenTelemetry


@pytest.fixture
def collector() -> Iterator[tuple[str, list[Any]]]:
    """An OTLP/HTTP endpoint on this machine, and the spans that it took."""
    service: Any = pytest.importorskip(
        "opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="opentelemetry is absent"
    )
    taken: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces"
            request = service.ExportTraceServiceRequest.FromString(body)
            taken.extend(s for r in request.resource_spans for scope in r.scope_spans for s in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", taken
    server.shutdown()
    server.server_close()
    thread.join()


def test_spans_reach_a_collector(timelines: list[RequestTimeline], collector: tuple[str, list[Any]]) -> None:
    url, taken = collector
    sent = send_spans(timelines, url, "test", offset_us=5)
    assert sent == len(taken) == len(timelines) + sum(len(segments_of(timeline)) for timeline in timelines)
    turns = {_attributes(span)["tokenyard.request"]: span for span in taken if not span.parent_span_id}
    assert turns.keys() == {timeline.request_id for timeline in timelines}
    traces: dict[str | None, set[bytes]] = {}
    for timeline in timelines:
        turn = turns[timeline.request_id]
        traces.setdefault(timeline.job_id, set()).add(turn.trace_id)
        assert turn.end_time_unix_nano == (timeline.until_us + 5) * 1000
        assert len(turn.events) == len(timeline.preemptions)
        children = [span for span in taken if span.parent_span_id == turn.span_id]
        assert [span.name for span in children] == [segment.name for segment in segments_of(timeline)]
        assert {span.trace_id for span in children} == {turn.trace_id}
        waited = [v for span in children for k, v in _attributes(span).items() if "waited_us." in k]
        assert sum(waited) == timeline.waited_us
    assert all(len(ids) == 1 for ids in traces.values()), "one trace per job"
    assert len(set.union(*traces.values())) == len(traces)
    assert any(turn.links for turn in turns.values())


def _attributes(span: Any) -> dict[str, Any]:
    return {a.key: a.value.string_value or a.value.int_value for a in span.attributes}


@pytest.mark.parametrize("url", ["localhost:4318", "ftp://x", "http://"])
def test_an_address_that_is_none(url: str) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry is absent")
    with pytest.raises(ConfigError, match="OTLP/HTTP"):
        send_spans([], url, "test")
