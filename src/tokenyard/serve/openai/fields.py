"""Bodies of requests: from bytes to fields, as OpenAI's and vLLM's clients send them."""

from __future__ import annotations

import json
import re
from typing import Any, Literal, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tokenyard.errors import (
    OUT_OF_VOCABULARY,
    TOO_LONG,
    EngineDeadError,
    QueueFullError,
    RequestError,
    StuckError,
    TokenyardError,
    shown,
)
from tokenyard.files import has_more_brackets, is_nested_deeper
from tokenyard.serve.openai.connection import connection_of
from tokenyard.web.connections import RefusedError, json_body, json_response

# ---------------------------------------------------------------------------------------------------------------------
# What went wrong, in the form of the OpenAI API: ``{"error": {"message", "type", "param", "code"}}``.

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_OTHER_NAMES = {("messages", "logprobs"): "top_logprobs"}
"""What chats call a field of the engine's."""
NO_JSON = "invalid_json"
"""Code of the error for a body that cannot be read at all."""
_RETRY_SECONDS = 1
"""Suggested with every 503."""


class ApiError(Exception):
    """A request that is refused, or could not be answered."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
        is_form: bool = False,
        place: int | None = None,
    ) -> None:
        """``is_form``: the body is not what the path takes, whatever it asks for; ``place``: where it is no JSON."""
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers or {}
        self.is_form = is_form
        self.place = place

    def record(self) -> dict[str, Any]:
        """The answer's content."""
        kind = _TYPES.get(self.status) or ("invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        """The answer."""
        return json_response(self.record(), self.status, self.headers)

    def event(self) -> bytes:
        """The same within a stream."""
        return b"data: " + msgspec.json.encode(self.record()) + b"\n\n"


def bad_field(field: str, value: object, fix: str, *, code: str | None = None) -> ApiError:
    """A field of the body holds what cannot work."""
    return ApiError(400, f"{field} = {shown(value)}: {fix}", param=field, code=code)


def going_down() -> ApiError:
    """The server ends, and this request with it, or before it has begun."""
    return ApiError(503, "the server is going down", code="draining", headers={"Retry-After": "5"})


def timed_out(seconds: float) -> ApiError:
    """The server's limit of time is over."""
    return ApiError(504, f"the answer took longer than {seconds:g} seconds", code="timeout")


def as_api_error(error: Exception, prompt_field: str = "prompt") -> ApiError:
    """``error`` as a client gets it; ``prompt_field`` is what it calls its prompt."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RefusedError):
        return ApiError(error.status, f"{error.field} = {shown(error.value)}: {error.fix}", param=error.field)
    if isinstance(error, RequestError):
        is_prompt = error.field in ("prompt_token_ids", "prompt")
        field = prompt_field if is_prompt else _OTHER_NAMES.get((prompt_field, error.field), error.field)
        code = {TOO_LONG: "context_length_exceeded", OUT_OF_VOCABULARY: OUT_OF_VOCABULARY}.get(error.code)
        return bad_field(field, error.value, error.fix, code=code)
    if isinstance(error, QueueFullError):
        return ApiError(503, str(error), code="queue_full", headers={"Retry-After": str(_RETRY_SECONDS)})
    if isinstance(error, StuckError):
        return ApiError(500, str(error), code="engine_stuck")
    if isinstance(error, EngineDeadError):
        return ApiError(500, str(error), code="engine_dead")
    return ApiError(500, str(error) if isinstance(error, TokenyardError) else "an error of the server's own")


def on_api_error(request: Request, error: Exception) -> Response:
    """Answer whatever an endpoint raised."""
    return as_api_error(error, getattr(request.state, "prompt_field", "prompt")).response()


# ---------------------------------------------------------------------------------------------------------------------
# The fields of requests, as OpenAI's and vLLM's clients send them. What none of these classes names is refused.

IGNORED = frozenset(("user", "metadata", "safety_identifier", "prompt_cache_key", "service_tier", "name"))
"""Fields that say something about the client: accepted, and named in the header ``Tokenyard-Ignored``."""

WITHOUT_EFFECT: dict[str, tuple[object, ...]] = {
    "best_of": (None, 1),
    "suffix": (None, ""),
    "store": (None, False),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "functions": (None, []),
    "function_call": (None, "none"),
    "parallel_tool_calls": (None, True, False),
    "prediction": (None,),
    "reasoning_effort": (None,),
    "verbosity": (None,),
    "web_search_options": (None,),
    "use_beam_search": (None, False),
    "length_penalty": (None, 1, 1.0),
    "spaces_between_special_tokens": (None, True),
    "truncate_prompt_tokens": (None,),
    "dimensions": (None,),
    "allowed_token_ids": (None, []),
    "bad_words": (None, []),
    "chat_template": (None,),
    "documents": (None, []),
    "mm_processor_kwargs": (None,),
    "return_tokens_as_token_ids": (None, False),
    "continue_final_message": (None, False),
    "logits_processors": (None, []),
}
"""Fields of theirs that this server does not know how to heed, and the values with which nothing is asked."""


class _Fields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Unknown fields are refused."""


class StreamOptions(_Fields, kw_only=True):
    """How a stream ends."""

    include_usage: bool = False
    """Send the usage in a last chunk without choices."""
    continuous_usage_stats: bool = False
    """Send it in every chunk as well."""


class JsonSchema(_Fields, kw_only=True):
    """What an answer's JSON must look like."""

    schema: dict[str, Any]
    name: str = ""
    description: str | None = None
    strict: bool | None = None
    """Answers keep to the schema either way."""


class ResponseFormat(_Fields, kw_only=True):
    """What an answer must look like."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StructuredOutputs(_Fields, kw_only=True):
    """The same, as vLLM's clients say it: one of these."""

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class NamedFunction(_Fields, kw_only=True):
    """A tool's function."""

    name: str


class NamedToolChoice(_Fields, kw_only=True):
    """The tool that has to be called."""

    type: Literal["function"]
    function: NamedFunction


class GenerationRequest(_Fields, kw_only=True):
    """What completions and chats have in common."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    response_format: ResponseFormat | None = None
    # vLLM's
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    add_special_tokens: bool | None = None
    structured_outputs: StructuredOutputs | None = None
    prompt_logprobs: int | None = None
    """Likeliest tokens returned with each token of the prompt."""
    priority: int | None = None
    cache_salt: str | None = None
    request_id: str | None = None
    kv_transfer_params: dict[str, Any] | None = None
    """Where the prompt's KV is, or who will want it: for a KV connector."""
    return_token_ids: bool | None = None
    """Return the token ids of prompt and answer as well."""
    vllm_xargs: dict[str, Any] | None = None
    """``session_id``, ``job_id``, ``is_last_step``, ``this_func_call``, ``last_func_call``: as clients of vLLM, with a
    Continuum scheduler or without, send them."""
    session_id: str | None = None
    """vLLM's, since 0.30: the job, unless ``job_id`` names it."""
    # of clients of a Continuum scheduler: the same without a wrapping
    job_id: str | None = None
    is_last_step: bool | None = None
    this_func_call: str | None = None
    last_func_call: str | None = None
    """The tool whose result this turn brings: known already, so not read."""


class CompletionRequest(GenerationRequest, kw_only=True):
    """``POST /v1/completions``."""

    prompt: str | list[Any]
    """A text, token ids, or a list of either."""
    echo: bool | None = None
    """Put the prompt in front of every answer."""
    logprobs: int | None = None
    """Likeliest tokens returned with each token."""


class ChatCompletionRequest(GenerationRequest, kw_only=True):
    """``POST /v1/chat/completions``."""

    messages: list[dict[str, Any]]
    """Passed to the model's chat template, whatever fields they have."""
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[dict[str, Any]] | None = None
    """Passed to the model's chat template."""
    tool_choice: Literal["none", "auto", "required"] | NamedToolChoice | None = None
    """``none`` keeps the tools from the template; ``required``, or a tool's name, makes the answer a call."""
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] | None = None
    """Further variables of the template."""


