"""The answer to ``POST /v1/messages``: a chat's answer as Anthropic's clients read it, at once or as named events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tokenyard.serve.emulate.forms import vllm_error
from tokenyard.serve.openai.fields import ApiError
from tokenyard.serve.openai.generating import AnswerWriter, PromptNews

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def messages_error(error: ApiError, *, own_names: bool) -> dict[str, Any]:
    """An error's body; ``own_names``: its type is one of Anthropic's, as from vLLM 0.33 on, and not of vLLM's."""
    told = vllm_error(error)["error"]
    kind, status = str(told["type"]), int(told["code"])
    if own_names:
        kind = _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": told["message"]}}


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Tokens of a prompt are distinguished: read from the cache, written to it, and the others."""
    told = {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"] or 0}
    details = usage.get("prompt_tokens_details") or {}
    for name, field in (
        ("cache_creation_input_tokens", "created_cache_tokens"),
        ("cache_read_input_tokens", "cached_tokens"),
    ):
        count = details.get(field)
        if count is not None:
            told[name] = count
            told["input_tokens"] -= count
    return {**told, "input_tokens": max(0, told["input_tokens"])}


def _reason(finish: str | None, stop: object, *, called: bool, complete: bool) -> tuple[str | None, str | None]:
    """Why an answer ended, and the stop sequence that ended it. A call that was cut short is none to be run."""
    if finish == "length":
        return "max_tokens", None
    if finish not in ("stop", "tool_calls"):
        return None, None
    if complete:
        return "tool_use", None
    if isinstance(stop, str):
        return "stop_sequence", stop
    return "tool_use" if called or finish == "tool_calls" else "end_turn", None


class MessagesAnswer(AnswerWriter):
    """Writes a chat's answer, of which there is one, in blocks: a text, and calls of tools."""

    last_event = b""

    def __init__(self, chat: AnswerWriter, *, own_names: bool) -> None:
        """``own_names``: see :func:`messages_error`."""
        super().__init__(chat.usage)
        self._chat, self._own_names = chat, own_names
        self._has_begun = False
        self._index = 0
        self._open: str | None = None
        """Kind of the block that is being sent."""
        self._ids: dict[int, str] = {}
        """Number of a call -> its id."""
        self._arguments: list[str] = []
        """Arguments of the last call."""
        self._held = ""
        """Text between calls: it is notified when the call before it has ended."""
        self._finish: str | None = None
        self._stop: object = None

    # ---- at once

    def whole(self, pieces: Sequence[PromptNews]) -> dict[str, Any]:
        """All of it; what is not known is left out."""
        said = self._chat.whole(pieces)
        (choice,) = said["choices"]
        message = choice["message"]
        calls = message.get("tool_calls") or ()
        content: list[dict[str, Any]] = []
        if message.get("content"):
            content.append({"type": "text", "text": message["content"]})
        for call in calls:
            function = call["function"]
            named = {"type": "tool_use", "id": call["id"], "name": function["name"]}
            content.append({**named, "input": json.loads(function["arguments"])})
        reason, sequence = _reason(
            choice["finish_reason"], choice["stop_reason"], called=bool(calls), complete=bool(calls)
        )
        record = {
            "id": said["id"],
            "type": "message",
            "role": "assistant",
            "content": content or [{"type": "text", "text": ""}],
            "model": said["model"],
            "stop_reason": reason,
            "stop_sequence": sequence,
            "usage": _usage(said["usage"]),
            "kv_transfer_params": said.get("kv_transfer_params"),
        }
        return {name: each for name, each in record.items() if each is not None}

    # ---- as a stream

    def chunks(self, piece: PromptNews) -> Sequence[dict[str, Any]]:
        """The chunks of a stream that carry a piece."""
        return [event for chunk in self._chat.chunks(piece) for event in self._told(chunk)]

    def last_chunks(self) -> Sequence[dict[str, Any]]:
        """Why it ended, its tokens, and that it is all."""
        told = [event for chunk in self._chat.last_chunks() for event in self._told(chunk)]
        return [*told, {"type": "message_stop"}]

    def problem(self, error: ApiError) -> dict[str, Any]:
        """The event for an error in the middle of a stream."""
        told = messages_error(error, own_names=self._own_names)
        if not self._own_names:
            told["error"]["type"] = "internal_error"
        return told

    def event(self, chunk: dict[str, Any]) -> bytes:
        """An event by its name; before an error the open block ends."""
        kind = str(chunk["type"])
        before = b"".join(map(self.event, self._end())) if kind == "error" and self._own_names else b""
        return before + b"event: " + kind.encode() + b"\ndata: " + msgspec.json.encode(chunk) + b"\n\n"

    def _told(self, chunk: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
        if not self._has_begun:
            self._has_begun = True
            message = {
                "id": chunk["id"],
                "type": "message",
                "role": "assistant",
                "content": [],
                "model": chunk["model"],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": _usage(chunk["usage"]),
            }
            return [{"type": "message_start", "message": message}]
        if not chunk["choices"]:
            return [*self._end(), self._ending(chunk)]
        (choice,) = chunk["choices"]
        if choice["finish_reason"] is not None:
            self._finish, self._stop = choice["finish_reason"], choice["stop_reason"]
        delta, told = choice["delta"], list[dict[str, Any]]()
        if delta.get("content"):
            told += self._text_events(delta["content"])
        for call in delta.get("tool_calls", ()):
            told += self._call(call)
        return told

    def _ending(self, chunk: Mapping[str, Any]) -> dict[str, Any]:
        called = bool(self._ids)
        reason, sequence = _reason(
            self._finish or "stop", self._stop, called=called, complete=called and _is_json("".join(self._arguments))
        )
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        return {"type": "message_delta", "delta": delta, "usage": _usage(chunk["usage"])}

    def _text_events(self, text: str) -> Sequence[dict[str, Any]]:
        if self._open == "tool_use":
            self._held += text
            return ()
        told = [] if self._open == "text" else self._begin({"type": "text", "text": ""})
        return [*told, self._delta({"type": "text_delta", "text": text})]

    def _call(self, call: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
        function, told = call.get("function", {}), list[dict[str, Any]]()
        if call.get("id") is not None:
            self._ids[call["index"]], self._arguments = call["id"], []
            block = {"type": "tool_use", "id": call["id"], "name": function["name"], "input": {}}
            told += self._begin(block)
        if function.get("arguments"):
            self._arguments.append(function["arguments"])
            told.append(self._delta({"type": "input_json_delta", "partial_json": function["arguments"]}))
        return told

    def _delta(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "delta": delta, "index": self._index}

    def _begin(self, block: dict[str, Any]) -> list[dict[str, Any]]:
        told = self._end()
        self._open = block["type"]
        return [*told, {"type": "content_block_start", "content_block": block, "index": self._index}]

    def _end(self) -> list[dict[str, Any]]:
        """The open block ends, and a text that was held is a block of its own."""
        if self._open is None:
            return []
        told: list[dict[str, Any]] = [{"type": "content_block_stop", "index": self._index}]
        self._open, held, self._held = None, self._held, ""
        self._index += 1
        if held:
            told += [*self._begin({"type": "text", "text": ""}), self._delta({"type": "text_delta", "text": held})]
            told += self._end()
        return told


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
