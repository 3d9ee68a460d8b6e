"""`vllm serve` with each class: clients get what vLLM's own scheduler gives them, and the trace tells what happened."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

from tests.vllm.conftest import needs_engine
from tests.vllm.serving import ask_all, served
from tests.vllm.tiny_models import make_model
from tests.vllm.traffic import LEAVING, LIMITS, STREAMS, Served, served_traffic

from tokenyard.explain.report.summary import summarize
from tokenyard.trace.reader import TraceReader
from tokenyard.trace.steps import Step

pytestmark = needs_engine

_CASES = [
    pytest.param(("ContinuumScheduler", "llama"), marks=pytest.mark.smoke),
    ("FastScheduler", "llama"),
    ("TracingScheduler", "llama"),
    ("FastScheduler", "sliding-window"),
    ("TracingScheduler", "sliding-window"),
]


@pytest.fixture(scope="module", params=_CASES, ids="-".join)
def run(request: pytest.FixtureRequest, models: Path, tmp_path_factory: pytest.TempPathFactory) -> Served:
    scheduler, kind = request.param
    return served_traffic(make_model(kind, models), scheduler, tmp_path_factory.mktemp("served"))


@cache
def _own_answers(model: Path) -> list[list[int]]:
    """What vLLM's own scheduler answers."""
    with served(model, model / "own.log", LIMITS) as server:
        return ask_all(server, STREAMS)


def _steps(trace: Path) -> list[Step]:
    return list(TraceReader(trace, requests=False).steps())


def test_answers_are_those_of_vllms_own(run: Served) -> None:
    own = _own_answers(run.model)
    assert run.answers == own
    assert run.again == own[: len(run.again)], "after an abort storm it answers as before"
    assert [len(tokens) for tokens in own] == [asked.max_tokens for asked in STREAMS]


def test_server_is_idle_and_ends_well(run: Served) -> None:
    assert run.metrics["num_requests_running"] == run.metrics["num_requests_waiting"] == 0
    assert run.metrics["request_success_total"] >= len(STREAMS) + len(run.again)
    assert run.metrics["prefix_cache_hits_total"] > 0
    assert run.exit_code == 0


def test_trace_is_whole(run: Served) -> None:
    steps = _steps(run.trace)
    assert [step.number for step in steps] == list(range(len(steps)))
    assert all(step.snapshot and step.decision and step.completed for step in steps[:-1])
    arrived = [each.req_id for step in steps for each in (*step.arrived, *step.arrived_after)]
    ends = Counter(each.finish_reason for step in steps for each in step.finished)
    assert len(arrived) == run.num_requests
    assert ends["length"] + ends["abort"] == run.num_requests
    assert ends["length"] >= len(STREAMS) + len(run.again)
    assert 0 < ends["abort"] <= len(LEAVING), "how many the server sees leave in time depends on the machine's load"
    lookups = [each for step in steps for each in step.lookups]
    assert all(each.prompt_hash_runs for each in lookups if (each.total_prompt_tokens or 0) >= 32)


def test_everybody_who_waits_has_a_reason(run: Served) -> None:
    for step in _steps(run.trace):
        assert step.snapshot is not None
        assert step.decision is not None
        admitted = [*(step.decision.scheduled_new_req_ids or ()), *(step.decision.scheduled_resumed_req_ids or ())]
        left = (step.snapshot.num_waiting or 0) - len(admitted) + len(step.decision.preempted_req_ids or ())
        held = 0
        if step.outcome is not None:
            held = (step.outcome.num_requests or 0) + sum((step.outcome.skipped_counts or {}).values())
        assert held == left, f"step {step.number}"


def test_report_waits_as_vllm_measures(run: Served) -> None:
    """The report's wait begins when the front end gets a request, vLLM's when the scheduler does."""
    finished = [each for step in _steps(run.trace) for each in step.finished][: len(STREAMS)]
    arrived = {each.req_id: each for step in _steps(run.trace) for each in (*step.arrived, *step.arrived_after)}
    assert run.queue_count == len(STREAMS)
    ours = sum((end.first_scheduled_time or 0) - (arrived[end.req_id].ts or 0) for end in finished)
    assert ours == pytest.approx(run.queue_seconds, abs=0.005 * len(STREAMS))
    report = summarize(run.trace, requests=False)
    assert report.requests == len(arrived)
    assert report.queue_ms.mean is not None


def test_lost_time_is_counted(run: Served) -> None:
    recorded = summarize(run.trace, requests=False).recorded_reasons
    assert sum(run.lost_seconds.values()) > 0
    assert run.lost_seconds == pytest.approx(
        {name: each.seconds for name, each in recorded.items()}, rel=1e-3, abs=1e-3
    )


def _tokenyard(*arguments: str) -> str:
    command = [sys.executable, "-m", "tokenyard.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_commands_read_it(run: Served, tmp_path: Path) -> None:
    trace = str(run.trace)
    assert "What held requests back" in _tokenyard("report", trace)
    assert "requests waited" in _tokenyard("why", trace)
    assert _tokenyard("compare", trace, trace)
    page = tmp_path / "page.html"
    _tokenyard("export", trace, "--html", str(page))
    assert page.stat().st_size > 100_000
