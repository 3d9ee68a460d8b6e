"""`tokenyard report --by`: the classes of a trace are those that its run printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.command import call

from viewer_sample import PRESSURE, crowded

EXACT = ("name", "requests", "finished", "prompt_tokens", "cached_share", "output_tokens", "preemptions", "waited_for")
TIMES = ("queue_ms", "ttft_ms", "tpot_ms", "e2e_ms")


def crowd(folder: Path) -> Path:
    """The agents of the sample, every second one urgent, some with an adapter."""
    lines = [json.loads(line) for line in crowded().splitlines()]
    for at, line in enumerate(lines):
        line["priority"] = at % 2
        if at % 3 == 0:
            line["lora_name"] = "polite"
    file = folder / "crowd.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.mark.parametrize("by", ["priority", "lora_name", "prompt_tokens", "job_id"])
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_classes_of_a_trace_are_those_of_the_run(tmp_path: Path, by: str, policy: str) -> None:
    asked = (*PRESSURE, f"--scheduling-policy={policy}", "--enable-lora", "--client-timeout=400ms", "--retries=0")
    ran = call("run", crowd(tmp_path), *asked, "--trace=run", f"--by={by}", "--advice=none", "--json", cwd=tmp_path)
    assert ran.code == 0, ran.stderr
    read = call("report", "run", f"--by={by}", "--json", cwd=tmp_path)
    assert read.code == 0, read.stderr
    told, wanted = json.loads(read.stdout), json.loads(ran.stdout)
    assert told["by"] == by
    assert len(wanted["classes"]) > 1
    for ours, theirs in zip(told["classes"], wanted["classes"], strict=True):
        assert {name: ours[name] for name in EXACT} == {name: theirs[name] for name in EXACT}
        assert ours["waited_s"] == pytest.approx(theirs["waited_s"], abs=2e-5)
        for name in TIMES:
            assert_alike(ours[name], theirs[name])


def assert_alike(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Latencies of a trace are whole microseconds."""
    assert set(ours) == set(theirs)
    for figure, value in theirs.items():
        assert ours[figure] == (None if value is None else pytest.approx(value, abs=0.002)), figure
