"""Whether a request, or a set of settings, can be served at all: asked once, before anything is queued."""

from __future__ import annotations

from collections.abc import Container, Iterable

import msgspec

from tokenyard.core.config import CacheConfig, GroupKind, MambaCacheMode, SchedulerConfig, SpeculativeConfig
from tokenyard.core.kv.manager import KVCacheManager
from tokenyard.core.profiles import DecisionProfile
from tokenyard.core.request import Request
from tokenyard.errors import TOO_LONG, ConfigError, RequestError

# ---------------------------------------------------------------------------------------------------------------------
# Whether a request can be served at all: asked once, when it is added, so that nothing waits for ever.


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
    least = request.sampling_params.min_tokens if config.profile.min_tokens_bar_stops else 0
    longest = request.max_tokens
    if request.ends_after is not None:
        if isinstance(request.ends_after, bool) or not isinstance(request.ends_after, int):
            raise RequestError(rid, "ends_after", request.ends_after, "give a number of output tokens, or leave it out")
        # One more: a step may be in flight when the last token comes.
        longest = min(longest, max(request.ends_after, least) + 1)
    check_lengths(
        rid,
        request.num_prompt_tokens,
        longest,
        config=config,
        kv=kv,
        num_lookahead_tokens=num_lookahead_tokens,
        encoder_tokens=encoder_tokens,
    )
    room = limit - request.num_prompt_tokens
    if least > room:
        # No stop condition is looked at before min_tokens, max_model_len included: it would never end.
        fix = f"§max_model_len ({limit}) leaves room for {room} output tokens"
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
        fix = f"the prompt must be shorter than §max_model_len ({limit})"
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
            f" the null block): {less}, or raise §num_gpu_blocks ({usable + 1}) to {needed + 1}",
        )


def most_blocks_of(
    length: int, config: SchedulerConfig, kv: KVCacheManager, num_lookahead_tokens: int = 0, encoder_tokens: int = 0
) -> int:
    """Blocks that a request of ``length`` tokens, prompt and output, can need at once."""
    # The last sampled token is never computed, so it needs no place.
    longest = kv.reach(min(length, config.max_model_len) - 1, num_lookahead_tokens)
    return kv.most_blocks(longest, encoder_tokens, at_once=config.scheduler_reserve_full_isl)


