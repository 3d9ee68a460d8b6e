"""``POST /v1/chat/completions``."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tokenyard.files import is_nested_deeper
from tokenyard.serve.generation import CompletionOutput, TokenizedPrompt
from tokenyard.serve.openai.asking import ServerContext, chat_logprobs, compiled, prompt_logprobs
from tokenyard.serve.openai.fields import (
    MOST_NESTED,
    ApiError,
    ChatCompletionRequest,
    TokenizeRequest,
    bad_field,
)
from tokenyard.serve.openai.generating import (
    AnswerWriter,
    PromptNews,
    asked_of,
    in_thread_if_long,
    output_room,
    reply,
    request_id_of,
    told_besides,
)
from tokenyard.serve.openai.tool_calls.parsers import CallsOfChoice, ChoiceNews, ToolCallParser, forced_call
from tokenyard.serve.text import TemplateError

_MOST_MESSAGES = 10_000
_MOST_TOOLS = 1_024
_CHUNK = "chat.completion.chunk"


async def chat_prompt(context: ServerContext, request: ChatCompletionRequest | TokenizeRequest) -> TokenizedPrompt:
    """The prompt that the model's template makes of messages and tools. Raises ApiError."""
    tokenizer = context.tokenizer
    template = tokenizer.chat_template
    if template is None:
        raise ApiError(400, "the model has no chat template: start the server with --chat-template, or send a prompt")
    tools = None if getattr(request, "tool_choice", None) == "none" else request.tools
    if tools is not None and len(tools) > _MOST_TOOLS:
        raise bad_field("tools", f"{len(tools)} of them", f"give at most {_MOST_TOOLS}")
    messages = _messages(request.messages or [])
    size = len(msgspec.json.encode((messages, tools, request.chat_template_kwargs)))
    context.check_length("messages", messages, size)

    def work() -> TokenizedPrompt:
        text = template.render(
            messages,
            tools=tools or None,
            add_generation_prompt=request.add_generation_prompt,
            variables=request.chat_template_kwargs,
        )
        context.check_length("messages", text, len(text))
        # What the model wants at the beginning stands in its template.
        return TokenizedPrompt(text, tokenizer.encode(text, add_special_tokens=bool(request.add_special_tokens)))

    try:
        prompt = await in_thread_if_long(size, work)
    except TemplateError as error:
        raise ApiError(400, f"messages: the chat template does not take them: {error}", param="messages") from None
    if not prompt.token_ids:
        raise bad_field("messages", messages, "the chat template makes an empty prompt of them: give at least one")
    return prompt


