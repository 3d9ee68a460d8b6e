"""What an input has measured stands beside what its replay gives, and step times can be scaled to it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenyard import ConfigError, Deployment, load_workload, plan, run, whatif
from tokenyard.cli.main import main
from tokenyard.explain.measured import RequestTimes, compared
from tokenyard.questions.measured import measured_times
from tokenyard.questions.run import RunResult
from tokenyard.workload.measured import Measured

SMALL = Deployment(model="llama-3.2-1b", gpu="l4", max_num_seqs=16, max_model_len=4096)
WORDS = ["--model", "llama-3.2-1b", "--gpu", "l4", "--max-num-seqs", "16", "--max-model-len", "4096"]
SENT: dict[str, Any] = {"num_prompts": 80, "input_len": 600, "output_len": 24, "random_range_ratio": 0.5}


@cache
def replayed(rate: float = 12.0, **settings: Any) -> RunResult:
    """A service that is measured: a replay with step times of its own."""
    return run("random", SMALL.with_(**settings), request_rate=rate, **SENT)


def bench_file(path: Path, result: RunResult, times: float = 1.0, **changed: Any) -> Path:
    """What vllm bench serve would have written of it, had it taken so many times as long."""
    rows = sorted(result.requests, key=lambda row: row["arrival_s"])
    first = [(row["first_token_s"] - row["arrival_s"]) * times for row in rows]
    rest = [(row["finished_s"] - row["first_token_s"]) * times for row in rows]
    gaps = [max(row["output_tokens"] - 1, 0) for row in rows]
    written: dict[str, Any] = {
        "model_id": "meta-llama/Llama-3.2-1B",
        "num_prompts": len(rows),
        "request_rate": 12.0,
        "burstiness": 1.0,
        "max_concurrency": None,
        "request_throughput": 11.0,
        "total_input_tokens": sum(row["prompt_tokens"] for row in rows),
        "input_lens": [row["prompt_tokens"] for row in rows],
        "output_lens": [row["output_tokens"] for row in rows],
        "ttfts": first,
        "itls": [[whole / n] * n for whole, n in zip(rest, gaps, strict=True)],
        "start_times": [1000.0 + row["arrival_s"] for row in rows],
    }
    kept = {name: value for name, value in (written | changed).items() if value is not ...}
    path.write_text(json.dumps(kept))
    return path


def access_log(path: Path, result: RunResult, **more: Any) -> Path:
    """The same as lines of a gateway; ``more``: function of a row's number -> fields beside its own."""
    rows = sorted(result.requests, key=lambda row: row["arrival_s"])
    lines = []
    for i, row in enumerate(rows):
        line = {
            "request_id": row["request_id"],
            "timestamp": 1.7e9 + row["arrival_s"],
            "status": 200,
            "duration_ms": 1e3 * (row["finished_s"] - row["arrival_s"]),
            "prompt_tokens": row["prompt_tokens"],
            "completion_tokens": row["output_tokens"],
        }
        lines.append(line | {name: of(i, row) for name, of in more.items()})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


# ---- both sides, of the requests that both have


def both_sides(factor: float, n: int = 50, **of: Any) -> Any:
    """A comparison whose replay takes ``factor`` times what was measured."""
    rng = np.random.default_rng(1)
    ttft, rest = rng.uniform(0.1, 1.0, n), rng.uniform(1.0, 5.0, n)
    arrived, nothing = np.arange(n) / 2, np.full(n, np.nan)
    ours = RequestTimes(arrived, ttft, rest / 9, ttft + rest, nothing)
    theirs = RequestTimes(arrived, ttft * factor, rest / 9 * factor, (ttft + rest) * factor, nothing)
    return compared(ours, theirs, prompt_tokens=np.ones(n), **of)


