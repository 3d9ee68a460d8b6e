"""Steps that stalled: named, in no step time, and repeated at their moment in every replay."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.request import MultiModalItem
from tokenyard.questions.recorded.answer import FigureAnswer
from tokenyard.questions.recorded.ask import answer, replay_as_it_was
from tokenyard.questions.recorded.recorded_run import read_run
from tokenyard.questions.recorded.variants import split_settings, variant_with
from tokenyard.questions.whatif import whatif
from tokenyard.record.recorder import TraceRecorder
from tokenyard.record.writer import TraceWriter
from tokenyard.sim.replay import replay
from tokenyard.steptime.fitted import FittedLatency
from tokenyard.trace.config import TraceConfig
from tokenyard.trace.start import describe_run
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import StreamTokens, seed_of

LATENCY = FittedLatency(constant=0.01, prefill_tokens=2e-4, decodes=5e-4, decode_context=1e-6)
MEANS = ("ttft_ms.mean", "tpot_ms.mean", "e2e_ms.mean")
_TIMES = ("ts", "arrival_time", "first_scheduled_time", "first_token_time", "finished_time")


def workload(count: int = 40) -> Workload:
    return Workload(
        "busy",
        [
            WorkloadRequest(
                request_id=f"r{number}",
                prompt=StreamTokens.unique(seed_of(number), 10 + 7 * number % 60),
                max_tokens=20 + 11 * number % 50,
                arrival_time=0.13 * number,
                output_seed=number,
            )
            for number in range(count)
        ],
    )


def record(folder: Path, stalls: Mapping[int, float], served: Workload | None = None, host: str = "vllm") -> Path:
    """Leave a server's trace in ``folder`` in which some steps take so many seconds longer, and all follows later.

    Who arrives meanwhile waits: arrivals stay where they were.
    """
    scheduler = SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=128, max_model_len=256)
    cache_config = CacheConfig(num_gpu_blocks=200, block_size=16)
    start = describe_run(scheduler, cache_config, host=host, model="tiny", sections={})
    latency = _Stalling(stalls)
    with TraceWriter(TraceConfig(path=folder, policy="fcfs", request_records=False)) as writer:
        replay(
            workload() if served is None else served,
            scheduler,
            cache_config,
            latency,
            observer=TraceRecorder(writer, start=start),
            leaps=False,
        )
    return folder


class _Stalling:
    """Step times of which the ones of some steps are longer; asked once a step, in order."""

    host_seconds = 0.0

    def __init__(self, stalls: Mapping[int, float]) -> None:
        self._stalls = stalls
        self._step = -1

    def step_seconds(self, shape: Any) -> float:
        self._step += 1
        return LATENCY.step_seconds(shape) + self._stalls.get(self._step, 0.0)

    def transfer_seconds(self, num_bytes: int, direction: Any) -> float:
        return 0.0


def then(figures: Sequence[FigureAnswer]) -> dict[str, float]:
    return {each.name: each.variant for each in figures if each.variant is not None}


@pytest.mark.parametrize(("step", "seconds"), [(0, 1.7), (60, 1.0), (60, 20.0)])
def test_a_stall_is_named_and_everything_else_is_as_without_it(step: int, seconds: float, tmp_path: Path) -> None:
    run = read_run(record(tmp_path, {step: seconds}))
    (stall,) = run.stalls
    assert stall.step == step
    assert stall.seconds - stall.expected_s == pytest.approx(seconds, rel=0.02)
    assert stall.is_cold is (step == 0)
    assert isinstance(run.latency, FittedLatency)
    assert run.latency.constant == pytest.approx(LATENCY.constant, rel=0.1)
    assert run.fit.median_error is not None
    assert run.fit.median_error < 0.01
    check = replay_as_it_was(run).check
    assert check.holds
    for name in MEANS:
        assert check.error_of(name) == pytest.approx(0.0, abs=0.01), name
    assert (check.decisions.equal, check.decisions.first_difference) == (check.decisions.steps, None)


def test_who_waits_for_a_stall_waits_in_every_variant(tmp_path: Path) -> None:
    """Asked for fewer seats, the answer is what a run with as many and the same stall reports."""
    stalls = {60: 2.0}
    asked = {"max_num_seqs": 3}
    run = read_run(record(tmp_path, stalls))
    (told,) = answer(run, replay_as_it_was(run), [variant_with(run, asked, "three")]).variants
    evenly = read_run(record(tmp_path / "even", {}))
    assert evenly.stalls == ()
    (even,) = answer(evenly, replay_as_it_was(evenly), [variant_with(evenly, asked, "three")]).variants
    with_stall, without = then(told.figures), then(even.figures)
    assert with_stall["e2e_ms.mean"] > without["e2e_ms.mean"] + 500
    assert with_stall["duration_s"] == pytest.approx(without["duration_s"] + 2.0, abs=0.3)


def test_where_requests_come_faster_a_stall_comes_sooner(tmp_path: Path) -> None:
    run = read_run(record(tmp_path, {60: 2.0}))
    (stall,) = run.stalls
    asked = variant_with(run, split_settings("rate_scale=2"), "twice")
    speed = run.speed(keeps_time=asked.keeps_time, rate=asked.rate)
    assert speed is not None
    assert speed.stalls[0].moment == pytest.approx(stall.at_s / 2)
    assert speed.at(3.0) == 1.0


def test_several_stalls_are_repeated_and_the_longest_shown(tmp_path: Path) -> None:
    stalls = {0: 1.5, 40: 0.6, 41: 0.9, 90: 2.0, 150: 0.7}
    told = whatif(record(tmp_path, stalls), {"max_num_seqs": 4})
    assert [each.step for each in told.stalls] == sorted(stalls)
    assert told.self_check.error_of("e2e_ms.mean") == pytest.approx(0.0, abs=0.01)
    shown = str(told)
    assert "step 90 took 2" in shown
    assert "step 0 took 1.5" in shown
    assert ": cold" in shown
    assert "2 steps more stalled" in shown
    assert "step 40 took" not in shown
    assert [each["step"] for each in json.loads(json.dumps(told.to_dict()))["stalls"]] == sorted(stalls)


def test_without_a_stall_nothing_is_said_of_one(tmp_path: Path) -> None:
    told = whatif(record(tmp_path, {}))
    assert told.stalls == []
    assert "stalled" not in str(told)
    assert "decisions: " in str(told)


def test_a_machine_that_is_often_somewhat_slow_has_no_stalls(tmp_path: Path) -> None:
    """Every seventh step takes half as long again: that is how long steps take there."""
    run = read_run(record(tmp_path, dict.fromkeys(range(0, 400, 7), 0.007)))
    assert run.stalls == ()


def test_an_encoder_is_no_stall(tmp_path: Path) -> None:
    """One prompt has a picture, whose encoder takes a second: it is not known how long such steps take."""
    served = list(workload())
    picture = (MultiModalItem(mm_hash="cat", offset=0, length=4),)
    with_picture = Workload("busy", [*served[:20], replace(served[20], images=picture), *served[21:]])
    folder = record(tmp_path, {}, with_picture)
    (path,) = folder.glob("*.steps.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    decided = [each for each in lines if each["event"] == "step_decision"]
    begins = next(each["step"] for each in decided if "r20" in each["num_scheduled_tokens"])
    end = next(each["ts"] for each in lines if each["event"] == "step_completed" and each["step"] == begins)
    for line in lines:
        for name in _TIMES:
            if line.get(name, -1.0) >= end - 1e-9:
                line[name] += 1.0
        if line["event"] == "step_completed" and line["step"] == begins:
            line["step_seconds"] += 1.0
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_run(folder).stalls == ()
