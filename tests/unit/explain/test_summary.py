"""The summary: one report from a live run and from its trace, and the numbers in it."""

from __future__ import annotations

import copy
import pickle
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.trace.recorded import RecordedYard

from tokenyard.errors import TraceError
from tokenyard.explain.classifier import Bucket, StepReason
from tokenyard.explain.figures import LatencyFigures
from tokenyard.explain.population import Outcomes
from tokenyard.explain.recorded_reasons import RecordedReason, RecordedReasonCounter, WorstStep
from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.explain.report.report import HitRate, Report
from tokenyard.explain.report.summary import summarize
from tokenyard.trace.facts import StepFacts
from tokenyard.trace.schema import AdmissionOutcome, KVNumbers

KEYS = [
    *["steps", "requests", "requests_finished", "buckets", "reasons", "recorded_reasons"],
    *["ttft_ms", "tpot_ms", "e2e_ms", "queue_ms", "prefix_hit_rate", "preemptions", "recomputed_tokens"],
    *["token_budget_use", "throughput", "disagreements", "arrivals", "header", "reading"],
]


def run(path: Path | None, *, seed: int = 1, **options: Any) -> tuple[RecordedYard, ReportBuilder]:
    """A life under pressure, watched by a summary."""
    summary = ReportBuilder()
    settings = {"num_gpu_blocks": 60, "max_num_seqs": 6, "max_num_batched_tokens": 48} | options
    toy = RecordedYard(path, summary, **settings)
    rng = random.Random(seed)
    for number in range(60):
        length = rng.randint(1, 50)
        prompt: Any = list(range(length)) if number % 2 else length
        toy.add(f"r{number}", prompt, max_tokens=rng.randint(1, 12), arrival_time=toy.now, job_id=f"job{number % 7}")
        if rng.random() < 0.1:
            toy.abort(rng.choice(list(toy.scheduler.requests)))
        if toy.scheduler.has_requests():
            toy.step()
    toy.drain()
    toy.writer.close()
    return toy, summary


def watched(*, at_every_step: bool) -> list[object]:
    """What a summary answers in the middle of a run; ``at_every_step``: it is also asked, and adds, after each step."""
    summary = ReportBuilder()
    toy = RecordedYard(None, summary, num_gpu_blocks=30, max_num_seqs=4)
    seen: list[object] = []
    for number in range(40):
        toy.add(f"r{number}", 5 + number % 20, max_tokens=12, arrival_time=toy.now)
        toy.step()
        if at_every_step:
            assert summary.busy_seconds is not None
        if number % 7 == 3:
            seen.append(summary.busy_seconds)
        if number % 7 == 5:
            kept = pickle.loads(pickle.dumps(summary))
            seen += [copy.deepcopy(summary).report(), kept.report(), kept.busy_seconds]
        if number % 7 == 6:
            seen.append(summary.report())
    toy.drain()
    return [*seen, ReportBuilder.joined([summary, ReportBuilder()]).report()]


def test_whoever_looks_sees_all_that_was_told() -> None:
    assert watched(at_every_step=True) == watched(at_every_step=False)


def lonely(path: Path | None, *, looks: int | None) -> Report:
    """Long stretches of decode in which every step repeats the last; ``looks``: a report after every so many steps."""
    summary = ReportBuilder()
    toy = RecordedYard(path, summary, num_gpu_blocks=200, max_model_len=400)
    toy.add("first", 9, max_tokens=90, arrival_time=0.0)
    for step in range(140):
        if step == 40:
            toy.add("second", 5, max_tokens=60, arrival_time=toy.now)
        if step == 70:
            toy.add("unseen", 5, arrival_time=toy.now - 0.25)
            toy.now += 0.125
            toy.abort("unseen")
        if looks is not None and step % looks == 0:
            summary.report()
        if toy.scheduler.has_requests():
            toy.step()
    toy.writer.close()
    return summary.report()


def comparable(report: Report) -> dict[str, Any]:
    """A report without what tells where it came from."""
    fields = msgspec.to_builtins(report)
    fields["header"] |= {"source": None, "request_records": None}
    del fields["reading"]
    return dict(fields)


def test_repeated_steps_count_like_others(tmp_path: Path) -> None:
    live = comparable(lonely(tmp_path, looks=None))
    assert live == comparable(summarize(tmp_path))
    assert live["steps"] == 101
    assert live["unseen_s"] == 0.375


@pytest.mark.parametrize("looks", [1, 7])
def test_a_report_in_between_changes_no_count(looks: int) -> None:
    looked, alone = comparable(lonely(None, looks=looks)), comparable(lonely(None, looks=None))
    assert looked == alone


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("bound", [None, 2])
def test_the_live_report_and_the_report_on_the_trace_are_equal(tmp_path: Path, seed: int, bound: int | None) -> None:
    trace = {"request_records": False, "max_ids_per_step": bound}
    _, summary = run(tmp_path, seed=seed, trace=trace)
    live, read = summary.report(), summarize(tmp_path)
    assert comparable(live) == comparable(read)
    assert (read.reading.omitted_ids > 0) == (bound is not None)
    assert live.header.source is None
    assert read.header.source == str(tmp_path / "sched_trace.fcfs.steps.jsonl")