@pytest.mark.parametrize(
    ("factor", "code"),
    [
        (1.0, "agrees"),
        (1.09, "agrees"),
        (0.92, "agrees"),
        (1.3, "off"),
        (0.7, "off"),
        (2.0, "misleads"),
        (0.1, "misleads"),
    ],
)
def test_the_verdict_is_by_the_figure_that_is_furthest_off(factor: float, code: str) -> None:
    found = both_sides(factor)
    assert found.verdict.code == code
    assert found.ttft_ms.ratio.p99 == pytest.approx(factor)
    if code != "agrees":
        assert found.verdict.figure in ("ttft_mean", "tpot_mean", "e2e_mean")
        assert found.verdict.ratio == pytest.approx(factor)


def test_figures_are_numpys_and_of_requests_on_both_sides() -> None:
    nan = np.nan
    ours = RequestTimes(
        np.array([0.0, 1, 2, 3]),
        np.array([1.0, 2, nan, 4]),
        np.full(4, nan),
        np.array([5.0, 6, 7, nan]),
        np.full(4, nan),
    )
    theirs = RequestTimes(
        np.array([0.0, 1, 2, 3]),
        np.array([2.0, nan, 9, 8]),
        np.full(4, nan),
        np.array([9.0, nan, 9, 9]),
        np.full(4, nan),
    )
    found: Any = compared(ours, theirs, prompt_tokens=np.ones(4))
    assert (found.requests, found.measured_requests) == (3, 4)
    assert found.tpot_ms is None
    assert found.ttft_ms.requests == 2
    assert found.ttft_ms.measured.mean == 2500.0
    assert found.ttft_ms.replayed.p90 == pytest.approx(1e3 * np.percentile([2.0, 8.0], 90))
    assert found.e2e_ms.measured.p99 == pytest.approx(1e3 * np.percentile([5.0, 7.0], 99))
    assert found.served_per_s.measured == pytest.approx(2 / 9)  # from 0 to 2 + 7 s
    assert found.served_per_s.replayed == pytest.approx(2 / 11)
    assert "Of 3 requests only" in found.verdict.sentence


def test_more_at_once_than_there_are_places_is_another_deployment() -> None:
    assert both_sides(1.0, seats=100).verdict.code == "agrees"
    found = both_sides(1.0, seats=3)
    assert found.generating_at_once > 4
    assert found.verdict.code == "other_deployment"
    assert "this deployment runs 3" in found.verdict.sentence


def test_hits_alone_say_nothing_of_times() -> None:
    nothing = np.full(30, np.nan)
    ours = RequestTimes(np.arange(30.0), nothing, nothing, nothing, np.full(30, 20.0))
    theirs = RequestTimes(np.arange(30.0), nothing, nothing, np.ones(30), np.full(30, 10.0))
    found: Any = compared(ours, theirs, prompt_tokens=np.full(30, 100.0))
    assert (found.cached_share.measured, found.cached_share.replayed, found.cached_share.ratio) == (0.2, 0.1, 0.5)
    assert found.verdict.code == "hits"
    assert "10.0 points apart" in found.verdict.sentence


# ---- results of vllm bench serve


def test_a_replay_of_its_own_times_agrees(tmp_path: Path) -> None:
    found = run(bench_file(tmp_path / "bench.json", replayed()), SMALL).report.measured
    assert found is not None
    assert found.requests == found.measured_requests == 80
    for _, latency in found.latencies():
        assert latency.ratio is not None
        assert latency.ratio.mean == pytest.approx(1.0, abs=0.02)
    assert found.verdict is not None
    assert found.verdict.code == "agrees"


