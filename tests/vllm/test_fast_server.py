"""`vllm serve` with FastScheduler and an option that it does not serve: the start ends, and says which."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

from tests.vllm.conftest import needs_engine
from tests.vllm.serving import served
from tests.vllm.tiny_models import make_model
from tests.vllm.traffic import LIMITS

pytestmark = needs_engine


def test_an_option_that_is_not_served_ends_the_start(models: Path, tmp_path: Path) -> None:
    flags = [*LIMITS, "--scheduler-cls", "tokenyard.vllm.FastScheduler", "--kv-cache-metrics"]
    with pytest.raises(RuntimeError), served(make_model("llama", models), tmp_path / "log", flags):
        pass
    assert "--kv-cache-metrics = True: FastScheduler does not serve it" in (tmp_path / "log").read_text()
