"""Every rule of advice both ways: it speaks where its symptom is, and is silent just beside it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.trace.recorded import RecordedYard

import tokenyard as ty
from tokenyard.explain.advice.rule_reader import RuleReader, advise
from tokenyard.explain.advice.rules import ValueCondition, rule_book
from tokenyard.explain.advice.symptoms import StepLoad, StepTimes, Symptoms, missed_bounds
from tokenyard.explain.figures import LatencyFigures
from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.explain.report.report import Report
from tokenyard.explain.slo import SLO, Bounded

HEALTHY: dict[str, Any] = {
    "steps": 5424,
    "requests": 800,
    "jobs": 0,
    "request_seconds": 40_000.0,
    "token_budget": 2048,
    "max_running": 100,
    "peak_running": 88,
    "preemptions": 3,
    "recomputed_tokens": 1200,
    "scheduled_tokens": 3_000_000,
    "local_hit_rate": 0.05,
    "peak_kv_use": 0.85,
    "tpot_p50_ms": 20.0,
    "tpot_p99_ms": 31.0,
    "mixed_steps": 600,
    "mixed_ms": 45.0,
    "decode_steps": 4000,
    "decode_ms": 18.0,
    "decode_token_ms": 18.5,
    "decode_running": 31.5,
    "decode_base_ms": 7.0,
    "prefill_steps": 700,
    "prefill_token_ms": 44.0,
    "mean_token_ms": 22.1,
    "prefill_share": 0.16,
    "prefill_budget_use": 0.62,
    "ttft_ms": 410.0,
    "prefill_ms": 90.0,
    "unseen_ms": 12.0,
    "settings": {"enable_prefix_caching": True, "max_num_seqs": 100, "policy": "fcfs", "watermark": 0.0},
}


def held(reason: str, steps: int = 412, seconds: float = 2900.5, **more: Any) -> dict[str, Any]:
    return {"reasons": {reason: {"steps": steps, "requests": 9 * steps, "seconds": seconds, **more}}}


def kv(**more: Any) -> dict[str, Any]:
    numbers = {"needed": 700.0, "free": 533.0, "cached_hits": 0.0, "reserved": 0.0, "watermark": 0.0}
    return {"kv": numbers | {"smallest_need": 650.0, "smaller_would_fit_steps": 3} | more, "kv_free": 0.05}


WORST: dict[str, Any] = {"worst": {"running": 24, "held": 63, "used_blocks": 900, "total_blocks": 2000}}

TOKEN: dict[str, Any] = {"token_bound_ms": 25.0, "token_time_ms": 31.0}
FIRST: dict[str, Any] = {"first_bound_ms": 300.0, "first_time_ms": 900.0}
WHOLE: dict[str, Any] = {"whole_bound_ms": 5000.0, "whole_time_ms": 6200.0}
SLOW: dict[str, Any] = TOKEN | {"decode_token_ms": 26.0, "batch_in_bound": 40.9}
BESIDE: dict[str, Any] = TOKEN | {"batch_in_bound": 120.0, "tokens_in_bound": 210.7}

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "large-batch": (SLOW, SLOW | {"batch_in_bound": 0.9}),
    "slow-steps": (SLOW | {"batch_in_bound": None, "settings": {"tensor_parallel_size": 1}}, SLOW),
    "prefill-in-steps": (BESIDE, BESIDE | {"max_running": 256}),
    "prefill-in-pieces": (
        BESIDE | {"max_running": 256, "settings": {"long_prefill_token_threshold": 0}},
        BESIDE,
    ),
    "prefill-apart": (BESIDE | {"mean_token_ms": 25.5}, BESIDE),
    "small-chunks": (
        FIRST | {"prefill_ms": 300.0, "prefill_token_ms": 25.0, "prefill_budget_use": 0.97},
        FIRST | {"prefill_ms": 300.0, "prefill_token_ms": 25.0},
    ),
    "slow-prefill": (
        FIRST | {"prefill_ms": 300.0, "settings": {"tensor_parallel_size": 2}},
        FIRST | {"prefill_ms": 200.0},
    ),
    "step-in-flight": (FIRST | {"unseen_ms": 140.0}, FIRST | {"unseen_ms": 120.0}),
    "seats": (held("max_num_seqs", kv_free=0.413, **WORST), held("max_num_seqs", kv_free=0.12)),
    "seats-and-memory": (held("max_num_seqs", kv_free=0.12, **WORST), held("max_num_seqs", kv_free=0.2)),
    "token-budget": (held("token_budget"), held("token_budget", seconds=700.0)),
    "compute": (held("token_budget") | {"mixed_ms": 54.0}, held("token_budget") | {"mixed_ms": 53.9}),
    "whole-prompts": (held("prefill_exceeds_budget"), held("prefill_exceeds_budget", steps=9)),
    "memory": (
        held("kv_blocks", **kv(), **WORST) | {"settings": {"gpu_memory_utilization": 0.92}},
        held("kv_blocks", **kv()) | {"settings": {"gpu_memory_utilization": 0.92, "num_gpu_blocks_override": 600}},
    ),
    "blocks": (
        held("kv_blocks", **kv(), **WORST)
        | {"settings": {"gpu_memory_utilization": 0.92, "num_gpu_blocks_override": 600}},
        held("kv_blocks", **kv()) | {"settings": {"gpu_memory_utilization": 0.92, "kv_cache_memory_bytes": 2**30}},
    ),
    "kv-bytes": (
        held("kv_blocks", **kv(), **WORST) | {"settings": {"kv_cache_memory_bytes": 2**30}},
        held("kv_blocks", **kv()) | {"settings": {"kv_cache_memory_bytes": 2**30, "num_gpu_blocks_override": 600}},
    ),
    "order": (
        held("kv_blocks", **kv(smallest_need=347.0, smaller_would_fit_steps=390)),
        held("kv_blocks", **kv(smallest_need=347.0, smaller_would_fit_steps=100)),
    ),
    "full-sequence": (
        held("kv_full_sequence", **(kv() | {"kv_free": 0.34})),
        held("kv_full_sequence", **(kv() | {"kv_free": 0.34})) | {"preemptions": 60},
    ),
    "watermark": (held("kv_watermark"), held("kv_watermark", seconds=1.0)),
    "preemptions": ({"preemptions": 41, "recomputed_tokens": 90_000, "peak_running": 30}, {"preemptions": 39}),
    "long-prefills": ({"mixed_ms": 88.25, "tpot_p99_ms": 71.0}, {"mixed_ms": 88.25, "tpot_p99_ms": 39.0}),
    "no-prefix-cache": (
        {"settings": {"enable_prefix_caching": False}, "jobs": 100},
        {"settings": {"enable_prefix_caching": False}, "jobs": 700},
    ),
    "evicted-turns": ({"jobs": 100, "peak_kv_use": 0.99, "local_hit_rate": 0.59}, {"jobs": 100, "peak_kv_use": 0.94}),
    "lora-slots": (held("lora_slots") | {"adapters": 5}, held("lora_slots", seconds=0.0)),
    "encoder-budget": (held("encoder_budget"), held("encoder_budget", steps=2)),
    "remote-kv": (held("waiting_remote_kv"), held("waiting_remote_kv", seconds=10.0)),
    "grammars": (held("waiting_grammar"), held("waiting_grammar", seconds=10.0)),
}


def symptoms(changes: dict[str, Any]) -> Symptoms:
    """The symptoms of a healthy run but for the changes."""
    return msgspec.convert(HEALTHY | changes, Symptoms)


def advice(changes: dict[str, Any]) -> list[dict[str, Any]]:
    """What the viewer says too: trials are a run's alone."""
    found = [dict(msgspec.to_builtins(finding)) for finding in advise(symptoms(changes))]
    assert all(each.pop("trial") is None for each in found)
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_rule_fires_and_does_not(name: str) -> None:
    fires, silent = CASES[name]
    assert name in [finding["rule"] for finding in advice(fires)]
    assert name not in [finding["rule"] for finding in advice(silent)]


