"""Whether bounds hold is one truth: what is overloaded meets none, and what was not measured is open."""

from __future__ import annotations

from typing import Any

import pytest

import tokenyard as ty
from tokenyard.explain.slo import OPEN_FOR
from tokenyard.explain.steady import LoadState
from tokenyard.questions.planning import search
from tokenyard.questions.planning.answer import Sureness

SMALL = ty.Deployment(model="llama-3.1-8b", gpu="l4", max_model_len=8192, latency="constant:0.02", max_num_seqs=2)
"""Two seats, 20 steps of 20 ms each: some 5 requests a second."""
TRAFFIC: dict[str, Any] = {"num_prompts": 200, "request_rate": 2, "input_len": 40, "output_len": 20}


def test_an_overloaded_variant_meets_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "FEWEST_FOR_LOAD", 800)
    monkeypatch.setattr(search, "MOST_REQUESTS", 1600)
    told = ty.plan("random", SMALL, space={"max_num_seqs": [2]}, slo="tpot_p99=30ms", **{**TRAFFIC, "request_rate": 8})
    assert told.recommended is not None
    assert told.largest_load is not None
    assert told.largest_load.beyond is not None
    assert told.recommended.figures["tpot_ms.p99"] == pytest.approx(20)
    assert (told.state, told.holds, told.recommended.met) == (LoadState.OVERLOADED, False, False)
    assert told.sureness is Sureness.MISSED
    assert [(each.sureness, each.high_ms) for each in told.bounds] == [(Sureness.UNKNOWN, None)]
    assert told.floors == [], "one request at a time has no smaller figure"
    assert told.largest_load.load == pytest.approx(5 / 8, rel=0.15)
    assert (told.largest_load.beyond.met, told.largest_load.beyond.state) in ((False, "overloaded"), (True, "short"))
    assert "tpot_p99 is missed" not in str(told)


def test_a_sweep_says_overloaded() -> None:
    told = ty.sweep("random", SMALL, {"max_num_seqs": [2, 8]}, slo="tpot_p99=30ms", **{**TRAFFIC, "request_rate": 8})
    assert [(row.met, row.met_in_words) for row in told.rows] == [(False, "overloaded"), (True, "hold")]
    assert "overloaded" in str(told)


@pytest.mark.parametrize(
    ("changes", "why"), [({"output_len": 1}, "one_token"), ({"client_timeout": "100ms"}, "not_served")]
)
def test_itl_that_was_not_measured_holds_nothing(changes: dict[str, Any], why: str) -> None:
    report = ty.run("random", SMALL, slo={"itl_p99": "30ms"}, **{**TRAFFIC, **changes}).report
    assert report.goodput is not None
    assert (report.goodput.met, report.goodput.objectives[0].is_open) == (None, True)
    assert report.goodput.objectives[0].open_for == why
    assert f"itl_p99 is open: {OPEN_FOR[why]}" in str(report)
    told = ty.plan("random", SMALL, space={"max_num_seqs": [2]}, slo={"itl_p99": "30ms"}, **{**TRAFFIC, **changes})
    assert told.recommended is not None
    assert (told.holds, told.recommended.met, told.recommended.is_open) == (False, None, True)
    assert told.recommended.open_for == {"itl_p99": why}
    assert f"itl_p99 is open: {OPEN_FOR[why]}" in " ".join(str(told).split())
    assert told.largest_load is None


def test_itl_of_those_who_got_tokens_holds_nothing_for_the_others() -> None:
    """One of three finds both seats taken, and gives up before its first token: the p99 of gaps is of the others."""
    made = ty.WorkloadBuilder("impatient", seed=1)
    for i in range(20):
        for patience in (None, None, 0.05):
            made.request(at=i * 1.0, prompt=40, output=20, patience=patience)
    report = ty.run(made.build(), SMALL, slo="itl_p99=30ms itl_p50=30ms").report
    assert report.goodput is not None
    p99, p50 = report.goodput.objectives
    assert (p99.met, p99.open_for, p50.met) == (None, "tokenless", True)


def test_a_plan_of_which_some_are_refused_has_figures() -> None:
    """Its replay ends early, as the bound is missed for certain, and is then replayed to its end as the nearest."""
    made = ty.WorkloadBuilder("refused", seed=1)
    for i in range(10):
        made.request(at=i * 0.5, prompt=9000 if i < 3 else 40, output=20)
    told = ty.plan(made.build(), SMALL, space={"max_num_seqs": [2]}, slo="ttft_p90=1s", skip_refused=True)
    assert told.recommended is not None
    assert (told.holds, told.recommended.met, told.recommended.refused) == (False, False, 3)
    assert told.recommended.is_measured
