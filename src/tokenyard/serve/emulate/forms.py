"""Answers in vLLM's form: fields in its order, with what it puts where nothing is said."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tokenyard.serve.openai.fields import NO_JSON, ApiError, GenerationRequest, as_api_error
from tokenyard.serve.openai.generating import AnswerWriter, PromptNews
from tokenyard.serve.recorded_surface import Surface
from tokenyard.web.connections import json_response

_TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    408: "RequestTimeoutError",
    429: "RateLimitError",
    500: "InternalServerError",
    503: "ServiceUnavailableError",
}


def vllm_error(error: ApiError) -> dict[str, Any]:
    """An error's body, as vLLM writes it."""
    kind = (
        "Bad Request"
        if error.code == NO_JSON
        else _TYPES.get(error.status, "BadRequestError" if error.status < 500 else "InternalServerError")
    )
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.status}}


def on_error(request: Request, error: Exception) -> Response:
    """Answer whatever an endpoint raised."""
    status = getattr(error, "status_code", None)
    if status in (404, 405) and not isinstance(error, ApiError):
        detail = {404: "Not Found", 405: "Method Not Allowed"}[status]
        return json_response({"detail": detail}, status, dict(getattr(error, "headers", None) or {}))
    said = as_api_error(error, getattr(request.state, "prompt_field", "prompt"))
    return json_response(vllm_error(said), said.status, said.headers)


class Forms:
    """Those of one version."""

    def __init__(self, surface: Surface, *, tells_cached: bool) -> None:
        """``tells_cached``: usage says how much of a prompt was cached (``--enable-prompt-tokens-details``)."""
        self._answers, self._tells_cached = surface.answers, tells_cached
        self.version = surface.version.partition("+")[0]
        self.fingerprint = f"vllm-{self.version}-emulated"

    def filled(self, kind: str, record: Mapping[str, Any]) -> dict[str, Any]:
        """``record`` with all fields of an answer of that kind, in their order; others come after them."""
        known = self._answers.get(kind, {})
        return {name: record.get(name, default) for name, default in known.items()} | {
            name: value for name, value in record.items() if name not in known
        }

    def formed(self, kind: str, answer: AnswerWriter, request: GenerationRequest) -> AnswerWriter:
        """An answer of a kind (``chat``, ``completion``) that is told in this form."""
        tells_usage = request.stream_options is not None and request.stream_options.include_usage
        return _Formed(self, kind, answer, tells_usage=tells_usage)

    def usage(self, usage: Mapping[str, Any]) -> dict[str, Any]:
        """The tokens of a request."""
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        details = {"cached_tokens": cached, "created_cache_tokens": None, "multimodal_tokens": None}
        return self.filled("usage", {**usage, "prompt_tokens_details": details if self._tells_cached else None})

    def whole(self, kind: str, record: Mapping[str, Any]) -> dict[str, Any]:
        """An answer that is told at once."""
        choices = [self._choice(kind, each) for each in record["choices"]]
        said = {**record, "choices": choices, "usage": self.usage(record["usage"])}
        return self.filled(kind, {**said, "system_fingerprint": self.fingerprint})

    def _choice(self, kind: str, choice: Mapping[str, Any]) -> dict[str, Any]:
        made = self.filled(f"{kind}_choice", choice)
        if "message" in made:
            message = self.filled("chat_message", made["message"])
            if not message["tool_calls"]:
                del message["tool_calls"]
            made["message"] = message
        return made

    def model_card(self, name: str, parent: str | None, root: str, created: int, max_model_len: int) -> dict[str, Any]:
        """A model of the list."""
        permission = {"id": f"modelperm-{uuid.uuid4().hex[:16]}", "created": created}
        card = {"id": name, "created": created, "root": root, "parent": parent, "max_model_len": max_model_len}
        return self.filled("model_card", {**card, "permission": [self.filled("model_permission", permission)]})


class _Formed(AnswerWriter):
    """Tells another answer's chunks and whole."""

    def __init__(self, forms: Forms, kind: str, answer: AnswerWriter, *, tells_usage: bool) -> None:
        """``tells_usage``: a chunk with the usage is the last one, and has what the last one has."""
        self._forms, self._kind, self._answer, self._tells_usage = forms, kind, answer, tells_usage

    def whole(self, pieces: Sequence[PromptNews]) -> dict[str, Any]:
        """All of it at once."""
        return self._forms.whole(self._kind, self._answer.whole(pieces))

    def chunks(self, piece: PromptNews) -> Sequence[dict[str, Any]]:
        """Those of a stream that tell a piece."""
        return self._formed(self._answer.chunks(piece))

    def last_chunks(self) -> Sequence[dict[str, Any]]:
        """Those after the last piece."""
        return self._formed(self._answer.last_chunks())

    def problem(self, error: ApiError) -> dict[str, Any]:
        """The chunk for an error in the middle of a stream."""
        return vllm_error(error)

    def _formed(self, chunks: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        form = self._chat if self._kind == "chat" else self._completion
        return [made for chunk in chunks for made in form(chunk)]

    def _completion(self, chunk: dict[str, Any]) -> Sequence[dict[str, Any]]:
        if "usage" in chunk:
            chunk["usage"] = self._forms.usage(chunk["usage"])
        for choice in chunk["choices"]:
            token_ids = choice.pop("token_ids", None)
            choice["prompt_token_ids"], choice["token_ids"] = None, token_ids
            if choice["finish_reason"] is not None and not self._tells_usage:
                chunk["system_fingerprint"] = self._forms.fingerprint
        if not chunk["choices"]:
            chunk["system_fingerprint"] = self._forms.fingerprint
        return [chunk]

    def _chat(self, chunk: dict[str, Any]) -> Sequence[dict[str, Any]]:
        chunk = {name: chunk[name] for name in ("id", "object", "created", "model", "choices")} | chunk
        if "usage" in chunk:
            chunk["usage"] = self._forms.usage(chunk["usage"])
        if not chunk["choices"]:
            return [{**chunk, "system_fingerprint": self._forms.fingerprint}]
        (choice,) = chunk["choices"]
        delta, told = choice["delta"], []
        if delta.pop("role", None) is not None:
            first = {"index": choice["index"], "delta": {"role": "assistant", "content": ""}}
            head = {**chunk, "choices": [{**first, "logprobs": None, "finish_reason": None}]}
            told.append({**head, "prompt_token_ids": None, "prompt_text": None})
        is_last = choice["finish_reason"] is not None
        if not delta.get("content"):
            delta.pop("content", None)
        if not delta and not is_last and choice["logprobs"] is None:
            return told
        made = {"index": choice["index"], "delta": delta, "logprobs": choice["logprobs"]}
        made["finish_reason"] = choice["finish_reason"]
        if is_last:
            made["stop_reason"] = choice["stop_reason"]
        made["token_ids"] = choice.get("token_ids")
        rest = {**chunk, "choices": [made]}
        if is_last and not self._tells_usage:
            rest["system_fingerprint"] = self._forms.fingerprint
        return [*told, rest]
