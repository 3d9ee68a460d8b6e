"""``tokenyard why`` as a user calls it: whole traces, and bad input. Real workloads where the shared data are there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.command import call

from check_why import check

WORKLOADS = {
    "mooncake": ("mooncake_conversation.jsonl.gz", ["--limit", "60"]),
    "azure": ("azure2023_conv.csv.gz", ["--limit", "100", "--max-num-seqs", "4"]),
    "weka": ("weka_claude_code_sessions.jsonl.gz", ["--limit", "1", "--max-model-len", "524288", "--gpu", "h200"]),
}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("why")
    flags = ["--limit", "4", "--max-num-seqs", "2", "--trace", str(folder / "trace")]
    assert call("run", "agentic", *flags, cwd=folder).code == 0
    return folder / "trace"


@pytest.mark.parametrize("name", WORKLOADS)
def test_waits_of_a_real_workload_are_divided_without_rest(
    name: str, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1")  # sessions are longer than the model was made for
    file, flags = WORKLOADS[name]
    path = shared / "data" / "traces" / file
    assert path.exists(), "the shared data have changed"
    assert check([str(path), *flags]) == []


def test_the_longest_wait_is_explained(trace: Path, tmp_path: Path) -> None:
    everybody = json.loads(call("why", trace, "--json", cwd=tmp_path).stdout)
    longest = everybody["longest"][0]
    one = json.loads(call("why", trace, longest["request_id"], "--json", cwd=tmp_path).stdout)
    assert one["waited_us"] == longest["waited_us"] == sum(span["end_us"] - span["start_us"] for span in one["spans"])
    assert one["reasons"][0]["reason"] == longest["reason"]
    shown = call("why", trace, longest["request_id"], cwd=tmp_path).stdout
    assert f"What it waited for: {longest['waited_us'] / 1e6:.1f} s" in shown or "ms" in shown
    assert longest["request_id"] in call("why", trace, cwd=tmp_path).stdout


def test_a_request_that_is_not_there(trace: Path, tmp_path: Path) -> None:
    call("why", trace, "agent_0000_t999", cwd=tmp_path).refused("no request 'agent_0000_t999'", "; it has 'agent_000")


def test_no_trace(tmp_path: Path) -> None:
    call("why", tmp_path / "nowhere", "a", cwd=tmp_path).refused("nowhere: no such file or directory")


def test_ids_with_markup_are_shown_as_they_are(tmp_path: Path) -> None:
    name = "[red]a[/red]\x1b[31m"
    empty: dict[str, object] = {"num_running": 0, "num_waiting": 0, "running_req_ids": [], "waiting_req_ids": []}
    waits = empty | {"num_waiting": 1, "waiting_req_ids": [name]}
    lines = [
        {"event": "step_snapshot", "step": 0, "ts": 1.0, **waits},
        {"event": "step_decision", "step": 0, "ts": 1.0, "scheduled_new_req_ids": [], "num_scheduled_tokens": {}},
        {"event": "step_snapshot", "step": 1, "ts": 2.5, **empty},
    ]
    (tmp_path / "x.steps.jsonl").write_text("\n".join(map(json.dumps, lines)))
    outcome = call("why", tmp_path, name, cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    assert "[red]a[/red]\N{REPLACEMENT CHARACTER}[31m" in outcome.stdout
    assert "1.500000 s" in outcome.stdout
