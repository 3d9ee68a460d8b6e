"""The head of every recorded trace, on a GPU it fits: every request finishes, and no block is held at the end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.command import call

ANY_LENGTH = "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve meta-llama/Llama-3.1-8B"
"""Sessions are longer than the model was made for."""


@pytest.mark.parametrize(
    ("name", "flags", "hits"),
    [
        ("mooncake_conversation.jsonl.gz", ["--limit", "150"], True),
        ("mooncake_arxiv_head1000.jsonl.gz", ["--limit", "150"], True),
        ("azure2023_code.csv.gz", ["--limit", "200"], False),
        ("azure2023_conv.csv.gz", ["--limit", "100"], False),
        (
            "weka_claude_code_sessions.jsonl.gz",
            ["--limit", "1", "--gpu", "h200", "--max-model-len", "524288", "--serve", ANY_LENGTH],
            True,
        ),
        ("lmcache_agent_hash64.jsonl.gz", ["--limit", "5"], True),
        ("servegen_m-large_draw30min_seed0.csv.gz", ["--limit", "100"], False),
    ],
)
def test_head_of_a_recorded_trace(name: str, flags: list[str], hits: bool, shared: Path, tmp_path: Path) -> None:
    path = shared / "data" / "traces" / name
    assert path.exists(), "the shared data have changed"
    outcome = call("run", path, *flags, "--advice", "none", "--json", cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    report = json.loads(outcome.stdout)
    assert report["requests"] == report["requests_finished"] > 0
    assert (report["prefix_hit_rate"]["local"] > 0.01) == hits
    assert outcome.stderr == ""
