"""A user is one arrival with all its attempts, in every answer: run, report, study, plan, what-if, classes, pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tokenyard as ty
from tokenyard.explain.steady import LoadState
from tokenyard.questions.recorded.recorded_run import read_run
from tokenyard.workload.record import Clients

SMALL = ty.Deployment(model="llama-3.1-8b", gpu="l4", max_model_len=8192, latency="constant:0.02", max_num_seqs=2)
"""Two seats, 20 steps of 20 ms each: some 5 requests a second."""
USERS = 120
TRAFFIC: dict[str, Any] = {"num_prompts": USERS, "request_rate": 8, "input_len": 40, "output_len": 20}
CLIENTS: dict[str, Any] = {"client_timeout": "2s", "retries": 2, "retry_wait": "500ms"}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("users") / "trace"


@pytest.fixture(scope="module")
def run(trace: Path) -> ty.RunResult:
    return ty.run("random", SMALL, trace=trace, slo="ttft_p90=1s ttft:1000", **TRAFFIC, **CLIENTS)


def test_a_run_counts_users_and_names_attempts(run: ty.RunResult) -> None:
    report = run.report
    assert report.outcomes is not None
    assert report.attempts is not None
    assert report.clients is not None
    assert report.load is not None
    assert (report.requests, report.outcomes.arrived) == (USERS, USERS)
    assert report.outcomes.served == run.result.num_finished
    assert report.outcomes.cancelled == report.clients.unanswered > 0
    assert report.attempts.again == report.clients.retried > USERS / 4
    assert report.attempts.sent == USERS + report.attempts.again
    assert report.finish_reasons == {"abort": report.outcomes.cancelled, "length": report.outcomes.served}
    assert report.load.state is LoadState.OVERLOADED
    assert report.load.offered_requests_per_s == pytest.approx(8, rel=0.25), "not that of attempts"
    assert report.clients.answer_ms == report.e2e_ms
    assert report.e2e_ms.max == pytest.approx(3 * 2000 + 2 * 500, rel=0.02)
    assert "clients.answer_ms.max" in report.censored
    assert f"{report.attempts.sent} in all, {report.attempts.again} of them given up and sent again" in str(report)
    assert "on average, p90 ≥" in str(report)


def test_tokens_of_attempts_that_were_sent_again_are_in_no_rate(run: ty.RunResult) -> None:
    report, table = run.report, run.rows.requests
    assert report.attempts is not None
    last = dict(zip((each.partition("~")[0] for each in table["request_id"]), table["output_tokens"], strict=True))
    assert report.output_tokens == sum(last.values()) == table["output_tokens"].sum() - report.attempts.lost_tokens
    assert report.attempts.lost_tokens > 0
    assert report.duration_s is not None
    assert report.throughput.output_tokens_per_s == pytest.approx(sum(last.values()) / report.duration_s)


def test_the_trace_the_rows_and_each_class_say_the_same(run: ty.RunResult, trace: Path) -> None:
    told, classes = ty.report(trace), run.by("priority")
    for other in (told, run.rows.report):
        for name in ("requests", "outcomes", "attempts", "e2e_ms", "ttft_ms", "itl_ms", "load", "output_tokens"):
            assert getattr(other, name) == getattr(run.report, name), name
    assert classes["0"].outcomes == run.report.outcomes
    assert (classes["0"].requests, classes["0"].output_tokens) == (USERS, run.report.output_tokens)
    assert classes["0"].e2e_ms == run.report.e2e_ms


def test_study_and_plan_say_the_same(run: ty.RunResult) -> None:
    assert run.report.outcomes is not None
    assert run.report.goodput is not None
    study = ty.study("random", SMALL, slo="ttft_p90=1s ttft:1000", **TRAFFIC, **CLIENTS)
    plan = ty.plan(
        "random", SMALL, space={"max_num_seqs": [2]}, slo="ttft_p90=1s ttft:1000", largest_load=False,
        price={"l4": 1.0}, **TRAFFIC, **CLIENTS,
    )  # fmt: skip
    assert plan.recommended is not None
    for row, served in ((study.rows[0], study.rows[0].requests), (plan.recommended, run.result.num_finished)):
        assert row.figures["e2e_ms.p50"] == run.report.e2e_ms.p50
        assert row.figures["clients.answer_ms.p90"] == run.report.e2e_ms.p90
        assert "clients.answer_ms.p90" in row.censored
        assert row.figures["goodput.share"] == run.report.goodput.share
        assert row.figures["load.offered_requests_per_s"] == pytest.approx(8, rel=0.25)
        assert (row.cancelled, served) == (run.report.outcomes.cancelled, run.report.outcomes.served)
    hours = plan.recommended.figures["duration_s"] / 3600  # type: ignore[operator]
    tokens = run.report.output_tokens
    assert tokens is not None
    assert plan.recommended.cost_per_million_tokens == pytest.approx(hours / tokens * 1e6)


def test_whatif_repeats_the_clients_and_counts_who_is_served(run: ty.RunResult, trace: Path) -> None:
    told = ty.whatif(trace, {"max_num_seqs": 8})
    assert told.requests == USERS
    assert told.self_check.parting is None
    assert told.self_check.decisions.equal == told.self_check.decisions.steps > 100
    then = ty.run("random", SMALL.with_(max_num_seqs=8), **TRAFFIC, **CLIENTS).report
    assert then.outcomes is not None
    assert then.outcomes.served == USERS
    served = next(each for each in told.variants[0].figures if each.name == "outcomes.served")
    assert (served.baseline, served.variant) == (run.result.num_finished, USERS)
    tail = next(each for each in told.variants[0].figures if each.name == "e2e_ms.p90")
    assert tail.variant == pytest.approx(then.e2e_ms.p90, rel=1e-3)
    assert tail.censored == (True, False)
    assert not tail.is_sure
    shown = str(told)
    assert f"With max_num_seqs=8: {USERS} of {USERS} served instead of {run.result.num_finished}" in shown
    assert "requests served" in shown
    assert "≥" in next(line for line in shown.splitlines() if "E2E, p90" in line)


def test_whatif_says_nothing_of_the_served_where_all_are(tmp_path: Path) -> None:
    ty.run("random", SMALL, trace=tmp_path / "trace", **{**TRAFFIC, "request_rate": 2})
    assert "requests served" not in str(ty.whatif(tmp_path / "trace", {"max_num_seqs": 4}))


def test_clients_are_those_of_a_workload_that_has_them(tmp_path: Path) -> None:
    clients = Clients(timeout=2.0, retries=1, wait=0.5)
    made = ty.WorkloadBuilder("own", seed=1)
    for i in range(30):
        made.request(at=i * 0.1, prompt=40, output=20)
    ty.run(made.build().with_clients(clients), SMALL, trace=tmp_path / "trace")
    steps = next((tmp_path / "trace").glob("*.steps.jsonl")).read_text().splitlines()
    assert json.loads(steps[0])["config"]["workload"]["clients"] == {"timeout": 2.0, "retries": 1, "wait": 0.5}
    run = read_run(tmp_path / "trace")
    assert run.workload.clients == clients
    assert [each.request_id for each in run.workload if "~" in each.request_id] == []
    assert len(run.workload) == 30
