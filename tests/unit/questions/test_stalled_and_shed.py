"""Requests that stalled, were turned away or still wait are in every answer: of run, study and plan, by any policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokenyard as ty
from tokenyard.core.sched.outputs import EngineOutputs
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.policies import FeatureHook, StepBounds

SHORT_OF_KV = ty.Deployment(
    model="llama-3.1-8b", gpu="l4", max_model_len=600, latency="constant:0.02", num_gpu_blocks_override=40
)
"""Steps of 20 ms; memory for two of the requests below and a half."""
TRAFFIC: dict[str, Any] = {"num_prompts": 40, "request_rate": 4, "input_len": 120, "output_len": 130}
SEATS = ty.Deployment(
    model="llama-3.1-8b", gpu="l4", max_model_len=1024, latency="constant:0.02", max_num_seqs=2
)  # five requests of 20 tokens a second
CROWD: dict[str, Any] = {"num_prompts": 80, "request_rate": 10, "input_len": 40, "output_len": 20}


class Deliveries(ty.StepObserver):
    """Milliseconds between any two deliveries to one answer, as a client sees them."""

    reads_tokens = False

    def __init__(self) -> None:
        self.last: dict[str, float] = {}
        self.gaps: list[float] = []

    def step_completed(self, ts: float, output: SchedulerOutput, outputs: EngineOutputs) -> None:
        for each in outputs:
            if each.new_token_ids:
                if each.request_id in self.last:
                    self.gaps.append(1e3 * (ts - self.last[each.request_id]))
                self.last[each.request_id] = ts


class HoldsDecodes(ty.KeyedPolicy):
    """All answers but the first wait for 0.3 s between two tokens."""

    reads_tokens = False

    def __init__(self) -> None:
        self.told: dict[str, tuple[int, float]] = {}

    def key(self, request: ty.Request) -> tuple[float, ...]:
        return (request.arrival_time,)

    def step_begins(self, now: float, queues: object) -> StepBounds | None:
        holds = set()
        for each in self.context.state.running[1:]:
            tokens, since = self.told.get(each.request_id, (-1, now))
            if tokens != each.num_output_tokens:
                self.told[each.request_id] = each.num_output_tokens, (since := now)
            if each.num_output_tokens and now - since < 0.3:
                holds.add(each.request_id)
        return StepBounds(holds=holds, detail="later") if holds else None


class TurnsAway(FeatureHook):
    """Refuses requests while ten wait."""

    def __init__(self, policy: ty.Policy) -> None:
        super().__init__()
        self.policy = policy

    def check_request(self, request: ty.Request) -> None:
        if len(self.policy.context.state.waiting) >= 10:
            raise ty.RequestError(request.request_id, "load", 11, "send it later")


class Sheds(ty.Policy):
    """First come, first served, as long as not ten wait."""

    reads_tokens = False

    def __init__(self) -> None:
        self.hooks = (TurnsAway(self),)


class Newest(ty.KeyedPolicy):
    """The last to come goes first."""

    reads_tokens = False

    def key(self, request: ty.Request) -> tuple[float, ...]:
        return (-request.arrival_time,)


@pytest.mark.parametrize("policy", ["fcfs", "vllm-v0", HoldsDecodes])
def test_every_gap_counts_of_those_who_stalled(policy: Any) -> None:
    seen = Deliveries()
    run = ty.run("random", SHORT_OF_KV, policy=policy, observer=seen, slo="itl_max=200ms", **TRAFFIC)
    report = run.report
    assert policy is HoldsDecodes or (report.preemptions or 0) > 5
    assert max(seen.gaps) > 250, "some stand for long"
    assert report.itl_ms.max == pytest.approx(max(seen.gaps))
    assert report.itl_ms.p99 == pytest.approx(np.percentile(seen.gaps, 99), rel=1e-6)
    assert sorted(run.token_gaps().tolist()) == pytest.approx(sorted(seen.gaps))
    assert (report.itl_requests, report.itl_ms.left_out) == (40, 0)
    assert report.goodput is not None
    assert report.goodput.met is False


def test_no_plan_or_study_holds_a_bound_for_those_who_did_not_stall() -> None:
    space = {"num_gpu_blocks_override": [40, 2000]}
    plan = ty.plan("random", SHORT_OF_KV, space=space, slo="itl_max=200ms", largest_load=False, jobs=1, **TRAFFIC)
    rows = {row.settings["num_gpu_blocks_override"]: row for row in plan.rows}
    assert (rows[40].met, rows[2000].met, plan.holds) == (False, True, True)
    assert plan.recommended is not None
    assert plan.recommended.settings == {"num_gpu_blocks_override": 2000}
    study = ty.study("random", SHORT_OF_KV, policies=["fcfs", HoldsDecodes], **TRAFFIC)
    assert all(study.interval("itl_ms.max", cell).mean > 200 for cell in study.cells)  # type: ignore[union-attr]


def test_a_study_goes_on_in_the_same_process_with_workers(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"jobs": 2, "output": tmp_path / "kept", **CROWD | {"num_prompts": 5}}
    first = ty.study("random", SEATS, seeds=(0, 1), **asked)
    again = ty.study("random", SEATS, seeds=(0, 1, 2), **asked)
    assert again.rows[:2] == first.rows
    assert len(again.rows) == 3


def test_those_who_wait_for_a_first_token_are_in_the_tail_and_not_good() -> None:
    for policy in ("fcfs", Newest):
        run = ty.run("random", SEATS, policy=policy, until=6.0, slo="ttft_p99=1s ttft:1000", **CROWD)
        report, table = run.report, run.requests
        assert report.outcomes is not None
        assert report.goodput is not None
        silent = np.isnan(table["ttft_ms"])
        waited = (table["until_s"] - table["arrival_s"])[silent]
        assert report.outcomes.unfinished > 10
        assert report.goodput.requests == int(((table["e2e_ms"] > 0) & (table["ttft_ms"] <= 1000)).sum())
        assert report.goodput.arrived == len(table)
        soon = np.where(silent, 1e3 * (table["until_s"] - table["arrival_s"]), table["ttft_ms"]) <= 1000
        assert report.goodput.open == int((np.isnan(table["e2e_ms"]) & soon).sum())
        assert report.goodput.met is False
        assert "p99" in report.ttft_ms.censored
        assert (report.ttft_ms.p99 or 0) >= 1e3 * np.percentile(waited, 90)
        assert f"{report.outcomes.unfinished} unfinished" in str(report)
        assert str(report).startswith("Overloaded: ")


def test_those_who_are_turned_away_are_not_good_and_are_named() -> None:
    slo, asked = "ttft_p90=2s ttft:2000", {"skip_refused": True, **CROWD}
    run = ty.run("random", SEATS, policy=Sheds, slo=slo, **asked)
    report, table = run.report, run.requests
    assert report.outcomes is not None
    assert report.goodput is not None
    refused = report.outcomes.refused
    assert 10 < refused == 80 - report.outcomes.served
    good = int((table["ttft_ms"] <= 2000).sum())
    assert (report.goodput.requests, report.goodput.share) == (good, good / 80)
    assert (report.ttft_ms.censored, report.ttft_ms.p50) == (("mean", "p90", "p95", "p99", "max"), report.ttft_ms.p50)
    assert report.goodput.met is False
    assert f"{refused} of 80 requests were refused." in report.answer.sentence
    study = ty.study("random", SEATS, policies=["fcfs", Sheds], slo=slo, **asked)
    row = next(row for row in study.rows if row.settings["policy"] == "Sheds")
    assert (row.requests, row.refused, row.figures["goodput.share"]) == (80 - refused, refused, good / 80)
    assert "ttft_ms.p90" in row.censored


def test_no_plan_recommends_who_turns_requests_away_without_saying_so() -> None:
    """A deployment that takes only short requests is quick for them."""
    made = ty.WorkloadBuilder("two kinds", seed=0)
    for number, at in enumerate(made.poisson(rate=2, n=60)):
        made.request(at=at, prompt=600 if number % 2 else 40, output=10)
    asked: dict[str, Any] = {"slo": "ttft_p90=5s", "skip_refused": True, "largest_load": False, "jobs": 1}
    plan = ty.plan(made.build(), SEATS, space={"max_model_len": [500]}, **asked)
    assert plan.recommended is not None
    assert plan.recommended.refused > 0
    assert not plan.holds, "half of them never get a token"
    assert f"{plan.recommended.refused} refused" in str(plan)