def test_what_few_preemptions_cost_is_weighed_against_the_wait_for_a_seat() -> None:
    """A run lost an hour to max_num_seqs and five seconds to ten preemptions: to lower the limit is no advice."""
    rare = {"preemptions": 41, "recomputed_tokens": 2607}
    waits = held("max_num_seqs", seconds=3394.0, kv_free=0.507)["reasons"]
    lost = held("preempted_this_step", steps=10, seconds=5.4)["reasons"]
    assert [each["rule"] for each in advice({"reasons": waits | lost} | rare)] == ["seats"]
    costly = held("preempted_this_step", steps=300, seconds=340.0)["reasons"]
    assert [each["rule"] for each in advice({"reasons": waits | costly} | rare)] == ["preemptions"]
    thrown_away = rare | {"recomputed_tokens": 60_000}
    assert [each["rule"] for each in advice({"reasons": waits | lost} | thrown_away)] == ["preemptions"]
    assert [each["rule"] for each in advice(rare)] == ["preemptions"]


def test_every_rule_is_tested_and_named_once() -> None:
    assert list(CASES) == [rule.name for rule in rule_book().rules]


def test_nothing_is_advised_where_nothing_is_wrong() -> None:
    assert advice({}) == []
    assert advise(Symptoms(steps=0)) == []


