"""What completions and chats do alike: ask the engine, put several streams together, keep to the time, count tokens."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, TypeVar

import msgspec

from tokenyard.engine.generation import GenerationParams, OutputKind, Turn
from tokenyard.engine.grammars import Grammar
from tokenyard.engine.outputs import GenerationOutput
from tokenyard.engine.prompts import TokenizedPrompt
from tokenyard.request import FinishReason
from tokenyard.server.openai.context import ServerContext
from tokenyard.server.openai.errors import ApiError, as_api_error, bad_field, timed_out
from tokenyard.server.openai.fields import EmbeddingRequest, GenerationRequest
from tokenyard.server.openai.sampling import generation_params, turn_of

__all__ = ["Piece", "Usage", "asked", "events_of", "in_thread_if_long", "output_room", "pieces", "request_id_of"]

_LONG_TEXT = 4_000
"""Characters that are worth a thread: others are answered meanwhile."""
_LONGEST_ID = 200
_Result = TypeVar("_Result")


class Piece(NamedTuple):
    """News of one prompt."""

    prompt: int
    """Its place among the prompts of the request."""
    output: GenerationOutput


class Usage:
    """Tokens of one request, counted as they come."""

    def __init__(self) -> None:
        self._prompts: dict[int, tuple[int, int]] = {}
        self._completion = 0

    def add(self, piece: Piece) -> None:
        """Count new tokens: deltas, or whole answers once."""
        self._prompts[piece.prompt] = (len(piece.output.prompt_token_ids), piece.output.num_cached_tokens)
        self._completion += sum(len(part.token_ids) for part in piece.output.outputs)

    def record(self) -> dict[str, Any]:
        """As the API says it."""
        prompt = sum(length for length, _ in self._prompts.values())
        return {
            "prompt_tokens": prompt,
            "completion_tokens": self._completion,
            "total_tokens": prompt + self._completion,
            "prompt_tokens_details": {"cached_tokens": sum(cached for _, cached in self._prompts.values())},
        }


def request_id_of(request: GenerationRequest | EmbeddingRequest, prefix: str) -> str:
    """A name for the request: the client's own, or a new one."""
    given = request.request_id
    if given is not None and not 0 < len(given) <= _LONGEST_ID:
        raise bad_field("request_id", given, f"give a text of 1 to {_LONGEST_ID} characters, or leave it out")
    return f"{prefix}-{given or uuid.uuid4().hex}"


async def in_thread_if_long(length: int, work: Callable[[], _Result]) -> _Result:
    """The result of ``work`` on a text of so many characters."""
    return await asyncio.to_thread(work) if length > _LONG_TEXT else work()


def output_room(
    context: ServerContext,
    prompt: TokenizedPrompt,
    max_tokens: int | None,
    *,
    field: str = "max_tokens",
    prompt_field: str = "prompt",
    default: int | None = None,
) -> int:
    """Tokens that an answer may have: as asked, else ``default``, else all that the model has room for.

    A limit in the model's defaults holds in any case.
    """
    limit, length = context.llm.model.max_model_len, len(prompt.token_ids)
    room = limit - length
    if room < 1:
        fix = f"its {length} tokens leave no room for an answer: the model takes {limit} tokens together"
        raise bad_field(prompt_field, prompt.text or prompt.token_ids, fix, code="context_length_exceeded")
    most = context.defaults.max_new_tokens or room
    if max_tokens is None:
        return min(room, most) if default is None else min(default, room, most)
    if max_tokens > room:
        fix = f"give at most {room}: the model takes {limit} tokens together, and the prompt has {length}"
        raise bad_field(field, max_tokens, fix, code="context_length_exceeded")
    return min(max_tokens, most)


