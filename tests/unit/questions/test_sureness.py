"""A headline is never surer than its range: "probably" and "may" where what is known of step times reaches further."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tokenyard as ty
from tokenyard import Deployment
from tokenyard.cli.main import main
from tokenyard.questions.planning.answer import Plan, Sureness, least_sure, sureness_of
from tokenyard.questions.recorded.answer import FigureAnswer
from tokenyard.steptime.known_error import KnownError, Spread

SMALL = Deployment(model="llama-3.2-1b", gpu="l4", max_num_seqs=4, max_model_len=4096)
FEW: dict[str, Any] = {"num_prompts": 12, "input_len": 300, "output_len": 12, "request_rate": 20.0}


def planned(deployment: Deployment = SMALL, **bounds: float) -> Plan:
    slo = " ".join(f"{name}={value}ms" for name, value in bounds.items())
    space = {"max_num_seqs": [4]}
    return ty.plan("random", deployment, space=space, slo=slo, largest_load=False, jobs=1, **FEW)


@pytest.mark.parametrize(
    ("low", "high", "sureness"),
    [
        (50, 90, "holds"),
        (50, 100, "holds"),
        (50, 101, "probably_holds"),
        (None, None, "unknown"),
    ],
)
def test_a_bound_that_holds_is_sure_where_all_of_its_range_is_within(
    low: float | None, high: float | None, sureness: str
) -> None:
    assert sureness_of(80, low, high, 100) == sureness


@pytest.mark.parametrize(
    ("low", "high", "sureness"),
    [(101, 200, "missed"), (100, 200, "probably_missed"), (None, None, "probably_missed")],
)
def test_likewise_one_that_is_missed(low: float | None, high: float | None, sureness: str) -> None:
    assert sureness_of(120, low, high, 100) == sureness


def test_all_bounds_are_as_sure_as_the_least_sure() -> None:
    assert least_sure([Sureness.HOLDS, Sureness.PROBABLY_HOLDS]) is Sureness.PROBABLY_HOLDS
    assert least_sure([Sureness.PROBABLY_HOLDS, Sureness.UNKNOWN, Sureness.HOLDS]) is Sureness.UNKNOWN
    assert least_sure([Sureness.MISSED, Sureness.PROBABLY_HOLDS]) is Sureness.MISSED
    assert least_sure([]) is None


def test_the_first_line_of_a_plan_says_what_its_ranges_say() -> None:
    """The bound is set between the figure and the end of its range, then beyond that end, on either side."""
    (reached,) = planned(ttft_p90=1e6).bounds
    assert reached.low_ms is not None
    assert reached.high_ms is not None
    assert reached.low_ms < reached.value_ms < reached.high_ms
    for bound, first, sureness, body in (
        (reached.high_ms * 1.01, "max_num_seqs=4 holds every bound", "holds", "the bound holds all over it"),
        (reached.high_ms * 0.99, "max_num_seqs=4 probably holds every bound", "probably_holds", "may be missed"),
        (reached.value_ms * 0.99, "Probably no variant that was tried holds", "probably_missed", "may hold all the"),
        (reached.low_ms * 0.99, "No variant that was tried holds every bound", "missed", "is missed all over it"),
    ):
        plan = planned(ttft_p90=bound)
        assert str(plan).startswith(first)
        assert (plan.sureness, plan.bounds[0].sureness) == (sureness, sureness)
        assert body in " ".join(str(plan).split())
        assert json.loads(msgspec.json.encode(plan))["sureness"] == sureness


def test_a_bound_on_a_whole_answer_has_a_range_as_well() -> None:
    whole, first = planned(e2e_p90=1e6, ttft_p90=1e6).bounds
    assert whole.low_ms is not None
    assert first.low_ms is not None
    assert whole.low_ms / whole.value_ms >= first.low_ms / first.value_ms, "no further off than its parts"


def test_step_times_that_are_given_are_sure_and_those_of_a_model_without_a_known_error_are_not() -> None:
    exact = planned(SMALL.with_(latency="constant:0.01"), ttft_p90=1e4)
    assert exact.sureness is Sureness.HOLDS
    assert exact.bounds[0].low_ms == exact.bounds[0].high_ms == exact.bounds[0].value_ms
    rough = planned(SMALL.with_(latency="roofline"), ttft_p90=1e4)
    assert rough.sureness is Sureness.UNKNOWN
    assert " ".join(str(rough).split()).startswith(
        "max_num_seqs=4 holds every bound in the replay, whose error is not known, for these"
    )
    assert ty.plan("random", SMALL, space="max_num_seqs=4", largest_load=False, **FEW).sureness is None


def test_a_plan_of_a_trace_that_is_a_replay_has_the_range_of_the_first(tmp_path: Path) -> None:
    """Its own check is exact, for it is a prediction of a prediction."""
    ty.run("random", SMALL, trace=tmp_path / "t", **FEW)
    space = {"max_num_seqs": [4]}
    (bound,) = ty.plan(tmp_path / "t", space=space, slo="ttft_p90=1e6ms", largest_load=False).bounds
    assert bound.high_ms is not None
    near = ty.plan(tmp_path / "t", space=space, slo=f"ttft_p90={bound.high_ms * 0.9}ms", largest_load=False)
    assert near.sureness is Sureness.PROBABLY_HOLDS


def known(low: float, high: float) -> KnownError:
    spread = Spread(median=0.1, low=low, high=high)
    wide = Spread(median=0.1, low=low / 2, high=high * 2)
    return KnownError(gaps=(), nearest=(), tpot=spread, ttft=wide, e2e=wide, newest_version="0.33")


@pytest.mark.parametrize(
    ("figure", "factors"),
    [
        ("ttft", (0.25, 4.0)),
        ("batch:ttft_ms.p90", (0.25, 4.0)),
        ("queue_ms.mean", (0.25, 4.0)),
        ("itl_ms.p99", (0.5, 2.0)),
        ("e2e_ms.mean", (0.25, 4.0)),
        ("throughput.output_tokens_per_s", (0.25, 4.0)),
        ("preemptions", None),
    ],
)
def test_every_figure_is_as_far_off_as_its_step_times(figure: str, factors: tuple[float, float] | None) -> None:
    assert known(0.5, 2.0).spread_of(figure) == factors


def test_advice_within_the_range_of_its_figures_says_may(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "random", "--num-prompts", "60", "--input-len", "64", "--output-len", "20", "--request-rate", "200"]
    words += ["--model", "llama-3.2-1b", "--gpu", "l4", "--max-num-seqs", "4"]
    said = {}
    for name, error in (("narrow", known(0.99, 1.01)), ("wide", known(0.001, 1000.0))):
        with monkeypatch.context() as patch:
            patch.setattr("tokenyard.steptime.calibrated.known_error", lambda *_, _error=error, **__: _error)
            main(words)
            text = " ".join(capsys.readouterr().out.split())
            main([*words, "--json"])
        (trial, *_) = [each["trial"] for each in json.loads(capsys.readouterr().out)["advice"] if each["trial"]]
        said[name] = text, {each["is_sure"] for each in trial["effects"] if each["figure"] == "ttft_ms.p90"}
    assert "TTFT p90 may be -" not in said["narrow"][0]
    assert "TTFT p90 may be -" in said["wide"][0].split("(replayed).")[0], "the first sentence"
    assert ": may be TTFT p90 -" in said["wide"][0], "the advice itself"
    assert (said["narrow"][1], said["wide"][1]) == ({True}, {False})


@pytest.mark.parametrize(
    ("more", "is_sure"),
    [
        ({"low": 40, "high": 90}, True),
        ({"low": 40, "high": 110}, False),
        ({"uncertainty": 0.3}, True),
        ({"uncertainty": 0.6}, False),
        ({}, False),
    ],
)
def test_a_change_is_sure_beyond_what_is_known_of_its_error(more: dict[str, float], is_sure: bool) -> None:
    given: dict[str, Any] = {"recorded": 100, "baseline": 100, "variant": 50, "change": -0.5, "uncertainty": None}
    assert FigureAnswer(name="ttft_ms.p90", **{**given, **more}).judged().is_sure == is_sure


def test_a_whatif_says_may_where_its_range_holds_what_was(tmp_path: Path) -> None:
    ty.run("random", SMALL, trace=tmp_path / "t", **FEW)
    told = ty.whatif(tmp_path / "t", {"alike": {"gpu": "a10g"}, "faster": {"gpu": "h200"}})
    sure = {variant.name: {each.name: each.is_sure for each in variant.figures} for variant in told.variants}
    assert not sure["alike"]["ttft_ms.p90"]
    assert sure["faster"]["tpot_ms.p90"]
    text = " ".join(str(told).split())
    assert "With alike: TTFT p90 may be" in text
    assert "TPOT p90 -" in text.split("With faster:")[1]
