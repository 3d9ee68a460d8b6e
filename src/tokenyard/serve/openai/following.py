"""From the engine to the client of one request: its outputs are sent where they come, in the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from typing import Any

import msgspec

from tokenyard.core.request import FinishReason
from tokenyard.serve.async_llm import AsyncLLM, News
from tokenyard.serve.generation import CompletionOutput, GenerationOutput, GenerationParams, Prompt, Turn
from tokenyard.serve.grammars import Grammar
from tokenyard.serve.openai.fields import ApiError
from tokenyard.serve.output_processor import Generation


class EnginePrompt(msgspec.Struct, frozen=True):
    """What the engine is to generate for one prompt."""

    prompt: Prompt
    params: GenerationParams
    request_id: str
    turn: Turn
    grammars: Sequence[Grammar] = ()
    """One for each answer, or none: one may turn out to be too large on the way."""


class PromptNews(msgspec.Struct, frozen=True, gc=False):  # made for every token of a stream, and in no cycle
    """News of one prompt."""

    prompt: int
    """Its place among the prompts of the request."""
    generation: Generation
    outputs: Sequence[CompletionOutput]
    """The answers; of a stream, those with news, and what is new of them."""

    @property
    def output(self) -> GenerationOutput:
        """The output, with what is known of the prompt."""
        return self.generation.output(self.outputs)


class Following:
    """Follows the answers of one request.

    ``take`` is called with what is new, and may return a sending, which is begun at once: a token of a stream wakes no
    task. What a sending waits for, a client that has not taken what was sent before, is waited for here; until then,
    what comes is put together.
    """

    __slots__ = ("_asked", "_error", "_left", "_llm", "_news", "_rest", "is_held", "take")

    def __init__(
        self, llm: AsyncLLM, asked: Sequence[EnginePrompt], take: Callable[[PromptNews], Awaitable[None] | None]
    ) -> None:
        self.take = take
        self.is_held = False
        """The client has not taken what was sent."""
        self._llm, self._asked = llm, asked
        self._left = len(asked)
        self._news = News()
        self._rest: _Rest | None = None
        """What is left of a sending."""
        self._error: BaseException | None = None

    async def until_ended(self, begin: Callable[[], Awaitable[None]] | None = None) -> None:
        """Ask, and return when all answers have ended. Raises what goes wrong with them, or as they are sent.

        ``begin`` makes what is sent once all have been requested.
        """
        followed = list[_Followed]()
        try:
            for number, each in enumerate(self._asked):
                followed.append(_Followed(self, number, self._llm, each))
            if begin is not None:
                self.send(begin())
            while self._left or self._rest is not None:
                await self._news.come()
                if self._error is not None:
                    raise self._error
                if self._rest is not None:
                    await self._rest
                    self._rest, self.is_held = None, False
                    for one in followed:
                        one.look()
        finally:
            for one in followed:
                self._llm.leave(one.generation)
            if self._rest is not None:
                self._rest.close()

    def ended(self) -> None:
        """One of the answers has."""
        self._left -= 1
        if not self._left:
            self._news.tell()

    def failed(self, error: BaseException) -> None:
        """One of them cannot go on, or cannot be sent."""
        self._error, self.is_held = error, True
        self._news.tell()

    def send(self, sending: Awaitable[None]) -> None:
        """Send as much as the connection takes; the rest is waited for."""
        steps = sending.__await__()
        try:
            first = next(steps)
        except StopIteration:
            return
        self._rest, self.is_held = _Rest(first, steps), True
        self._news.tell()


class _Rest:
    """An awaitable that has been begun, and waits for ``first``."""

    def __init__(self, first: Any, steps: Iterator[Any]) -> None:
        self._first, self._steps = first, steps

    def __await__(self) -> Generator[Any, Any, None]:
        waited, steps = self._first, self._steps
        while True:
            try:
                yield waited
            except BaseException as error:
                if not isinstance(steps, Generator):
                    raise
                try:
                    waited = steps.throw(error)
                except StopIteration:
                    return
            else:
                try:
                    waited = next(steps)
                except StopIteration:
                    return

    def close(self) -> None:
        """It is not waited for any more."""
        if isinstance(self._steps, Generator):
            self._steps.close()


class _Followed:
    """One prompt's generation."""

    __slots__ = ("_following", "_grammars", "_has_ended", "_number", "generation")

    def __init__(self, following: Following, number: int, llm: AsyncLLM, asked: EnginePrompt) -> None:
        """Ask for it. Raises what the engine does."""
        self._following, self._number, self._grammars, self._has_ended = following, number, asked.grammars, False
        self.generation: Generation = llm.begin(
            asked.prompt, asked.params, asked.request_id, told=self.look, turn=asked.turn, grammars=asked.grammars
        )

    def look(self) -> None:
        """Send what is new, unless what was new before still has to be taken."""
        following, generation = self._following, self.generation
        if following.is_held or self._has_ended:
            return
        try:
            if generation.error is not None:
                raise generation.error
            news = generation.news()
            if news is not None and self._tell(following, generation, news):
                return
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - raised again by who follows
            following.failed(error)
        else:
            if generation.is_finished:
                self._has_ended = True
                following.ended()

    def _tell(self, following: Following, generation: Generation, news: Sequence[CompletionOutput]) -> bool:
        """True: all of the answers that are notified of go on."""
        go_on = True
        for part in news:
            if part.finish_reason is not None:
                go_on = False
                if part.finish_reason == FinishReason.ERROR:
                    raise _failure(self._grammars)
        sending = following.take(PromptNews(self._number, generation, news))
        if sending is not None:
            following.send(sending)
        return go_on


def _failure(grammars: Sequence[Grammar]) -> ApiError:
    """An answer has ended as an error: for a client's grammar that cannot be sampled by to the end, or for good."""
    problem = next((each.problem for each in grammars if each.problem is not None), None)
    if problem is None:
        return ApiError(500, "the engine could not go on with this request", code="generation_failed")
    fix = f"the grammar cannot be sampled by to the end of an answer: {problem}: make it smaller"
    return ApiError(400, fix, param="structured_outputs", code="grammar_too_complex")