def asked(
    context: ServerContext,
    request: GenerationRequest,
    request_id: str,
    prompts: Sequence[TokenizedPrompt],
    *,
    max_tokens: Sequence[int],
    logprobs: int | None,
    grammars: Sequence[Sequence[Grammar]],
    echo: bool = False,
) -> list[AsyncGenerator[GenerationOutput, None]]:
    """A stream for each prompt. Raises ApiError; the engine is asked when a stream is.

    ``echo``: what is told of the answer's tokens is told of the prompt's, too.
    """
    of_prompt = request.prompt_logprobs if not echo or request.prompt_logprobs is not None else logprobs
    if of_prompt is not None and request.stream:
        field = "prompt_logprobs" if request.prompt_logprobs is not None else "echo"
        fix = "log-probabilities of prompts are told with a whole answer: leave stream out"
        raise bad_field(field, getattr(request, field), fix)
    turn = turn_of(request)._replace(lora_name=context.adapter_of(request.model))
    kind = OutputKind.DELTA if request.stream else OutputKind.FINAL_ONLY
    streams = []
    for i, prompt in enumerate(prompts):
        params = generation_params(
            request,
            max_tokens=max_tokens[i],
            logprobs=logprobs,
            prompt_logprobs=of_prompt,
            kind=kind,
            defaults=context.defaults,
        )
        name = request_id if len(prompts) == 1 else f"{request_id}-{i}"
        streams.append(_generate(context, name, prompt, params, turn, grammars[i]))
    return streams


async def _generate(
    context: ServerContext,
    name: str,
    prompt: TokenizedPrompt,
    params: GenerationParams,
    turn: Turn,
    grammars: Sequence[Grammar],
) -> AsyncGenerator[GenerationOutput, None]:
    """The outputs; ApiError for a client's grammar that cannot be sampled by to the end."""
    given: dict[str, object] = {"prompt_token_ids": prompt.token_ids}
    if prompt.text is not None:
        given["prompt"] = prompt.text
    async with aclosing(context.llm.generate(given, params, name, turn=turn, grammars=grammars)) as outputs:
        async for output in outputs:
            problem = next((each.problem for each in grammars if each.problem is not None), None)
            if problem is not None and any(part.finish_reason == FinishReason.ERROR for part in output.outputs):
                fix = f"the grammar cannot be sampled by to the end of an answer: {problem}: make it smaller"
                raise ApiError(400, fix, param="structured_outputs", code="grammar_too_complex")
            yield output


async def pieces(
    context: ServerContext, streams: Sequence[AsyncGenerator[GenerationOutput, None]]
) -> AsyncGenerator[Piece, None]:
    """What all streams bring, as it comes, until all have ended. Raises what one of them raises, and ApiError."""
    deadline = asyncio.get_running_loop().time() + context.limits.request_timeout_s
    async with aclosing(_merged(streams)) as together:
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    piece = await anext(together)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise timed_out(context.limits.request_timeout_s) from None
            if any(part.finish_reason == FinishReason.ERROR for part in piece.output.outputs):
                raise ApiError(500, "the engine could not go on with this request", code="generation_failed")
            yield piece


async def _merged(streams: Sequence[AsyncGenerator[GenerationOutput, None]]) -> AsyncGenerator[Piece, None]:
    """All of them begin at once; a queue of one keeps what a slow client has not taken in the engine's hands."""
    queue: asyncio.Queue[Piece | Exception | None] = asyncio.Queue(1)

    async def follow(number: int, stream: AsyncGenerator[GenerationOutput, None]) -> None:
        end: Exception | None = None
        try:
            async with aclosing(stream):
                async for output in stream:
                    await queue.put(Piece(number, output))
        except Exception as error:  # noqa: BLE001 - raised again by whoever reads the queue
            end = error
        await queue.put(end)

    tasks = [asyncio.create_task(follow(number, stream)) for number, stream in enumerate(streams)]
    try:
        left = len(tasks)
        while left:
            item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                left -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def events_of(chunks: AsyncGenerator[dict[str, Any], None], prompt_field: str) -> AsyncGenerator[bytes, None]:
    """Chunks as server-sent events. An error before the first one is raised; later ones are an event of their own."""
    begun = False
    async with aclosing(chunks):
        try:
            async for chunk in chunks:
                yield b"data: " + msgspec.json.encode(chunk) + b"\n\n"
                begun = True
        except Exception as error:
            if not begun:
                raise
            yield as_api_error(error, prompt_field).event()
    yield b"data: [DONE]\n\n"
