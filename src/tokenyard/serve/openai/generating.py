"""What completions and chats do alike: ask the engine, and send its answer, at once or as a stream."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tokenyard.core.request import FinishReason
from tokenyard.serve.async_llm import AsyncLLM, News
from tokenyard.serve.generation import (
    CompletionOutput,
    GenerationOutput,
    GenerationParams,
    OutputKind,
    Prompt,
    TokenizedPrompt,
    Turn,
)
from tokenyard.serve.grammars import Grammar
from tokenyard.serve.openai.asking import ServerContext, generation_params, turn_of
from tokenyard.serve.openai.clients import ForClient, GoneError, cancel_on_disconnect
from tokenyard.serve.openai.connection import Connection, connection_of
from tokenyard.serve.openai.fields import (
    ApiError,
    EmbeddingRequest,
    GenerationRequest,
    as_api_error,
    bad_field,
    going_down,
)
from tokenyard.serve.output_processor import Generation
from tokenyard.web.connections import json_response

# ---------------------------------------------------------------------------------------------------------------------
# From the engine to the client of one request: its outputs are sent where they come, in the event loop.


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


# ---------------------------------------------------------------------------------------------------------------------

_Result = TypeVar("_Result")

# ---------------------------------------------------------------------------------------------------------------------
# What completions and chats do alike: name what they ask the engine, keep to the time, count tokens.

_LONG_TEXT = 4_000
"""Characters that are worth a thread: others are answered meanwhile."""
_LONGEST_ID = 200


class Usage:
    """Tokens of one request, counted as they come."""

    __slots__ = ("_completion", "_prompts")

    def __init__(self) -> None:
        self._prompts: dict[int, Generation] = {}
        self._completion = 0

    def add(self, piece: PromptNews) -> None:
        """Count new tokens: deltas, or whole answers once."""
        self._prompts[piece.prompt] = piece.generation
        for part in piece.outputs:
            self.add_tokens(len(part.token_ids))

    def add_tokens(self, number: int) -> None:
        """Count so many more of a prompt that is known."""
        self._completion += number

    def record(self) -> dict[str, Any]:
        """The record as the API has it."""
        generations = self._prompts.values()
        prompt = sum(len(each.prompt_token_ids) for each in generations)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": self._completion,
            "total_tokens": prompt + self._completion,
            "prompt_tokens_details": {"cached_tokens": sum(each.num_cached_tokens for each in generations)},
        }


def told_besides(pieces: Sequence[PromptNews]) -> dict[str, Any]:
    """What a whole answer tells beside choices and usage, where there is any."""
    given = pieces[-1].output.kv_transfer_params if pieces else None
    return {} if given is None else {"kv_transfer_params": dict(given)}


def request_id_of(request: GenerationRequest | EmbeddingRequest, prefix: str, http: Request | None = None) -> str:
    """A name for the request: the client's own (of the header ``X-Request-Id`` or the body), or a new one."""
    header = None if http is None else http.headers.get("x-request-id")
    given = header or request.request_id
    if given is not None and not 0 < len(given) <= _LONGEST_ID:
        raise bad_field("request_id", given, f"give a text of 1 to {_LONGEST_ID} characters, or leave it out")
    return f"{prefix}-{given or new_id()}"


