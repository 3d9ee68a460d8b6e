"""What keeps ``vllm serve`` from starting, as far as its flags and sizes tell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tokenyard.errors import ConfigError, NoStartError

__all__ = ["check_length", "check_limits", "check_room", "no_start"]


def check_limits(
    *,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    max_model_len: int,
    enable_chunked_prefill: bool,
    long_prefill_token_threshold: int,
) -> None:
    """Raise NoStartError for limits of a step that contradict each other."""
    tokens = max_num_batched_tokens
    if not enable_chunked_prefill and tokens < max_model_len:
        raise NoStartError(
            f"max_num_batched_tokens = {tokens} is less than max_model_len = {max_model_len}, and without chunked "
            "prefill a step has to hold a whole prompt: raise the one or lower the other"
        )
    if tokens < max_num_seqs:
        raise NoStartError(
            f"max_num_batched_tokens = {tokens} is less than max_num_seqs = {max_num_seqs}: every running "
            "request needs a token of each step; raise the one or lower the other"
        )
    if long_prefill_token_threshold > max_model_len:
        raise NoStartError(
            f"long_prefill_token_threshold = {long_prefill_token_threshold} is more than "
            f"max_model_len = {max_model_len}"
        )


def check_length(max_model_len: int, known: int, model: str) -> None:
    """Raise NoStartError for a length beyond the one that the model was made for."""
    if max_model_len > known:
        raise NoStartError(
            f"max_model_len = {max_model_len} is more than the {known} tokens that {model} was made for "
            "(VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 allows it, in the environment or in front of a --serve line)"
        )


def check_room(model: str, gpu: str, usable: int, weights: int, to_run: int, gpus: int) -> None:
    """Raise NoStartError if weights and a step leave no memory for KV; all in bytes, on each of so many ``gpus``."""
    if usable <= weights + to_run:
        raise NoStartError(
            f"{model} needs {_gib(weights)} for weights and {_gib(to_run)} to run, and {_gib(usable)} of {gpu} are "
            f"usable: raise tensor_parallel_size ({gpus}), or take a larger GPU"
        )


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / (1 << 30):.1f} GiB"


@contextmanager
def no_start() -> Iterator[None]:
    """Within it, a setting that cannot work is what keeps vLLM from starting."""
    try:
        yield
    except ConfigError as error:
        raise NoStartError(str(error).replace("vLLM would not start: ", "")) from None
