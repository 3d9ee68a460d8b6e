"""Answers in vLLM's form: fields in its order, with what it puts where nothing is given."""

from __future__ import annotations

import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tokenyard.core.profiles import release_facts
from tokenyard.errors import OUT_OF_VOCABULARY
from tokenyard.serve.openai.fields import ApiError, GenerationRequest, as_api_error
from tokenyard.serve.openai.generating import AnswerWriter, PromptNews
from tokenyard.serve.recorded_surface import Surface
from tokenyard.web.connections import json_response

_WITHOUT_PARAM = frozenset(("n", "min_tokens", "input", "messages"))
"""Fields that vLLM does not name when they hold what cannot work."""
_CALLS_READ = "vllm:tool_call_parser_invocations"
_COUNTS = ("prompt_tokens", "total_tokens", "completion_tokens")
_UNTOLD: Mapping[str, None] = dict.fromkeys(("logprobs", "finish_reason", "token_ids"))
_PROMPTS = frozenset(("prompt", "messages", "input"))
_ITEM = re.compile(r"\[(\d+)\]")
_encoded = msgspec.json.Encoder().encode
_POOLING = frozenset(
    ("/v1/embeddings", "/pooling", "/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank", "/invocations")
)
"""Paths that do not name the field of a model that is not served."""
_PLAIN = "plain"
ALWAYS_NAMED = "always_named"
"""Code of an error whose field vLLM names wherever it stands."""
_MARK = "\0"
"""Stands for the text of a piece."""
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
    status = _status(error)
    if error.code == _PLAIN:
        kind, param = HTTPStatus(status).phrase, None
    elif _is_form(error):
        kind, param = "Bad Request", _place(error)
    else:
        kind = _TYPES.get(status, "BadRequestError" if status < 500 else "InternalServerError")
        is_unknown = error.code == OUT_OF_VOCABULARY and error.param != "logit_bias"
        if error.param is not None and error.param.startswith("tool_choice."):
            error.param = "tool_choice"
        is_named = error.param not in _WITHOUT_PARAM or error.code == ALWAYS_NAMED
        param = error.param if is_named and not is_unknown else None
        if error.code == "context_length_exceeded" and error.param in _PROMPTS:
            param = "input_tokens"
    return {"error": {"message": error.message, "type": kind, "param": param, "code": status}}


def told_plainly(status: int, message: str) -> ApiError:
    """An error that vLLM names by its code, without a field."""
    return ApiError(status, message, code=_PLAIN)


def _status(error: ApiError) -> int:
    return 400 if error.status == 415 else error.status


def _is_form(error: ApiError) -> bool:
    """Whether it is the form of the body that vLLM complains of; a prompt may be missing as far as the form goes."""
    is_prompt = error.code == "missing_field" and error.param == "prompt"
    return error.status == 415 or error.param == "seed" or (error.is_form and not is_prompt)


def _place(error: ApiError) -> str | None:
    if error.status == 415:
        return None
    if error.param is not None and error.param.startswith("query."):
        return error.param
    at = error.param if error.place is None else str(error.place)
    return "body" if at is None else "body." + _ITEM.sub(r".\1", at)


def on_error(request: Request, error: Exception) -> Response:
    """Answer whatever an endpoint raised."""
    status = getattr(error, "status_code", None)
    if status in (404, 405) and not isinstance(error, ApiError):
        detail = {404: "Not Found", 405: "Method Not Allowed"}[status]
        return json_response({"detail": detail}, status, dict(getattr(error, "headers", None) or {}))
    said = as_api_error(error, getattr(request.state, "prompt_field", "prompt"))
    if said.status == 404 and request.url.path in _POOLING:
        said.param = None
    form: Callable[[ApiError], dict[str, Any]] = getattr(request.state, "error_form", vllm_error)
    return json_response(form(said), _status(said), said.headers)


