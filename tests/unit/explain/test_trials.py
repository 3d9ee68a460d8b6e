"""From advice to changes that can be replayed, and from their replays to what is shown."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.explain.test_advice import CASES, symptoms
from tests.unit.explain.test_summary import run

from tokenyard.explain.advice.rule_reader import advise
from tokenyard.explain.advice.rules import Advice, Cost, Effect, Trial
from tokenyard.explain.figures import LatencyFigures
from tokenyard.explain.render.parts import remedies_of
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.summary import summarize
from tokenyard.explain.report.trials import best_trial, changes_for, objective_of, trial_of, worth_their_cost

SETTINGS: dict[str, Any] = {
    "max_num_seqs": 256,
    "max_num_batched_tokens": 2048,
    "tensor_parallel_size": 1,
    "gpu_memory_utilization": 0.92,
    "num_gpu_blocks_override": None,
    "kv_cache_memory_bytes": None,
    "scheduling_policy": "fcfs",
    "watermark": 0.01,
    "enable_chunked_prefill": False,
    "enable_prefix_caching": False,
    "scheduler_reserve_full_isl": True,
    "long_prefill_token_threshold": 0,
    "kv_cache_dtype": "auto",
    "kv_dtype": "bfloat16",
    "kv_gib": 20.4,
    "kv_offloading_size": None,
    "kv_transfer_config": None,
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    path = tmp_path_factory.mktemp("trace")
    run(path, num_gpu_blocks=40)
    return summarize(path)


def advice(rule: str) -> Advice:
    (found,) = (each for each in advise(symptoms(CASES[rule][0])) if each.rule == rule)
    return found


def flags(rule: str, report: Report, **settings: Any) -> list[str]:
    return [each.flag for each in changes_for(advice(rule), SETTINGS | settings, report)]


def test_what_is_proposed(report: Report) -> None:
    assert flags("seats", report) == ["--max-num-seqs 512", "--max-num-seqs 1024"]
    assert flags("seats", report, max_num_batched_tokens=600) == ["--max-num-seqs 512"]
    assert flags("token-budget", report) == ["--max-num-batched-tokens 4096", "--max-num-batched-tokens 8192"]
    assert flags("compute", report) == [
        "--max-num-batched-tokens 4096",
        "--max-num-batched-tokens 1024",
        "--kv-cache-dtype fp8",
        "--kv-offloading-size 21",
        "--tensor-parallel-size 2",
    ]
    assert flags("whole-prompts", report) == ["--enable-chunked-prefill"]
    assert flags("full-sequence", report) == ["--no-scheduler-reserve-full-isl"]
    assert flags("watermark", report) == ["--watermark 0"]
    assert flags("no-prefix-cache", report) == ["--enable-prefix-caching"]
    assert flags("order", report) == ["--scheduling-policy bypass"]
    assert flags("grammars", report) == []


def test_memory_is_proposed_where_it_can_grow(report: Report) -> None:
    most = report.header.max_running
    assert most is not None
    fewer = f"--max-num-seqs {most * 3 // 4}"
    free = ["--kv-cache-dtype fp8", "--gpu-memory-utilization 0.95", fewer]
    assert flags("memory", report) == [*free, "--kv-offloading-size 21", "--tensor-parallel-size 2"]
    assert "--gpu-memory-utilization 0.95" not in flags("memory", report, gpu_memory_utilization=1.0)
    assert flags("memory", report, tensor_parallel_size=2, kv_dtype="fp8", kv_offloading_size=4.0) == [
        *free[1:],
        "--tensor-parallel-size 4",
    ]
    blocks = flags("blocks", report, num_gpu_blocks_override=600)
    assert blocks[:2] == ["--kv-cache-dtype fp8 --num-gpu-blocks-override 1200", "--num-gpu-blocks-override 1200"]
    assert "--tensor-parallel-size 2" not in blocks, "as few blocks as before"
    spare = flags("blocks", report, num_gpu_blocks_override=600, memory_num_gpu_blocks=1500)
    assert spare[:2] == ["--num-gpu-blocks-override 1500", "--kv-cache-dtype fp8 --num-gpu-blocks-override 1200"]
    assert "--num-gpu-blocks-override 1200" not in spare
    full = flags("blocks", report, num_gpu_blocks_override=600, memory_num_gpu_blocks=600)
    assert full == spare[1:], "no memory for more"
    given = flags("kv-bytes", report, kv_cache_memory_bytes=1 << 30)
    assert given[:2] == ["--kv-cache-dtype fp8", f"--kv-cache-memory-bytes {1 << 31}"]


def test_fewer_seats_are_fewer_than_ever_were_taken(report: Report) -> None:
    most = report.header.max_running
    assert most is not None
    assert 4 <= most < SETTINGS["max_num_seqs"]
    proposed = flags("preemptions", report, num_gpu_blocks_override=40)
    assert proposed == [
        f"--max-num-seqs {most * 3 // 4}",
        f"--max-num-seqs {most // 2}",
        "--kv-cache-dtype fp8 --num-gpu-blocks-override 80",
        "--num-gpu-blocks-override 80",
        "--kv-offloading-size 21",
    ]


@pytest.mark.parametrize(
    "rule", ["compute", "memory", "blocks", "kv-bytes", "preemptions", "evicted-turns", "seats-and-memory"]
)
def test_what_costs_nothing_is_tried_before_what_costs_gpus(rule: str, report: Report) -> None:
    tried = [each.cost.rank for each in changes_for(advice(rule), SETTINGS, report)]
    assert tried == sorted(tried)
    assert tried[0] == Cost.SETTING.rank
    assert len(set(tried)) > 1


def test_flags_of_ours_are_marked(report: Report) -> None:
    (bypass,) = changes_for(advice("order"), SETTINGS, report)
    assert not bypass.is_vllm
    assert all(each.is_vllm for each in changes_for(advice("seats"), SETTINGS, report))
    assert [each.cost for each in changes_for(advice("evicted-turns"), SETTINGS, report)][-1] is Cost.OTHER_SCHEDULER


def tried(flag: str, **changes: float) -> Trial:
    effects = [
        Effect(figure=name.replace("_ms_", "_ms."), before=100, after=100 + each) for name, each in changes.items()
    ]
    return Trial(setting="s", now=1, then=flag, flag=flag, effects=effects)


def test_the_best_that_helps_is_kept() -> None:
    little, much, same = (
        tried(name, ttft_ms_p90=by, e2e_ms_mean=-1) for name, by in (("a", -10), ("b", -40), ("c", -41))
    )
    assert best_trial("seats", [little, much, same]) is much
    assert best_trial("seats", [same, much, little]) is same
    assert best_trial("seats", []) is None
    assert best_trial("seats", [tried("a", ttft_ms_p90=-2, e2e_ms_mean=-1)]) is None
    assert best_trial("seats", [tried("a", ttft_ms_p90=-40, e2e_ms_mean=4)]) is None
    assert best_trial("seats", [Trial(setting="s", now=1, then=2, flag="f", problem="no start")]) is None


def test_a_dearer_change_is_shown_beside_a_cheaper_one_only_if_it_helps_more() -> None:
    def costing(cost: Cost, by: float) -> Trial:
        return msgspec.structs.replace(tried(cost, ttft_ms_p90=by, e2e_ms_mean=by), cost=cost)

    free, cpu, gpus = costing(Cost.SETTING, -20), costing(Cost.CPU_MEMORY, -22), costing(Cost.GPUS, -45)
    assert worth_their_cost("seats", [gpus, cpu, free]) == [free, gpus]
    assert worth_their_cost("seats", [costing(Cost.SETTING, -1), cpu]) == [cpu]
    assert worth_their_cost("seats", [costing(Cost.SETTING, 30)]) == []


def test_each_rule_is_judged_by_what_it_is_about() -> None:
    assert objective_of("seats") == "ttft_ms.p90"
    assert objective_of("long-prefills") == "tpot_ms.p99"
    assert objective_of("preemptions") == "e2e_ms.mean"


def test_a_trial_holds_both_figures(report: Report) -> None:
    known, better = (msgspec.structs.replace(report, ttft_ms=LatencyFigures(1.0, 1.0, p90, 1.0)) for p90 in (8.0, 4.0))
    (change, *_) = changes_for(advice("seats"), SETTINGS, report)
    trial = trial_of(change, known, better)
    effect = trial.effect("ttft_ms.p90")
    assert effect is not None
    assert effect.change == pytest.approx(-0.5)
    assert trial.title == "max_num_seqs 256 -> 512"
    assert trial_of(change, report, None, "vLLM would not start").effects == []


def test_a_lower_bound_decides_nothing_and_who_is_served_does(report: Report) -> None:
    """With patience a tail is only how long clients stayed: it says nothing of a change with which more are served."""
    assert report.outcomes is not None
    (change, *_) = changes_for(advice("seats"), SETTINGS, report)
    stayed = LatencyFigures(5.0, 5.0, 8.0, 8.0, censored=("mean", "p90", "p99"))
    before, after, worse = (
        msgspec.structs.replace(
            report,
            ttft_ms=msgspec.structs.replace(stayed, p90=p90),
            e2e_ms=stayed,
            outcomes=msgspec.structs.replace(report.outcomes, served=served),
        )
        for p90, served in ((8.0, 10), (8.5, 30), (4.0, 5))
    )
    trial = trial_of(change, before, after)
    assert [trial.effect(each) for each in ("ttft_ms.p90", "e2e_ms.mean")] == [None, None]
    served = trial.effect("outcomes.served")
    assert served is not None
    assert (served.before, served.after) == (10, 30)
    assert best_trial("seats", [trial]) == trial
    assert best_trial("seats", [trial_of(change, before, worse)]) is None
    assert best_trial("seats", [trial_of(change, before, before)]) is None


def test_what_is_printed(report: Report) -> None:
    trial = tried("--max-num-seqs 512", ttft_ms_p90=-41, tpot_ms_p90=9, e2e_ms_mean=-0.1)
    shown = msgspec.structs.replace(advice("seats"), trial=trial)
    vain = [tried("--watermark 0"), Trial(setting="t", now=1, then=2, flag="f", problem="no start")]
    report = msgspec.structs.replace(report, advice=[shown], tried=vain)
    parts = list(remedies_of(report, report.answer.remedies))
    assert str(parts[-1]) == "Tried, and no better: s 1 -> --watermark 0; t 1 -> 2 (no start)."
    cell, *_ = parts[0].columns[1].cells  # type: ignore[union-attr]
    assert "TTFT p90 -41 %, TPOT p90 +9 %. As many requests run" in str(cell)
    assert "E2E" not in str(cell)
