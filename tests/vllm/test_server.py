"""`vllm serve` with TracingScheduler: clients get what vLLM's own gives them, and the trace tells what happened."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

from tests.vllm.conftest import needs_engine
from tests.vllm.serving import Asked, Server, ask_all, served
from tests.vllm.tiny_models import make_model

from tokenyard.explain.report.summary import summarize
from tokenyard.trace.read.reader import TraceReader
from tokenyard.trace.read.step_joiner import Step

pytestmark = needs_engine

_LIMITS = ["--max-num-seqs", "16", "--max-num-batched-tokens", "512", "--num-gpu-blocks-override", "120"]
_CLASS = ["--scheduler-cls", "tokenyard.vllm.TracingScheduler"]
_STREAMS = [Asked(f"stream number {i} says " * (2 + i % 11), max_tokens=12 + i % 25) for i in range(64)]
_LEAVING = [Asked(f"client {i} leaves early " * (1 + i % 7), max_tokens=200, leaves_after=1 + i % 5) for i in range(48)]


class Served(NamedTuple):
    """What a server did for the clients, and what it left behind."""

    answers: list[list[int]]
    trace: Path
    queue_seconds: float
    """Sum of ``vllm:request_queue_time_seconds``."""
    queue_count: float
    lost_seconds: dict[str, float]
    """``tokenyard:lost_seconds_total`` by reason."""
    exit_code: int


@pytest.fixture(scope="module", params=["llama", "sliding-window"])
def run(request: pytest.FixtureRequest, models: Path, tmp_path_factory: pytest.TempPathFactory) -> Served:
    folder = tmp_path_factory.mktemp("served")
    (folder / "prometheus").mkdir()
    env = {"SCHED_TRACE_PATH": str(folder / "trace"), "PROMETHEUS_MULTIPROC_DIR": str(folder / "prometheus")}
    with served(make_model(request.param, models), folder / "log", [*_LIMITS, *_CLASS], env) as server:
        answers = ask_all(server, _STREAMS)
        waited = [server.total(f"vllm:request_queue_time_seconds_{what}") for what in ("sum", "count")]
        ask_all(server, _LEAVING)
        again = ask_all(server, _STREAMS[:4])
        assert again == answers[:4], "after an abort storm it answers as before"
        lost = _lost_by_reason(server)
        code = server.stop()
    return Served(answers, folder / "trace", waited[0], waited[1], lost, code)


def _lost_by_reason(server: Server) -> dict[str, float]:
    lost: defaultdict[str, float] = defaultdict(float)
    for line, value in server.metrics().items():
        if line.startswith("tokenyard:lost_seconds_total{"):
            lost[line.split('reason="')[1].split('"')[0]] += value
    return dict(lost)


def _steps(trace: Path) -> list[Step]:
    return list(TraceReader(trace, requests=False).steps())


def test_answers_are_those_of_vllms_own(run: Served, models: Path, tmp_path: Path) -> None:
    start = TraceReader(run.trace, requests=False)
    list(start.steps())
    assert start.start is not None
    with served(Path(str(start.start.model)), tmp_path / "log", _LIMITS) as server:
        own = ask_all(server, _STREAMS)
    assert run.answers == own
    assert [len(tokens) for tokens in own] == [asked.max_tokens for asked in _STREAMS]


def test_trace_is_whole(run: Served) -> None:
    steps = _steps(run.trace)
    assert run.exit_code == 0
    assert [step.number for step in steps] == list(range(len(steps)))
    assert all(step.snapshot and step.decision and step.completed for step in steps[:-1])
    arrived = [each.req_id for step in steps for each in (*step.arrived, *step.arrived_after)]
    ends = Counter(each.finish_reason for step in steps for each in step.finished)
    assert len(arrived) == len(_STREAMS) + len(_LEAVING) + 4
    assert ends == {"length": len(_STREAMS) + 4, "abort": len(_LEAVING)}
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
    finished = [each for step in _steps(run.trace) for each in step.finished][: len(_STREAMS)]
    arrived = {each.req_id: each for step in _steps(run.trace) for each in (*step.arrived, *step.arrived_after)}
    assert run.queue_count == len(_STREAMS)
    ours = sum((end.first_scheduled_time or 0) - (arrived[end.req_id].ts or 0) for end in finished)
    assert ours == pytest.approx(run.queue_seconds, abs=0.005 * len(_STREAMS))
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
    done = subprocess.run(command, capture_output=True, text=True, check=False)
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
