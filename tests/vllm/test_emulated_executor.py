"""`vllm serve` with `tokenyard.vllm.EmulatedExecutor`: vLLM's own server and scheduler, no model."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import numpy as np
import pytest

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

from tests.vllm.conftest import needs_engine
from tests.vllm.serving import Asked, ask_all, served
from tests.vllm.tiny_models import make_model

from tokenyard.deploy.deployment import Deployment
from tokenyard.steptime.model import StepShape, step_seconds
from tokenyard.trace.reader import TraceReader

pytestmark = needs_engine

_MODEL = "llama-3.1-8b"
"""Whose step times are taken, and whose KV memory."""
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
    resolved = Deployment(model=_MODEL, gpu="h100", max_model_len=1024, block_size=32).resolve()
    log = (tmp_path / "log").read_text()
    assert f"KV cache size: {resolved.plan.num_blocks * 32:,} tokens" in log, (
        "KV memory is that of the GPU that is named"
    )
    one = StepShape(np.array([1]), np.array([10]), 1, 1)
    least = step_seconds(resolved.latency, one, 0) / _SPEED
    steps = list(TraceReader(tmp_path / "trace", requests=False).steps())
    lasted = [
        each.completed.step_seconds
        for each in steps
        if each.completed is not None and each.completed.step_seconds and each.completed.num_sampled_tokens
    ]
    assert len(lasted) > 20
    assert median(lasted) >= 0.99 * least, "steps last as long as on the GPU; a busy machine makes them longer"
