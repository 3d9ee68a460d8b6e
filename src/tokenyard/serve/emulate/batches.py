"""``POST /v1/chat/completions/batch``: several talks in one request, an answer to each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tokenyard.serve.emulate.forms import ALWAYS_NAMED
from tokenyard.serve.openai.asking import ServerContext, compiled
from tokenyard.serve.openai.chat import ChatCompletions, chat_prompt
from tokenyard.serve.openai.fields import ApiError, ChatCompletionRequest, bad_field
from tokenyard.serve.openai.following import PromptNews
from tokenyard.serve.openai.generating import AnswerWriter, asked_of, output_room, reply, request_id_of


class _BatchRequest(ChatCompletionRequest, kw_only=True):
    """The fields of a chat, but for ``messages``, which are those of each talk."""

    messages: list[list[dict[str, Any]]]  # type: ignore[assignment]


class BatchChatCompletions:
    """The endpoint."""

    def __init__(self, context: ServerContext, chat: ChatCompletions) -> None:
        self._context, self._chat = context, chat

    async def serve(self, http: Request) -> Response:
        """Answer, or raise."""
        context = self._context
        http.state.prompt_field = "messages"
        body = await context.body(http, _BatchRequest)
        request: _BatchRequest = body.request
        if request.n not in (None, 1):
            raise bad_field("n", request.n, "there is one answer to each talk", code=ALWAYS_NAMED)
        empty = [f"messages[{i}]" for i, each in enumerate(request.messages) if not each]
        for field in empty if request.messages else ["messages"]:
            raise ApiError(400, f"{field} = []: give at least one", param=field, is_form=True)
        talks, request.stream, request.tools = request.messages, None, None
        context.check_model(request.model)
        context.check_open()
        context.check_room(len(talks), 1)
        prompts, rooms = [], []
        newer = request.max_completion_tokens is not None
        field = "max_completion_tokens" if newer else "max_tokens"
        wanted = request.max_completion_tokens if newer else request.max_tokens
        for messages in talks:
            request.messages = messages  # type: ignore[assignment]
            prompts.append(await chat_prompt(context, request))
            rooms.append(output_room(context, prompts[-1], wanted, field=field, prompt_field="messages"))
        name = request_id_of(request, "chatcmpl", http)
        num_top = (request.top_logprobs or 0) if request.logprobs else None
        grammars = await compiled(http, context, request, len(talks), None, most_tokens=max(rooms))
        asked = asked_of(http, context, request, name, prompts, max_tokens=rooms, logprobs=num_top, grammars=grammars)
        writers = [context.formed("chat", self._chat.writer(request, name, num_top or 0), request) for _ in talks]
        return await reply(http, context, asked, _Batch(writers), stream=False, ignored=body.ignored)


class _Batch(AnswerWriter):
    """Puts the answers to all talks together, each with its number."""

    def __init__(self, talks: Sequence[AnswerWriter]) -> None:
        super().__init__()
        self._talks = talks

    def whole(self, pieces: Sequence[PromptNews]) -> dict[str, Any]:
        """All of it at once."""
        in_order = sorted(pieces, key=lambda each: each.prompt)
        told = [self._talks[piece.prompt].whole([piece]) for piece in in_order]
        choices = [
            {**choice, "index": piece.prompt}
            for piece, each in zip(in_order, told, strict=True)
            for choice in each["choices"]
        ]
        usage = {**told[0]["usage"], "prompt_tokens_details": None}  # batches do not record what was cached
        for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
            usage[name] = sum(each["usage"][name] for each in told)
        return {**told[0], "choices": choices, "usage": usage, "prompt_token_ids": None}
