"""An engine's own run, its steps decided anew with every arrival in the step that it fell into: the same decisions."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.toy_model import toy_core, toy_tokenizer

from tokenyard.core.sched.observer import StepObserver
from tokenyard.questions.recorded.decisions import drive
from tokenyard.questions.recorded.recorded_run import RecordedRun, read_run
from tokenyard.record.writer import TraceWriter
from tokenyard.serve.async_llm import AsyncLLM
from tokenyard.serve.generation import GenerationParams
from tokenyard.serve.openai.assembly import watch
from tokenyard.trace.config import TraceConfig


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
