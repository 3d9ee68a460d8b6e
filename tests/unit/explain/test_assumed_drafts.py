"""TPOT over a range where the acceptance of drafts is not given, in every answer that rests on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tokenyard as ty
from tokenyard.cli.main import main
from tokenyard.explain.assumed_drafts import AssumedAcceptance, assume
from tokenyard.explain.report.summary import summarize

DRAFTING = ty.Deployment(model="Qwen/Qwen3-8B", gpu="l40s", max_model_len=8192, num_speculative_tokens=3)
FLAGS = ("--model", "Qwen/Qwen3-8B", "--gpu", "l40s", "--max-model-len", "8192", "--limit", "3")


def tpot(deployment: ty.Deployment) -> float:
    mean = ty.run("chat", deployment, limit=6, rows=False).report.tpot_ms.mean
    assert mean is not None
    return mean


def test_both_ends_are_what_replays_of_them_come_to() -> None:
    report = ty.run("chat", DRAFTING, limit=6, rows=False).report
    assert report.speculation is not None
    assumed = report.speculation.assumed
    assert assumed is not None
    assert (assumed.rates, assumed.low, assumed.high) == ([0.7] * 3, 0.0, 0.9)
    assert assumed.tpot_ms == report.tpot_ms.mean
    for rate, said in (("0", assumed.tpot_low_ms), ("0.9", assumed.tpot_high_ms)):
        assert said == pytest.approx(tpot(DRAFTING.with_(acceptance_rates=rate)), rel=0.05)
    assert report.answer.assumed_acceptance == [0.7] * 3
    assert report.answer.sentence.endswith("by tokens per step (--acceptance-rates).")
    assert "The acceptance of drafts is assumed (0.7): TPOT " in report.answer.sentence


def test_drafts_of_a_model_are_never_all_wrong() -> None:
    eagle = '{"method": "eagle3", "model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "num_speculative_tokens": 2}'
    llama = ty.Deployment(model="meta-llama/Llama-3.1-8B-Instruct", gpu="h100", max_model_len=8192)
    report = ty.run("chat", llama.with_(speculative_config=eagle), limit=2, rows=False).report
    assert report.speculation is not None
    assert report.speculation.assumed is not None
    assert (report.speculation.assumed.low, report.speculation.assumed.high) == (0.3, 0.9)


def test_a_rate_that_was_given_is_not_assumed() -> None:
    report = ty.run("chat", DRAFTING.with_(acceptance_rates="0.8,0.6"), limit=2, rows=False).report
    assert report.speculation is not None
    assert report.speculation.assumed is None
    assert report.answer.assumed_acceptance is None
    assert "assumed" not in report.answer.sentence


def test_a_bound_that_holds_in_a_part_of_the_range_is_doubtful() -> None:
    assumed = assume([0.7], 3, 0.0, 10.0)
    assert (assumed.tpot_low_share, assumed.tpot_high_share) == pytest.approx((2.533, 2.533 / 3.439))
    assert assumed.doubts("tpot_p90", 10.0, 20.0)
    assert assumed.doubts("chat:itl_p99", 10.0, 8.0)
    assert not assumed.doubts("tpot_p90", 10.0, 26.0)
    assert not assumed.doubts("tpot_p90", 10.0, 7.0)
    assert not assumed.doubts("ttft_p90", 10.0, 20.0)
    assert not assumed.doubts("tpot_p90", None, 20.0)
    verdict = ty.run("chat", DRAFTING, limit=3, slo={"tpot_p90": "20ms", "ttft_p90": "9s"}, rows=False).report.answer
    assert verdict.doubtful == ["tpot_p90"]
    assert verdict.sentence.endswith("Over that range tpot_p90 (bound 20.0 ms) may hold or not.")


def test_a_trace_says_what_its_run_assumed(tmp_path: Path) -> None:
    report = ty.run("chat", DRAFTING, limit=3, trace=tmp_path).report
    read = summarize(tmp_path)
    assert read.speculation == report.speculation
    assert read.answer == report.answer


def test_whatif_says_it_of_drafts_that_the_trace_does_not_know(tmp_path: Path) -> None:
    ty.run("chat", DRAFTING.with_(num_speculative_tokens=None), limit=3, trace=tmp_path)
    (answer,) = ty.whatif(tmp_path, {"num_speculative_tokens": 3}).variants
    assert isinstance(answer.drafts, AssumedAcceptance)
    by_name = {each.name: each.variant for each in answer.figures}
    assert answer.drafts.tpot_ms == by_name["tpot_ms.mean"]
    said = str(ty.whatif(tmp_path, {"num_speculative_tokens": 3})).replace("\n", " ")
    assert "The acceptance of drafts is assumed (0.7): TPOT " in said.split("  ")[0]
    (other,) = ty.whatif(tmp_path, {"max_num_seqs": 2}).variants
    assert other.drafts is None
    (given,) = ty.whatif(tmp_path, {"num_speculative_tokens": 3, "acceptance_rates": "0.5"}).variants
    assert given.drafts is None


def test_a_replay_of_a_replay_passes_the_assumption_on(tmp_path: Path) -> None:
    ty.run("chat", DRAFTING, limit=3, trace=tmp_path)
    (answer,) = ty.whatif(tmp_path, {"max_num_seqs": 2}).variants
    assert answer.drafts is not None
    assert answer.drafts.rates == [0.7] * 3


def test_plan_and_sweep_say_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    varied = ("--set", "num_speculative_tokens=none,3")
    assert main(["plan", "chat", *FLAGS, *varied, "--slo", "tpot_p90=20ms", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["recommended"]["settings"] == {"num_speculative_tokens": 3}
    assert plan["recommended"]["drafts"]["tpot_ms"] == plan["recommended"]["figures"]["tpot_ms.mean"]
    (bound,) = plan["bounds"]
    drafts = plan["recommended"]["drafts"]
    assert bound["low_ms"] < bound["value_ms"] * drafts["tpot_high_share"] * 1.001
    assert bound["high_ms"] > bound["value_ms"] * drafts["tpot_low_share"] * 0.999
    assert plan["sureness"] == bound["sureness"] == "probably_holds"
    assert main(["plan", "chat", *FLAGS, *varied, "--slo", "tpot_p90=20ms"]) == 0
    first = " ".join(capsys.readouterr().out.split("\n\n")[0].split())
    assert "probably holds every bound" in first
    assert "The acceptance of drafts is assumed (0.7)" in first
    assert main(["sweep", "chat", *FLAGS, *varied, "--output", str(tmp_path / "s")]) == 0
    first = " ".join(capsys.readouterr().out.split("\n\n")[0].split())
    assert "num_speculative_tokens=3: The acceptance of drafts is assumed (0.7): TPOT " in first


def test_a_comparison_of_traces_says_whose_acceptance_is_assumed(tmp_path: Path) -> None:
    ty.run("chat", DRAFTING.with_(num_speculative_tokens=None), limit=2, trace=tmp_path / "a")
    ty.run("chat", DRAFTING, limit=2, trace=tmp_path / "b")
    said = " ".join(str(ty.compare_recordings(tmp_path / "a", tmp_path / "b")).split("\n\n")[0].split())
    assert said.endswith("The acceptance of drafts in B is assumed (0.7).")
