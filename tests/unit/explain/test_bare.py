"""Traces of another emitter that record no reasons: the first sentence names what was planted in them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.support.bare import BEGIN, Engine, Planted, Turn, write_bare

from tokenyard.cli.main import main
from tokenyard.explain.classifier import BUCKETS, Bucket
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.summary import summarize
from tokenyard.explain.why.stuck import standstills

SECONDS = 120.0


def chat(rate: float, *, seed: int = 1, output: int = 60, until: float = SECONDS) -> list[Turn]:
    """Short questions of jobs of two users."""
    rng, at, turns = random.Random(seed), 0.0, list[Turn]()
    while (at := at + rng.expovariate(rate)) < until:
        job = f"{rng.choice(('acme', 'birch'))}_{len(turns):04}"
        turns.append(Turn(at, job, rng.randint(100, 600), rng.randint(output // 2, output * 2)))
    return turns


def report_of(path: Path, engine: Engine, turns: list[Turn], seconds: float = SECONDS) -> tuple[Report, Planted]:
    planted = write_bare(path, engine, turns, seconds)
    report = summarize(path)
    agree(report, planted)
    return report, planted


def agree(report: Report, planted: Planted) -> None:
    """What the report counts is what happened."""
    progress, verdict = report.progress, report.answer
    assert report.recorded_reasons == {}
    assert progress.request_s == pytest.approx(planted.present)
    assert progress.waited_s == pytest.approx(planted.waited)
    assert sum(progress.buckets.values()) == pytest.approx(planted.waited)
    assert verdict.unfinished == planted.arrived - planted.ended
    assert verdict.lost_s == progress.waited_s
    assert verdict.share == pytest.approx(planted.waited / planted.present)
    assert ("hardly waited" in verdict.sentence) == (verdict.code == "idle")


def test_requests_that_hardly_waited_are_said_to(tmp_path: Path) -> None:
    report, planted = report_of(tmp_path, Engine(), chat(2))
    assert report.answer.code == "idle"
    assert np.percentile(planted.queue, 99) < 1
    assert report.answer.sentence == "Requests hardly waited for the scheduler."


def test_a_flooding_tenant_is_named(tmp_path: Path) -> None:
    flood = [Turn(40 + i / 8, f"zeta_{i:04}", 5000, 8) for i in range(240)]
    report, planted = report_of(tmp_path, Engine(), chat(3) + flood)
    verdict, progress = report.answer, report.progress
    assert (verdict.code, verdict.bucket, verdict.family) == ("held_back", "tok-budget", "tokens")
    assert np.percentile(planted.queue, 99) > 3
    assert progress.whose is not None
    assert (progress.whose.kind, progress.whose.name, progress.whose.of) == ("user", "zeta", "tokens")
    assert progress.whose.share > 0.8
    assert progress.span is not None
    assert progress.span.start_ts == pytest.approx(BEGIN + 41, abs=2)
    assert "for the token budget of the steps (by the counts of the steps: tok-budget " in verdict.sentence
    assert "Jobs zeta... took 9" in verdict.sentence
    assert "mostly from 16:00:4" in verdict.sentence


def test_a_hog_is_named(tmp_path: Path) -> None:
    hog = [Turn(20, "hog", 20_000, 2_000)]
    report, _ = report_of(tmp_path, Engine(blocks=1_450), chat(3) + hog)
    verdict, holder = report.answer, report.progress.whose
    assert (verdict.code, verdict.family) == ("held_back", "memory")
    assert holder is not None
    assert (holder.kind, holder.of, holder.name.partition("_")[0]) == ("request", "blocks", "hog")
    assert "for KV blocks" in verdict.sentence
    assert f"Request {holder.name} had 8" in verdict.sentence


def test_eight_seats_are_named(tmp_path: Path) -> None:
    report, planted = report_of(tmp_path, Engine(seats=8), chat(4))
    verdict = report.answer
    assert (verdict.code, verdict.bucket, verdict.family) == ("overloaded", "max-seqs", "sequences")
    assert verdict.of_it is not None
    assert verdict.of_it > 0.8
    assert np.percentile(planted.queue, 99) > 8
    assert "for seats (as many ran as max_num_seqs allows)" in verdict.sentence
    assert f"{planted.arrived - planted.ended} of {planted.arrived} requests had not ended" in verdict.sentence


def test_a_pool_that_halves_is_named(tmp_path: Path) -> None:
    report, _ = report_of(tmp_path, Engine(blocks=400, halved_at=60), chat(4))
    verdict, changes = report.answer, report.progress.pool_changes
    assert (verdict.code, verdict.family) == ("overloaded", "memory")
    assert [(each.before, each.after) for each in changes] == [(400, 200)]
    assert changes[0].ts == pytest.approx(BEGIN + 60, abs=0.1)
    assert "The pool fell from 400 to 200 KV blocks (total_blocks) at 16:01:00 UTC." in verdict.sentence


def test_a_leak_of_pins_is_named(tmp_path: Path) -> None:
    report, planted = report_of(tmp_path, Engine(blocks=2_000, leaks_from=30), chat(4))
    verdict, pins = report.answer, report.progress.pins
    assert pins is not None
    assert planted.pinned_since is not None
    assert (pins.from_blocks, pins.blocks) == (0, planted.pinned)
    assert pins.since_ts == pytest.approx(BEGIN + planted.pinned_since, abs=1e-5)
    assert pins.share == planted.pinned / 2_000 > 0.9
    assert verdict.code == "stuck"
    stall = report.progress.stall
    assert stall is not None
    assert planted.last_token < stall.start_ts - BEGIN < planted.last_token + 0.1
    assert stall.end_ts == pytest.approx(BEGIN + planted.end, abs=1e-5)
    assert verdict.sentence.startswith("No token since 16:0")
    assert "pins hold 100.0 % of the KV blocks (pinned_blocks): since 16:00:30 UTC" in verdict.sentence
    assert f"they grew from 0 to {planted.pinned:,}, and none was let go." in verdict.sentence
    assert "KV blocks" not in " ".join(each.title for each in report.advice)


def test_a_stuck_scheduler_is_named_although_those_who_ended_did_not_wait(tmp_path: Path) -> None:
    report, planted = report_of(tmp_path, Engine(stuck_from=70), chat(3))
    verdict = report.answer
    assert max(planted.queue) < 1
    assert report.queue_ms.p50 == 0
    assert verdict.code == "stuck"
    assert verdict.lever is None
    assert report.progress.stall is not None
    never = planted.arrived - planted.ended
    assert verdict.sentence.startswith("No token since 16:01:10 UTC, 50.0 s before the trace ends: ")
    assert f"{never} of {planted.arrived} requests never ended." in verdict.sentence
    (place,) = standstills(tmp_path).places
    assert (place.num_waiting, place.ends_trace, place.num_steps) == (report.progress.stall.num_waiting, True, 1250)
    assert place.start_ts == pytest.approx(BEGIN + 70, abs=0.05)


def test_a_pause_in_the_middle_is_named_and_is_not_stuck(tmp_path: Path) -> None:
    write_bare(tmp_path, Engine(stuck_from=30), chat(3), 50)
    path = next(tmp_path.iterdir())
    numbers = {json.loads(line)["step"] for line in path.read_text("utf-8").splitlines()}
    write_bare(tmp_path / "after", Engine(), chat(3, until=40), 40)
    later = next((tmp_path / "after").iterdir()).read_text("utf-8").splitlines()
    with path.open("a", encoding="utf-8") as lines:
        for record in map(json.loads, later):
            record["step"] += max(numbers) + 1
            record["ts"] += 50.1
            lines.write(json.dumps(record) + "\n")
    report = summarize(path)
    assert report.answer.code == "held_back"
    assert report.progress.stall is not None
    assert not report.progress.stall.ends_trace
    assert report.progress.stall.seconds == pytest.approx(20, abs=0.3)
    assert "No token was scheduled for 20." in report.answer.sentence


def test_snapshots_alone_show_how_long_and_not_for_what(tmp_path: Path) -> None:
    write_bare(tmp_path, Engine(seats=8, snapshots_alone=True), chat(4), SECONDS)
    report = summarize(tmp_path)
    verdict = report.answer
    assert (verdict.code, verdict.bucket, verdict.family) == ("overloaded", "unknown", "unknown")
    assert " Requests waited " in verdict.sentence
    assert "the trace does not show for what" in verdict.sentence
    assert "Not known: requests waited" in " ".join(str(report).split())


@pytest.mark.parametrize("seed", range(6))
def test_any_engine_is_counted_as_it_was(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    engine = Engine(
        blocks=rng.randint(100, 900),
        seats=rng.randint(2, 40),
        budget=rng.choice((256, 1024, 4096)),
        halved_at=rng.choice((None, 20.0)),
        leaks_from=rng.choice((None, None, 25.0)),
        stuck_from=rng.choice((None, None, 30.0)),
    )
    report, _ = report_of(tmp_path, engine, chat(rng.uniform(0.5, 6), seed=seed, until=40), 40)
    named = report.answer.bucket
    if named is not None:
        assert report.answer.family == BUCKETS[Bucket(named)].family or len(report.progress.buckets) > 1


def test_json_has_the_fields_and_comes_back_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, _ = report_of(tmp_path, Engine(blocks=400, halved_at=20, leaks_from=30), chat(4, until=60), 60)
    assert main(["report", str(tmp_path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["progress"] == msgspec.to_builtins(report.progress)
    assert answer["answer"]["code"] == report.answer.code
    assert answer["answer"]["bucket"] in answer["progress"]["buckets"]
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.replace("\n", " ").startswith(report.answer.sentence[:60])


def test_a_stuck_engine_is_not_called_fine_where_reasons_are_recorded(tmp_path: Path) -> None:
    planted = write_bare(tmp_path, Engine(blocks=2_000, leaks_from=30), chat(4), SECONDS)
    path = next(tmp_path.iterdir())
    lines, waiting = list[str](), 0
    for record in map(json.loads, path.read_text("utf-8").splitlines()):
        lines.append(json.dumps(record))
        if record["event"] == "step_snapshot":
            waiting = record["num_waiting"]
        elif held := waiting - len(record["scheduled_new_req_ids"]) - len(record["scheduled_resumed_req_ids"]):
            kind = {"event": "admission_outcome", "kind": "stopped", "reason": "kv_blocks", "num_requests": held}
            lines.append(json.dumps({**kind, "step": record["step"], "ts": record["ts"]}))
    path.write_text("\n".join(lines), "utf-8")
    report = summarize(path)
    verdict, reason = report.answer, report.recorded_reasons["kv_blocks"]
    assert report.progress.buckets == {}
    assert (verdict.code, verdict.reason, verdict.bucket) == ("stuck", "kv_blocks", None)
    assert verdict.share == pytest.approx(planted.waited / planted.present, rel=0.01)
    assert verdict.sentence.startswith("No token since 16:00:5")
    assert "wait (kv_blocks);" in verdict.sentence
    assert "pins hold 100.0 % of the KV blocks" in verdict.sentence
    assert reason.worst is not None
    assert reason.worst.used_blocks is not None
    assert reason.worst.used_blocks < 300, "what is pinned is not taken for what the running requests hold"


def test_one_of_several_engines_that_stands_still_is_named(tmp_path: Path) -> None:
    stuck = write_bare(tmp_path / "rank-0", Engine(stuck_from=30), chat(3, until=60), 60)
    going = write_bare(tmp_path / "rank-1", Engine(), chat(1, seed=2, until=90), 90)
    report = summarize(tmp_path)
    assert report.progress.request_s == pytest.approx(stuck.present + going.present)
    assert report.progress.stall is not None
    assert report.progress.stall.end_ts == pytest.approx(BEGIN + stuck.end, abs=1e-5), "not when the other one ends"
    assert report.answer.code == "stuck"
    assert report.answer.sentence.startswith("In an engine of 2 no token since 16:00:30 UTC")


def test_a_sampled_trace_shows_about_as_much_waiting(tmp_path: Path) -> None:
    planted = write_bare(tmp_path, Engine(seats=8), chat(4), SECONDS)
    path = next(tmp_path.iterdir())
    lines = [line for line in path.read_text("utf-8").splitlines() if json.loads(line)["step"] % 10 == 0]
    path.write_text("\n".join(lines), "utf-8")
    verdict = summarize(path).answer
    assert (verdict.code, verdict.bucket) == ("overloaded", "max-seqs")
    assert verdict.share == pytest.approx(planted.waited / planted.present, rel=0.02)
    assert "queue p99" not in verdict.sentence, "a sampled trace has no times of requests"
