"""What completions and chats do alike: ask the engine, stream its answer, stop when the client leaves."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenyard.core.request import FinishReason
from tokenyard.serve.generation import GenerationOutput, GenerationParams, OutputKind, TokenizedPrompt, Turn
from tokenyard.serve.grammars import Grammar
from tokenyard.serve.openai.asking import ServerContext, generation_params, turn_of
from tokenyard.serve.openai.fields import (
    ApiError,
    EmbeddingRequest,
    GenerationRequest,
    as_api_error,
    bad_field,
    going_down,
    timed_out,
)
from tokenyard.web.connections import json_response

# ---------------------------------------------------------------------------------------------------------------------
# Clients that leave before they have their answer: what is being done for them ends.

_GONE = 499
"""The client that left does not read it; it is what nginx writes into its log."""

_Result = TypeVar("_Result")


class GoneError(Exception):
    """The client does not wait for the answer any more."""


def on_gone(_: Request, __: Exception) -> Response:
    """The answer to a client that has left."""
    return Response(status_code=_GONE)


class Ending:
    """ASGI middleware: who is still being served when the server's time to end is over is told so."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on."""
        has_begun = False

        async def watched(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except asyncio.CancelledError:
            if scope["type"] != "http":
                raise
            if not has_begun:
                await going_down().response()(scope, receive, send)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _first_of(work: Coroutine[Any, Any, _Result], receive: Receive) -> _Result:
    """The result of ``work``, which is cancelled if the client leaves: GoneError then."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise GoneError
        return working.result()
    finally:
        for each in (working, leaving):
            each.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of ``work``, which is cancelled if the client leaves: GoneError then. The body was read before."""
    return await _first_of(work, request.receive)


class EventStream(Response):
    """Server-sent events. The generator is closed in any case: when it ends, and when the client leaves."""

    media_type = "text/event-stream"

    def __init__(
        self, events: AsyncGenerator[bytes, None], first: bytes, headers: dict[str, str] | None = None
    ) -> None:
        """``first`` is the first event, which was waited for: what could be refused has been by now."""
        super().__init__(headers={"Cache-Control": "no-cache", **(headers or {})})
        del self.headers["content-length"]
        self._events = events
        self._first = first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events as they come."""
        try:
            await _first_of(self._send_all(send), receive)
        except GoneError:
            return
        except asyncio.CancelledError:  # the server goes down, and its time to end is over
            await send({"type": "http.response.body", "body": going_down().event(), "more_body": False})
        finally:
            await self._events.aclose()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self._first, "more_body": True})
        async for event in self._events:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


# ---------------------------------------------------------------------------------------------------------------------
# What completions and chats do alike: ask the engine, put several streams together, keep to the time, count tokens.

_LONG_TEXT = 4_000
"""Characters that are worth a thread: others are answered meanwhile."""
_LONGEST_ID = 200


class PromptNews(NamedTuple):
    """News of one prompt."""

    prompt: int
    """Its place among the prompts of the request."""
    output: GenerationOutput


class Usage:
    """Tokens of one request, counted as they come."""

    def __init__(self) -> None:
        self._prompts: dict[int, tuple[int, int]] = {}
        self._completion = 0

    def add(self, piece: PromptNews) -> None:
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


def told_besides(output: GenerationOutput | None) -> dict[str, Any]:
    """What a whole answer tells beside choices and usage, where there is any."""
    told: dict[str, Any] = {}
    if output is not None and output.kv_transfer_params is not None:
        told["kv_transfer_params"] = dict(output.kv_transfer_params)
    return told


def request_id_of(request: GenerationRequest | EmbeddingRequest, prefix: str, http: Request | None = None) -> str:
    """A name for the request: the client's own (of the header ``X-Request-Id`` or the body), or a new one."""
    header = None if http is None else http.headers.get("x-request-id")
    given = header or request.request_id
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


def start_streams(
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
) -> AsyncGenerator[PromptNews, None]:
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


async def _merged(streams: Sequence[AsyncGenerator[GenerationOutput, None]]) -> AsyncGenerator[PromptNews, None]:
    """All of them begin at once; a queue of one keeps what a slow client has not taken in the engine's hands."""
    queue: asyncio.Queue[PromptNews | Exception | None] = asyncio.Queue(1)

    async def follow(number: int, stream: AsyncGenerator[GenerationOutput, None]) -> None:
        end: Exception | None = None
        try:
            async with aclosing(stream):
                async for output in stream:
                    await queue.put(PromptNews(number, output))
        except Exception as error:  # noqa: BLE001 - raised again where the queue is read
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


# ---------------------------------------------------------------------------------------------------------------------
# An answer to the client, at once or as a stream, for as long as the client is there to take it.


class AnswerWriter(Protocol):
    """How the pieces of an answer are told."""

    def chunks(self, together: AsyncGenerator[PromptNews, None]) -> AsyncGenerator[dict[str, Any], None]:
        """The chunks of a stream."""

    async def whole(self, together: AsyncGenerator[PromptNews, None]) -> dict[str, Any]:
        """At once."""


async def reply(
    http: Request,
    together: AsyncGenerator[PromptNews, None],
    answer: AnswerWriter,
    *,
    stream: bool,
    ignored: Sequence[str],
) -> Response:
    """The response. What goes wrong before its first byte is raised."""
    if not stream:
        return await reply_at_once(http, answer.whole(together), ignored=ignored)
    events = events_of(answer.chunks(together), getattr(http.state, "prompt_field", "prompt"))
    first = await cancel_on_disconnect(http, _first(events))
    return EventStream(events, first, _headers(ignored))


async def reply_at_once(
    http: Request, work: Coroutine[Any, Any, dict[str, Any]], *, ignored: Sequence[str]
) -> Response:
    """The response, which is what ``work`` returns. What goes wrong is raised, also that the client has left."""
    return json_response(await cancel_on_disconnect(http, work), headers=_headers(ignored))


def _headers(ignored: Sequence[str]) -> dict[str, str]:
    return {"Tokenyard-Ignored": ", ".join(ignored)} if ignored else {}


async def _first(events: AsyncGenerator[bytes, None]) -> bytes:
    return await anext(events)


# ---------------------------------------------------------------------------------------------------------------------
# Prompts as clients send them: a text, token ids, or a list of either.

_MOST_PROMPTS = 1024


async def tokenized_prompts(
    context: ServerContext, field: str, given: Any, *, add_special_tokens: bool, n: int | None = None
) -> list[TokenizedPrompt]:
    """The prompts of a request, as token ids. Raises ApiError, which calls them ``field``, and QueueFullError.

    ``n`` answers are asked for to each.
    """
    one = [given] if isinstance(given, str) or _are(given, int) else given
    if not one or len(one) > _MOST_PROMPTS or not all(isinstance(each, str) or _are(each, int) for each in one):
        fix = f"give a text, a list of token ids, or a list of 1 to {_MOST_PROMPTS} of either; none may be empty"
        raise bad_field(field, given, fix)
    context.check_room(len(one), n)
    for each in one:
        if isinstance(each, str):
            context.check_length(field, each, len(each))

    def encode(text: str) -> list[int]:
        return context.tokenizer.encode(text, add_special_tokens=add_special_tokens)

    prompts = []
    for each in one:
        if isinstance(each, str):
            ids = await in_thread_if_long(len(each), lambda text=each: encode(text))  # type: ignore[misc]
            if not ids:
                raise bad_field(field, each, "has no token: give a text that is not empty")
            prompts.append(TokenizedPrompt(each, ids))
        else:
            prompts.append(TokenizedPrompt(None, each))
    return prompts


def _are(value: Any, kind: type) -> bool:
    return isinstance(value, list) and bool(value) and all(type(each) is kind for each in value)