class EmbeddingRequest(_Fields, kw_only=True):
    """``POST /v1/embeddings``."""

    input: str | list[Any]
    """A text, token ids, or a list of either."""
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    # vLLM's
    add_special_tokens: bool | None = None
    normalize: bool | None = None
    """Vectors of length 1, unless false."""
    priority: int | None = None
    cache_salt: str | None = None
    request_id: str | None = None
    # ours
    pooling_type: Literal["LAST", "CLS", "MEAN"] = "LAST"
    """Which tokens' states a vector is made of."""


class TokenizeRequest(_Fields, kw_only=True):
    """``POST /tokenize``: of a prompt, or of messages."""

    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(_Fields, kw_only=True):
    """``POST /detokenize``."""

    model: str | None = None
    tokens: list[int]


# ---------------------------------------------------------------------------------------------------------------------
# From the bytes of a body to a request, or one error that names the field, its value and what to do.

_Kind = TypeVar("_Kind", bound=msgspec.Struct)

MOST_NESTED = 64
"""Levels of lists and objects in each other."""
_MOST_BRACKETS = 100_000
_LONGEST_NAME = 100
_PROBLEM = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)
_LONE_SURROGATE = re.compile(
    rb"(?<!\\)(?:\\\\)*(\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|[c-fC-F][0-9a-fA-F]{2}))"
)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_PART = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


class ParsedBody(msgspec.Struct, frozen=True):
    """A body."""

    request: Any
    ignored: tuple[str, ...]
    """Fields that were there and have no effect."""


