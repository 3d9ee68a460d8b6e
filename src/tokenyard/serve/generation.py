"""What a request for a generation says, and what it brings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.core.params import SamplingParams, own_sampling_params
from tokenyard.errors import ConfigError, RequestError
from tokenyard.quick_dataclass import dataclass
from tokenyard.serve.text import TextTokenizer

# ---------------------------------------------------------------------------------------------------------------------
# What a request for a generation says beyond tokens: several answers, stop strings, text; and to what it belongs.

_MOST_SAMPLES = 128
_MOST_STOPS = 64
_LONGEST_STOP = 1024


class OutputKind(StrEnum):
    """What each output of a stream holds (vLLM's ``RequestOutputKind``)."""

    CUMULATIVE = "cumulative"
    """Everything so far."""
    DELTA = "delta"
    """What is new since the last one."""
    FINAL_ONLY = "final_only"
    """Everything; there is one output, at the end."""


_KINDS = tuple(OutputKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredOutputsParams:
    """What an answer must look like: one of these (vLLM's names)."""

    json: Mapping[str, Any] | str | None = None
    """A JSON schema."""
    regex: str | None = None
    choice: Sequence[str] | None = None
    """One of these texts."""
    grammar: str | None = None
    """A grammar in Lark."""
    json_object: bool | None = None
    """Any JSON object."""

    def given(self) -> dict[str, Any]:
        """What is asked, by its name."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name)) is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationParams(SamplingParams):
    """``SamplingParams`` and what happens above the tokens (all names are those of vLLM's ``SamplingParams``)."""

    n: int = 1
    """Answers to the prompt; each is a request of its own to the scheduler, and they share the prompt's blocks."""
    stop: tuple[str, ...] = ()
    """Texts that end the answer, wherever they come in it."""
    include_stop_str_in_output: bool = False
    """The stop string, or the token that ended the answer, is part of its text."""
    skip_special_tokens: bool = True
    """Special tokens have no text."""
    output_kind: OutputKind = OutputKind.CUMULATIVE
    """What each output of a stream holds."""
    structured_outputs: StructuredOutputsParams | None = None
    """What the answer must look like; the engine compiles a grammar for each answer."""

    @classmethod
    def of(cls, params: SamplingParams) -> GenerationParams:
        """``params`` with nothing asked beyond tokens; as it is, if it asks for that itself."""
        if isinstance(params, GenerationParams):
            return params
        return cls(**{each.name: getattr(params, each.name) for each in fields(SamplingParams)})


class Turn(NamedTuple):
    """The job to which a generation belongs, and how it is served."""

    priority: int = 0
    """Lower is served first, with a policy that looks at it."""
    lora_name: str | None = None
    cache_salt: str | None = None
    """Cached blocks are shared by requests of the same salt alone."""
    job_id: str | None = None
    """The agent whose turn it is."""
    is_last_step: bool = False
    """The agent has no turn after it."""
    this_func_call: str | None = None
    """The tool that the turn calls."""
    kv_transfer_params: Mapping[str, object] | None = None
    """Where the prompt's KV is, or who will want it: for a KV connector."""


def check_num_samples(request_id: str, n: Any) -> None:
    """Raise RequestError for a number of answers that no request gets."""
    if not _is_count(n) or not 1 <= n <= _MOST_SAMPLES:
        raise RequestError(request_id, "n", n, f"give a whole number from 1 to {_MOST_SAMPLES}")


def check_generation_params(request_id: str, params: GenerationParams) -> None:
    """Raise RequestError for what no answer can be made with; the rest is checked with the request."""
    check_num_samples(request_id, params.n)
    if not isinstance(params.stop, tuple | list) or not all(isinstance(each, str) for each in params.stop):
        raise RequestError(request_id, "stop", params.stop, "give a list of texts")
    if len(params.stop) > _MOST_STOPS:
        raise RequestError(request_id, "stop", f"{len(params.stop)} texts", f"give at most {_MOST_STOPS}")
    for each in params.stop:
        if not 1 <= len(each) <= _LONGEST_STOP:
            raise RequestError(request_id, "stop", each, f"give strings of 1 to {_LONGEST_STOP} characters")
    for name in ("include_stop_str_in_output", "skip_special_tokens"):
        if not isinstance(getattr(params, name), bool):
            raise RequestError(request_id, name, getattr(params, name), "give true or false")
    asked = params.structured_outputs
    if asked is not None and not isinstance(asked, StructuredOutputsParams):
        raise RequestError(request_id, "structured_outputs", asked, "give StructuredOutputsParams")
    if params.output_kind not in _KINDS:
        raise RequestError(request_id, "output_kind", params.output_kind, f"use one of: {', '.join(OutputKind)}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def params_of_sample(params: GenerationParams, index: int) -> GenerationParams:
    """What sample ``index`` is drawn with: seeds count up from the one given, so that samples differ."""
    return params if params.seed is None or not index else replace(params, seed=params.seed + index)


# ---------------------------------------------------------------------------------------------------------------------
# How a model's makers want it asked: the defaults in ``generation_config.json``, as vLLM takes them.

_TAKEN = ("repetition_penalty", "temperature", "top_k", "top_p", "min_p")
"""Fields of the file that are defaults of requests; others are about other programs."""
_AUTO, _NONE = "auto", "vllm"
_FILE = "generation_config.json"


class GenerationDefaults(NamedTuple):
    """For requests that do not say it themselves."""

    params: Mapping[str, Any]
    """Field of ``SamplingParams`` -> value."""
    max_new_tokens: int | None = None
    """Most output tokens of any request; None: as many as the model has room for."""


def read_generation_config(
    model: Path, generation_config: str = _AUTO, override: Mapping[str, Any] | None = None
) -> GenerationDefaults:
    """The defaults of the model in the folder ``model``.

    ``generation_config`` is ``auto`` (the model's own file, if there is one), ``vllm`` (none), or another folder;
    ``override`` are fields that are put over those of the file. Raises ConfigError.
    """
    folder = model if generation_config == _AUTO else Path(generation_config)
    found: dict[str, Any] = {}
    if generation_config != _NONE:
        file = folder / _FILE
        if file.is_file():
            found = _read(file)
        elif generation_config != _AUTO:
            fix = f"use auto, vllm, or a folder with a {_FILE}"
            raise ConfigError("generation_config", generation_config, fix)
    given = {**{name: found[name] for name in (*_TAKEN, "max_new_tokens") if found.get(name) is not None}}
    for name, value in (override or {}).items():
        if name not in (*_TAKEN, "max_new_tokens"):
            fix = f"known are {', '.join((*_TAKEN, 'max_new_tokens'))}"
            raise ConfigError("override_generation_config", {name: value}, fix)
        given[name] = value
    most = given.pop("max_new_tokens", None)
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
        raise ConfigError("max_new_tokens", most, "give a whole number from 1 on")
    _check(given)
    return GenerationDefaults(given, most)


def _read(file: Path) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(file.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError("generation_config", str(file), f"cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError("generation_config", str(file), "must hold an object")
    return found


def _check(given: Mapping[str, Any]) -> None:
    params = GenerationParams(**given)
    try:
        own_sampling_params("defaults", params)
        check_generation_params("defaults", params)
    except RequestError as error:
        fix = f"{error.fix}; it is a default of the model's: mend it by --override-generation-config"
        raise ConfigError(error.field, error.value, fix) from None


# ---------------------------------------------------------------------------------------------------------------------
# What a generation has brought: records with the fields of vLLM's ``RequestOutput`` and ``CompletionOutput``.


class Logprob(NamedTuple):
    """One token that could have stood at a position."""

    logprob: float
    """Natural logarithm of its probability."""
    rank: int | None
    """Its place in the vocabulary by probability, 1 the likeliest."""
    decoded_token: str
    """Its text; U+FFFD where it is a piece of a character."""


class CompletionOutput(msgspec.Struct, frozen=True, kw_only=True):
    """One answer, or the part of it that is new."""

    index: int
    """Which of the ``n`` answers."""
    text: str
    token_ids: Sequence[int]
    """All tokens, those of a stop string and of the end included."""
    cumulative_logprob: float | None = None
    """Sum over all tokens of the answer; None if ``logprobs`` were not asked for."""
    logprobs: Sequence[dict[int, Logprob]] | None = None
    """One per token of ``token_ids``: the token itself and the likeliest ones, by token id."""
    finish_reason: str | None = None
    """``stop``, ``length``, ``abort``, ``error``, ``repetition``; None: it has not ended."""
    stop_reason: int | str | None = None
    """The stop string, or the stop token, that ended it."""

    @property
    def finished(self) -> bool:
        """Whether it has ended."""
        return self.finish_reason is not None


class EmbeddingOutput(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt and its vector."""

    request_id: str
    prompt: str | None
    """Its text; None if token ids were given."""
    prompt_token_ids: Sequence[int]
    embedding: npt.NDArray[np.floating]
    """Shape ``[hidden size]``."""
    num_cached_tokens: int = 0
    """Prompt tokens that were in the prefix cache."""


class GenerationOutput(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt and its answers (vLLM's ``RequestOutput``)."""

    request_id: str
    prompt: str | None
    """Its text; None if token ids were given."""
    prompt_token_ids: Sequence[int]
    outputs: Sequence[CompletionOutput]
    """The answers; of a stream of deltas, those with news."""
    finished: bool
    """All answers have ended."""
    num_cached_tokens: int = 0
    """Prompt tokens that were in the prefix cache."""
    prompt_logprobs: Sequence[dict[int, Logprob] | None] | None = None
    """One per prompt token, the first None; None if they were not asked for, or are not complete."""
    kv_transfer_params: Mapping[str, object] | None = None
    """What the client has to hand to the engine that goes on with the request; None: nothing."""


# ---------------------------------------------------------------------------------------------------------------------
# Prompts as callers give them: text, token ids, or vLLM's dictionaries of either.

Prompt = str | Sequence[int] | Mapping[str, object]
"""Text, token ids, ``{"prompt": text}`` or ``{"prompt_token_ids": ids}``."""


class TokenizedPrompt(NamedTuple):
    """A prompt, ready for the scheduler."""

    text: str | None
    token_ids: Sequence[int]


def tokenized(
    request_id: str, prompt: Prompt, tokenizer: TextTokenizer | None, *, add_special_tokens: bool = True
) -> TokenizedPrompt:
    """The token ids of a prompt. Raises RequestError; whether the ids can be, the request itself checks."""
    if isinstance(prompt, Mapping):
        known = [name for name in ("prompt_token_ids", "prompt") if name in prompt]
        if len(known) != len(prompt) or not known:
            fix = 'give {"prompt": text} or {"prompt_token_ids": ids}, and nothing else'
            raise RequestError(request_id, "prompt", dict(prompt), fix)
        given: object = prompt[known[0]]
        text = prompt.get("prompt")
        if known == ["prompt_token_ids", "prompt"] and isinstance(text, str) and not isinstance(given, str):
            return TokenizedPrompt(text, _ids(request_id, given))
    else:
        given = prompt
    if not isinstance(given, str):
        return TokenizedPrompt(None, _ids(request_id, given))
    if tokenizer is None:
        raise RequestError(request_id, "prompt", given, "the engine has no tokenizer: give token ids")
    try:
        given.encode()
    except UnicodeEncodeError:
        fix = "holds a lone surrogate, half of a character: give both halves or none"
        raise RequestError(request_id, "prompt", given, fix) from None
    return TokenizedPrompt(given, tokenizer.encode(given, add_special_tokens=add_special_tokens))


def _ids(request_id: str, given: object) -> Sequence[int]:
    if isinstance(given, bytes) or not isinstance(given, Sequence):
        raise RequestError(request_id, "prompt", given, "give a text, or a list of token ids")
    return given
