"""``tokenyard compare A B`` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.command import call


def test_two_policies(tmp_path: Path) -> None:
    for seats in ("1", "2"):
        run = call("run", "agentic", "--limit", "2", "--max-num-seqs", seats, "--trace", seats, cwd=tmp_path)
        assert run.code == 0, run.stderr
    outcome = call("compare", "1", "2", "--align", "job", "--json", cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    comparison = json.loads(outcome.stdout)
    assert comparison["comparison_version"] == 2
    assert comparison["parting"]["a"]["step"] == comparison["parting"]["b"]["step"]
    assert {"name": "scheduler.max_num_seqs", "a": 1, "b": 2} in comparison["settings"]
    (parted,) = comparison["parting"]["requests"]
    assert (parted["a"]["reason"], parted["b"]["kind"]) == ("max_num_seqs", "admitted")
    assert {"name", "a", "b", "less_is_better", "censored"} == comparison["figures"][0].keys()
    assert comparison["jobs"]
    printed = call("compare", "1", "2", cwd=tmp_path).stdout
    assert f"In step {comparison['parting']['a']['step']:,}" in printed
    assert "Side by side, by step" in printed
    narrow = call("compare", "1", "2", cwd=tmp_path, env={"COLUMNS": "80"}).stdout
    assert "…" not in narrow.partition("Where they part")[2], "every figure is told in full"


def test_a_trace_that_is_not_there(tmp_path: Path) -> None:
    call("compare", "a", "b", cwd=tmp_path).refused("a: no such file or directory")


def test_bounds_are_held_against_both(tmp_path: Path) -> None:
    for seats in ("1", "8"):
        words = ("chat", "--limit", "3", "--rate-scale", "60", "--max-model-len", "8192", "--advice", "none")
        assert call("run", *words, "--max-num-seqs", seats, "--trace", seats, cwd=tmp_path).code == 0
    told = json.loads(call("compare", "1", "8", "--slo", "ttft_p90=1s", "--json", cwd=tmp_path).stdout)
    few, many = told["goodput"]
    reported = json.loads(call("report", "8", "--slo", "ttft_p90=1s", "--json", cwd=tmp_path).stdout)["goodput"]
    assert many == reported
    assert (few["met"], many["met"]) == (False, True)
    assert any(each["name"] == "goodput.share" for each in told["figures"])
    printed = call("compare", "1", "8", "--slo", "ttft_p90=1s", cwd=tmp_path).stdout
    assert "Service levels of A" in printed
    assert "Service levels of B" in printed