def new_id() -> str:
    """Sixteen hexadecimal digits, as vLLM's ids have."""
    return os.urandom(8).hex()


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
    """Tokens that an answer may have: as requested, else ``default``, else all that the model has room for.

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


def asked_of(
    http: Request,
    context: ServerContext,
    request: GenerationRequest,
    request_id: str,
    prompts: Sequence[TokenizedPrompt],
    *,
    max_tokens: Sequence[int],
    logprobs: int | None,
    grammars: Sequence[Sequence[Grammar]],
    echo: bool = False,
) -> list[EnginePrompt]:
    """What the engine is to generate for each prompt. Raises ApiError.

    ``echo``: what is notified of the answer's tokens is notified of the prompt's, too.
    """
    of_prompt = request.prompt_logprobs if not echo or request.prompt_logprobs is not None else logprobs
    if of_prompt is not None and request.stream:
        field = "prompt_logprobs" if request.prompt_logprobs is not None else "echo"
        fix = "log-probabilities of prompts are told with a whole answer: leave stream out"
        raise bad_field(field, getattr(request, field), fix)
    turn = turn_of(request, http)._replace(lora_name=context.adapter_of(request.model))
    kind = OutputKind.DELTA if request.stream else OutputKind.FINAL_ONLY
    asked = []
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
        given: dict[str, object] = {"prompt_token_ids": prompt.token_ids}
        if prompt.text is not None:
            given["prompt"] = prompt.text
        asked.append(EnginePrompt(given, params, name, turn, grammars[i]))
    return asked


# ---------------------------------------------------------------------------------------------------------------------
# An answer to the client, at once or as a stream, for as long as the client is there to take it.


class AnswerWriter:
    """How the pieces of an answer are sent."""

    last_event = b"data: [DONE]\n\n"
    """What ends a stream."""

    def __init__(self, usage: Usage | None = None) -> None:
        self.usage = usage or Usage()
        """Tokens of the pieces that have been sent."""

    def chunks(self, piece: PromptNews) -> Sequence[dict[str, Any]]:
        """The chunks of a stream that carry a piece."""
        raise NotImplementedError

    def last_chunks(self) -> Sequence[dict[str, Any]]:
        """The chunks after the last piece."""
        return ()

    def whole(self, pieces: Sequence[PromptNews]) -> dict[str, Any]:
        """All of it at once."""
        raise NotImplementedError

    def problem(self, error: ApiError) -> dict[str, Any]:
        """The chunk for an error in the middle of a stream."""
        return error.record()

    def events(self, piece: PromptNews) -> bytes:
        """A piece as server-sent events."""
        return b"".join(map(self.event, self.chunks(piece)))

    def event(self, chunk: dict[str, Any]) -> bytes:
        """A chunk as a server-sent event."""
        return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


class EventStream(Response):
    """Server-sent events, for as long as the client is there; what it does not wait for any more is aborted.

    What goes wrong before its head is sent is raised; later it is an event of its own. The head comes with the first
    event, or as vLLM's does, when the engine has been asked.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        http: Request,
        llm: AsyncLLM,
        asked: Sequence[EnginePrompt],
        answer: AnswerWriter,
        seconds: float,
        *,
        heads_first: bool = False,
        **given: str,
    ) -> None:
        """``seconds``: the longest that the client may wait; ``given``: further headers.

        ``heads_first``: the head does not wait for the first event.
        """
        super().__init__(headers={"Cache-Control": "no-cache", **given})
        del self.headers["content-length"]
        self._http, self._answer, self._seconds, self._heads_first = http, answer, seconds, heads_first
        self._llm, self._asked = llm, asked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events as they come."""
        answer, last, connection = self._answer, b"", connection_of(scope)
        head: Message = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        sending = _Sending(answer, head, send, connection)
        try:
            async with ForClient(receive, self._seconds, connection=connection):
                following = Following(self._llm, self._asked, sending.told)
                await following.until_ended(sending.begin if self._heads_first else None)
            last = b"".join(map(answer.event, answer.last_chunks())) + answer.last_event
        except GoneError:
            return
        except asyncio.CancelledError:  # the server goes down, and its time to end is over
            if not sending.has_begun:
                raise
            last = answer.event(answer.problem(going_down()))
        except Exception as error:
            if not sending.has_begun:
                raise
            problem = answer.problem(as_api_error(error, _prompt_field(self._http)))
            last = answer.event(problem) + answer.last_event
        await sending.body({"type": "http.response.body", "body": last, "more_body": False})


class _Sending:
    """Sends the head of a stream, and then its events."""

    __slots__ = ("_answer", "_connection", "_head", "_send", "has_begun")

    def __init__(self, answer: AnswerWriter, head: Message, send: Send, connection: Connection | None) -> None:
        self._answer, self._head, self._send, self._connection = answer, head, send, connection
        self.has_begun = False

    def told(self, piece: PromptNews) -> Awaitable[None] | None:
        """Send the events of a piece; what is returned is still to be waited for."""
        events = self._answer.events(piece)
        if not events:
            return None
        if self.has_begun and self._connection is not None and self._connection.write(events):
            return None
        body: Message = {"type": "http.response.body", "body": events, "more_body": True}
        return self._send(body) if self.has_begun else self.body(body)

    async def body(self, body: Message) -> None:
        """Send a part of the body, behind the head."""
        if not self.has_begun:
            await self.begin()
        await self._send(body)

    async def begin(self) -> None:
        """Send the head."""
        self.has_begun = True
        await self._send(self._head)


async def reply(
    http: Request,
    context: ServerContext,
    asked: Sequence[EnginePrompt],
    answer: AnswerWriter,
    *,
    stream: bool,
    ignored: Sequence[str],
) -> Response:
    """The response. What goes wrong before its first byte is raised."""
    seconds = context.limits.request_timeout_s
    if stream:
        heads_first = context.heads_first
        return EventStream(http, context.llm, asked, answer, seconds, heads_first=heads_first, **_headers(ignored))
    found = list[PromptNews]()
    async with ForClient(http.receive, seconds, connection=connection_of(http.scope)):
        await Following(context.llm, asked, found.append).until_ended()
    return json_response(answer.whole(found), headers=_headers(ignored))


async def reply_at_once(
    http: Request, work: Coroutine[Any, Any, dict[str, Any]], *, ignored: Sequence[str]
) -> Response:
    """The response, which is what ``work`` returns. What goes wrong is raised, also that the client has left."""
    return json_response(await cancel_on_disconnect(http, work), headers=_headers(ignored))


def _headers(ignored: Sequence[str]) -> dict[str, str]:
    return {"Tokenyard-Ignored": ", ".join(ignored)} if ignored else {}


def _prompt_field(http: Request) -> str:
    """What the client calls its prompt."""
    return str(getattr(http.state, "prompt_field", "prompt"))


# ---------------------------------------------------------------------------------------------------------------------
# Prompts as clients send them: a text, token ids, or a list of either.

_MOST_PROMPTS = 1024


async def tokenized_prompts(
    context: ServerContext, field: str, given: Any, *, add_special_tokens: bool, n: int | None = None
) -> list[TokenizedPrompt]:
    """The prompts of a request, as token ids. Raises ApiError, which calls them ``field``, and QueueFullError.

    Each gets ``n`` answers.
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
    return isinstance(value, list) and set(map(type, value)) == {kind}
