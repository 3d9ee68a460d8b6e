"""``tokenyard describe``: vLLM's classes describe a model, and its planner says the same of the description."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tokenyard.models.named import config_of, model_spec
from tokenyard.models.spec import ModelSpec

pytest.importorskip("vllm")

_SMALL = {"num_hidden_layers": 4, "max_window_layers": 4}


def _described(folder: Path, raw: dict[str, Any]) -> tuple[ModelSpec, str]:
    (folder / "config.json").write_text(json.dumps(raw))
    target = folder / "model.json"
    words = [sys.executable, "-m", "tokenyard", "describe", str(folder / "config.json"), "--output", str(target)]
    run = subprocess.run(words, capture_output=True, text=True, timeout=600, env=os.environ.copy(), check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    return model_spec(str(target)), run.stdout


@pytest.mark.parametrize("name", ["qwen3-8b", "qwen3-30b-a3b"])
def test_a_description_is_what_the_table_says(name: str, tmp_path: Path) -> None:
    raw = {**config_of(name)[2], **_SMALL}
    model, said = _described(tmp_path, raw)
    (tmp_path / "config.json").write_text(json.dumps(raw))
    ours = model_spec(str(tmp_path / "config.json"))
    for size in (1, 2, 4):
        assert model.weight_bytes(size) == pytest.approx(ours.weight_bytes(size), rel=0.002)
    assert model.kv_bytes_per_token() == ours.kv_bytes_per_token()
    assert "described by the classes of vLLM" in " ".join(said.split())
