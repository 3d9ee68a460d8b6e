"""An engine's own run, its steps decided anew with every arrival in the step that it fell into: the same decisions."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.toy_model import toy_core, toy_tokenizer

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.sched.observer import StepObserver
from tokenyard.questions.recorded.decisions import drive
from tokenyard.questions.recorded.recorded_run import RecordedRun, read_run
from tokenyard.record.recorder import TraceRecorder
from tokenyard.record.writer import TraceWriter
from tokenyard.serve.async_llm import AsyncLLM
from tokenyard.serve.generation import GenerationParams
from tokenyard.serve.openai.assembly import watch
from tokenyard.sim.replay import replay
from tokenyard.steptime.model import ConstantLatency
from tokenyard.trace.config import TraceConfig
from tokenyard.trace.start import describe_run
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import StreamTokens


def recorded(folder: Path, *, async_scheduling: bool) -> RecordedRun:
    """Forty requests that come at random moments, some with a common beginning, in too little memory for all."""
    core = toy_core(
        seconds=0.002, num_gpu_blocks=60, max_num_batched_tokens=48, async_scheduling=async_scheduling, checks=False
    )
    chance = random.Random(3)

    async def ask(llm: AsyncLLM, number: int) -> None:
        await asyncio.sleep(chance.random() * 0.5)
        own = [chance.randrange(256) for _ in range(chance.randint(1, 60))]
        prompt = [7] * 20 * (number % 2) + own
        params = GenerationParams(max_tokens=chance.randint(1, 30), ignore_eos=True)
        async for _ in llm.generate({"prompt_token_ids": prompt}, params, f"r{number}"):
            pass

    async def work() -> None:
        async with AsyncLLM(core, tokenizer=toy_tokenizer()) as llm:
            await asyncio.gather(*(ask(llm, number) for number in range(40)))

    with TraceWriter(TraceConfig(path=folder, policy="fcfs", request_records=False)) as writer:
        watch(core, StepObserver(), writer, policy="fcfs", model="toy", engine={})
        asyncio.run(work())
    return read_run(folder)


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_every_decision_is_the_same(tmp_path: Path, async_scheduling: bool) -> None:
    run = recorded(tmp_path, async_scheduling=async_scheduling)
    assert len(run.workload) == 40
    assert run.scheduler.async_scheduling is async_scheduling
    driven = drive(run)
    assert driven.first_difference is None
    assert driven.equal == driven.steps > 60


def test_a_difference_is_found(tmp_path: Path) -> None:
    """The same run under another budget parts from it."""
    run = recorded(tmp_path, async_scheduling=False)
    other = replace(run, scheduler=replace(run.scheduler, max_num_batched_tokens=32))
    assert drive(other).first_difference is not None


def test_a_difference_is_named_and_the_steps_behind_it_are_compared_as_well(tmp_path: Path) -> None:
    run = recorded(tmp_path, async_scheduling=False)
    other = drive(replace(run, scheduler=replace(run.scheduler, max_num_seqs=3)))
    assert other.first_difference is not None
    assert other.difference is not None
    assert f"step {other.first_difference} of the trace" in other.difference
    assert 0 < other.equal < other.steps == drive(run).steps


def test_no_more_steps_are_compared_than_asked_for(tmp_path: Path) -> None:
    driven = drive(recorded(tmp_path, async_scheduling=False), most_steps=10)
    assert (driven.equal, driven.steps, driven.stopped_by) == (10, 10, "most_steps")


def edited(folder: Path, change: Callable[[list[dict[str, Any]]], None]) -> RecordedRun:
    """The trace in ``folder`` with other lines."""
    (path,) = folder.glob("*.steps.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_run(folder)


def test_it_ends_where_a_request_is_scheduled_that_the_trace_does_not_show_whole(tmp_path: Path) -> None:
    whole = drive(recorded(tmp_path, async_scheduling=False))

    def lose_an_end(lines: list[dict[str, Any]]) -> None:
        lines[:] = [line for line in lines if line["event"] != "request_finished" or line["req_id"] != "r7"]

    driven = drive(edited(tmp_path, lose_an_end))
    assert driven.stopped_by == "request"
    assert driven.first_difference is None
    assert driven.equal == driven.steps < whole.steps


def test_it_ends_where_the_host_had_a_cache_forgotten(tmp_path: Path) -> None:
    recorded(tmp_path, async_scheduling=False)

    def reset(lines: list[dict[str, Any]]) -> None:
        place = next(i for i, line in enumerate(lines) if line["event"] == "step_completed" and line["step"] == 30)
        lines.insert(place + 1, {"event": "cache_reset", "step": 31, "ts": lines[place]["ts"], "cache": "prefix"})

    driven = drive(edited(tmp_path, reset))
    assert driven.stopped_by == "host"
    assert driven.equal == driven.steps <= 31


def test_who_goes_away_is_ended_where_the_trace_has_it(tmp_path: Path) -> None:
    """Every third client leaves; the check of decisions goes on to the end."""
    requests = [
        WorkloadRequest(
            request_id=f"r{number}",
            prompt=StreamTokens.unique(number, 20 + number % 7),
            max_tokens=40,
            arrival_time=0.03 * number,
            patience=0.11 + 0.05 * (number % 4) if number % 3 == 0 else None,
            output_seed=number,
        )
        for number in range(30)
    ]
    scheduler = SchedulerConfig(max_num_seqs=5, max_num_batched_tokens=64, max_model_len=128)
    cache_config = CacheConfig(num_gpu_blocks=60, block_size=4)
    start = describe_run(scheduler, cache_config, host="replay", sections={})
    with TraceWriter(TraceConfig(path=tmp_path, policy="fcfs", request_records=False)) as writer:
        replay(
            Workload("leaving", requests),
            scheduler,
            cache_config,
            ConstantLatency(seconds=1 / 64),
            observer=TraceRecorder(writer, start=start),
        )
    driven = drive(read_run(tmp_path))
    assert driven.first_difference is None, driven
    assert driven.equal == driven.steps > 100