class PaddedAdmission(msgspec.Struct, frozen=True):
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
    reach = kv.reach(computed + padded.num_tokens, num_lookahead)
    groups = zip(kv.config.groups, kv.config.group_block_sizes, strict=True)
    needed = sum(-(-reach // size) for group, size in groups if group.kind is GroupKind.FULL)
    if needed > (usable := kv.num_usable_blocks):
        fix = (
            f"with {computed} tokens found in the cache and {padded.num_tokens - 1} placeholder drafts it can need"
            f" {needed} blocks, and the pool has {usable}: lower max_tokens or §num_speculative_tokens, or raise"
            f" §num_gpu_blocks ({usable + 1}) to {needed + 1}"
        )
        raise RequestError(request.request_id, "max_tokens", request.max_tokens, fix)


# ---------------------------------------------------------------------------------------------------------------------
# Settings of the scheduler and of the cache that do not go together: refused when the scheduler is made.


def has_cross_attention(cache: CacheConfig) -> bool:
    """The model is an encoder-decoder."""
    return any(group.kind is GroupKind.CROSS_ATTENTION for group in cache.groups)


def splits_at_blocks(cache: CacheConfig) -> bool:
    """Prefill has to end where blocks do."""
    has_mamba = any(group.kind is GroupKind.MAMBA for group in cache.groups)
    return has_mamba and cache.mamba_cache_mode is MambaCacheMode.ALIGN


def check_settings(
    config: SchedulerConfig, cache: CacheConfig, spec: SpeculativeConfig | None, *, has_connector: bool
) -> None:
    """Raise ConfigError for what vLLM asserts, what it would do wrong, or where it would never go on."""
    _check_states(config.profile, cache)
    if spec is not None:
        _check_drafts(config, spec, has_hits=cache.enable_prefix_caching or has_connector)
    if splits_at_blocks(cache):
        _check_split(config, cache.block_size, _draft_slots(config, spec), has_connector=has_connector)
    if config.enable_return_routed_experts and cache.context_parallel_size > 1:
        fix = "routed experts are kept per block of one rank: use one rank"
        raise ConfigError("enable_return_routed_experts", value=True, fix=fix)
    if has_cross_attention(cache):
        _check_encoder_decoder(config, has_connector=has_connector)


def _check_states(profile: DecisionProfile, cache: CacheConfig) -> None:
    if all(group.kind is not GroupKind.MAMBA for group in cache.groups):
        return
    if cache.mamba_cache_mode is MambaCacheMode.ALL and not profile.mamba_mode_all:
        fix = f"vLLM {profile.vllm_version} has no such mode: use align"
        raise ConfigError("mamba_cache_mode", str(cache.mamba_cache_mode), fix)
    if (
        profile.chunks_end_where_blocks_do
        and splits_at_blocks(cache)
        and min(cache.shared_block_sizes) < cache.block_size
    ):
        fix = (
            f"hits within a block of a state, which vLLM {profile.vllm_version} has, are not modelled: use equal sizes"
        )
        raise ConfigError("groups", sorted(cache.group_block_sizes), fix)


def _check_drafts(config: SchedulerConfig, spec: SpeculativeConfig, *, has_hits: bool) -> None:
    """A step must be able to hold what one request needs at least.

    A prefix hit can leave one token to compute, which is admitted with placeholder drafts or not at all.
    """
    padding = spec.num_speculative_tokens if config.profile.idle_admission_pads and has_hits else 0
    if config.max_num_batched_tokens < (least := 1 + padding + _draft_slots(config, spec)):
        fix = f"a request can need {least} tokens in one step, its drafts included, and would wait for ever: raise it"
        raise ConfigError("max_num_batched_tokens", config.max_num_batched_tokens, fix)


def _draft_slots(config: SchedulerConfig, spec: SpeculativeConfig | None) -> int:
    """Return the tokens of a step's budget that a request's drafts take beside those it computes."""
    return spec.num_draft_slots if spec is not None and config.profile.drafts_take_input_slots else 0


def _check_split(config: SchedulerConfig, block_size: int, draft_slots: int, *, has_connector: bool) -> None:
    why = "mamba_cache_mode align ends prefill steps where blocks end"
    budget, cuts_blocks = config.max_num_batched_tokens, config.profile.chunks_end_at_states
    # A block that no step holds is computed in parts; one that drafts leave no room for is waited for.
    if budget < block_size + draft_slots and not (cuts_blocks and budget < block_size):
        drafts = f" and {draft_slots} slots of drafts" if draft_slots else ""
        fix = f"{why}: a step must hold a block ({block_size} tokens){drafts}"
        raise ConfigError("max_num_batched_tokens", config.max_num_batched_tokens, fix)
    if 0 < config.long_prefill_token_threshold < block_size and not cuts_blocks:
        fix = f"{why}: give 0 or at least a block ({block_size} tokens)"
        raise ConfigError("long_prefill_token_threshold", config.long_prefill_token_threshold, fix)
    if not config.enable_chunked_prefill:
        raise ConfigError("enable_chunked_prefill", value=False, fix=f"{why}: allow chunks")
    if config.disable_chunked_mm_input:
        raise ConfigError("disable_chunked_mm_input", value=True, fix=f"{why}: allow parts of multi-modal items")
    if has_connector:
        raise ConfigError("kv_connector", "one", f"{why}, and a connector's tokens end anywhere: use none")


def _check_encoder_decoder(config: SchedulerConfig, *, has_connector: bool) -> None:
    why = "an encoder-decoder model computes a prompt at once, with the encoder's whole output"
    if config.enable_chunked_prefill:
        raise ConfigError("enable_chunked_prefill", value=True, fix=f"{why}: turn it off")
    if config.long_prefill_token_threshold:
        raise ConfigError("long_prefill_token_threshold", config.long_prefill_token_threshold, f"{why}: give 0")
    if not config.max_num_encoder_input_tokens:
        raise ConfigError("max_num_encoder_input_tokens", 0, "an encoder-decoder model needs an encoder budget")
    if has_connector:
        raise ConfigError("kv_connector", "one", "is not supported for encoder-decoder models: use none")
