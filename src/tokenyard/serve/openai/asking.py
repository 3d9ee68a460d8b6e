"""From the fields of a request to what the engine is asked: sampling, grammars; and log-probabilities back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import msgspec
from starlette.requests import Request

from tokenyard.errors import ConfigError
from tokenyard.quick_dataclass import dataclass
from tokenyard.serve.async_llm import AsyncLLM
from tokenyard.serve.front import MAX_GRAMMAR_BYTES
from tokenyard.serve.generation import (
    CompletionOutput,
    GenerationDefaults,
    GenerationOutput,
    GenerationParams,
    Logprob,
    OutputKind,
    Turn,
    check_num_samples,
)
from tokenyard.serve.grammars import Grammar, GrammarCompiler
from tokenyard.serve.openai.clients import ForClient
from tokenyard.serve.openai.connection import connection_of
from tokenyard.serve.openai.fields import ApiError, GenerationRequest, ParsedBody, bad_field, going_down, parse_body
from tokenyard.serve.openai.tool_calls.parsers import ToolCallParser
from tokenyard.serve.text import TextTokenizer

# ---------------------------------------------------------------------------------------------------------------------
# What all endpoints share: the engine, the names of its model, limits.


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Limits of one client's requests."""

    max_body_bytes: int = 8 * 2**20
    """Largest body of a request."""
    max_grammar_bytes: int = MAX_GRAMMAR_BYTES
    """Longest schema, regular expression or grammar that an answer is to keep to."""
    request_timeout_s: float = 3600.0
    """Longest time from a request to the end of its answer."""

    def __post_init__(self) -> None:
        for name in ("max_body_bytes", "max_grammar_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "give a whole number from 1 on")
        if not 0 < self.request_timeout_s < float("inf"):
            raise ConfigError("request_timeout_s", self.request_timeout_s, "give a number of seconds above 0")


@dataclass(slots=True, kw_only=True)
class ServerContext:
    """One server."""

    llm: AsyncLLM
    names: Sequence[str]
    """Names by which clients call the model; answers have the first."""
    limits: ClientLimits = field(default_factory=ClientLimits)
    grammars: GrammarCompiler | None = None
    """For answers that must look like something; None: there are none."""
    defaults: GenerationDefaults = field(default_factory=lambda: GenerationDefaults({}))
    """Parameters of requests that do not give their own."""
    tool_parser: Callable[[], ToolCallParser] | None = None
    """Makes what reads calls of tools out of an answer; None: answers are left as they are."""
    heads_first: bool = False
    """Heads of streams are sent when the engine has been asked, as vLLM does; else with the first event, so that what
    goes wrong before has a code of its own."""
    is_lenient: bool = False
    """Fields that are not known are ignored, as vLLM does."""
    formed: Callable[[str, Any, Any], Any] = lambda _, answer, request: answer
    """Gives an answer of a kind (``chat``, ``completion``) to a request another form."""
    script: Callable[[Any], Any] = lambda _: None
    """The answer to a chat, where that is known before; for servers without a model."""
    check: Callable[[Any], None] = lambda _: None
    """Raises ApiError for a chat that servers of this kind refuse."""
    metrics: Callable[[], tuple[bytes, str]] | None = None
    """The text of ``/metrics``, and its content type."""
    is_draining: bool = False
    """The server goes down: requests that are being answered are answered, new ones are not."""
    created: int = field(default_factory=lambda: int(time.time()))
    """When the model was loaded, in Unix seconds."""

    @property
    def tokenizer(self) -> TextTokenizer:
        """The model's. Raises ApiError where it has none."""
        if self.llm.tokenizer is None:
            raise ApiError(400, "the model has no tokenizer: only token ids can be prompts, and answers have no text")
        return self.llm.tokenizer

    async def body(self, http: Request, kind: type[msgspec.Struct]) -> ParsedBody:
        """The body as ``kind``, within the limits of this server. Raises ApiError and RefusedError."""
        return await parse_body(http, kind, self.limits.max_body_bytes, is_lenient=self.is_lenient)

    def check_model(self, name: str | None) -> None:
        """ApiError for a model that is not served."""
        if name is not None and name not in (*self.names, *self.llm.model.adapters):
            known = ", ".join([self.names[0], *sorted(self.llm.model.adapters)][:_MOST_NAMED])
            error = bad_field("model", name, f"is not served here: leave it out, or give {known}")
            error.status, error.code = 404, "model_not_found"
            raise error

    def adapter_of(self, name: str | None) -> str | None:
        """The adapter that is requested as the model ``name``; None: the model itself."""
        return name if name in self.llm.model.adapters else None

    def answering(self, name: str | None) -> str:
        """What answers call the model that was requested as ``name``."""
        return self.adapter_of(name) or self.names[0]

    def check_length(self, field: str, text: object, size: int) -> None:
        """ApiError for a prompt of so many characters, or bytes, that the model cannot take however it is tokenized."""
        tokens, longest = self.llm.model.max_model_len, self.tokenizer.most_bytes_per_token
        if size > tokens * longest:
            fix = f"its length is {size}: the model takes {tokens} tokens, which have at most {longest} bytes each"
            raise bad_field(field, text, fix, code="context_length_exceeded")

    def check_room(self, num_prompts: int, n: int | None) -> None:
        """Raise what the engine would for ``n`` answers to each of so many prompts, before any work on them."""
        answers = 1 if n is None else n
        check_num_samples("", answers)
        self.llm.check_room(num_prompts * answers)
        if num_prompts * answers > _MOST_ANSWERS:
            fix = f"{num_prompts} prompts with as many answers each are more than {_MOST_ANSWERS}: ask several times"
            raise bad_field("n", answers, fix)

    def check_open(self) -> None:
        """ApiError while the server goes down, or after its engine has."""
        if self.is_draining:
            raise going_down()
        if self.llm.death is not None:
            raise ApiError(500, str(self.llm.death), code="engine_dead")


# ---------------------------------------------------------------------------------------------------------------------
# From the fields of a request to what the engine is asked.

_AS_THEY_ARE = (
    *("n", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"),
    *("seed", "min_tokens", "ignore_eos", "include_stop_str_in_output", "skip_special_tokens"),
)
_MOST_ANSWERS = 4096
"""To one request."""
_MOST_TOKENS_NAMED = 10_000
"""Tokens that a request may name: biases, ends of answers."""
_MOST_NAMED = 8
"""Models that an error names."""
_OF_A_TURN = ("job_id", "is_last_step", "this_func_call", "session_id", "last_func_call")


def generation_params(
    request: GenerationRequest,
    *,
    max_tokens: int,
    logprobs: int | None,
    prompt_logprobs: int | None,
    kind: OutputKind,
    defaults: GenerationDefaults,
) -> GenerationParams:
    """Its parameters; what was not given is the model's default, else as in vLLM.

    Raises ApiError for what the engine cannot be asked.
    """
    given: dict[str, Any] = dict(defaults.params)
    given |= {name: value for name in _AS_THEY_ARE if (value := getattr(request, name)) is not None}
    for name in ("logit_bias", "stop_token_ids"):
        if (number := len(getattr(request, name) or ())) > _MOST_TOKENS_NAMED:
            raise bad_field(name, f"{number} tokens", f"give at most {_MOST_TOKENS_NAMED}")
    if request.logit_bias is not None:
        given["logit_bias"] = _bias(request.logit_bias)
    if request.stop is not None:
        given["stop"] = (request.stop,) if isinstance(request.stop, str) else tuple(request.stop)
    if request.stop_token_ids is not None:
        given["stop_token_ids"] = tuple(request.stop_token_ids)
    return GenerationParams(
        max_tokens=max_tokens, logprobs=logprobs, prompt_logprobs=prompt_logprobs, output_kind=kind, **given
    )


def _bias(given: dict[str, float]) -> dict[int, float]:
    bias = {}
    for name, value in given.items():
        if not (name.isascii() and name.isdecimal() and len(name) <= 10):
            raise bad_field("logit_bias", name, "its keys must be token ids")
        if not -100 <= value <= 100:
            raise bad_field(f"logit_bias.{name}", value, "give a number from -100 to 100")
        if int(name) in bias:
            raise bad_field("logit_bias", name, f"token {int(name)} has a value already: name it once")
        bias[int(name)] = value
    return bias


def turn_of(request: GenerationRequest, http: Request | None = None) -> Turn:
    """The job of an agent to which a request belongs: ``job_id``, else vLLM's session. Raises ApiError.

    The session is, as vLLM 0.33 takes it, ``session_id`` of the body, the header ``X-Session-ID``, or ``session_id`` of
    ``vllm_xargs``, in this order; the others are given directly or in ``vllm_xargs``.
    """
    named = dict(request.vllm_xargs or {})
    unknown = named.keys() - set(_OF_A_TURN)
    if unknown:
        name = min(unknown)
        raise bad_field(f"vllm_xargs.{name}", named[name], f"use one of {', '.join(_OF_A_TURN)}, or leave it out")
    header = None if http is None else http.headers.get("x-session-id")
    named |= {"session_id": header} if header else {}
    named |= {name: value for name in _OF_A_TURN if (value := getattr(request, name)) is not None}
    job, last, tool, session, _ = (named.get(name) for name in _OF_A_TURN)
    if last not in (None, True, False, 0, 1, "true", "false"):
        raise bad_field("is_last_step", last, "give true or false")
    if tool is not None and not isinstance(tool, str):
        raise bad_field("this_func_call", tool, "give the tool's name as text")
    for name, value in (("job_id", job), ("session_id", session)):
        if value is not None and not isinstance(value, str | int):
            raise bad_field(name, value, "give a text")
    job = session if job is None else job
    return Turn(
        priority=request.priority or 0,
        cache_salt=request.cache_salt,
        job_id=None if job is None else str(job),
        is_last_step=last in (True, 1, "true"),
        this_func_call=tool,
        kv_transfer_params=request.kv_transfer_params,
    )


# ---------------------------------------------------------------------------------------------------------------------
# What an answer must look like: ``response_format``, or vLLM's ``structured_outputs``.


class _Asked(msgspec.Struct, frozen=True):
    """A grammar, as it was sent."""

    field: str | None
    """Where; None: the compiler says it."""
    wanted: dict[str, Any]
    """For the compiler."""


async def compiled(
    http: Request,
    context: ServerContext,
    request: GenerationRequest,
    num_prompts: int,
    schema: Mapping[str, Any] | None = None,
    *,
    most_tokens: int,
) -> list[list[Grammar]]:
    """For each prompt a grammar per answer, none if the request asks for none. Raises ApiError.

    ``schema`` is what the answer's JSON must look like because a tool has to be called; ``most_tokens`` are those of
    the longest answer. It is compiled once and waited
    for, so that what cannot be compiled is refused; a client that leaves meanwhile gives its turn to others.
    """
    asked = _asked(request)
    if schema is not None:
        if asked is not None:
            raise bad_field(
                "tool_choice", getattr(request, "tool_choice", None), "the answer's form is requested twice"
            )
        asked = _Asked("tools", {"json": schema})
    if asked is None:
        return [[]] * num_prompts
    if context.grammars is None:
        fix = "there are no grammars (llguidance, a tokenizer or an end-of-sequence token is missing): leave it out"
        raise bad_field(asked.field or "structured_outputs", asked.wanted, fix, code="unsupported_field")
    try:
        grammar = context.grammars.for_answers(most_tokens).compile(**asked.wanted)
        async with ForClient(http.receive, connection=connection_of(http.scope)):
            await asyncio.wrap_future(grammar.compiled)
    except ConfigError as error:
        raise bad_field(asked.field or error.field, error.value, error.fix) from None
    return [[grammar.another() for _ in range(request.n or 1)] for _ in range(num_prompts)]


def _asked(request: GenerationRequest) -> _Asked | None:
    wanted, other = request.response_format, request.structured_outputs
    if wanted is None or wanted.type == "text":
        return None if other is None else _Asked(None, _given(other))
    if other is not None:
        raise bad_field("structured_outputs", _given(other), "response_format says the same: give one of them")
    if wanted.type == "json_object":
        return _Asked("response_format", {"json_object": True})
    if wanted.json_schema is None:
        raise bad_field("response_format.json_schema", None, 'give it, or the type "json_object"')
    return _Asked("response_format.json_schema.schema", {"json": wanted.json_schema.schema})


def _given(outputs: msgspec.Struct) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(outputs).items() if value is not None}


# ---------------------------------------------------------------------------------------------------------------------
# Log-probabilities as the two endpoints return them.

_LEAST = -9999.0
"""Stands for a probability of 0: JSON has no infinity."""


def _value(each: Logprob) -> float:
    return max(each.logprob, _LEAST)


def _likeliest(row: dict[int, Logprob]) -> list[Logprob]:
    return sorted(row.values(), key=lambda each: (each.rank is None, each.rank))


class EchoedPrompt(msgspec.Struct, frozen=True):
    """A prompt that stands before its answer, token by token."""

    token_ids: Sequence[int]
    rows: Sequence[dict[int, Logprob] | None]
    """One per token; of the first, which nothing stands before, there is none."""
    first_text: str
    """Text of the first token."""


def completion_logprobs(
    output: CompletionOutput, offset: int, echoed: EchoedPrompt | None = None
) -> dict[str, Any] | None:
    """The log-probabilities of a completion; ``offset`` is where its text begins among all that the client has got."""
    if output.logprobs is None:
        return None
    rows: list[tuple[int, dict[int, Logprob] | None]] = list(zip(output.token_ids, output.logprobs, strict=True))
    if echoed is not None:
        rows = [*zip(echoed.token_ids, echoed.rows, strict=True), *rows]
    tokens, values, tops, offsets = [], [], [], []
    for token, row in rows:
        text = row[token].decoded_token if row is not None else echoed.first_text if echoed is not None else ""
        tokens.append(text)
        values.append(None if row is None else _value(row[token]))
        tops.append(None if row is None else {each.decoded_token: _value(each) for each in reversed(_likeliest(row))})
        offsets.append(offset)
        offset += len(text)
    return {"text_offset": offsets, "token_logprobs": values, "tokens": tokens, "top_logprobs": tops}


def prompt_logprobs(output: GenerationOutput) -> list[dict[str, Any] | None] | None:
    """Log-probabilities of a prompt's tokens, as vLLM returns them: by token id; None if they were not asked for."""
    if output.prompt_logprobs is None:
        return None
    return [None if row is None else _by_token(row) for row in output.prompt_logprobs]


def _by_token(row: dict[int, Logprob]) -> dict[str, Any]:
    return {str(token): {**each._asdict(), "logprob": _value(each)} for token, each in row.items()}


def chat_logprobs(output: CompletionOutput, num_top: int) -> dict[str, Any] | None:
    """Log-probabilities of a chat's answer, with the ``num_top`` likeliest tokens at every place."""
    if output.logprobs is None:
        return None
    content = []
    for token, row in _rows(output):
        likeliest = [_token(each) for each in _likeliest(row)[:num_top]]
        content.append({**_token(row[token]), "top_logprobs": likeliest})
    return {"content": content, "refusal": None}


def _rows(output: CompletionOutput) -> Sequence[tuple[int, dict[int, Logprob]]]:
    return list(zip(output.token_ids, output.logprobs or (), strict=True))


def _token(each: Logprob) -> dict[str, Any]:
    return {
        "token": each.decoded_token,
        "logprob": _value(each),
        "bytes": list(each.decoded_token.encode(errors="replace")),
    }