async def parse_body(request: Request, kind: type[_Kind], most_bytes: int, *, is_lenient: bool = False) -> ParsedBody:
    """The body as ``kind``; ``is_lenient``: fields that it does not know are ignored, as vLLM does.

    Raises ApiError and RefusedError.
    """
    connection = connection_of(request.scope)
    body = await json_body(request, most_bytes, is_there=connection is not None and connection.body_is_there)
    if has_more_brackets(body, _MOST_BRACKETS):
        raise ApiError(400, f"the body has more than {_MOST_BRACKETS} lists and objects")
    if is_nested_deeper(body, MOST_NESTED):
        raise ApiError(400, f"the body nests deeper than {MOST_NESTED} levels")
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(400, _no_json(body, error), code=NO_JSON, is_form=True, place=_place(body)) from None
    if not isinstance(fields, dict):
        raise ApiError(400, f"the body = {shown(fields)}: give an object", is_form=True)
    if is_lenient:
        return _lenient(fields, kind)
    ignored = _without_effect(fields, kind)
    try:
        return ParsedBody(msgspec.convert(fields, kind), ignored)
    except msgspec.ValidationError as error:
        raise _problem(str(error), fields) from None


def _lenient(fields: dict[str, Any], kind: type[_Kind]) -> ParsedBody:
    """The body without what ``kind`` does not know, at any depth. Raises ApiError."""
    known, ignored = set(kind.__struct_fields__), list[str]()
    for name in fields.keys() - known:
        ignored.append(name)
        del fields[name]
    while True:
        try:
            return ParsedBody(msgspec.convert(fields, kind), tuple(sorted(ignored)))
        except msgspec.ValidationError as error:
            matched = _PROBLEM.fullmatch(str(error))
            unknown = None if matched is None else _UNKNOWN.fullmatch(matched["what"])
            parent = None if matched is None else _value_at(fields, matched["path"] or "")
            if unknown is None or not isinstance(parent, dict) or unknown[1] not in parent:
                raise _problem(str(error), fields) from None
            ignored.append(unknown[1])
            del parent[unknown[1]]


def _no_json(body: bytes, error: Exception) -> str:
    lone = _LONE_SURROGATE.search(body)
    if lone is not None and any(word in str(error) for word in ("truncated", "surrogate")):
        return f"the body holds {lone[1].decode()}, a lone surrogate, half of a character: give both halves or none"
    return f"the body is no JSON: {error}"


def _place(body: bytes) -> int | None:
    """The character at which it stops to be JSON; None: there is nothing."""
    try:
        json.loads(body)
    except json.JSONDecodeError as error:
        return error.pos if body else None
    except (ValueError, RecursionError):
        pass
    return 0


def _shortened(name: str) -> str:
    """A name of the client's; a long one without its middle."""
    half = _LONGEST_NAME // 2
    return name if len(name) <= _LONGEST_NAME else f"{name[:half]}...{name[-half:]}"


def _without_effect(fields: dict[str, Any], kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Take out what cannot be heeded; ApiError where that would be missed. The names of what is ignored."""
    known = set(kind.__struct_fields__)
    for name in (WITHOUT_EFFECT.keys() - known) & fields.keys():
        value, allowed = fields.pop(name), WITHOUT_EFFECT[name]
        if not any(value == each and type(value) is type(each) for each in allowed):
            raise bad_field(name, value, "this server cannot do that: leave it out", code="unsupported_field")
    ignored = tuple(sorted((IGNORED - known) & fields.keys()))
    for name in ignored:
        del fields[name]
    return ignored


def _problem(text: str, fields: dict[str, Any]) -> ApiError:
    """What msgspec says, with the field and its value."""
    matched = _PROBLEM.fullmatch(text)
    assert matched is not None, "the pattern takes any text"
    what, path = matched["what"], matched["path"] or ""
    if unknown := _UNKNOWN.fullmatch(what):
        name = _shortened(".".join(filter(None, (path, unknown[1]))))
        return ApiError(400, f"{name}: no such field: leave it out", param=name, code="unknown_field", is_form=True)
    if missing := _MISSING.fullmatch(what):
        name = ".".join(filter(None, (path, missing[1])))
        fix = "is missing, and has to be given"
        return ApiError(400, f"{name}: {fix}", param=name, code="missing_field", is_form=True)
    what = what.replace("`", "")
    error = bad_field(_shortened(path), _value_at(fields, path), what[:1].lower() + what[1:])
    error.is_form = True
    return error


def _value_at(value: Any, path: str) -> Any:
    for name, index in _PART.findall(path):
        try:
            value = value[int(index)] if index else value[name]
        except (LookupError, TypeError):
            return "..."  # msgspec writes [...] for keys and items that it does not number
    return value
