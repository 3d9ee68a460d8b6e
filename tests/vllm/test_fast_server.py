"""`vllm serve` with FastScheduler: clients get what vLLM's own scheduler gives them, token for token."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

from tests.vllm.conftest import needs_engine
from tests.vllm.serving import Asked, ask_all, served
from tests.vllm.tiny_models import make_model

pytestmark = needs_engine

LIMITS = ["--max-num-seqs", "16", "--max-num-batched-tokens", "512", "--num-gpu-blocks-override", "60"]
FAST = ["--scheduler-cls", "tokenyard.vllm.FastScheduler"]
STREAMS = [Asked(f"stream number {i} says " * (2 + i % 11), max_tokens=12 + i % 25) for i in range(64)]
LEAVING = [Asked(f"client {i} leaves early " * (1 + i % 7), max_tokens=200, leaves_after=1 + i % 5) for i in range(48)]


@pytest.mark.parametrize("kind", ["llama", "sliding-window"])
def test_answers_are_those_of_vllms_own(kind: str, models: Path, tmp_path: Path) -> None:
    model = make_model(kind, models)
    with served(model, tmp_path / "fast.log", [*LIMITS, *FAST]) as server:
        answers = ask_all(server, STREAMS)
        ask_all(server, LEAVING)
        again = ask_all(server, STREAMS[:8])
        metrics = {name: server.total(f"vllm:{name}") for name in ("num_requests_running", "num_requests_waiting")}
        finished = server.total("vllm:request_success_total")
        hits = server.total("vllm:prefix_cache_hits_total")
        code = server.stop()
    with served(model, tmp_path / "own.log", LIMITS) as server:
        own = ask_all(server, STREAMS)
    assert answers == own
    assert again == own[:8], "after an abort storm it answers as before"
    assert metrics == {"num_requests_running": 0, "num_requests_waiting": 0}
    assert finished >= len(STREAMS) + 8
    assert hits > 0
    assert code == 0


def test_an_option_that_is_not_served_ends_the_start(models: Path, tmp_path: Path) -> None:
    flags = [*LIMITS, *FAST, "--kv-cache-metrics"]
    with pytest.raises(RuntimeError), served(make_model("llama", models), tmp_path / "log", flags):
        pass
    assert "--kv-cache-metrics = True: FastScheduler does not serve it" in (tmp_path / "log").read_text()
