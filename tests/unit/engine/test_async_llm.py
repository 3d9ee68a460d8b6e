"""Online generation: streams, people who leave, a full queue, an engine that dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.support.gathering import gather_until
from tests.support.toy_model import ToyExecutor, answer_to, text_to, toy_core, toy_tokenizer

from tokenyard.core.request import Request
from tokenyard.core.sched.policy import Policy
from tokenyard.errors import ConfigError, EngineDeadError, QueueFullError, RequestError, StuckError
from tokenyard.serve.async_llm import AsyncLLM, StepThread
from tokenyard.serve.generation import GenerationOutput, GenerationParams, OutputKind, Turn

TOKENIZER = toy_tokenizer()
DELTA = GenerationParams(max_tokens=40, output_kind=OutputKind.DELTA)


def ids(text: str) -> list[int]:
    return TOKENIZER.encode(text)


@asynccontextmanager
async def engine(*, gather_ms: float = 0, max_queued_requests: int = 1000, **settings: Any) -> AsyncIterator[AsyncLLM]:
    """An engine that must be empty at the end, unless it died."""
    core = toy_core(**settings)
    llm = AsyncLLM(core, tokenizer=TOKENIZER, gather_ms=gather_ms, max_queued_requests=max_queued_requests)
    async with llm:
        yield llm
        if llm.death is None:
            await until(lambda: not core.has_work)
            assert core.scheduler.num_free_blocks == core.scheduler.cache_config.num_gpu_blocks - 1
        assert llm.num_unfinished == 0


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not happened():
            await asyncio.sleep(0.005)


async def all_of(stream: AsyncIterator[GenerationOutput]) -> list[GenerationOutput]:
    return [each async for each in stream]


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def steps_of(llm: AsyncLLM) -> list[tuple[str, ...]]:
    assert isinstance(llm.core.executor, ToyExecutor)
    return llm.core.executor.steps


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_deltas_together_are_the_answer(async_scheduling: bool) -> None:
    async def work() -> None:
        async with engine(async_scheduling=async_scheduling) as llm:
            params = [replace(DELTA, max_tokens=1 + 3 * i) for i in range(20)]
            streams = [llm.generate(f"prompt {i}", each) for i, each in enumerate(params)]
            for i, outputs in enumerate(await asyncio.gather(*map(all_of, streams))):
                parts = [part for output in outputs for part in output.outputs]
                assert "".join(part.text for part in parts) == text_to(ids(f"prompt {i}"), params[i].max_tokens)
                tokens = [token for part in parts for token in part.token_ids]
                assert tokens == answer_to(ids(f"prompt {i}"), params[i].max_tokens)
                assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
                assert not any("\ufffd" in part.text for part in parts[:-1])

    run(work())


def test_cumulative_and_final_outputs() -> None:
    async def work() -> None:
        async with engine() as llm:
            growing = await all_of(llm.generate("hello", GenerationParams(max_tokens=30)))
            texts = [each.outputs[0].text for each in growing]
            assert texts == sorted(texts, key=len)
            assert texts[-1] == text_to(ids("hello"), 30)
            final = GenerationParams(max_tokens=30, n=2, output_kind=OutputKind.FINAL_ONLY)
            (last,) = await all_of(llm.generate("hello", final))
            assert [each.text for each in last.outputs] == [texts[-1]] * 2
            assert last.num_cached_tokens == 4  # of "hello", the one full block

    run(work())


def test_no_delta_shows_what_a_stop_string_takes_back() -> None:
    async def work() -> None:
        async with engine() as llm:
            whole = text_to(ids("hello"), 40)
            stop = whole[12:18]
            outputs = await all_of(llm.generate("hello", replace(DELTA, stop=(stop,))))
            assert "".join(part.text for each in outputs for part in each.outputs) == whole[: whole.find(stop)]
            assert outputs[-1].outputs[-1].stop_reason == stop

    run(work())


def test_who_goes_away_has_the_request_aborted() -> None:
    async def work() -> None:
        async with engine(seconds=0.002) as llm:
            stream = llm.generate("hello", replace(DELTA, max_tokens=400))
            await anext(stream)
            await stream.aclose()
            task = asyncio.create_task(all_of(llm.generate("others", replace(DELTA, max_tokens=400, n=2))))
            await until(lambda: llm.num_unfinished == 2)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert llm.num_unfinished == 0

    run(work())


def test_an_id_may_be_used_again_at_once() -> None:
    async def work() -> None:
        async with engine(seconds=0.001, async_scheduling=True) as llm:
            for i in range(10):
                stream = llm.generate(f"prompt {i}", replace(DELTA, max_tokens=400), "same")
                await anext(stream)
                await stream.aclose()
            outputs = await all_of(llm.generate("last", DELTA, "same"))
            assert "".join(part.text for each in outputs for part in each.outputs) == text_to(ids("last"), 40)

    run(work())


def test_sixteen_requests_share_a_step_if_they_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Document 001's user sends 16 prompts that fit the budget together, one by one."""
    asked = gather_until(16, monkeypatch)

    async def work() -> None:
        async with engine(gather_ms=300) as llm:

            async def ask(i: int) -> None:
                await all_of(llm.generate({"prompt_token_ids": [i] * 16}, DELTA))

            await asyncio.gather(*map(ask, range(16)))
            assert len(steps_of(llm)[0]) == 16

    run(work())
    assert asked == [0.3]


