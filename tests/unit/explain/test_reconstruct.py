"""Traces of other emitters: what is pieced together equals what really happened, as far as the format shows it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.trace.recorded import RecordedYard, records_of

from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.explain.report.summary import summarize

STEP_EVENTS = ("step_snapshot", "step_decision", "prefix_cache_lookup")
ADDED = ("gpu_cached_blocks", "num_skipped_waiting", "total_scheduled_tokens", "recomputed_tokens")


def recorded(path: Path, **options: Any) -> tuple[RecordedYard, ReportBuilder]:
    """Requests that arrive at step boundaries, none preempted or aborted."""
    summary = ReportBuilder()
    toy = RecordedYard(path, summary, max_num_seqs=4, max_num_batched_tokens=24, **options)
    rng = random.Random(4)
    for number in range(30):
        if number % 3 == 0:
            for turn in range(rng.randint(1, 4)):
                name = f"r{number}.{turn}"
                prompt = list(range(rng.randint(1, 40)))
                toy.add(name, prompt, max_tokens=rng.randint(1, 9), arrival_time=toy.now, job_id=f"job{number}")
        toy.step()
    toy.drain()
    toy.writer.close()
    return toy, summary


def as_others_write_it(source: Path, target: Path, *leave_out: str, every: int = 1) -> None:
    """The steps file with the three events of the format only, and without our own fields."""
    target.mkdir()
    kept = (r for r in records_of(source) if r["event"] in STEP_EVENTS and r["step"] % every == 0)
    gone = (*ADDED, *leave_out)
    lines = [msgspec.json.encode({name: record[name] for name in record if name not in gone}) for record in kept]
    (target / "sched_trace.fcfs.steps.jsonl").write_bytes(b"\n".join(lines))


def test_times_are_exact_where_arrivals_fall_on_steps(tmp_path: Path) -> None:
    _, summary = recorded(tmp_path / "ours")
    as_others_write_it(tmp_path / "ours", tmp_path / "theirs")
    truth, found = summary.report(), summarize(tmp_path / "theirs")
    assert found.times == "reconstructed"
    assert truth.times == "recorded"
    assert found.requests == truth.requests
    assert found.requests_finished == truth.requests_finished
    assert found.finish_reasons == {"unknown": truth.requests}
    for name in ("queue_ms", "ttft_ms", "tpot_ms", "e2e_ms"):
        ours, theirs = (msgspec.to_builtins(getattr(each, name)) for each in (found, truth))
        assert all(ours[each] == pytest.approx(theirs[each]) for each in theirs)
    assert found.buckets == truth.buckets
    assert found.prefix_hit_rate == truth.prefix_hit_rate
    assert found.preemptions == truth.preemptions == 0
    assert found.header.jobs == truth.header.jobs == 10
    assert found.arrivals is not None
    assert truth.arrivals is not None
    assert found.arrivals == truth.arrivals


def test_what_the_format_does_not_tell_is_null(tmp_path: Path) -> None:
    recorded(tmp_path / "ours")
    as_others_write_it(tmp_path / "ours", tmp_path / "theirs")
    report = summarize(tmp_path / "theirs")
    assert report.recorded_reasons == {}
    assert report.disagreements.steps_compared == 0
    assert report.recomputed_tokens is None
    assert report.output_tokens is None
    assert report.throughput.output_tokens_per_s is None
    assert report.header.gpu_inferred
    assert report.header.model is None


def test_sampled_steps_give_no_times(tmp_path: Path) -> None:
    recorded(tmp_path / "ours")
    as_others_write_it(tmp_path / "ours", tmp_path / "theirs", every=3)
    report = summarize(tmp_path / "theirs")
    assert report.requests == 25
    assert report.times is None
    assert report.e2e_ms.mean is None


def test_counts_alone_tell_no_requests(tmp_path: Path) -> None:
    recorded(tmp_path / "ours")
    lists = [f"{queue}_{kind}_ids" for queue in ("running", "waiting") for kind in ("req", "job")]
    as_others_write_it(tmp_path / "ours", tmp_path / "theirs", *lists)
    report = summarize(tmp_path / "theirs")
    assert report.requests is None
    assert report.requests_finished is None
    assert report.arrivals is None
    assert report.steps == 37
    assert report.header.jobs == 0


def test_the_requests_file_alone_shows_the_queues(tmp_path: Path) -> None:
    _, summary = recorded(tmp_path)
    truth = summary.report()
    report = summarize(tmp_path / "sched_trace.fcfs.requests.jsonl")
    assert report.requests == truth.requests
    assert report.header.max_running == truth.header.max_running
    assert report.header.jobs == truth.header.jobs
    assert report.buckets["unknown"] == 26
    assert sum(report.buckets.values()) == report.steps


def test_job_lists_that_do_not_match_are_counted_only(tmp_path: Path) -> None:
    def snapshot(step: int, **fields: Any) -> bytes:
        return msgspec.json.encode({"event": "step_snapshot", "step": step, "ts": float(step), **fields})

    jobs = {"running_req_ids": ["a1", "a2", "b1"], "running_job_ids": ["a", "b"], "waiting_req_ids": []}
    (tmp_path / "t.steps.jsonl").write_bytes(b"\n".join([snapshot(0, **jobs), snapshot(1, **jobs)]))
    report = summarize(tmp_path)
    assert report.header.jobs == 2
    assert report.requests == 3


def test_preempted_requests_end_without_a_token_count(tmp_path: Path) -> None:
    summary = ReportBuilder()
    toy = RecordedYard(tmp_path / "ours", summary, num_gpu_blocks=9, enable_prefix_caching=False, max_num_seqs=2)
    toy.add("a", 12, max_tokens=12)
    toy.add("b", 12, max_tokens=12)
    toy.drain()
    toy.writer.close()
    as_others_write_it(tmp_path / "ours", tmp_path / "theirs")
    truth, found = summary.report(), summarize(tmp_path / "theirs")
    assert found.preemptions == truth.preemptions == 1
    assert found.e2e_ms == truth.e2e_ms
    assert found.ttft_ms == truth.ttft_ms
    # Only a's time per token is known.
    assert found.tpot_ms.mean == 500.0


def test_a_trace_of_ours_that_lost_its_first_line_is_not_reconstructed(tmp_path: Path) -> None:
    _, summary = recorded(tmp_path)
    (file,) = tmp_path.glob("*.steps.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[1:]))
    report = summarize(file)
    assert report.times == "recorded"
    assert report.e2e_ms == summary.report().e2e_ms
