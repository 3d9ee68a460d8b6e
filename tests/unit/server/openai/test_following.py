"""What answers bring is told where it comes: clients that do not take it, that cannot be told, that leave meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec
import pytest
from tests.support.toy_model import text_to, toy_core, toy_tokenizer

pytest.importorskip("starlette", reason="starlette is not installed (extra: server)")

from tokenyard.serve.async_llm import AsyncLLM
from tokenyard.serve.generation import GenerationParams, OutputKind, Turn
from tokenyard.serve.openai.generating import EnginePrompt, Following, PromptNews

_TOKENIZER = toy_tokenizer()
_DELTA = GenerationParams(max_tokens=40, output_kind=OutputKind.DELTA)
_ASKED = EnginePrompt("hello", _DELTA, "one", Turn())
_TEXT = text_to(_TOKENIZER.encode("hello"), 40)


@asynccontextmanager
async def _engine() -> AsyncIterator[AsyncLLM]:
    """An engine with nothing held in the end."""
    core = toy_core()
    async with asyncio.timeout(30), AsyncLLM(core, tokenizer=_TOKENIZER) as llm:
        yield llm
        while core.has_work:
            await asyncio.sleep(0.005)
        assert core.scheduler.num_free_blocks == core.scheduler.cache_config.num_gpu_blocks - 1
        assert llm.num_unfinished == 0


async def _follow(asked: Sequence[EnginePrompt], take: Callable[[PromptNews], Awaitable[None] | None]) -> None:
    async with _engine() as llm:
        await Following(llm, asked, take).until_ended()


class _Client:
    """Takes what is sent, or waits first."""

    def __init__(self, waits: Callable[[], Awaitable[object]] | None = None) -> None:
        self.told = dict[int, list[str]]()
        self.num_waiting = 0
        self._waits = waits

    def take(self, piece: PromptNews) -> Awaitable[None]:
        self.told.setdefault(piece.prompt, []).append("".join(part.text for part in piece.outputs))
        return self._sent()

    async def _sent(self) -> None:
        self.num_waiting += 1
        if self._waits is not None:
            await self._waits()
        self.num_waiting -= 1


def test_a_client_that_takes_all_at_once_gets_all() -> None:
    client = _Client()
    asyncio.run(_follow([_ASKED], client.take))
    assert "".join(client.told[0]) == _TEXT


@pytest.mark.parametrize("seconds", [0.0, 0.02])
def test_what_a_client_does_not_take_is_put_together(seconds: float) -> None:
    client = _Client(lambda: asyncio.sleep(seconds))

    def take(piece: PromptNews) -> Awaitable[None]:
        assert not client.num_waiting, "nothing is sent while the client has not taken what was"
        return client.take(piece)

    asyncio.run(_follow([_ASKED], take))
    assert "".join(client.told[0]) == _TEXT
    assert client.num_waiting == 0, "the last sending, too, has been waited for"
    if seconds:
        assert len(client.told[0]) < 30


def test_several_prompts_are_told_as_they_come_and_all_to_the_end() -> None:
    client = _Client(lambda: asyncio.sleep(0.001))
    prompts = ["hello", "there", "and here"]
    asked = [
        EnginePrompt(prompt, replace(_DELTA, max_tokens=10 + 9 * i, n=1 + i % 2), str(i), Turn())
        for i, prompt in enumerate(prompts)
    ]
    asyncio.run(_follow(asked, client.take))
    assert "".join(client.told[0]) == text_to(_TOKENIZER.encode("hello"), 10)
    assert "".join(client.told[2]) == text_to(_TOKENIZER.encode("and here"), 28)
    assert len("".join(client.told[1])) == 2 * len(text_to(_TOKENIZER.encode("there"), 19))


@pytest.mark.parametrize("at_once", [True, False])
def test_what_goes_wrong_as_it_is_told_is_raised_and_nothing_is_held(*, at_once: bool) -> None:
    async def broken() -> None:
        if not at_once:
            await asyncio.sleep(0.001)
        raise ConnectionAbortedError("cut")

    with pytest.raises(ConnectionAbortedError, match="cut"):
        asyncio.run(_follow([_ASKED, msgspec.structs.replace(_ASKED, request_id="two")], lambda _: broken()))


def test_one_that_leaves_while_it_has_not_taken_what_was_sent_is_told_so() -> None:
    seen, is_stuck = list[str](), asyncio.Event()

    async def stuck() -> None:
        is_stuck.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def leave() -> None:
        async with _engine() as llm:
            task = asyncio.ensure_future(Following(llm, [_ASKED], lambda _: stuck()).until_ended())
            await is_stuck.wait()
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert seen == ["cancelled"]

    asyncio.run(leave())


def test_a_sending_may_go_on_after_it_was_cancelled() -> None:
    """What is begun by hand takes an error as a task's own awaiting would."""
    taken, is_stuck = list[str](), asyncio.Event()

    async def stubborn() -> None:
        is_stuck.set()
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            await asyncio.sleep(0.001)
            taken.append("after all")

    async def leave() -> None:
        async with _engine() as llm:
            following = Following(llm, [_ASKED], lambda _: stubborn() if not taken else None)
            task = asyncio.ensure_future(following.until_ended())
            await is_stuck.wait()
            await asyncio.sleep(0)
            task.cancel()
            await task
            assert taken == ["after all"]

    asyncio.run(leave())
