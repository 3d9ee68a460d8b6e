"""`vllm serve` with ContinuumScheduler: pins keep an agent's turn, and what a client says wrongly is its own error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

from tests.vllm.conftest import needs_engine
from tests.vllm.serving import Asked, Server, ask_all, served
from tests.vllm.tiny_models import make_model

from tokenyard.trace.read.reader import TraceReader

pytestmark = needs_engine

_LIMITS = ("--max-num-seqs", "8", "--max-num-batched-tokens", "512", "--num-gpu-blocks-override", "26")
_HISTORY = "an agent reads the whole of a file " * 12
_OTHERS = [Asked(f"{i} others come by " * 18, max_tokens=8) for i in range(6)]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served") / "trace"


@pytest.fixture(scope="module")
def server(models: Path, trace: Path) -> Iterator[Server]:
    env = {"SCHED_TRACE_PATH": str(trace), "TOKENYARD_POLICY": "continuum-fixed"}
    flags = [*_LIMITS, "--scheduler-cls", "tokenyard.vllm.ContinuumScheduler"]
    with served(make_model("llama", models), trace.parent / "log", flags, env) as started:
        yield started


def _turn(prompt: str, job: str, **said: object) -> Asked:
    return Asked(prompt, max_tokens=4, extra={"vllm_xargs": {"job_id": job, **said}})


def _hits_of_second_turn(server: Server, name: str, **said: object) -> float:
    """Tokens that the second turn of a job finds cached, after others have filled the cache."""
    history = f"{name}: {_HISTORY}"
    ask_all(server, [_turn(history, name, **said)])
    for each in _OTHERS:
        ask_all(server, [each])
    before = server.total("vllm:prefix_cache_hits_total")
    ask_all(server, [_turn(history + "and its tool answers", name, is_last_step=True)])
    return server.total("vllm:prefix_cache_hits_total") - before


def test_a_pin_keeps_the_first_turn(server: Server) -> None:
    assert _hits_of_second_turn(server, "pinned", this_func_call="pytest") >= 384
    assert _hits_of_second_turn(server, "ended", this_func_call="pytest", is_last_step=True) < 384


def test_what_cannot_work_is_the_requests_own_error(server: Server) -> None:
    with pytest.raises(Exception, match="is_last_step"):
        ask_all(server, [_turn("a turn", "wrong", is_last_step="perhaps")])
    assert len(ask_all(server, [_turn("a turn", "right")])[0]) == 4


def test_trace_names_the_jobs_and_the_policy(server: Server, trace: Path) -> None:
    assert server.stop() == 0
    reader = TraceReader(trace, requests=False)
    finished = [each for step in reader.steps() for each in step.finished]
    assert {each.job_id for each in finished} >= {"pinned", "ended", "right"}
    assert reader.start is not None
    assert reader.start.policy == "continuum-fixed"
    assert any(step.snapshot and step.snapshot.num_pinned for step in TraceReader(trace, requests=False).steps())
