"""`vllm serve` with `tokenyard.vllm.EmulatedExecutor`: vLLM's own server and scheduler, no model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

from tests.vllm.conftest import needs_engine
from tests.vllm.serving import Asked, ask_all, served
from tests.vllm.tiny_models import make_model

from tokenyard.trace.reader import TraceReader

pytestmark = needs_engine

_MODEL = "llama-3.1-8b"
"""Deployments whose step times are taken."""
_SPEED = 0.5


def test_vllm_serves_without_a_model(models: Path, tmp_path: Path) -> None:
    model = make_model("llama", models)
    given = {"tokenyard": {"gpu": "h100", "model": _MODEL, "speed": _SPEED}}
    flags = ["--distributed-executor-backend", "tokenyard.vllm.EmulatedExecutor"]
    flags += ["--additional-config", json.dumps(given), "--scheduler-cls", "tokenyard.vllm.TracingScheduler"]
    asked = [Asked("hello there " * (i + 1), max_tokens=4 + i) for i in range(6)]
    leaves = Asked("and goodbye", max_tokens=200, leaves_after=3)
    with served(model, tmp_path / "log", flags, {"SCHED_TRACE_PATH": str(tmp_path / "trace")}) as server:
        answers = ask_all(server, [*asked, leaves])
        assert [len(tokens) for tokens in answers[:6]] == [each.max_tokens for each in asked]
        assert len(answers[6]) >= 3
        assert server.stop() == 0
    reader = TraceReader(tmp_path / "trace", requests=False)
    steps = list(reader.steps())
    assert reader.start is not None
    assert (reader.start.model, reader.start.gpu) == (_MODEL, "h100"), "what is emulated, not what was loaded"
    assert any(each.decision is not None for each in steps), "vLLM's own scheduler has decided, and was traced"