def test_every_step_has_one_bucket_and_every_blocked_one_a_reason(tmp_path: Path) -> None:
    run(tmp_path)
    report = summarize(tmp_path)
    assert list(report.buckets) == list(Bucket)
    assert list(report.reasons) == list(StepReason)
    assert sum(report.buckets.values()) == report.steps
    healthy = [Bucket.ADMITTED_ALL, Bucket.UNDER_CAPACITY, Bucket.IDLE]
    assert sum(report.reasons.values()) == report.steps - sum(report.buckets[name] for name in healthy)


def test_the_requests_file_is_optional_and_adds_the_least_need(tmp_path: Path) -> None:
    toy = RecordedYard(tmp_path, num_gpu_blocks=48)
    for name in ("a", "b", "c", "d", "e"):
        toy.add(name, 60, max_tokens=3)  # 15 blocks each: three fit
    toy.drain()
    toy.writer.close()
    whole, without = summarize(tmp_path), summarize(tmp_path, requests=False)
    assert whole.header.request_records is not None
    assert without.header.request_records is None
    assert without.reasons["kv-after-run"] == 0
    assert whole.reasons["kv-after-run"] == 1
    assert comparable(whole)["recorded_reasons"] == comparable(without)["recorded_reasons"]


_MORE = ("left_out", "unbounded")


def test_json_has_the_documented_keys(tmp_path: Path) -> None:
    run(tmp_path)
    fields = msgspec.json.decode(msgspec.json.encode(summarize(tmp_path)))
    assert set(KEYS) <= fields.keys()
    assert fields["report_version"] == 1
    for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "queue_ms"):
        assert list(fields[name]) == ["mean", "p50", "p90", "p99", "p95", "max", "censored", "never", *_MORE]
    assert list(fields["token_budget_use"]) == ["mean", "p50", "p95"]
    assert list(fields["prefix_hit_rate"]) == ["local", "external"]
    assert list(fields["throughput"]) == ["requests_per_s", "output_tokens_per_s"]
    assert all({"steps", "requests", "seconds"} <= reason.keys() for reason in fields["recorded_reasons"].values())


_ALL_ALIKE = LatencyFigures(mean=500.0, p50=500.0, p90=500.0, p99=500.0, p95=500.0, max=500.0)


def test_numbers_of_a_small_run(tmp_path: Path) -> None:
    """One place, two requests of four prompt and three output tokens; a step takes half a second."""
    summary = ReportBuilder()
    toy = RecordedYard(tmp_path, summary, max_num_seqs=1, max_num_batched_tokens=8)
    toy.now = 100.0
    toy.add("a", [1, 2, 3, 4], max_tokens=3, arrival_time=99.0, job_id="job")
    toy.add("b", [1, 2, 3, 4, 5], max_tokens=3, arrival_time=100.0)
    toy.drain()
    toy.writer.close()
    report = summary.report()
    # Steps at 100.0, 100.5, ... : a runs in the first three, b in the next three, the last reports that b is gone.
    assert (report.steps, report.requests, report.requests_finished) == (7, 2, 2)
    assert report.finish_reasons == {"length": 2}
    assert report.queue_ms == LatencyFigures(1250.0, 1250.0, 1450.0, 1495.0, 1475.0, 1500.0)
    assert report.ttft_ms.mean == pytest.approx(1750.0)
    assert report.tpot_ms == _ALL_ALIKE
    assert (report.itl_ms, report.itl_requests) == (_ALL_ALIKE, 2)
    assert report.e2e_ms.mean == pytest.approx((2500.0 + 3000.0) / 2)
    assert report.recorded_reasons == {
        "max_num_seqs": RecordedReason(
            steps=3, requests=3, seconds=1.5, kv_free=99 / 101, worst=WorstStep(1, 1, 2, 101)
        )
    }
    assert report.buckets == dict.fromkeys(Bucket, 0) | {
        Bucket.MAX_SEQS: 2,  # a runs
        Bucket.KV_TIGHT: 1,  # nothing runs yet, so the classifier sees no full batch and few blocks
        Bucket.ADMITTED_ALL: 1,
        Bucket.UNDER_CAPACITY: 2,
        Bucket.IDLE: 1,
    }
    assert report.prefix_hit_rate == HitRate(local=4 / 9, external=0.0)
    assert report.preemptions == report.recomputed_tokens == 0
    use = msgspec.to_builtins(report.token_budget_use)
    assert use == pytest.approx({"mean": (4 + 1 + 1 + 1 + 1 + 1) / 8 / 7, "p50": 1 / 8, "p95": 3.1 / 8})
    assert report.output_tokens == 6
    assert report.duration_s == 3.5
    assert report.throughput.requests_per_s == 2 / 3.5
    assert report.throughput.output_tokens_per_s == 6 / 3.5
    header = report.header
    assert (header.policy, header.gpu, header.gpu_inferred, header.model, header.host) == (
        "fcfs",
        "paper",
        False,
        "toy",
        "replay",
    )
    assert (header.first_step, header.last_step, header.seconds, header.max_running, header.jobs) == (0, 6, 3.0, 1, 1)
    assert header.kv_bytes == 101 * 2 * 2**20 // 4