def _messages(given: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages as templates expect them: content is text, arguments of calls are objects."""
    if not given:
        raise bad_field("messages", given, "give at least one")
    if len(given) > _MOST_MESSAGES:
        raise bad_field("messages", f"{len(given)} of them", f"give at most {_MOST_MESSAGES}")
    return [_message(f"messages[{i}]", message) for i, message in enumerate(given)]


def _message(field: str, message: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(message.get("role"), str):
        raise bad_field(f"{field}.role", message.get("role"), "give system, user, assistant or tool")
    made = {**message, "content": _content(f"{field}.content", message.get("content"))}
    calls = message.get("tool_calls")
    if calls is not None:
        if not isinstance(calls, list) or not all(isinstance(each, dict) for each in calls):
            raise bad_field(f"{field}.tool_calls", calls, "give a list of calls")
        made["tool_calls"] = [_call(f"{field}.tool_calls[{i}]", each) for i, each in enumerate(calls)]
    return made


def _content(field: str, content: Any) -> str:
    """Parts of text are lines."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise bad_field(field, content, "give a text, or a list of parts")
    for i, part in enumerate(content):
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise bad_field(f"{field}[{i}]", part, 'this server takes text alone: {"type": "text", "text": ...}')
    return "\n".join(part["text"] for part in content)


def _call(field: str, call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return dict(call)
    if is_nested_deeper(function["arguments"].encode(errors="replace"), MOST_NESTED):
        raise bad_field(f"{field}.function.arguments", function["arguments"], f"nests deeper than {MOST_NESTED} levels")
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        return dict(call)
    return {**call, "function": {**function, "arguments": arguments}}


class ChatCompletions:
    """The endpoint."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context

    async def serve(self, http: Request) -> Response:
        """Answer, or raise."""
        http.state.prompt_field = "messages"
        body = await self._context.body(http, ChatCompletionRequest)
        return await self.answer(http, body.request, ignored=body.ignored)

    async def answer(
        self,
        http: Request,
        request: ChatCompletionRequest,
        *,
        ignored: Sequence[str] = (),
        formed: Callable[[str, AnswerWriter, Any], AnswerWriter] | None = None,
    ) -> Response:
        """Answer what was asked, or raise; ``formed`` gives the answer another form than the server's."""
        context = self._context
        context.check_model(request.model)
        context.check_open()
        context.check(request)
        if request.top_logprobs is not None and not request.logprobs:
            raise bad_field("top_logprobs", request.top_logprobs, "needs logprobs = true")
        context.check_room(1, request.n)
        prompt = await chat_prompt(context, request)
        newer = request.max_completion_tokens is not None
        field = "max_completion_tokens" if newer else "max_tokens"
        wanted = request.max_completion_tokens if newer else request.max_tokens
        room = output_room(context, prompt, wanted, field=field, prompt_field="messages")
        name = request_id_of(request, "chatcmpl", http)
        num_top = (request.top_logprobs or 0) if request.logprobs else None
        forced = forced_call(request)
        script = None if forced is not None else context.script(request)
        if script is not None:
            grammars = [[script.another() for _ in range(request.n or 1)]]
        else:
            grammars = await compiled(
                http, context, request, 1, None if forced is None else forced.schema, most_tokens=room
            )
        parser = context.tool_parser if request.tools and request.tool_choice != "none" else None
        parser = parser if forced is None else forced.parser
        if parser is not None and parser().shows_special_tokens and request.skip_special_tokens is None:
            request.skip_special_tokens = False
        asked = asked_of(http, context, request, name, [prompt], max_tokens=[room], logprobs=num_top, grammars=grammars)
        own = self.writer(request, name, num_top or 0, parser)
        answer = (formed or context.formed)("chat", own, request)
        return await reply(http, context, asked, answer, stream=bool(request.stream), ignored=ignored)

    def writer(
        self,
        request: ChatCompletionRequest,
        name: str,
        num_top: int,
        parser: Callable[[], ToolCallParser] | None = None,
    ) -> AnswerWriter:
        """Writes an answer in the server's own form; ``num_top``: likeliest tokens returned with each."""
        return _ChatAnswer(self._context, request, name, num_top, parser)


class _ChatAnswer(AnswerWriter):
    """Writes the pieces of one request's answer, as chunks or as one object."""

    def __init__(
        self,
        context: ServerContext,
        request: ChatCompletionRequest,
        name: str,
        num_top: int,
        parser: Callable[[], ToolCallParser] | None,
    ) -> None:
        super().__init__()
        self._request = request
        self._num_top = num_top
        self._head = {"id": name, "created": int(time.time()), "model": context.answering(request.model)}
        self._begun = set[int]()
        self._calls = defaultdict[int, CallsOfChoice](lambda: CallsOfChoice(parser))

    def chunks(self, piece: PromptNews) -> Sequence[dict[str, Any]]:
        """The chunks of a stream that carry a piece."""
        self.usage.add(piece)
        options, told = self._request.stream_options, []
        usage = {"usage": self.usage.record()} if options is not None and options.continuous_usage_stats else {}
        for part in piece.outputs:
            speaker = {} if part.index in self._begun else {"role": "assistant"}
            self._begun.add(part.index)
            news = self._calls[part.index].add(part)
            delta = {**speaker, **news.delta()}
            told.append(
                {**self._head, "object": _CHUNK, "choices": [{**self._choice(part, news), "delta": delta}], **usage}
            )
        return told

    def last_chunks(self) -> Sequence[dict[str, Any]]:
        """The usage, if it was requested."""
        options = self._request.stream_options
        if options is None or not options.include_usage:
            return ()
        return [{**self._head, "object": _CHUNK, "choices": [], "usage": self.usage.record()}]

    def whole(self, pieces: Sequence[PromptNews]) -> dict[str, Any]:
        """All of it at once."""
        choices = []
        for piece in pieces:
            self.usage.add(piece)
            for part in piece.outputs:
                news = self._calls[part.index].add(part)
                message = {"role": "assistant", **news.message(), "refusal": None}
                choices.append({**self._choice(part, news), "message": message})
        last = pieces[-1].output
        head = {**self._head, "object": "chat.completion"}
        answer = {**head, "choices": choices, "usage": self.usage.record(), "prompt_logprobs": prompt_logprobs(last)}
        if self._request.return_token_ids:
            answer["prompt_token_ids"] = list(last.prompt_token_ids)
        return {**answer, **told_besides(pieces)}

    def _choice(self, part: CompletionOutput, news: ChoiceNews) -> dict[str, Any]:
        return {
            "index": part.index,
            "logprobs": chat_logprobs(part, self._num_top),
            "finish_reason": news.finish_reason,
            "stop_reason": part.stop_reason,
            **({"token_ids": list(part.token_ids)} if self._request.return_token_ids else {}),
        }
