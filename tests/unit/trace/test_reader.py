"""The reader: our own traces whole, those of others as far as they go, and damaged ones."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.unit.trace.recorded import RecordedYard
from tests.unit.trace.test_recorder import Gathered, live

from tokenyard.errors import TraceError
from tokenyard.trace.reader import TraceReader
from tokenyard.trace.steps import Step, facts_of


def write(path: Path, *records: dict[str, Any] | str | bytes) -> Path:
    lines = [
        record
        if isinstance(record, bytes)
        else record.encode()
        if isinstance(record, str)
        else msgspec.json.encode(record)
        for record in records
    ]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def snapshot(step: int, **fields: Any) -> dict[str, Any]:
    return {"event": "step_snapshot", "step": step, **fields}


def decision(step: int, **fields: Any) -> dict[str, Any]:
    return {"event": "step_decision", "step": step, **fields}


def read(path: Path, **options: Any) -> tuple[TraceReader, list[Step]]:
    reader = TraceReader(path, **options)
    return reader, list(reader.steps())


def recorded(path: Path, *sinks: Any, **options: Any) -> RecordedYard:
    toy = RecordedYard(path, *sinks, num_gpu_blocks=19, max_num_seqs=6, **options)
    live(toy, 3, 100)
    toy.drain()
    toy.writer.close()
    return toy


@pytest.mark.slow
def test_what_is_read_is_what_happened(tmp_path: Path) -> None:
    sink = Gathered()
    recorded(tmp_path, sink)
    reader, steps = read(tmp_path)
    assert reader.start is not None
    assert reader.start.host == "replay"
    assert [step.completed for step in steps] == sink.completed
    assert [each for step in steps for each in step.arrived] == sink.arrived
    # Blocks are numbered for the trace alone.
    finished = [replace(each, output_hash_runs=None) for step in steps for each in step.finished]
    lookups = [replace(each, prompt_hash_runs=None) for step in steps for each in step.lookups]
    assert (finished, lookups) == (sink.finished, sink.lookups)
    for step, facts in zip(steps, sink.facts, strict=True):
        derived = facts_of(step, block_size=4)
        assert msgspec.structs.replace(derived, recomputed_tokens=facts.recomputed_tokens) == facts
        assert (derived.recomputed_tokens or 0) == facts.recomputed_tokens
    queued = [len(step.requests) for step in steps]
    assert queued == [(facts.num_running or 0) + (facts.num_waiting or 0) for facts in sink.facts]
    assert reader.notes.request_records == sum(queued)
    assert reader.notes.bad_lines == reader.notes.late_records == reader.notes.unmatched_request_records == 0


@pytest.mark.slow
def test_counts_survive_the_bound_on_ids(tmp_path: Path) -> None:
    sink = Gathered()
    recorded(tmp_path, sink, trace={"max_ids_per_step": 1})
    _, steps = read(tmp_path)
    omitted = 0
    for step, facts in zip(steps, sink.facts, strict=True):
        derived = facts_of(step, block_size=4)
        omitted += derived.omitted_ids
        for name in ("num_running", "num_waiting", "num_new", "num_resumed", "token_sum", "running_consumed"):
            assert getattr(derived, name) == getattr(facts, name), (step.number, name)
        if (facts.num_waiting or 0) > 1:
            assert derived.min_need is None  # the smallest may be among those left out
    assert omitted == 10805


@pytest.mark.slow
def test_either_file_alone_and_gzipped(tmp_path: Path) -> None:
    recorded(tmp_path)
    steps_file, requests_file = (tmp_path / f"sched_trace.fcfs.{kind}.jsonl" for kind in ("steps", "requests"))
    _, whole = read(tmp_path)
    _, steps = read(steps_file)
    assert [step.snapshot for step in steps] == [step.snapshot for step in whole]
    assert not any(step.requests for step in steps)
    _, queues = read(requests_file)
    assert {step.number: step.requests for step in queues} == {
        step.number: step.requests for step in whole if step.requests
    }
    assert all(step.snapshot is None for step in queues)
    assert queues[0].ts == whole[0].ts
    _, without = read(tmp_path, requests=False)
    assert not any(step.requests for step in without)
    for file in (steps_file, requests_file):
        (tmp_path / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    _, unpacked = read(tmp_path)
    assert [step.decision for step in unpacked] == [step.decision for step in whole]
    assert [step.requests for step in unpacked] == [step.requests for step in whole]


def test_kind_is_told_by_content_where_the_name_does_not(tmp_path: Path) -> None:
    steps = write(tmp_path / "some.log", "# a note", {"event": "other"}, snapshot(0))
    requests = write(tmp_path / "more.log", "[]", {"step": 0, "req_id": "a", "queue": "running"})
    assert TraceReader(steps).files.steps == steps
    assert TraceReader(requests).files.requests == requests


def test_missing_and_null_fields_are_none(tmp_path: Path) -> None:
    file = write(
        tmp_path / "t.steps.jsonl", snapshot(0, free_blocks=None, running_req_ids=["a", "b"]), decision(0), snapshot(1)
    )
    _, steps = read(file)
    facts = facts_of(steps[0])
    assert facts.num_running == 2
    for name in ("ts", "free_blocks", "num_waiting", "num_new", "token_sum", "running_consumed", "min_need", "outcome"):
        assert getattr(facts, name) is None
    assert steps[1].decision is None


def test_unknown_fields_are_kept_if_asked_for(tmp_path: Path) -> None:
    write(
        tmp_path / "t.steps.jsonl",
        snapshot(0, ts=1.0, cpu_cached_blocks=7, free_blocks=3),
        decision(0, mood="good"),
    )
    write(tmp_path / "t.requests.jsonl", {"step": 0, "req_id": "a", "color": "red"}, {"step": 0, "req_id": "b"})
    _, (plain,) = read(tmp_path)
    assert plain.unknown == {}
    assert plain.request_unknown == []
    _, (step,) = read(tmp_path, keep_unknown=True)
    assert step.unknown == {"step_snapshot": {"cpu_cached_blocks": 7}, "step_decision": {"mood": "good"}}
    assert step.request_unknown == [{"color": "red"}, {}]
    assert (step.snapshot, step.decision, step.requests) == (plain.snapshot, plain.decision, plain.requests)


def test_bad_lines_are_counted_with_their_numbers(tmp_path: Path) -> None:
    file = write(
        tmp_path / "t.steps.jsonl",
        "",
        snapshot(0, num_running=1),
        '{"event":"step_snapshot","step":',
        "[1]",
        b"\xff\xfe",
        b'{"event":"step_snapshot","step":1,"policy":"\xff"}',
        "[" * 100_000,
        {"event": "step_snapshot"},
        {"event": "step_snapshot", "step": "soon"},
        {"step": 3},
        {"event": 5, "step": 3},
        {"event": "weather", "step": 3},
        snapshot(1, num_running=2),
        '{"event":"step_snapshot","step":2',
    )
    reader, steps = read(file)
    assert [step.number for step in steps] == [0, 1]
    notes = reader.notes
    assert notes.bad_lines == 10
    assert [(bad.file, bad.line) for bad in notes.first_bad_lines] == [
        ("t.steps.jsonl", line) for line in (3, 4, 5, 6, 7, 8, 9, 10, 11, 14)
    ]
    assert notes.first_bad_lines[4].problem == "nested deeper than 100 levels"
    assert notes.first_bad_lines[6].problem == "step_snapshot without a usable step"
    assert notes.unknown_events == {"weather": 1}


def test_bad_lines_of_the_requests_file(tmp_path: Path) -> None:
    write(tmp_path / "t.steps.jsonl", snapshot(0))
    write(tmp_path / "t.requests.jsonl", {"step": 0, "req_id": 7}, "?", {"req_id": "a"}, {"step": 0, "req_id": "b"})
    reader, (step,) = read(tmp_path)
    assert [record.req_id for record in step.requests] == [None, "b"]
    assert [(bad.file, bad.line) for bad in reader.notes.first_bad_lines] == [
        ("t.requests.jsonl", line) for line in (2, 3)
    ]
    assert reader.notes.dropped_fields == {"request.req_id": 1}


def test_only_the_first_twenty_bad_lines_are_kept(tmp_path: Path) -> None:
    reader, _ = read(write(tmp_path / "t.steps.jsonl", *["?"] * 50, snapshot(0)))
    assert reader.notes.bad_lines == 50
    assert len(reader.notes.first_bad_lines) == 20


def test_fields_of_a_wrong_type_are_dropped_and_counted(tmp_path: Path) -> None:
    file = write(
        tmp_path / "t.steps.jsonl",
        snapshot(0, num_running="7", free_blocks=3.0, total_blocks=[1], num_waiting=10**30, ts="soon"),
        snapshot(1, total_blocks={}, running_req_ids=[1, 2]),
    )
    reader, (first, second) = read(file)
    assert first.snapshot is not None
    assert second.snapshot is not None
    assert (first.snapshot.num_running, first.snapshot.free_blocks) == (7, 3)
    assert first.snapshot.total_blocks is None
    assert second.snapshot.running_req_ids is None
    assert reader.notes.bad_lines == 0
    assert reader.notes.dropped_fields == {
        "step_snapshot.ts": 1,
        "step_snapshot.total_blocks": 2,
        "step_snapshot.num_waiting": 1,
        "step_snapshot.running_req_ids": 1,
    }


def test_steps_in_flight_are_put_together(tmp_path: Path) -> None:
    """A step may complete after the next two were decided."""
    completed = [{"event": "step_completed", "step": step, "ts": step + 0.5} for step in range(5)]
    records: list[dict[str, Any]] = []
    for step in range(5):
        records += [snapshot(step), decision(step)]
        records += [completed[step - 2]] if step >= 2 else []
    reader, steps = read(write(tmp_path / "t.steps.jsonl", *records, *completed[3:]))
    assert [(step.number, step.completed and step.completed.ts) for step in steps] == [
        (step, step + 0.5) for step in range(5)
    ]
    assert reader.notes.late_records == 0


def test_duplicates_and_stragglers(tmp_path: Path) -> None:
    file = write(
        tmp_path / "t.steps.jsonl",
        snapshot(0, num_running=1),
        decision(0, total_scheduled_tokens=1),
        decision(0, total_scheduled_tokens=2),
        snapshot(0, num_running=2),
        *[snapshot(step) for step in range(1, 20)],
        decision(2),
        {"event": "step_completed", "step": 3},
        snapshot(0, num_running=3),
    )
    reader, steps = read(file)
    assert [step.number for step in steps] == [0, 0, *range(1, 20), 0]
    assert [step.snapshot.num_running for step in steps if step.number == 0 and step.snapshot] == [1, 2, 3]
    assert steps[0].decision is not None
    assert steps[0].decision.total_scheduled_tokens == 1
    assert reader.notes.duplicate_records == 2
    assert reader.notes.late_records == 2


def test_a_decision_without_a_snapshot_is_a_step(tmp_path: Path) -> None:
    _, steps = read(write(tmp_path / "t.steps.jsonl", decision(4, ts=2.0, num_scheduled_tokens={"a": 3}), snapshot(5)))
    assert [step.number for step in steps] == [4, 5]
    assert steps[0].ts == 2.0
    assert facts_of(steps[0]).token_sum == 3


def test_request_records_of_no_step_are_counted(tmp_path: Path) -> None:
    write(tmp_path / "t.steps.jsonl", snapshot(0), snapshot(10), snapshot(20))
    write(tmp_path / "t.requests.jsonl", *[{"step": step, "req_id": "a"} for step in (0, 3, 10, 5, 20, 25)])
    reader, steps = read(tmp_path)
    assert [len(step.requests) for step in steps] == [1, 1, 1]
    assert reader.notes.request_records == 6
    assert reader.notes.unmatched_request_records == 3


def test_lookups_of_steps_that_were_sampled_away_are_not_lost(tmp_path: Path) -> None:
    lookup = {"event": "prefix_cache_lookup", "req_id": "a"}
    file = write(
        tmp_path / "t.steps.jsonl",
        {**lookup, "step": 0},
        snapshot(1),
        {**lookup, "step": 3},
        snapshot(5),
        {**lookup, "step": 5},
    )
    _, steps = read(file)
    assert [[each.step for each in step.lookups] for step in steps] == [[0, 3], [5]]


def test_arrivals_and_ends_belong_to_their_steps(tmp_path: Path) -> None:
    def event(kind: str, name: str) -> dict[str, Any]:
        return {"event": f"request_{kind}", "step": 0, "req_id": name}

    file = write(
        tmp_path / "t.steps.jsonl",
        *[event("arrived", "a"), event("finished", "gone"), snapshot(0)],
        *[event("arrived", "b"), event("finished", "a"), snapshot(1)],
        *[event("finished", "b"), event("arrived", "c")],
    )
    _, (first, second) = read(file)
    assert [each.req_id for each in first.arrived] == ["a"]
    assert [each.req_id for each in first.finished] == ["gone", "a"]
    assert [each.req_id for each in second.arrived] == ["b"]
    assert [each.req_id for each in second.finished] == ["b"]
    assert [each.req_id for each in second.arrived_after] == ["c"]


def test_a_cut_off_gzip_file_is_read_up_to_the_cut(tmp_path: Path) -> None:
    lines = b"".join(msgspec.json.encode(snapshot(step, note=str(step * 7919))) + b"\n" for step in range(2000))
    packed = gzip.compress(lines)
    (tmp_path / "t.steps.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    reader, steps = read(tmp_path)
    assert 0 < len(steps) < 2000
    assert [step.number for step in steps] == list(range(len(steps)))
    assert reader.notes.bad_lines >= 1
    assert "cut off or damaged" in reader.notes.first_bad_lines[-1].problem


def test_no_trace_is_an_error_that_names_the_place(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        TraceReader(tmp_path / "nowhere")
    with pytest.raises(TraceError, match="holds no"):
        TraceReader(tmp_path)
    with pytest.raises(TraceError, match="not a trace"):
        TraceReader(write(tmp_path / "notes.txt", "hello"))
    (tmp_path / "broken.log.gz").write_bytes(b"not gzip")
    with pytest.raises(TraceError, match="damaged"):
        TraceReader(tmp_path / "broken.log.gz")


def test_several_traces_in_a_directory_are_named(tmp_path: Path) -> None:
    for policy in ("fcfs", "priority"):
        write(tmp_path / f"sched_trace.{policy}.steps.jsonl", snapshot(0))
    with pytest.raises(TraceError, match=r"2 traces \(sched_trace.fcfs, sched_trace.priority\)"):
        TraceReader(tmp_path)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([], "it is empty"),
        (["?", "??"], "2 bad lines, the first is line 1: not JSON"),
        ([{"event": "weather"}], "only unknown events: weather"),
    ],
)
def test_a_trace_without_steps_is_an_error(tmp_path: Path, lines: list[Any], problem: str) -> None:
    file = tmp_path / "t.steps.jsonl"
    file.touch()
    if lines:
        write(file, *lines)
    with pytest.raises(TraceError, match=problem):
        read(file)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "t.steps.jsonl").mkdir()
    with pytest.raises(TraceError, match="directory"):
        read(tmp_path)


def test_hostile_text_comes_through(tmp_path: Path) -> None:
    names = ["</script><script>alert(1)</script>", "\u202eright to left", "x" * 1_000_000, "[red]markup[/red]"]
    toy = RecordedYard(tmp_path)
    for name in names:
        toy.add(name, 4, max_tokens=2, job_id=name)
    toy.drain()
    toy.writer.close()
    reader, steps = read(tmp_path)
    assert steps[0].snapshot is not None
    assert steps[0].snapshot.waiting_req_ids == names
    assert steps[0].snapshot.waiting_job_ids == names
    assert reader.notes.bad_lines == 0


def test_a_byte_order_mark_costs_no_record(tmp_path: Path) -> None:
    """Some editors put one before UTF-8 text; the record behind it is as good as any."""
    path = tmp_path / "sched_trace.x.steps.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"event": "step_snapshot", "step": 0, "num_running": 1}\r\n')
    reader = TraceReader(path)
    (step,) = reader.steps()
    assert step.snapshot is not None
    assert step.snapshot.num_running == 1
    assert reader.notes.bad_lines == 0