def test_gathering_ends_when_the_engine_is_stopped() -> None:
    thread = StepThread(toy_core(), lambda news: None, gather_seconds=3600)
    thread.start()
    thread.submit([Request("r", [1, 2, 3])])
    thread.stop()
    assert not thread.is_alive


def test_a_full_queue_refuses() -> None:
    async def work() -> None:
        async with engine(max_num_seqs=1, max_queued_requests=2, seconds=0.002) as llm:
            tasks = [asyncio.create_task(all_of(llm.generate("x", DELTA))) for _ in range(3)]
            await until(lambda: llm.num_unfinished == 3)
            with pytest.raises(QueueFullError, match="3 requests have not ended, of at most 3"):
                await anext(llm.generate("x", DELTA))
            await asyncio.gather(*tasks)
            await all_of(llm.generate("x", DELTA))

    run(work())


def test_what_the_scheduler_refuses_comes_back_to_who_asked() -> None:
    async def work() -> None:
        async with engine() as llm:
            for i in range(3):
                with pytest.raises(RequestError, match="max_model_len"):
                    await anext(llm.generate("x" * 600, replace(DELTA, n=1 + i)))
            running = asyncio.create_task(all_of(llm.generate("x", DELTA, "same")))
            await asyncio.sleep(0)
            with pytest.raises(RequestError, match="unfinished request"):
                await anext(llm.generate("x", DELTA, "same"))
            await running

    run(work())


def test_an_engine_that_dies_answers_everybody() -> None:
    async def work() -> None:
        async with engine(max_num_seqs=2) as llm:
            assert isinstance(llm.core.executor, ToyExecutor)
            llm.core.executor.fails_at = 5
            asked = [all_of(llm.generate("x", DELTA)) for _ in range(8)]
            answers = await asyncio.gather(*asked, return_exceptions=True)
            assert {type(each) for each in answers} == {EngineDeadError}
            assert {str(each) for each in answers} == {"the engine has ended: RuntimeError: the device is gone"}
            assert llm.death is not None
            with pytest.raises(EngineDeadError):
                await anext(llm.generate("x", DELTA))

    run(work())


def test_shutting_down_answers_everybody() -> None:
    async def work() -> None:
        core = toy_core(seconds=0.002)
        llm = AsyncLLM(core, tokenizer=TOKENIZER)
        with pytest.raises(EngineDeadError, match="was not started"):
            await anext(llm.generate("x", DELTA))
        await llm.start()
        task = asyncio.create_task(all_of(llm.generate("x", replace(DELTA, max_tokens=400))))
        await until(lambda: bool(steps_of(llm)))
        await llm.shutdown()
        (answer,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(answer, EngineDeadError)
        assert isinstance(core.executor, ToyExecutor)
        assert core.executor.is_shut_down

    run(work())


def test_a_slow_caller_holds_nobody_up() -> None:
    async def work() -> None:
        async with engine() as llm:
            slow = llm.generate("slow", replace(DELTA, max_tokens=200))
            parts = [await anext(slow)]
            await all_of(llm.generate("quick", replace(DELTA, max_tokens=300)))
            parts += await all_of(slow)
            assert len(parts) == 2, "what was not taken is put together"
            assert "".join(part.outputs[0].text for part in parts) == text_to(ids("slow"), 200)

    run(work())


@pytest.mark.parametrize("settings", [{"gather_ms": -1}, {"max_queued_requests": -1}])
def test_settings_that_cannot_work(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        AsyncLLM(toy_core(), **settings)


class Brittle:
    """A grammar of a user's own, which raises when it is asked for a mask."""

    is_ready = True

    def accept_tokens(self, tokens: Sequence[int]) -> bool:
        return True

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        return list(tokens)

    def bitmask(self, drafts: Sequence[int]) -> Any:
        raise KeyError("whoever wrote this")


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_a_grammar_that_raises_costs_its_own_request_alone(async_scheduling: bool) -> None:
    async def work() -> None:
        async with engine(async_scheduling=async_scheduling) as llm:
            params = GenerationParams(max_tokens=5, output_kind=OutputKind.FINAL_ONLY)
            bound = all_of(llm.generate("bound", params, grammars=[Brittle()]))
            free = [all_of(llm.generate(f"free {i}", params)) for i in range(3)]
            failed, *others = await asyncio.gather(bound, *free)
            assert [part.finish_reason for part in failed[-1].outputs] == ["error"]
            for i, outputs in enumerate(others):
                assert outputs[-1].outputs[0].token_ids == answer_to(ids(f"free {i}"), 5)
            assert llm.death is None

    run(work())


class Hoarder(Policy):
    """Keeps the blocks of everybody who has ended, and gives none back."""

    def keeps_blocks(self, now: float, request: Request) -> bool:
        return True


def test_a_request_that_can_never_run_ends_with_an_error_and_others_go_on() -> None:
    async def work() -> None:
        async with engine(num_gpu_blocks=9, policy_object=Hoarder()) as llm:
            params = GenerationParams(max_tokens=1, output_kind=OutputKind.FINAL_ONLY)
            size = llm.core.scheduler.cache_config.tokens_per_block
            await all_of(llm.generate("x" * size * 5, params, turn=Turn(job_id="j")))
            stuck = asyncio.create_task(all_of(llm.generate("y" * size * 5, params)))
            await asyncio.sleep(0.05)
            behind = asyncio.create_task(all_of(llm.generate("z" * size, params)))
            with pytest.raises(StuckError, match=r"the engine is stuck at request .*kv_full_sequence"):
                await stuck
            assert (await behind)[-1].finished
            assert llm.death is None
            llm.core.scheduler.pins.clear()

    run(work())