def test_the_evidence_stands_in_the_sentence() -> None:
    (finding,) = advice(CASES["seats"][0])
    assert (finding["setting"], finding["direction"], finding["now"]) == ("max_num_seqs", "up", 100)
    assert finding["evidence"] == (
        "412 of 5,424 steps stopped at max_num_seqs = 100 with 41 % of KV free; requests lost 48 min 20 s to it, "
        "7 % of their time. At the worst 24 ran and 63 waited for a seat; the KV cache has room for about 53 such "
        "requests."
    )
    assert finding["lost_s"] == 2900.5


def target(name: str, **changes: Any) -> Any:
    """What the rule's own case is told to set, with other symptoms."""
    return next(each["to"] for each in advice(CASES[name][0] | changes) if each["rule"] == name)


def seats(**worst: int) -> dict[str, Any]:
    return held("max_num_seqs", kv_free=0.413, worst={"running": 100, "held": 63} | worst)


def test_advice_names_a_value_that_would_have_been_enough() -> None:
    """100 ran and 63 waited: 163, or as many as the KV cache holds of such requests."""
    assert target("seats", **seats()) == 163
    assert target("seats", **seats(used_blocks=900, total_blocks=1800)) == 163
    assert target("seats", **seats(used_blocks=900, total_blocks=1200)) == 133
    assert target("seats-and-memory", **held("max_num_seqs", kv_free=0.1, worst={"running": 100, "held": 63})) == 163
    many: dict[str, Any] = {"worst": {"running": 30, "held": 10, "used_blocks": 601, "total_blocks": 602}}
    given = {"settings": {"gpu_memory_utilization": 0.92, "num_gpu_blocks_override": 602}}
    assert target("blocks", **held("kv_blocks", **kv(), **many), **given) is None, (
        "what the GPU has room for is not known"
    )
    room = {"settings": {"num_gpu_blocks_override": 602, "memory_num_gpu_blocks": 700}}
    assert target("blocks", **held("kv_blocks", **kv(), **many), **room) == 700
    more = {"settings": {"kv_cache_memory_bytes": 2**30}}
    assert target("kv-bytes", **held("kv_blocks", **kv(), **many), **more) is None
    assert target("kv-bytes", **held("kv_blocks", **kv(), **many), **more, most_kv_bytes=2**31) == 2**30 * 802 // 602
    assert target("kv-bytes", **held("kv_blocks", **kv(), **many), **more, most_kv_bytes=2**30 + 5) == 2**30 + 5
    assert target("token-budget") == 4096
    memory = {"settings": {"gpu_memory_utilization": 0.92}}
    assert target("memory", **held("kv_blocks", **kv(), **many), **memory) is None
    blocks = held("kv_blocks", **kv(), **many) | memory
    assert target("memory", **blocks, most_kv_blocks=900) == "what gives 802 KV blocks"
    assert target("memory", **blocks, most_kv_blocks=650) == "what gives 650 KV blocks", "more do not fit the GPU"
    assert "memory" not in [each["rule"] for each in advice(blocks | {"most_kv_blocks": 610})], "it is full"
    assert target("lora-slots", settings={"max_loras": 2}) == 5
    assert target("preemptions") == 22
    assert target("compute", settings={"tensor_parallel_size": 2}) == 4
    assert target("long-prefills", settings={"long_prefill_token_threshold": 0}) == 512, "0 is off"
    assert target("long-prefills", settings={"long_prefill_token_threshold": 256}) is None