def test_measured_stands_beside_replayed_in_text_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = bench_file(tmp_path / "bench.json", replayed(4.0), times=4.0)
    assert main(["run", str(path), *WORDS, "--advice", "none"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Measured beside replayed, of 80 requests" in text
    assert "do not trust the predicted times" in text
    assert main(["run", str(path), *WORDS, "--advice", "none", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    measured = found["measured"]
    assert measured["ttft_ms"]["replayed"]["p99"] == pytest.approx(found["ttft_ms"]["p99"])
    assert measured["ttft_ms"]["ratio"]["mean"] == pytest.approx(0.25, rel=0.05)
    assert measured["verdict"]["code"] == "misleads"
    assert str(run(path, SMALL)).count("Measured beside replayed") == 1


def test_a_result_without_moments_is_sent_as_it_says(tmp_path: Path) -> None:
    path = bench_file(tmp_path / "old.json", replayed(), start_times=...)
    workload = load_workload(path, seed=3)
    assert "drawn_as_stated" in {each.code for each in workload.remarks}
    assert workload.requests[-1].arrival_time == pytest.approx(80 / 12, rel=0.4)
    assert workload.requests[5].measured is not None
    found = run(workload, SMALL).report.measured
    assert found is not None
    assert found.served_per_s is not None
    assert found.served_per_s.measured == 11.0
    assert found.generating_at_once is None
    closed = bench_file(tmp_path / "closed.json", replayed(), start_times=..., request_rate="inf", max_concurrency=4)
    assert load_workload(closed).max_concurrency == 4


def test_times_of_another_load_are_not_compared(tmp_path: Path) -> None:
    path = bench_file(tmp_path / "bench.json", replayed())
    for other in ({"rate_scale": 2.0}, {"request_rate": 5.0}, {"max_concurrency": 3}):
        workload = load_workload(path, **other)
        assert "other_load" in {each.code for each in workload.remarks}
        assert run(workload, SMALL).report.measured is None
    assert run("random", SMALL, **SENT).report.measured is None


# ---- access logs


def test_errors_are_counted_apart_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    statuses = {3: 429, 9: 429, 11: 503, 20: 499}
    path = access_log(tmp_path / "access.jsonl", replayed(), status=lambda i, _: statuses.get(i, 200))
    workload = load_workload(path)
    assert len(workload) == 77
    assert workload.service.not_served == {"429": 2, "503": 1}
    texts = {each.code: each.text for each in workload.remarks if each.warning}
    assert "3 requests were answered with an error" in texts["not_served"]
    assert "(429: 2, 503: 1)" in texts["not_served"]
    assert "(499: 1)" in texts["broken_off"]
    assert sum(each.measured is None for each in workload) == 1  # its client did not wait: no time of the service
    assert main(["import", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["measured"]["not_served"] == {"429": 2, "503": 1}
    assert told["measured"]["e2e_ms"]["requests"] == 76
    assert main(["import", str(path)]) == 0
    assert "3 requests were answered with an error (429: 2, 503: 1)" in " ".join(capsys.readouterr().out.split())
    report = run(path, SMALL).report
    assert report.measured is not None
    assert report.measured.not_served == {"429": 2, "503": 1}
    assert report.measured.requests == 76


def test_errors_are_counted_over_the_requests_that_a_limit_takes(tmp_path: Path) -> None:
    """The 429 stands before the tenth request that is taken, the others after it."""
    statuses = {3: 429, 6: 499, 30: 429, 31: 503, 40: 499}
    path = access_log(tmp_path / "access.jsonl", replayed(), status=lambda i, _: statuses.get(i, 200))
    workload = load_workload(path, limit=10)
    assert len(workload) == 10
    assert workload.service.not_served == {"429": 1}
    texts = {each.code: each.text for each in workload.remarks}
    assert texts["not_served"].startswith("1 requests were answered with an error")
    assert "(499: 1)" in texts["broken_off"]
    assert load_workload(path, limit=1000).service.not_served == {"429": 2, "503": 1}
    assert load_workload(path, limit=3).service.not_served == {}
    other = access_log(tmp_path / "other.jsonl", replayed(), status=lambda i, _: 503 if i == 5 else 200)
    both = load_workload([path, other], limit=12)
    assert both.service.not_served == {"429": 1, "503": 1}


def test_refusals_that_count_no_tokens_are_told_by_their_path(tmp_path: Path) -> None:
    path = access_log(tmp_path / "access.jsonl", replayed())
    with path.open("a") as file:
        for route in ("/v1/chat/completions", "/health"):
            file.write(json.dumps({"timestamp": 1.7e9, "status": 429, "path": route}) + "\n")
    assert load_workload(path).service.not_served == {"429": 1}


def test_times_and_hits_of_a_log(tmp_path: Path) -> None:
    path = access_log(
        tmp_path / "access.jsonl",
        replayed(),
        ttft_ms=lambda _, row: 1e3 * (row["first_token_s"] - row["arrival_s"]),
        cached_tokens=lambda i, _: 96 if i % 2 else 0,
    )
    found = run(path, SMALL).report.measured
    assert found is not None
    assert found.ttft_ms is not None
    assert found.tpot_ms is not None
    assert found.cached_share is not None
    assert found.cached_share.measured == pytest.approx(0.08, abs=0.01)
    assert found.cached_share.replayed == pytest.approx(found.cached_share.measured, abs=0.02)
    named = access_log(
        tmp_path / "named.jsonl", replayed(), wait=lambda _, row: row["first_token_s"] - row["arrival_s"]
    )
    assert np.isnan(measured_times(load_workload(named)).ttft).all()
    assert not np.isnan(measured_times(load_workload(named, columns="ttft=wait")).ttft).any()


def test_the_moment_of_the_first_token_is_a_ttft(tmp_path: Path) -> None:
    path = access_log(
        tmp_path / "log.jsonl", replayed(), completion_start_time=lambda _, row: 1.7e9 + row["first_token_s"]
    )
    times = measured_times(load_workload(path))
    assert not np.isnan(times.ttft).any()
    assert (times.ttft < times.e2e).all()


def test_what_was_measured_is_written_and_read(tmp_path: Path) -> None:
    workload = load_workload(
        access_log(
            tmp_path / "a.jsonl", replayed(), status=lambda i, _: 429 if i == 5 else 200, cached_tokens=lambda i, _: i
        )
    )
    workload.save(tmp_path / "own.jsonl")
    again = load_workload(tmp_path / "own.jsonl")
    assert [each.measured for each in again] == [each.measured for each in workload]
    assert again.service == workload.service
    assert Measured(1.0, 2.0, 0).tpot_s(3) == 0.5
    assert Measured(1.0, 2.0, 0).tpot_s(1) is None
    assert Measured(None, 2.0).tpot_s(3) is None


# ---- step times scaled to it


def test_factors_are_found_again(tmp_path: Path) -> None:
    """A service whose decodes take 1.6 times what the model says, and its prompts 2.5 times."""
    path = bench_file(tmp_path / "bench.json", replayed(6.0, step_time_factors="1.6,2.5"))
    plainly = run(path, SMALL).report.measured
    assert plainly is not None
    assert plainly.calibration is None
    assert plainly.verdict is not None
    assert plainly.verdict.code == "misleads"
    result = run(path, SMALL, calibrate=True)
    found = result.report.measured
    assert found is not None
    assert found.verdict is not None
    assert found.verdict.code == "agrees"
    assert found.calibration is not None
    assert found.calibration.decode == pytest.approx(1.6, rel=0.08)
    assert found.calibration.prefill == pytest.approx(2.5, rel=0.08)
    assert found.calibration.decode_requests == 80
    assert found.calibration.prefill_requests >= 10
    assert "scaled, decodes x" in str(result.report.header.step_time_error)
    assert "--step-time-factors" in str(result)


def test_durations_alone_give_one_factor(tmp_path: Path) -> None:
    path = access_log(tmp_path / "access.jsonl", replayed(6.0, step_time_factors="0.6"))
    found = run(path, SMALL, calibrate=True).report.measured
    assert found is not None
    assert found.calibration is not None
    assert found.calibration.decode_from == "e2e"
    assert found.calibration.decode == found.calibration.prefill == pytest.approx(0.6, rel=0.05)
    assert found.calibration.prefill_requests == 0
    assert "for want of a TTFT" in found.calibration.sentence


def test_what_fits_is_left_alone(tmp_path: Path) -> None:
    found = run(bench_file(tmp_path / "bench.json", replayed()), SMALL, calibrate=True).report.measured
    assert found is not None
    assert found.calibration is not None
    assert (found.calibration.decode, found.calibration.prefill, found.calibration.replays) == (1.0, 1.0, 1)
    assert "stay as they are" in found.calibration.sentence


def test_a_plan_takes_the_factors_for_every_variant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = bench_file(tmp_path / "bench.json", replayed(6.0, step_time_factors="1.6,2.5"))
    asked: dict[str, Any] = {"space": {"max_num_seqs": [8, 16]}, "largest_load": False, "jobs": 1, "request_rate": 9.0}
    found = plan(path, SMALL, slo={"ttft_p90": "1s"}, calibrate=True, **asked)
    assert found.calibration is not None
    assert found.calibration.decode == pytest.approx(1.6, rel=0.08)
    assert found.uncertainty[0] == found.calibration.sentence
    scaled = plan(path, SMALL.with_(step_time_factors=found.calibration.setting), slo={"ttft_p90": "1s"}, **asked)
    assert scaled.calibration is None
    assert [row.figures["tpot_ms.mean"] for row in found.rows] == [row.figures["tpot_ms.mean"] for row in scaled.rows]
    words = [
        "--set",
        "max_num_seqs=8",
        "--slo",
        "ttft_p90=1s",
        "--no-largest-load",
        "--jobs",
        "1",
        "--calibrate",
        "--json",
    ]
    assert main(["plan", str(path), *WORDS, *words]) == 0
    assert json.loads(capsys.readouterr().out)["calibration"]["decode_requests"] == 80


@pytest.mark.parametrize(
    ("workload", "settings", "problem"),
    [
        ("chat", {}, "has times of 0 requests"),
        ("bench.json", {"max_num_seqs": 2}, "this deployment runs 2"),
        ("odd.json", {}, "no factors of step times give what was measured"),
    ],
)
def test_what_cannot_be_scaled_is_refused(
    tmp_path: Path, workload: str, settings: dict[str, Any], problem: str
) -> None:
    bench_file(tmp_path / "bench.json", replayed(40.0))
    bench_file(tmp_path / "odd.json", replayed(), ttfts=[5.0] * 80, itls=[[1e-5]] * 80)
    name = workload if workload == "chat" else str(tmp_path / workload)
    with pytest.raises(ConfigError, match=problem) as caught:
        run(name, SMALL.with_(**settings), calibrate=True)
    assert caught.value.field == "calibrate"


def test_durations_without_a_unit_are_what_services_take(tmp_path: Path) -> None:
    """A column ``duration`` of milliseconds: as seconds, an answer would take hours."""
    path = access_log(
        tmp_path / "log.jsonl",
        replayed(),
        duration_ms=lambda _, __: None,
        duration=lambda _, row: 1e3 * (row["finished_s"] - row["arrival_s"]) * 10,
    )
    workload = load_workload(path)
    said = next(each for each in workload.remarks if each.code == "duration_unit")
    assert said.text.startswith("durations are read as ms")
    row = min(replayed().requests, key=lambda each: each["arrival_s"])
    assert measured_times(workload).e2e[0] == pytest.approx((row["finished_s"] - row["arrival_s"]) * 10)


def test_a_trace_holds_the_factors_already(tmp_path: Path) -> None:
    """A what-if multiplies scaled step times by the model's ratio, and knows its error as before."""
    given: dict[str, Any] = {"plain": {}, "scaled": {"step_time_factors": "2"}}
    plainly, scaled = (
        run("random", SMALL.with_(**settings), request_rate=6.0, trace=tmp_path / name, **SENT)
        for name, settings in given.items()
    )
    assert plainly.trace is not None
    assert scaled.trace is not None
    for trace in (plainly.trace, scaled.trace):
        answer = whatif(trace, {"gpu": "l40s"})
        change = next(each.change for each in answer.variants[0].figures if each.name == "tpot_ms.mean")
        assert change == pytest.approx(-0.64, abs=0.1)
        assert any("nine of ten within" in note for note in answer.variants[0].notes)
