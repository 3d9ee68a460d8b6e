"""``tokenyard import``, and logs and closed loops under ``tokenyard run``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.integration.command import call

ON = ["--gpu", "l4", "--model", "llama-3.2-1b", "--max-model-len", "8192"]


def _log(tmp_path: Path) -> Path:
    path = tmp_path / "usage.jsonl"
    lines = [
        {"created": 1_764_000_000 + i, "usage": {"prompt_tokens": 100 + i, "completion_tokens": 5 + i}}
        for i in range(20)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + "no JSON\n")
    return path


def test_a_log_becomes_a_workload_that_replays_alike(tmp_path: Path) -> None:
    log = _log(tmp_path)
    outcome = call("import", log, "--output", "w.jsonl", "--json", cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    facts = json.loads(outcome.stdout)
    assert (facts["requests"], facts["seconds"], facts["output_tokens"]) == (20, 19.0, sum(range(5, 25)))
    assert facts["kind"] == "openai"
    assert [each["code"] for each in facts["remarks"]][:2] == ["kind", "bad_lines"]
    assert facts["notes"][1].startswith("1 line was left out; the first is line 21")
    direct, copied = (
        json.loads(call("run", source, *ON, "--json", cwd=tmp_path).stdout) for source in (log, "w.jsonl")
    )
    assert direct["ttft_ms"] == copied["ttft_ms"]
    assert direct["output_tokens"] == facts["output_tokens"]
    call("import", log, "--output", "w.jsonl", cwd=tmp_path).refused("output = 'w.jsonl'", "--overwrite")
    shown = call("import", log, "--output", "w.jsonl", "--overwrite", cwd=tmp_path)
    assert "requests per second" in shown.stdout
    assert "1 line was left out" in shown.stderr


def test_a_closed_loop_has_fewer_requests_waiting(tmp_path: Path) -> None:
    def report(*flags: str) -> dict[str, Any]:
        outcome = call(
            "run", "random", "--num-prompts", "60", "--output-len", "20", *flags, *ON, "--json", cwd=tmp_path
        )
        assert outcome.code == 0, outcome.stderr
        answer: dict[str, dict[str, float]] = json.loads(outcome.stdout)
        return answer

    everything, closed = report(), report("--max-concurrency", "2")
    assert closed["requests_finished"] == everything["requests_finished"] == 60
    assert closed["ttft_ms"]["mean"] < everything["ttft_ms"]["mean"] / 5
    paced = report("--request-rate", "2", "--random-range-ratio", "0.5", "--random-prefix-len", "512")
    assert paced["prefix_hit_rate"]["local"] > 0.2


def test_flags_that_have_no_say_are_refused(tmp_path: Path) -> None:
    call("run", "chat", "--input-len", "5", cwd=tmp_path).refused("--input-len = 5", "workload `random`")
    call("run", "random", "--burstiness", "2", cwd=tmp_path).refused("--burstiness = 2", "--request-rate")
    call("import", "nothing.log", cwd=tmp_path).refused("nothing.log")


def test_a_report_says_beside_its_rates_how_long_nothing_ran(tmp_path: Path) -> None:
    path = tmp_path / "day.jsonl"
    moments = [1_764_000_000 + 7 * i + 6 * 3600 * (i >= 20) for i in range(40)]
    lines = [
        {"created": at, "usage": {"prompt_tokens": 100 + i, "completion_tokens": 5 + i % 7}}
        for i, at in enumerate(moments)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    outcome = call("run", path, *ON, "--trace", "trace", cwd=tmp_path)
    assert "nothing arrives for 6 h 00 min" in " ".join(outcome.stderr.split())
    assert "6 h 00 min of it in one stretch without a step" in " ".join(outcome.stdout.split())
    told = json.loads(call("report", "trace", "--json", cwd=tmp_path).stdout)
    assert 6 * 3600 < told["longest_idle_s"] < told["duration_s"] < 6 * 3600 + 7 * 40
    ranks = json.loads(call("run", path, *ON, "--data-parallel-size", "2", "--json", cwd=tmp_path).stdout)
    assert ranks["longest_idle_s"] is None