def test_no_value_is_named_where_the_trace_does_not_tell_or_the_setting_is_there() -> None:
    assert target("seats", **held("max_num_seqs", kv_free=0.413)) is None
    assert target("seats", **seats(used_blocks=900, total_blocks=900)) is None
    assert target("lora-slots", settings={"max_loras": 5}) is None
    assert target("lora-slots", adapters=0) is None
    few: dict[str, Any] = {"worst": {"running": 30, "held": 10, "used_blocks": 300, "total_blocks": 602}}
    memory = {"settings": {"gpu_memory_utilization": 0.92}}
    assert target("memory", **held("kv_blocks", **kv(), **few), **memory) is None


def test_adapters_count_while_their_requests_are_there(tmp_path: Path) -> None:
    """Four adapters in all, three of one moment in which a request waits for a slot: more slots serve no request."""
    summary = ReportBuilder()
    toy = RecordedYard(tmp_path, summary, max_num_seqs=8, max_num_batched_tokens=64, max_loras=2)
    toy.add("early", 4, max_tokens=2, lora_name="early")
    toy.drain()
    for number in range(3):
        toy.add(f"r{number}", 4, max_tokens=12, lora_name=f"a{number}")
    toy.drain()
    toy.writer.close()
    (told,) = [each for each in summary.report().advice if each.rule == "lora-slots"]
    assert (told.to, told.now) == (3, 2)
    assert told.evidence.endswith("asked for up to 3 adapters.")


def test_a_larger_budget_is_not_advised_where_steps_take_as_long_as_their_tokens() -> None:
    (finding,) = advice(held("token_budget") | {"mixed_ms": 180.0})
    assert finding["rule"] == "compute"
    assert finding["evidence"].endswith("take 10.0 times as long as decode alone (180.0 ms against 18.0 ms).")
    (gpus,) = advice(held("token_budget") | {"mixed_ms": 180.0, "settings": {"tensor_parallel_size": 1}})
    assert (gpus["now"], gpus["to"]) == (1, 2)
    assert gpus["evidence"].endswith("Twice as many GPUs are a first value to try.")


def test_blocks_by_hand_are_told_what_memory_there_is() -> None:
    few: dict[str, Any] = {"worst": {"running": 30, "held": 10, "used_blocks": 601, "total_blocks": 602}}
    settings = {"num_gpu_blocks_override": 602, "memory_num_gpu_blocks": 12_808}
    found = advice(held("kv_blocks", **kv(), **few) | {"settings": settings})
    assert found[0]["to"] == 802
    assert found[0]["evidence"].endswith("the engine takes the 12,808 blocks that its memory has room for.")