def test_lost_time_is_the_time_until_the_next_step(tmp_path: Path) -> None:
    """A request held back waits until the next decision, whenever that is."""
    summary = ReportBuilder()
    toy = RecordedYard(tmp_path, summary, max_num_seqs=1)
    for name in ("a", "b", "c"):
        toy.add(name, 4, max_tokens=2)
    toy.step()  # from 0.0 to 0.5
    toy.now = 3.0
    toy.step()
    toy.writer.close()
    # b and c wait from 0.0 to 3.0, then until the end of the last step.
    expected = {
        "max_num_seqs": RecordedReason(
            2, 4, 2 * 3.0 + 2 * 0.5, kv_free=(100 + 99) / 2 / 101, worst=WorstStep(1, 2, 2, 101)
        )
    }
    assert summary.report().recorded_reasons == summarize(tmp_path).recorded_reasons == expected


def test_waiting_time_is_what_the_reasons_took(tmp_path: Path) -> None:
    """No request waits without a recorded reason: the queueing times add up to the time lost in the queue."""
    summary = ReportBuilder()
    toy = RecordedYard(tmp_path, summary, max_num_seqs=3, num_gpu_blocks=40, enable_prefix_caching=False)
    for number in range(20):
        toy.add(f"r{number}", 5 + number, max_tokens=6, arrival_time=toy.now)
        toy.step()
    toy.drain()
    toy.writer.close()
    report = summary.report()
    assert report.preemptions == 0
    waited = sum((request.times.first_scheduled or 0) - request.arrival_time for request in toy.requests.values())
    lost = sum(reason.seconds for reason in report.recorded_reasons.values())
    assert lost == pytest.approx(waited)
    assert waited == 85.5


def test_aborted_requests_count_by_how_long_they_were_there(tmp_path: Path) -> None:
    summary = ReportBuilder()
    toy = RecordedYard(tmp_path, summary)
    toy.add("a", 4, max_tokens=20)
    toy.add("b", 4, max_tokens=2)
    toy.steps(1)
    toy.abort("a")
    toy.drain()
    report = summary.report()
    assert report.finish_reasons == {"abort": 1, "length": 1}
    assert report.requests_finished == 2
    assert report.e2e_ms.mean == pytest.approx((500.0 + 1000.0) / 2)
    assert report.e2e_ms.censored == ("mean", "p50", "p90", "p95", "p99", "max")
    assert report.ttft_ms.censored == ()
    assert report.outcomes == Outcomes(arrived=2, served=1, refused=0, cancelled=1, unfinished=0)


def test_a_sampled_trace_says_so(tmp_path: Path) -> None:
    _, summary = run(tmp_path, trace={"every_n": 4, "request_records": False})
    live, read = summary.report(), summarize(tmp_path)
    assert read.reading.sampled_every == 4
    assert live.reading.sampled_every == 1
    assert read.steps == -(-live.steps // 4)
    # What belongs to requests is whole.
    assert (read.requests, read.ttft_ms, read.prefix_hit_rate) == (live.requests, live.ttft_ms, live.prefix_hit_rate)
    assert read.output_tokens is not None
    assert live.output_tokens is not None
    assert read.output_tokens <= live.output_tokens  # of finished requests; an abort may come before its last token


def test_the_step_limit_is_reported(tmp_path: Path) -> None:
    run(tmp_path / "cut", trace={"max_steps": 20})
    run(tmp_path / "whole")
    assert summarize(tmp_path / "cut").reading.step_limit_reached
    assert summarize(tmp_path / "cut").steps == 20
    assert not summarize(tmp_path / "whole").reading.step_limit_reached


def test_an_empty_summary_reports_nothing_at_all() -> None:
    report = ReportBuilder().report()
    assert (report.steps, report.requests, report.requests_finished) == (0, 0, 0)
    assert report.duration_s is None
    assert report.throughput.requests_per_s is None
    assert report.ttft_ms == LatencyFigures()
    assert report.header.gpu == "unknown"


def test_no_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="holds no"):
        summarize(tmp_path)


@pytest.mark.parametrize(("watermark", "reserved", "would_fit"), [(0, 0, 1), (4, 0, 1), (3, 2, 0)])
def test_blocks_that_are_spoken_for_fit_nobody(watermark: int, reserved: int, would_fit: int) -> None:
    reasons = RecordedReasonCounter()
    kv = KVNumbers(needed=20, free=12, watermark=watermark, reserved=reserved)
    outcome = AdmissionOutcome(step=0, reason="kv_blocks", num_requests=2, kv=kv, smallest_need=8)
    reasons.add(outcome, micros=1, facts=StepFacts(step=0, outcome=outcome))
    means = reasons.result()["kv_blocks"].kv
    assert means is not None
    assert means.smaller_would_fit_steps == would_fit
