"""Whether a request can be served at all: asked once, when it is added, so that nothing waits for ever."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import NamedTuple

from tokenyard.config import GroupKind, SchedulerConfig
from tokenyard.errors import TOO_LONG, ConfigError, RequestError
from tokenyard.kv.manager import KVCacheManager
from tokenyard.request import Request
from tokenyard.sched.features.encoder import CrossEncoderInputs, EncoderInputs

__all__ = [
    "PaddedAdmission",
    "check_encodable",
    "check_is_request",
    "check_lengths",
    "check_padded",
    "check_servable",
    "most_blocks_of",
    "request_ids_of",
]


def check_is_request(request: object) -> None:
    """Raise ConfigError unless ``request`` is a Request."""
    if not isinstance(request, Request):
        raise ConfigError("request", request, "give a Request")


def request_ids_of(request_ids: str | Iterable[str]) -> tuple[str, ...]:
    """One id or several, as a tuple; ConfigError for what is neither."""
    try:
        ids = (request_ids,) if isinstance(request_ids, str) else tuple(request_ids)
    except TypeError:
        ids = (None,)  # type: ignore[assignment]  # refused below
    if not all(isinstance(each, str) for each in ids):
        raise ConfigError("request_ids", request_ids, "give a request id, or several")
    return ids


def check_servable(
    request: Request,
    unfinished: Container[str],
    config: SchedulerConfig,
    kv: KVCacheManager,
    num_lookahead_tokens: int = 0,
) -> None:
    """Raise RequestError for a duplicate id, a used request, a prompt too long, or a request that could never end.

    vLLM accepts a request that the pool can never hold, and waits for ever (its issue 39734).
    """
    rid, limit = request.request_id, config.max_model_len
    if rid in unfinished:
        raise RequestError(rid, "request_id", rid, "an unfinished request has this id: choose another")
    if request.status.is_finished or request.slot >= 0:
        raise RequestError(rid, "status", request.status.name, "add a fresh request")
    encoder_tokens = sum(item.num_embeds for item in request.mm_features if item.cross)
    check_lengths(
        rid,
        request.num_prompt_tokens,
        request.max_tokens,
        config=config,
        kv=kv,
        num_lookahead_tokens=num_lookahead_tokens,
        encoder_tokens=encoder_tokens,
    )
    room, least = limit - request.num_prompt_tokens, request.sampling_params.min_tokens
    if least > room:
        # No stop condition is looked at before min_tokens, max_model_len included: it would never end.
        fix = f"max_model_len ({limit}) leaves room for {room} output tokens"
        raise RequestError(rid, "min_tokens", least, fix, code=TOO_LONG)


def check_lengths(
    rid: str,
    num_prompt_tokens: int,
    max_tokens: int,
    *,
    config: SchedulerConfig,
    kv: KVCacheManager,
    num_lookahead_tokens: int = 0,
    encoder_tokens: int = 0,
) -> None:
    """Raise RequestError for a prompt that the model or the pool can never hold; the tokens themselves play no part."""
    limit = config.max_model_len
    if num_prompt_tokens >= limit:
        length = f"{num_prompt_tokens} tokens"
        fix = f"the prompt must be shorter than max_model_len ({limit})"
        raise RequestError(rid, "prompt_token_ids", length, fix, code=TOO_LONG)

    def most_blocks(num_output_tokens: int) -> int:
        length = num_prompt_tokens + num_output_tokens
        return most_blocks_of(length, config, kv, num_lookahead_tokens, encoder_tokens)

    needed, usable = most_blocks(max_tokens), kv.num_usable_blocks
    if needed > usable:
        less = "lower max_tokens" if most_blocks(1) <= usable else "shorten the prompt"
        raise RequestError(
            rid,
            "max_tokens",
            max_tokens,
            f"prompt ({num_prompt_tokens}) and output can need {needed} blocks and the pool has {usable} (one more is"
            f" the null block): {less}, or raise num_gpu_blocks ({usable + 1}) to {needed + 1}",
        )


def most_blocks_of(
    length: int, config: SchedulerConfig, kv: KVCacheManager, num_lookahead_tokens: int = 0, encoder_tokens: int = 0
) -> int:
    """Blocks that a request of ``length`` tokens, prompt and output, can need at once."""
    limit = config.max_model_len
    # The last sampled token is never computed, so it needs no place; lookahead slots come on top.
    longest = min(min(length, limit) - 1 + num_lookahead_tokens, limit)
    return kv.most_blocks(longest, encoder_tokens, at_once=config.scheduler_reserve_full_isl)


class PaddedAdmission(NamedTuple):
    """How a request with one token to compute is admitted: with placeholder drafts, or not at all."""

    num_tokens: int
    """The token and the placeholders."""
    unit: int
    """Computed tokens of a prefix hit are a multiple of this."""


def check_padded(
    request: Request, padded: PaddedAdmission | None, config: SchedulerConfig, kv: KVCacheManager, num_lookahead: int
) -> None:
    """Raise RequestError if a prefix hit can leave the request one token, and the pool never holds its placeholders.

    vLLM 0.33 accepts it and waits for ever. Only groups that forget nothing are counted: what others hold depends on
    the step.
    """
    if padded is None:
        return
    limit, prompt = config.max_model_len, request.num_prompt_tokens
    known = min(prompt + max(request.max_tokens, 1), limit) - 1
    computed = min(known - 1, limit - padded.num_tokens - 1) // padded.unit * padded.unit
    if computed < max(prompt - 1, 1):
        return
    reach = min(computed + padded.num_tokens + num_lookahead, limit)
    groups = zip(kv.config.groups, kv.config.group_block_sizes, strict=True)
    needed = sum(-(-reach // size) for group, size in groups if group.kind is GroupKind.FULL)
    if needed > (usable := kv.num_usable_blocks):
        fix = (
            f"with {computed} tokens found in the cache and {padded.num_tokens - 1} placeholder drafts it can need"
            f" {needed} blocks, and the pool has {usable}: lower max_tokens or num_speculative_tokens, or raise"
            f" num_gpu_blocks ({usable + 1}) to {needed + 1}"
        )
        raise RequestError(request.request_id, "max_tokens", request.max_tokens, fix)


def check_encodable(request: Request, encoder: EncoderInputs | None) -> None:
    """Raise RequestError for a multi-modal item that no step could ever compute."""
    is_cross = isinstance(encoder, CrossEncoderInputs)
    for item in request.mm_features:
        if item.cross is not is_cross:
            fix = "an encoder-decoder model reads all items by cross attention, and no other does"
            raise RequestError(request.request_id, "mm_features.cross", item.cross, fix)
    if encoder is None:
        return
    _check_sizes(request, encoder)
    if is_cross:
        _check_cross(request, encoder)
        return
    most = min(encoder.budget, encoder.cache.size)
    for item in request.mm_features:
        if item.num_embeds > most:
            raise RequestError(
                request.request_id,
                "mm_features",
                item.mm_hash,
                f"the item has {item.num_embeds} embeddings and a step can compute and keep {most}: raise"
                " max_num_encoder_input_tokens and encoder_cache_size",
            )
        if encoder.never_whole(item):
            raise RequestError(
                request.request_id,
                "mm_features",
                item.mm_hash,
                f"the item has {item.length} placeholders, which never fit the tokens of one step:"
                " raise max_num_batched_tokens and long_prefill_token_threshold, or allow chunked items",
            )
        together = encoder.embeds_needed_with(request, item)
        if together > encoder.most_together:
            raise RequestError(
                request.request_id,
                "mm_features",
                item.mm_hash,
                f"the item is needed together with others, {together} embeddings in all, and {encoder.most_together}"
                " can be had at once: raise encoder_cache_size (and max_num_encoder_input_tokens)",
            )


def _check_sizes(request: Request, encoder: EncoderInputs) -> None:
    """Outputs are shared by content hash, so items of one hash have one size."""
    for item in request.mm_features:
        size = encoder.size_of(item.mm_hash)
        if size is not None and size != item.num_embeds:
            fix = (
                f"another item with this hash has {size} embeddings, and this one {item.num_embeds}: outputs are shared"
                " by hash, so give different contents different hashes"
            )
            raise RequestError(request.request_id, "mm_features.mm_hash", item.mm_hash, fix)


def _check_cross(request: Request, encoder: EncoderInputs) -> None:
    """All inputs of an encoder-decoder model are computed before the first decoder token."""
    if request.resumable:
        raise RequestError(request.request_id, "resumable", value=True, fix="an encoder-decoder model has no sessions")
    total, most = sum(item.num_embeds for item in request.mm_features), min(encoder.budget, encoder.cache.size)
    if total > most:
        fix = f"a step computes and keeps at most {most}: raise max_num_encoder_input_tokens and encoder_cache_size"
        raise RequestError(request.request_id, "mm_features", f"{total} embeddings", fix)