def test_tokens_that_come_late_want_no_more_requests_in_a_step() -> None:
    """Requests wait for seats, and a step is too long already: what helps is a faster engine."""
    assert [each["rule"] for each in advice(CASES["seats"][0] | SLOW)] == ["slow-steps"]
    assert [each["rule"] for each in advice(CASES["token-budget"][0] | BESIDE)] == ["prefill-apart"]


def test_a_missed_bound_comes_before_what_requests_waited_for() -> None:
    assert [each["rule"] for each in advice(CASES["seats"][0] | FIRST | {"unseen_ms": 140.0})] == [
        "step-in-flight",
        "seats",
    ]


def test_the_line_through_durations_says_how_many_requests_a_step_may_have() -> None:
    """Steps of 5 ms and 1 ms for each request, and 2 ms more for each hundred tokens of prefill beside them."""
    times = StepTimes()
    for running in (4, 8, 16):
        times.add(StepLoad(running, 0, 2048), [(5 + running) / 1e3] * 10)
    times.add(StepLoad(8, 500, 2048), [(5 + 8 + 10) / 1e3] * 5)
    found = times.symptoms(15.0, 2048)
    assert found["batch_in_bound"] == pytest.approx(10.0)
    assert found["decode_base_ms"] == pytest.approx(5.0)
    assert found["decode_token_ms"] == pytest.approx((4 * 9 + 8 * 13 + 16 * 21) / 28)
    assert found["tokens_in_bound"] is None, "steps without prefill take longer already"
    wide = times.symptoms(20.0, 2048)
    alone = found["decode_token_ms"]
    assert wide["tokens_in_bound"] == pytest.approx(28 / 3 + 500 * (20 - alone) / (23 - alone))
    assert StepTimes().symptoms(15.0, None)["batch_in_bound"] is None


def test_drafts_are_no_prefill_and_bring_more_tokens_a_step() -> None:
    """The same steps with three drafts a request, of which one is accepted: two tokens a request in each."""
    times = StepTimes()
    for running in (4, 8, 16):
        load = StepLoad(running, 3 * running, 2048).verifying(3 * running, running)
        times.add(load, [(5 + running) / 1e3] * 10)
    times.add(StepLoad(8, 524, 2048).verifying(24, 8), [(5 + 8 + 10) / 1e3] * 5)
    found = times.symptoms(10.0, 2048)
    assert (found["decode_steps"], found["prefill_steps"]) == (30, 5)
    alone = (4 * 9 + 8 * 13 + 16 * 21) / 28 / 2
    assert found["decode_token_ms"] == pytest.approx(alone)
    assert found["prefill_token_ms"] == pytest.approx(23 / 2)
    assert found["batch_in_bound"] == pytest.approx(15.0), "a step of 20 ms brings two tokens in 10 ms each"
    assert found["decode_base_ms"] == pytest.approx(2.5)
    assert found["tokens_in_bound"] == pytest.approx(4 * 28 / 3 + 500 * (10 - alone) / (23 / 2 - alone))
    assert StepLoad(8, 24 + 511, 2048).verifying(24, 8).is_large is False
    assert StepLoad(8, 24 + 512, 2048).verifying(24, 8).is_large is True


def test_a_bound_on_the_whole_time_stands_for_its_larger_part() -> None:
    latencies = {name: LatencyFigures() for name in ("queue", "itl")} | {
        "ttft": LatencyFigures(mean=400.0, p90=900.0),
        "tpot": LatencyFigures(mean=20.0, p90=30.0),
        "e2e": LatencyFigures(mean=4000.0, p90=8000.0),
    }
    whole = SLO("e2e", "p90", 4000.0)
    assert missed_bounds([Bounded([whole], latencies)]) == {
        "whole_time_ms": 8000.0,
        "whole_bound_ms": 4000.0,
        "token_time_ms": 30.0,
        "token_bound_ms": 15.0,
    }
    assert missed_bounds([Bounded([whole, SLO("tpot", None, 29.0)], latencies)]) == {
        "token_time_ms": 30.0,
        "token_bound_ms": 29.0,
    }
    assert missed_bounds([Bounded([SLO("ttft", "p90", 900.0), SLO("queue", "p90", 1.0)], latencies)]) == {}


