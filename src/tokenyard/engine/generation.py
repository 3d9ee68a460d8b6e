"""What is asked of a generation beyond tokens: several answers, stop strings, text; and to what it belongs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, NamedTuple

from tokenyard.errors import RequestError
from tokenyard.params import SamplingParams

__all__ = [
    "GenerationParams",
    "OutputKind",
    "StructuredOutputsParams",
    "Turn",
    "check_generation_params",
    "check_num_samples",
    "params_of_sample",
]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredOutputsParams:
    """What an answer must look like: one of these (vLLM's names)."""

    json: Mapping[str, Any] | str | None = None
    """A JSON schema."""
    regex: str | None = None
    choice: Sequence[str] | None = None
    """One of these texts."""
    grammar: str | None = None
    """In Lark."""
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
    """To what a generation belongs, and how it is served."""

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


def check_num_samples(request_id: str, n: Any) -> None:
    """Raise RequestError for a number of answers that nobody gets."""
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
    if params.output_kind not in tuple(OutputKind):
        raise RequestError(request_id, "output_kind", params.output_kind, f"use one of: {', '.join(OutputKind)}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def params_of_sample(params: GenerationParams, index: int) -> GenerationParams:
    """What sample ``index`` is drawn with: seeds count up from the one given, so that samples differ."""
    return params if params.seed is None or not index else replace(params, seed=params.seed + index)
