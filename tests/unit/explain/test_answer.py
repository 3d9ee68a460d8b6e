"""The verdict: one sentence that says what was missed, who waited for what, and what would help."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

import tokenyard as ty
from tokenyard.cli.main import main

DEPLOYMENT = ty.Deployment(model="Qwen/Qwen3-8B", gpu="l40s", max_model_len=8192, max_num_seqs=2)


@pytest.fixture(scope="module")
def found() -> ty.Report:
    """A run that was short of seats, whose advice was tried."""
    return ty.run("chat", DEPLOYMENT, limit=8, rate_scale=30, advice="all").report


@pytest.mark.slow
def test_it_names_the_reason_its_share_and_the_change_that_helped(found: ty.Report) -> None:
    verdict = found.answer
    assert (verdict.code, verdict.reason) == ("held_back", "max_num_seqs")
    lost = sum(each.seconds for each in found.recorded_reasons.values())
    assert verdict.lost_s == pytest.approx(lost)
    assert verdict.share is not None
    assert 0.02 < verdict.share < 1
    assert verdict.lever is not None
    assert verdict.lever.flag.startswith("--max-num-seqs")
    assert verdict.lever.changes["ttft_ms.p90"] < 0
    assert "max_num_seqs" in verdict.sentence
    assert f"With {verdict.lever.flag}" in verdict.sentence
    assert str(found).split("\n\n")[0].replace("\n", " ").startswith(verdict.sentence[:60])


@pytest.mark.slow
def test_a_change_that_ends_answers_later_says_so(found: ty.Report) -> None:
    advice = next(each for each in found.advice if each.trial is not None and each.trial.effects)
    assert advice.trial is not None
    effects = [
        msgspec.structs.replace(each, after=1.02 * each.before) if each.figure == "e2e_ms.mean" else each
        for each in advice.trial.effects
    ]
    trial = msgspec.structs.replace(advice.trial, effects=effects)
    changed = msgspec.structs.replace(found, advice=[msgspec.structs.replace(advice, trial=trial)])
    assert changed.answer.sentence.endswith(", but answers may end later (E2E mean +2 %) (replayed).")
    assert "answers end later" not in found.answer.sentence


def test_a_missed_bound_comes_first() -> None:
    found = ty.run("chat", DEPLOYMENT, limit=4, slo={"ttft_p90": "1ms", "e2e_p90": "60min"}).report
    verdict = found.answer
    assert (verdict.code, verdict.missed) == ("missed", ["ttft_p90"])
    assert verdict.sentence.startswith("ttft_p90 is missed: ")


def test_nothing_is_said_to_be_wrong_where_nothing_was() -> None:
    verdict = ty.run("chat", DEPLOYMENT.with_(max_num_seqs=64), limit=3).report.answer
    assert (verdict.code, verdict.lever) == ("idle", None)
    assert verdict.sentence == "Requests hardly waited for the scheduler."


def test_a_run_in_which_nothing_ended_says_so() -> None:
    verdict = ty.run("chat", DEPLOYMENT, limit=3, until=0.01).report.answer
    assert (verdict.code, verdict.sentence) == ("empty", "No request ended.")


def test_a_pipeline_at_work_holds_nobody_back() -> None:
    staged = DEPLOYMENT.with_(pipeline_parallel_size=2, async_scheduling=False)
    found = ty.run("chat", staged.with_(max_num_seqs=64), limit=8, rate_scale=30).report
    in_flight = found.recorded_reasons["no_new_tokens"]
    assert found.e2e_ms.mean is not None
    assert in_flight.seconds > 0.2e-3 * found.e2e_ms.mean * (found.requests_finished or 0)
    assert (found.answer.code, found.answer.reason, found.answer.lost_s) == ("idle", None, 0.0)
    assert "no_new_tokens" in str(found)
    short = ty.run("chat", staged, limit=8, rate_scale=30).report
    assert "no_new_tokens" in short.recorded_reasons
    assert (short.answer.code, short.answer.reason) == ("held_back", "max_num_seqs")
    others = {name: each.seconds for name, each in short.recorded_reasons.items() if name != "no_new_tokens"}
    assert short.answer.lost_s == pytest.approx(sum(others.values()))
    assert "no_new_tokens" not in short.answer.sentence


def test_a_class_waits_for_no_pipeline() -> None:
    staged = DEPLOYMENT.with_(pipeline_parallel_size=2, async_scheduling=False, max_num_seqs=64)
    found = ty.run("chat", staged, limit=8, rate_scale=30)
    classes = found.by("user").classes
    assert {each.waited_for for each in classes} <= {"step_in_progress", "front_end"}
    assert sum(each.waited_s for each in classes) == pytest.approx(found.report.unseen_s)


def test_a_sweep_is_held_by_no_pipeline(tmp_path: Path) -> None:
    staged = DEPLOYMENT.with_(pipeline_parallel_size=2, async_scheduling=False)
    found = ty.sweep("chat", staged, {"max_num_seqs": [2, 64]}, limit=8, rate_scale=30, output=tmp_path / "s")
    assert [row.held_by for row in found.rows] == ["max_num_seqs", None]


def test_json_has_it_first(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["run", "chat", "--limit", "2", "--model", "Qwen/Qwen3-8B", "--gpu", "l40s", "--json"]
    assert main([*given, "--max-model-len", "8192"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert next(iter(answer)) == "answer"
    assert answer["answer"]["code"] == "idle"