def test_the_class_whose_bound_is_missed_by_the_largest_factor_is_named() -> None:
    quick, slow = ({"tpot": LatencyFigures(p90=each)} for each in (30.0, 60.0))
    bounded = [
        Bounded([SLO("tpot", "p90", 29.0)], quick),
        Bounded([SLO("tpot", "p90", 20.0)], quick, "interactive"),
        Bounded([SLO("tpot", None, 50.0)], slow, "batch"),
    ]
    missed = {"token_time_ms": 30.0, "token_bound_ms": 20.0, "token_class": "interactive"}
    assert missed_bounds(bounded) == missed
    assert missed_bounds([bounded[0], bounded[2]]) == {
        "token_time_ms": 60.0,
        "token_bound_ms": 50.0,
        "token_class": "batch",
    }
    assert missed_bounds(bounded[:1]) == {"token_time_ms": 30.0, "token_bound_ms": 29.0}


def test_advice_names_the_class() -> None:
    (told,) = advice(SLOW | WHOLE | {"token_class": "batch", "whole_class": "batch"})
    assert told["evidence"].startswith(
        "A request of class batch may take 5,000.0 ms and takes 6,200.0 ms. To mend that:"
        " A token of class batch may take 25.0 ms and takes 31.0 ms. 4,000 steps"
    )
    assert advice(SLOW)[0]["evidence"].startswith("A token may take 25.0 ms and takes 31.0 ms. 4,000 steps")


def test_a_share_of_hits_rests_on_twenty_requests() -> None:
    fires = CASES["evicted-turns"][0] | {"jobs": 5}
    assert [finding["rule"] for finding in advice(fires | {"requests": 20})] == ["evicted-turns"]
    assert advice(fires | {"requests": 19}) == []


CHAT = ty.Deployment(model="Qwen/Qwen3-8B", gpu="h100", max_model_len=16384)


def reported(folder: Path, slo: str, deployment: ty.Deployment = CHAT) -> Report:
    ty.run("rag", deployment, limit=45, trace=folder)
    return ty.report(folder, slo=slo)


@pytest.mark.slow
def test_the_value_that_is_named_holds_the_bound(tmp_path: Path) -> None:
    """Questions with long passages beside answers: a step takes as long as its prefill, until it may have less."""
    report = reported(tmp_path / "as it was", "itl_p99=60ms")
    (told,) = (each for each in report.advice if each.is_of_bound)
    assert (told.rule, told.setting, told.now) == ("prefill-in-steps", "max_num_batched_tokens", 8192)
    assert isinstance(told.to, int)
    assert report.answer.missed == ["itl_p99"]
    assert report.answer.sentence.endswith(f": lower max_num_batched_tokens to {told.to} (now 8192).")
    again = reported(tmp_path / "again", "itl_p99=60ms", CHAT.with_(max_num_batched_tokens=told.to))
    assert again.answer.missed == []
    assert not any(each.is_of_bound for each in again.advice)


def test_what_is_tried_for_a_missed_bound_is_judged_by_it() -> None:
    report = ty.run("rag", CHAT, limit=30, slo={"itl_p99": "60ms"}, advice="all").report
    told = report.advice[0]
    assert told.trial is not None
    assert told.trial.setting == "max_num_batched_tokens"
    effect = told.trial.effect("itl_ms.p99")
    assert effect is not None
    assert effect.change < -0.03
    assert f": ITL p99 {100 * effect.change:+.0f} %" in report.answer.sentence
    assert f"ITL p99 {100 * effect.change:+.0f} %" in " ".join(str(report).split())


