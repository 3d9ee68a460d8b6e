"""From the fields of a request to what the engine is asked."""

from __future__ import annotations

from typing import Any

from tokenyard.engine.generation import GenerationParams, OutputKind, Turn
from tokenyard.engine.generation_config import GenerationDefaults
from tokenyard.server.openai.errors import bad_field
from tokenyard.server.openai.fields import GenerationRequest

__all__ = ["generation_params", "turn_of"]

_AS_THEY_ARE = (
    *("n", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"),
    *("seed", "min_tokens", "ignore_eos", "include_stop_str_in_output", "skip_special_tokens"),
)
_OF_A_TURN = ("job_id", "is_last_step", "this_func_call")


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


def turn_of(request: GenerationRequest) -> Turn:
    """To which agent's job it belongs, said directly or in ``vllm_xargs``. Raises ApiError."""
    named = dict(request.vllm_xargs or {})
    unknown = named.keys() - set(_OF_A_TURN)
    if unknown:
        name = min(unknown)
        raise bad_field(f"vllm_xargs.{name}", named[name], f"use one of {', '.join(_OF_A_TURN)}, or leave it out")
    for name in _OF_A_TURN:
        value = getattr(request, name)
        if value is not None:
            named[name] = value
    job, last, tool = (named.get(name) for name in _OF_A_TURN)
    if last not in (None, True, False, 0, 1, "true", "false"):
        raise bad_field("is_last_step", last, "give true or false")
    if tool is not None and not isinstance(tool, str):
        raise bad_field("this_func_call", tool, "give the tool's name as text")
    if job is not None and not isinstance(job, str | int):
        raise bad_field("job_id", job, "give a text")
    return Turn(
        priority=request.priority or 0,
        cache_salt=request.cache_salt,
        job_id=None if job is None else str(job),
        is_last_step=last in (True, 1, "true"),
        this_func_call=tool,
    )
