"""``POST /v1/responses``: one turn, as OpenAI's newer clients ask for it. Nothing is kept between turns."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tokenyard.serve.emulate.forms import Forms, vllm_error
from tokenyard.serve.generation import OutputKind
from tokenyard.serve.openai.asking import ServerContext, generation_params, turn_of
from tokenyard.serve.openai.chat import chat_prompt
from tokenyard.serve.openai.fields import ApiError, ChatCompletionRequest, bad_field, parse_body
from tokenyard.serve.openai.generating import AnswerWriter, EnginePrompt, PromptNews, output_room, reply


class _ResponsesRequest(ChatCompletionRequest, kw_only=True):
    """The fields that count here; others are ignored."""

    messages: list[dict[str, Any]] = msgspec.field(default_factory=list)
    input: str | list[Any]
    instructions: str | None = None
    max_output_tokens: int | None = None


class Responses:
    """The endpoint."""

    def __init__(self, context: ServerContext, forms: Forms) -> None:
        self._context, self._forms = context, forms

    async def serve(self, http: Request) -> Response:
        """Answer, or raise."""
        context = self._context
        http.state.prompt_field = "input"
        kind = _ResponsesRequest
        request = (await parse_body(http, kind, context.limits.max_body_bytes, is_lenient=True)).request
        context.check_model(request.model)
        context.check_open()
        request.messages, request.tools = _messages(request), None
        prompt = await chat_prompt(context, request)
        room = output_room(context, prompt, request.max_output_tokens, field="max_output_tokens", prompt_field="input")
        params = generation_params(
            request,
            max_tokens=room,
            logprobs=None,
            prompt_logprobs=None,
            kind=OutputKind.DELTA if request.stream else OutputKind.FINAL_ONLY,
            defaults=context.defaults,
        )
        turn = turn_of(request, http)._replace(lora_name=context.adapter_of(request.model))
        name = f"resp_{uuid.uuid4().hex[:16]}"
        given = {"prompt_token_ids": prompt.token_ids, "prompt": prompt.text}
        asked = [EnginePrompt(given, params, name, turn)]
        answer = _Answer(self._forms, request, name, context.answering(request.model), room)
        return await reply(http, context, asked, answer, stream=bool(request.stream), ignored=())


def _messages(request: _ResponsesRequest) -> list[dict[str, Any]]:
    given = [{"role": "user", "content": request.input}] if isinstance(request.input, str) else request.input
    messages = [] if request.instructions is None else [{"role": "system", "content": request.instructions}]
    for each in given:
        if not isinstance(each, Mapping):
            raise bad_field("input", each, "give a text, or a list of messages")
        content = each.get("content", each.get("output", ""))
        if isinstance(content, list):
            content = "\n".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
        messages.append({"role": each.get("role", "tool"), "content": content})
    return messages


class _Answer(AnswerWriter):
    """Writes the outputs of one request; of a stream each event has its name and number."""

    last_event = b""

    def __init__(self, forms: Forms, request: _ResponsesRequest, name: str, model: str, room: int) -> None:
        super().__init__()
        self._forms, self._request, self._name, self._model, self._room = forms, request, name, model, room
        self._message = f"msg_{uuid.uuid4().hex[:16]}"
        self._created = int(time.time())
        self._at = {"item_id": self._message, "output_index": 0, "content_index": 0}
        self._number, self._text, self._num_tokens = -1, "", 0
        self._last: Any = None
        self._reason: str | None = None

    def whole(self, pieces: Sequence[PromptNews]) -> dict[str, Any]:
        """All of it at once."""
        last = pieces[-1].output
        (part,) = last.outputs
        return self._record(part.text, part.finish_reason, last, len(part.token_ids))

    def _record(self, text: str | None, reason: str | None, last: Any, num_tokens: int) -> dict[str, Any]:
        request, has_ended = self._request, text is not None
        is_cut = reason == "length"
        return self._forms.filled(
            "response",
            {
                "id": self._name,
                "created_at": self._created,
                "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
                "instructions": request.instructions,
                "model": self._model,
                "output": [self._item(text, self._status(reason))] if has_ended else [],
                "parallel_tool_calls": True,
                "temperature": 1.0 if request.temperature is None else request.temperature,
                "tool_choice": "none",
                "tools": [],
                "top_p": 1.0 if request.top_p is None else request.top_p,
                "background": False,
                "max_output_tokens": self._room,
                "service_tier": "auto",
                "status": ("incomplete" if is_cut else "completed") if has_ended else "in_progress",
                "truncation": "disabled",
                "usage": _usage(last, num_tokens) if has_ended else None,
                "presence_penalty": request.presence_penalty or 0.0,
                "frequency_penalty": request.frequency_penalty or 0.0,
            },
        )

    def _status(self, reason: str | None) -> str:
        return "incomplete" if reason == "length" and self._forms.facts.responses_tell_cuts else "completed"

    def _item(self, text: str | None, status: str) -> dict[str, Any]:
        content = [] if text is None else [self._part(text)]
        said = {"role": "assistant", "status": status, "type": "message", "phase": None}
        return {"id": self._message, "content": content, **said}

    @staticmethod
    def _part(text: str) -> dict[str, Any]:
        return {"annotations": [], "text": text, "type": "output_text", "logprobs": None}

    def event(self, chunk: dict[str, Any]) -> bytes:
        """A chunk as a server-sent event."""
        self._number, kind = self._number + 1, str(chunk["type"])
        named = {**chunk, "sequence_number": self._number, "type": kind}
        body = msgspec.json.encode({name: named[name] for name in sorted(named)})
        return b"event: " + kind.encode() + b"\ndata: " + body + b"\n\n"

    def chunks(self, piece: PromptNews) -> Sequence[dict[str, Any]]:
        """The chunks of a stream that carry a piece."""
        told = list[dict[str, Any]]()
        if self._last is None:
            begun = self._record(None, None, None, 0)
            told += [
                {"type": "response.created", "response": begun},
                {"type": "response.in_progress", "response": begun},
                {"type": "response.output_item.added", "item": self._item(None, "in_progress"), "output_index": 0},
                {"type": "response.content_part.added", "part": {**self._part(""), "logprobs": []}, **self._at},
            ]
        self._last = piece.output
        for part in piece.outputs:
            self._text += part.text
            self._num_tokens, self._reason = self._num_tokens + len(part.token_ids), part.finish_reason
            if part.text:
                told.append({"type": "response.output_text.delta", "delta": part.text, "logprobs": [], **self._at})
        return told

    def problem(self, error: ApiError) -> dict[str, Any]:
        """The chunk for an error in the middle of a stream."""
        return {"type": "error", **vllm_error(error)}

    def last_chunks(self) -> Sequence[dict[str, Any]]:
        """The whole text of the answer, and that it has ended."""
        text, status = self._text, self._status(self._reason)
        item = self._item(text, status)
        response = self._record(text, self._reason, self._last, self._num_tokens)
        return [
            {"type": "response.output_text.done", "text": text, "logprobs": [], **self._at},
            {"type": "response.content_part.done", "part": self._part(text), **self._at},
            {"type": "response.output_item.done", "item": item, "output_index": 0},
            {"type": f"response.{status}", "response": response},
        ]


def _usage(last: Any, num_tokens: int) -> dict[str, Any]:
    """Tokens of an answer that has ended."""
    prompt, cached = len(last.prompt_token_ids), last.num_cached_tokens
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": cached,
            "cache_write_tokens": 0,
            "input_tokens_per_turn": [],
            "cached_tokens_per_turn": [],
        },
        "output_tokens": num_tokens,
        "output_tokens_details": {
            "reasoning_tokens": 0,
            "tool_output_tokens": 0,
            "output_tokens_per_turn": [],
            "tool_output_tokens_per_turn": [],
        },
        "total_tokens": prompt + num_tokens,
    }