def test_a_gpu_that_is_too_slow_is_called_so(tmp_path: Path) -> None:
    report = reported(tmp_path, "tpot_p90=4ms")
    told = report.advice[0]
    assert (told.rule, told.setting, told.now, told.to) == ("slow-steps", "tensor_parallel_size", 1, 2)
    assert report.answer.sentence.endswith(
        "The GPU is too slow for this load: raise tensor_parallel_size to 2 (now 1)."
    )


def test_a_gpu_that_is_too_slow_is_called_so_with_drafts_too(tmp_path: Path) -> None:
    """Every step of a decoding request computes its drafts as well, and none of them is prefill."""
    drafting = CHAT.with_(num_speculative_tokens=2, acceptance_rates="0.8,0.5")
    report = reported(tmp_path, "tpot_p90=2ms", drafting)
    assert report.speculation is not None
    told = report.advice[0]
    assert (told.rule, told.setting, told.now, told.to) == ("slow-steps", "tensor_parallel_size", 1, 2)


def test_most_time_lost_comes_first() -> None:
    both = (
        held("token_budget", seconds=1000.0)["reasons"] | held("max_num_seqs", seconds=3000.0, kv_free=0.5)["reasons"]
    )
    assert [each["rule"] for each in advice({"reasons": both, "preemptions": 0})] == ["seats", "token-budget"]


def test_a_run_with_too_few_seats_is_told_so(tmp_path: Path) -> None:
    summary = ReportBuilder()
    toy = RecordedYard(tmp_path, summary, max_num_seqs=2, max_num_batched_tokens=64)
    for number in range(12):
        toy.add(f"r{number}", 4, max_tokens=6)
    toy.drain()
    toy.writer.close()
    report = summary.report()
    assert [(each.rule, each.now) for each in report.advice] == [("seats", 2)]
    assert "stopped at max_num_seqs = 2" in report.advice[0].evidence
    assert report.advice[0].to == 12


ROOM = {"most_kv_blocks": 900, "most_kv_bytes": 2**31}


def test_every_name_in_the_rules_stands_for_something() -> None:
    """Everything that a rule may look at is given, so a misspelt name has nothing to be."""
    book = rule_book()
    given = {reason: held(reason, **kv(), **WORST)["reasons"][reason] for rule in book.rules for reason in rule.reasons}
    settings = dict.fromkeys((name for names in book.symptoms.settings.values() for name in names), 1)
    late = BESIDE | FIRST | WHOLE | dict.fromkeys(("token_class", "first_class", "whole_class"), "interactive")
    known = symptoms({"reasons": given, "settings": settings, "jobs": 1, "adapters": 1, "guessed": True} | late | ROOM)
    values = [ratio for pair in book.ratios.values() for ratio in pair]
    named = [each for lists in book.conditions.values() for conditions in lists for each in conditions]
    values += [each.value for each in named if isinstance(each, ValueCondition)]
    for rule in book.rules:
        comparisons = [each for each in rule.when if isinstance(each, ValueCondition)]
        values += [each.value for each in comparisons] + [each.times for each in comparisons if each.times]
        if rule.target is not None:
            times = rule.target.times
            values += [rule.target.value, rule.target.at_most or "steps", times if isinstance(times, str) else "steps"]
        frame = [part for name in book.frame.__struct_fields__ for part in getattr(book.frame, name)]
        sentences = [*rule.did, *rule.evidence, *rule.then, *frame]
        texts = [part if isinstance(part, str) else part.text for part in sentences]
        values += [name for text in texts for name in re.findall(r"\{([\w.]+):", text)]
        names = [each.removeprefix("not ") for each in rule.when if isinstance(each, str)]
        assert set(names) <= set(book.conditions)
        reader = RuleReader(book, rule, known)
        for name in values if rule.reasons else [value for value in values if not value.startswith("reason.")]:
            assert reader.value(name) is not None, name
    assert len(values) > 60