class Forms:
    """The forms of one version."""

    def __init__(self, surface: Surface, *, tells_cached: bool, block_size: int) -> None:
        """``tells_cached``: usage says how much of a prompt was cached (``--enable-prompt-tokens-details``);
        ``block_size`` of the cache, in tokens; 0: nothing is kept in it.
        """
        self._block_size, self._created = block_size, time.time()
        self._answers, self._tells_cached = surface.answers, tells_cached
        self.version = surface.version.partition("+")[0]
        self.facts = release_facts(self.version)
        self.calls_read = Counter[tuple[str, bool]]()
        """How often tool calls were looked for, in streams and in whole answers, and whether there were any."""
        self.fingerprint = f"vllm-{self.version}-emulated"

    def filled(self, kind: str, record: Mapping[str, Any]) -> dict[str, Any]:
        """``record`` with all fields of an answer of that kind, in their order; others come after them."""
        known = self._answers.get(kind, {})
        return {name: record.get(name, default) for name, default in known.items()} | {
            name: value for name, value in record.items() if name not in known
        }

    def formed(self, kind: str, answer: AnswerWriter, request: GenerationRequest) -> AnswerWriter:
        """An answer of a kind (``chat``, ``completion``) that is sent in this form."""
        return FormedAnswer(self, kind, answer, request)

    def usage(self, usage: Mapping[str, Any], kind: str) -> dict[str, Any]:
        """The tokens of a request, in a whole answer."""
        details = {"cached_tokens": None, "created_cache_tokens": None, "multimodal_tokens": None}
        told = {**details, **self._details(usage, kind)} if self._tells_cached else None
        return self.filled("usage", {**usage, "prompt_tokens_details": told})

    def last_usage(self, usage: Mapping[str, Any], kind: str) -> dict[str, Any]:
        """The same in the last chunk of a stream, where what is not known is left out."""
        details = {"prompt_tokens_details": self._details(usage, kind)} if self._tells_cached else {}
        return {name: usage[name] for name in _COUNTS} | details

    def usage_so_far(self, usage: Mapping[str, Any], kind: str) -> dict[str, Any]:
        """The same in the chunks before."""
        return {name: usage[name] for name in _COUNTS} | ({"completion_tokens_details": None} if kind == "chat" else {})

    def _details(self, usage: Mapping[str, Any], kind: str) -> dict[str, Any]:
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        if kind != "chat":
            return {"cached_tokens": cached}
        size = self._block_size
        created = max(0, usage["prompt_tokens"] // size * size - cached) if size else 0
        return {"cached_tokens": cached, "created_cache_tokens": created}

    def whole(self, kind: str, record: Mapping[str, Any]) -> dict[str, Any]:
        """An answer that is sent at once."""
        choices = [self._choice(kind, each) for each in record["choices"]]
        said = {**record, "choices": choices, "usage": self.usage(record["usage"], kind)}
        return self.filled(kind, {**said, "system_fingerprint": self.fingerprint})

    def _choice(self, kind: str, choice: Mapping[str, Any]) -> dict[str, Any]:
        made = self.filled(f"{kind}_choice", choice)
        if kind == "chat":
            made["logprobs"] = _without_refusal(made["logprobs"])
        if "message" in made:
            message = self.filled("chat_message", made["message"])
            if not message["tool_calls"]:
                del message["tool_calls"]
            made["message"] = message
        return made

    def metrics_of_calls(self, name: str) -> Iterator[Any]:
        """How often tool calls were looked for, for Prometheus."""
        from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415 - an extra

        labels = ["model_name", "mode", "outcome", "request_type"]
        family = CounterMetricFamily(_CALLS_READ, "Times that tool calls were looked for.", labels=labels)
        for mode in ("streaming", "non_streaming"):
            for outcome, found in (("tool_call", True), ("no_tool_call", False)):
                for kind in ("chat_completions", "responses", "other"):
                    count = self.calls_read[mode, found] if kind == "chat_completions" else 0
                    family.add_metric([name, mode, outcome, kind], count, created=self._created)
        yield family

    def model_card(self, name: str, parent: str | None, root: str, created: int, max_model_len: int) -> dict[str, Any]:
        """A model of the list."""
        permission = {"id": f"modelperm-{uuid.uuid4().hex[:16]}", "created": created}
        card = {"id": name, "created": created, "root": root, "parent": parent, "max_model_len": max_model_len}
        return self.filled("model_card", {**card, "permission": [self.filled("model_permission", permission)]})


class FormedAnswer(AnswerWriter):
    """Writes another answer's chunks and whole."""

    def __init__(self, forms: Forms, kind: str, answer: AnswerWriter, request: GenerationRequest) -> None:
        super().__init__(answer.usage)
        self._forms, self._kind, self._answer = forms, kind, answer
        self._tells_usage = request.stream_options is not None and request.stream_options.include_usage
        """A chunk with the usage is the last one, and has what the last one has."""
        self._tells_ids = bool(request.return_token_ids)
        self._reads_calls = bool(getattr(request, "tools", None)) and getattr(request, "tool_choice", None) != "none"
        """A piece of a call may have no text: it is not sent."""
        self._is_named = not isinstance(getattr(request, "tool_choice", None), str | None)
        """The client has named the tool that is to be called."""
        self._prompt: Sequence[int] = ()
        """Ids of the prompt whose answer is being sent."""
        self._transfer: Mapping[str, Any] | None = None
        """Where the KV of the prompt is, of the piece that is being sent."""
        self._told = set[int]()
        """Answers whose prompts have been sent."""
        options = request.stream_options
        counts = options is not None and options.continuous_usage_stats
        self._is_plain = not (self._tells_ids or self._reads_calls or counts)
        """Pieces between the first and the last of an answer differ by their texts alone."""
        self._begun = set[tuple[int, int]]()
        """Answers whose first pieces have been sent, by prompt and index."""
        self._around: dict[tuple[int, int], tuple[bytes, bytes]] = {}
        """What stands before and after the text of a piece of an answer."""

    def whole(self, pieces: Sequence[PromptNews]) -> dict[str, Any]:
        """All of it at once."""
        told = self._forms.whole(self._kind, self._answer.whole(pieces))
        if self._reads_calls:
            for message in (choice["message"] for choice in told["choices"]):
                calls = message.get("tool_calls", ())
                self._forms.calls_read["non_streaming", bool(calls)] += 1
                for call in calls:
                    call["id"] = _call_id(call["id"])
                if calls and self._is_named:
                    message["content"] = message["content"] or ""
        return told

    def chunks(self, piece: PromptNews) -> Sequence[dict[str, Any]]:
        """The chunks of a stream that carry a piece."""
        output = piece.output
        self._prompt, self._transfer = output.prompt_token_ids, output.kv_transfer_params
        return self._formed(self._answer.chunks(piece))

    def events(self, piece: PromptNews) -> bytes:
        """A piece as server-sent events; of pieces that differ by their texts alone only the text is encoded."""
        parts = piece.outputs
        part = parts[0]
        if part.finish_reason is not None or len(parts) > 1 or not self._is_plain:
            return super().events(piece)
        answer = piece.prompt, part.index
        around = self._around.get(answer)
        if around is not None:
            self.usage.add_tokens(len(part.token_ids))
            before, after = around
            return b"%b%b%b" % (before, _encoded(part.text), after)
        told = self.chunks(piece)
        events = b"".join(map(self.event, told))
        if answer in self._begun and part.logprobs is None and len(told) == 1:
            self._learn(answer, told[0])
        self._begun.add(answer)
        return events

    def _learn(self, answer: tuple[int, int], chunk: dict[str, Any]) -> None:
        """What stands around the text of ``chunk``, which has been sent and is not needed any more."""
        (choice,) = chunk["choices"]
        if self._kind == "chat":
            choice["delta"]["content"] = _MARK
        else:
            choice["text"] = _MARK
        around = self.event(chunk).split(_encoded(_MARK))
        if len(around) == 2:
            self._around[answer] = around[0], around[1]

    def last_chunks(self) -> Sequence[dict[str, Any]]:
        """The chunks after the last piece."""
        return self._formed(self._answer.last_chunks())

    def problem(self, error: ApiError) -> dict[str, Any]:
        """The chunk for an error in the middle of a stream."""
        return vllm_error(error)

    def _formed(self, chunks: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        form = self._chat if self._kind == "chat" else self._completion
        return [made for chunk in chunks for made in form(chunk)]

    def _completion(self, chunk: dict[str, Any]) -> Sequence[dict[str, Any]]:
        self._count(chunk)
        for choice in chunk["choices"]:
            token_ids = choice.pop("token_ids", None)
            choice["prompt_token_ids"], choice["token_ids"] = self._prompt_of(choice["index"]), token_ids
            if choice["finish_reason"] is not None and not self._tells_usage:
                chunk["system_fingerprint"] = self._forms.fingerprint
            if self._forms.facts.streams_tell_transfers:
                choice["weight_versions"] = None
        if not chunk["choices"]:
            return [{**chunk, "system_fingerprint": self._forms.fingerprint}]
        return [self._with_transfer(chunk, is_last=any(each["finish_reason"] for each in chunk["choices"]))]

    def _with_transfer(self, chunk: dict[str, Any], *, is_last: bool) -> dict[str, Any]:
        """Where the KV of the prompt is stands in every chunk with a choice, of versions that stream it."""
        if self._forms.facts.streams_tell_transfers:
            given = self._transfer if is_last else None
            chunk["kv_transfer_params"] = None if given is None else dict(given)
        return chunk

    def _chat(self, chunk: dict[str, Any]) -> Sequence[dict[str, Any]]:
        chunk = {name: chunk[name] for name in ("id", "object", "created", "model", "choices")} | chunk
        self._count(chunk)
        if not chunk["choices"]:
            return [{**chunk, "system_fingerprint": self._forms.fingerprint}]
        (choice,) = chunk["choices"]
        delta, told = choice["delta"], []
        if delta.pop("role", None) is not None:
            first = {"index": choice["index"], "delta": {"role": "assistant", "content": ""}}
            head = {**chunk, "choices": [{**first, "logprobs": None, "finish_reason": None}]}
            if "usage" in chunk:
                said = {"completion_tokens": 0, "total_tokens": chunk["usage"]["prompt_tokens"]}
                head["usage"] = chunk["usage"] | said
            told.append({**head, "prompt_token_ids": self._prompt_of(choice["index"]), "prompt_text": None})
        is_last = choice["finish_reason"] is not None
        if not self._reads_calls:
            delta.setdefault("content", "")
        else:
            told += self._calls(chunk, choice["index"], delta)
            if not delta and not is_last and choice["logprobs"] is None:
                return told
        made = {"index": choice["index"], "delta": delta, "logprobs": _without_refusal(choice["logprobs"])}
        made["finish_reason"] = choice["finish_reason"]
        if is_last:
            made["stop_reason"] = choice["stop_reason"]
        made["token_ids"] = choice.get("token_ids")
        if is_last and self._forms.facts.streams_tell_transfers:
            made["weight_versions"] = None
        rest = {**chunk, "choices": [made]}
        if is_last and not self._tells_usage:
            rest["system_fingerprint"] = self._forms.fingerprint
        return [*told, self._with_transfer(rest, is_last=is_last)]

    def _calls(self, chunk: dict[str, Any], index: int, delta: dict[str, Any]) -> Sequence[dict[str, Any]]:
        """Chunks of the calls in a delta, which are taken out of it, as is a content without text."""
        calls, told = delta.pop("tool_calls", ()), []
        self._forms.calls_read["streaming", bool(calls)] += 1
        for part in _parts_of_calls(calls):
            made = {"index": index, "delta": {"content": None, "tool_calls": [part]}}
            told.append(self._with_transfer({**chunk, "choices": [{**made, **_UNTOLD}]}, is_last=False))
        if not delta.get("content"):
            delta.pop("content", None)
        return told

    def _count(self, chunk: dict[str, Any]) -> None:
        """The usage in its form, if there is one: of the whole answer in the last chunk, which has no choice."""
        if "usage" in chunk:
            form = self._forms.usage_so_far if chunk["choices"] else self._forms.last_usage
            chunk["usage"] = form(chunk["usage"], self._kind)

    def _prompt_of(self, index: int) -> Sequence[int] | None:
        """The ids of the prompt before an answer, sent once."""
        if not self._tells_ids or index in self._told:
            return None
        self._told.add(index)
        return list(self._prompt)


def _parts_of_calls(calls: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Calls, or pieces of them, one after the other: a call's name comes before its arguments."""
    for call in calls:
        function = dict(call.get("function", {}))
        if "name" in function:
            head = {"id": _call_id(call["id"]), "type": "function", "index": call["index"]}
            yield {**head, "function": {"name": function["name"]}}
        if function.get("arguments"):
            yield {"index": call["index"], "function": {"arguments": function["arguments"]}}


def _call_id(name: str) -> str:
    """The id of a call, as long as vLLM's."""
    return f"chatcmpl-tool-{name.rpartition('_')[2][:16]}"


def _without_refusal(logprobs: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return None if logprobs is None else {"content": logprobs["content"]}
