"""Settings of the scheduler and the KV cache: frozen, keyword-only, validated once when made.

Names are vLLM's. A configuration made by hand is not a deployment: ``vllm serve`` chooses several of these values by
model and GPU, and :func:`hand_made_defaults` tells which of them stand at a default of this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from enum import IntEnum, StrEnum
from typing import Any

from tokenyard.core.profiles import NEWEST, DecisionProfile
from tokenyard.errors import ConfigError
from tokenyard.quick_dataclass import dataclass
from tokenyard.vocabulary import is_known_policy, policy_hint

MAX_COUNT = 2**31 - 1
"""Largest count any setting accepts: block ids and token ids are 32-bit."""

MAX_BLOCKS = 1 << 24
"""Largest pool: 268 million tokens in blocks of 16, terabytes of KV; the bookkeeping alone takes gigabytes."""

MAX_SEQS = 1 << 20
"""Most rows of the request table."""

MAX_DRAFTS = 1024
"""Most draft tokens of a request in a step."""


class HashAlgo(StrEnum):
    """How a full block's tokens are hashed (``--prefix-caching-hash-algo``)."""

    SHA256 = "sha256"
    XXH3_128 = "xxh3_128"


class SpeculativeMethod(StrEnum):
    """Where draft tokens come from, as far as scheduling can tell the methods apart."""

    NGRAM = "ngram"
    """Looked up in the text: needs no KV of its own."""
    NGRAM_GPU = "ngram_gpu"
    EAGLE = "eagle"
    """A head on the target model: needs KV slots for its lookahead and the last matched block recomputed."""
    DRAFT_MODEL = "draft_model"
    """A small model with a KV cache of its own: needs KV slots for its lookahead."""


class PauseState(IntEnum):
    """What a paused scheduler still does."""

    UNPAUSED = 0
    PAUSED_NEW = 1
    """Running requests go on, none is admitted."""
    PAUSED_ALL = 2
    """Nothing is scheduled."""


def require_int(field: str, value: object, low: int, high: int = MAX_COUNT) -> None:
    """Raise ConfigError unless ``value`` is an int (not a bool) within ``low..high``."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(field, value, "give a whole number")
    if not low <= value <= high:
        raise ConfigError(field, value, f"give a whole number from {low} to {high}")


def require_limit(field: str, value: object) -> None:
    """Raise ConfigError unless ``value`` may be a ``max_num_seqs``, ``max_num_batched_tokens`` or ``max_model_len``."""
    require_int(field, value, 1, MAX_SEQS if field == "max_num_seqs" else MAX_COUNT)


def require_fraction(field: str, value: object) -> None:
    """Raise ConfigError unless ``0 <= value <= 1``."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ConfigError(field, value, "give a number from 0 to 1")


def require_bool(field: str, value: object) -> None:
    """Raise ConfigError unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise ConfigError(field, value, "give true or false")


def require_counts(of: object, *bools: str, **lows: int) -> None:
    """Raise ConfigError unless each named field of an object is a whole number from its low on, or true or false."""
    for field in bools:
        require_bool(field, getattr(of, field))
    for field, low in lows.items():
        require_int(field, getattr(of, field), low)


def _require_bools(config: KVCacheGroup | CacheConfig | SchedulerConfig) -> None:
    """Raise ConfigError for a field declared as a bool that holds something else."""
    for field in fields(config):
        if field.type == "bool":
            require_bool(field.name, getattr(config, field.name))


def _require_member(config: object, field: str, kind: type[StrEnum]) -> None:
    """Make the field a member of ``kind``, whose value may be given in its place; else raise ConfigError."""
    given = getattr(config, field)
    if given not in tuple(kind):
        raise ConfigError(field, given, f"use one of: {', '.join(kind)}")
    object.__setattr__(config, field, kind(given))


def settings_for(config: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The given values for which ``config`` has a field: what else is given belongs to other parts."""
    return {field.name: given[field.name] for field in fields(config) if field.name in given}


def _short(config: KVCacheGroup | CacheConfig | SchedulerConfig | SpeculativeConfig) -> str:
    """The config with what differs from its defaults, as one would write it."""
    given = [(field, getattr(config, field.name)) for field in fields(config)]
    shown = [
        f"{field.name}={str(value)!r}" if isinstance(value, StrEnum) else f"{field.name}={value!r}"
        for field, value in given
        if field.default is MISSING or value != field.default
    ]
    return f"{type(config).__name__}({', '.join(shown)})"


class GroupKind(StrEnum):
    """Attention type of a group of layers."""

    FULL = "full"
    SLIDING_WINDOW = "sliding_window"
    CHUNKED_LOCAL = "chunked_local"
    MAMBA = "mamba"
    """State-space or linear attention: a state after each block instead of KV of every position."""
    CROSS_ATTENTION = "cross_attention"
    """Decoder layers that read an encoder's output: blocks for its tokens, taken once."""
    CIRCULAR_BUFFER = "circular_buffer"
    """What is still being compressed of a request's last tokens: one block of its own, as long as it runs."""


class MambaCacheMode(StrEnum):
    """Which states of a Mamba layer are kept for prefix hits (``--mamba-cache-mode``)."""

    NONE = "none"
    """None: the state of the last token only. Without prefix caching, and only then."""
    ALL = "all"
    """The state after every block."""
    ALIGN = "align"
    """The state at the end of a step; prefill is split so that steps end where blocks do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCacheGroup:
    """Layers that share a block table."""

    kind: GroupKind = GroupKind.FULL
    """Attention type of the layers."""
    block_size: int = 0
    """Tokens per block (0: the cache's)."""
    window: int = 0
    """Tokens of the sliding window or of a chunk."""
    is_eagle: bool = False
    """Belongs to an EAGLE head; if no group does, all are treated so."""

    def __repr__(self) -> str:
        """What differs from the defaults."""
        return _short(self)

    def __post_init__(self) -> None:
        _require_member(self, "kind", GroupKind)
        require_int("block_size", self.block_size, 0, 1 << 20)
        has_window = self.kind in (GroupKind.SLIDING_WINDOW, GroupKind.CHUNKED_LOCAL)
        require_int("window", self.window, 1 if has_window else 0)
        _require_bools(self)

    @property
    def shares_prefixes(self) -> bool:
        """Whether its blocks can be found again by another request."""
        return self.kind is not GroupKind.CIRCULAR_BUFFER


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """The paged KV cache."""

    num_gpu_blocks: int
    """Blocks in the pool, the null block (id 0) included. It has no default: it follows from model, GPU and flags."""
    block_size: int = 16
    """Tokens per KV block."""
    enable_prefix_caching: bool = True
    """Reuse the KV blocks of equal prompt prefixes."""
    prefix_caching_hash_algo: HashAlgo = HashAlgo.SHA256
    """Hash of a block. Decisions do not depend on it, so replays take the faster one; engines default to sha256."""
    hash_seed: str = ""
    """Seeds the hashes of blocks, so that equal runs give equal hashes; change it to separate caches."""
    enable_kv_cache_events: bool = False
    """Record what enters and leaves the prefix cache."""
    groups: tuple[KVCacheGroup, ...] = (KVCacheGroup(),)
    """KV-cache groups of the model: one full-attention group unless its layers differ."""
    mamba_cache_mode: MambaCacheMode = MambaCacheMode.NONE
    """Which states Mamba groups keep for prefix hits."""
    decode_context_parallel_size: int = 1
    """Ranks over which the KV of a sequence is spread in decode; a block then holds as many times its tokens."""
    prefill_context_parallel_size: int = 1
    """The same in prefill."""
    watermark: float = 0.0
    """Fraction of the blocks that admission leaves free; vLLM 0.22 has none."""
    # Only while something runs: an idle engine admits whatever fits.

    def __repr__(self) -> str:
        """What differs from the defaults."""
        return _short(self)

    def __post_init__(self) -> None:
        _require_bools(self)
        require_int("num_gpu_blocks", self.num_gpu_blocks, 1, MAX_BLOCKS)
        require_int("block_size", self.block_size, 1, 1 << 20)
        _require_member(self, "prefix_caching_hash_algo", HashAlgo)
        if not isinstance(self.hash_seed, str):
            raise ConfigError("hash_seed", self.hash_seed, "give a text")
        _require_member(self, "mamba_cache_mode", MambaCacheMode)
        require_fraction("watermark", self.watermark)
        if (
            not isinstance(self.groups, tuple | list)
            or not self.groups
            or not all(isinstance(group, KVCacheGroup) for group in self.groups)
        ):
            raise ConfigError("groups", self.groups, "give at least one KVCacheGroup")
        require_int("decode_context_parallel_size", self.decode_context_parallel_size, 1, 1 << 10)
        require_int("prefill_context_parallel_size", self.prefill_context_parallel_size, 1, 1 << 10)
        self._check_groups({group.kind for group in self.groups})

    def _check_groups(self, kinds: set[GroupKind]) -> None:
        """Raise ConfigError for groups that do not go together, or not with prefix caching."""
        sizes = sorted(set(self.group_block_sizes))
        if len(sizes) > 1 and GroupKind.CHUNKED_LOCAL in kinds:
            raise ConfigError("groups", sizes, "chunked local attention needs groups of one block size")
        if kinds == {GroupKind.CIRCULAR_BUFFER}:
            raise ConfigError("groups", self.groups, "circular buffers stand beside other groups: give one of those")
        ranks = self.context_parallel_size
        if ranks > 1 and (len(self.groups) > 1 or kinds != {GroupKind.FULL}):
            raise ConfigError(
                "decode_context_parallel_size", ranks, "context parallelism needs one full-attention group"
            )
        if GroupKind.CROSS_ATTENTION in kinds and self.enable_prefix_caching:
            fix = "an encoder-decoder model shares no prefixes: turn it off"
            raise ConfigError("enable_prefix_caching", value=True, fix=fix)
        if GroupKind.MAMBA in kinds:
            self._check_mamba()

    def _check_mamba(self) -> None:
        keeps_states = self.mamba_cache_mode is not MambaCacheMode.NONE
        if keeps_states != self.enable_prefix_caching:
            fix = "use all or align with prefix caching" if self.enable_prefix_caching else "use none without it"
            raise ConfigError("mamba_cache_mode", str(self.mamba_cache_mode), fix)
        if not keeps_states:
            return
        for group, size in zip(self.groups, self.group_block_sizes, strict=True):
            if group.kind is GroupKind.MAMBA and size != self.block_size:
                raise ConfigError("block_size", size, f"states are kept per block of the cache ({self.block_size})")

    @property
    def context_parallel_size(self) -> int:
        """Ranks that share the KV of one sequence."""
        return self.decode_context_parallel_size * self.prefill_context_parallel_size

    @property
    def tokens_per_block(self) -> int:
        """Tokens per block id where a group gives no size of its own."""
        return self.block_size * self.context_parallel_size

    @property
    def shared_block_sizes(self) -> tuple[int, ...]:
        """Tokens per block, by group, of those whose blocks can be found again."""
        pairs = zip(self.groups, self.group_block_sizes, strict=True)
        return tuple(size for group, size in pairs if group.shares_prefixes)

    @property
    def group_block_sizes(self) -> tuple[int, ...]:
        """Tokens per block id, for each group: all ranks of a context-parallel group hold a part of the block."""
        ranks = self.context_parallel_size
        return tuple((group.block_size or self.block_size) * ranks for group in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Limits and order of the scheduler."""

    profile: DecisionProfile = NEWEST
    """Which version of vLLM decides, as a set of switches: the newest known, or see :func:`decision_profile`."""

    max_num_seqs: int = 256
    """Most requests that run at the same time."""
    max_num_batched_tokens: int = 8192
    """Token budget of one step, prefill and decode together."""
    max_model_len: int = 8192
    """Most tokens (prompt + output) of one request."""
    policy: str = "fcfs"
    """Order of the waiting queue and choice of the preemption victim, by registered name or ``FILE.py:CLASS``."""
    enable_chunked_prefill: bool = True
    """Split a prompt that exceeds the rest of a step's budget."""
    long_prefill_token_threshold: int = 0
    """Most prompt tokens of one request in one step; 0 = no such limit."""
    scheduler_reserve_full_isl: bool = True
    """Admit a request only if its whole prompt fits the free blocks, not just its first chunk."""
    # After a preemption the whole prompt is everything known: what it has put out has to be computed again as well.
    async_scheduling: bool = False
    """Schedule a step before the outputs of the previous one are known (two steps in flight)."""
    pipeline_parallel_size: int = 1
    """Stages of consecutive layers, each of which computes one step at a time."""
    max_loras: int = 0
    """Most distinct LoRA adapters in one step (0 = no limit; vLLM: LoRA disabled)."""
    max_num_encoder_input_tokens: int = 0
    """Encoder embeddings computed in one step (0: a text model; multi-modal items only enter block hashes)."""
    encoder_cache_size: int = 0
    """Encoder embeddings kept (0: as many as one step computes)."""
    disable_chunked_mm_input: bool = False
    """Never compute part of a multi-modal item's placeholders in a step."""
    enable_return_routed_experts: bool = False
    """Tell clients which experts their tokens were routed to (mixture-of-experts models)."""
    count_common_prefix_blocks: bool = False
    """Have every step say how many leading blocks all its block holders share (for cascade attention)."""
    kv_load_failure_policy: str = "fail"
    """What happens to a request whose external KV failed to load: ``recompute`` or ``fail``."""
    skip_oversized_prefill: bool = False
    """With chunked prefill off: skip a prompt that exceeds the rest of the budget and try the next."""
    # vLLM before 0.22 did, and document 001 proposes it; vLLM 0.22 stops there.
    rolled_back_work_stays_cached: bool = True
    """Blocks and encoder outputs of a victim that this step had granted tokens, and now does not compute, stay in their
    caches (vLLM 0.22: later hits read what was never written); False forgets them."""

    def __repr__(self) -> str:
        """What differs from the defaults."""
        return _short(self)

    def __post_init__(self) -> None:
        _require_bools(self)
        if not isinstance(self.profile, DecisionProfile):
            raise ConfigError("profile", self.profile, f"give a DecisionProfile, for example {NEWEST!r}")
        for limit in ("max_num_seqs", "max_num_batched_tokens", "max_model_len"):
            require_limit(limit, getattr(self, limit))
        require_int("long_prefill_token_threshold", self.long_prefill_token_threshold, 0)
        require_int("pipeline_parallel_size", self.pipeline_parallel_size, 1, 1 << 10)
        require_int("max_loras", self.max_loras, 0)
        require_int("max_num_encoder_input_tokens", self.max_num_encoder_input_tokens, 0)
        require_int("encoder_cache_size", self.encoder_cache_size, 0)
        if self.kv_load_failure_policy not in ("recompute", "fail"):
            raise ConfigError("kv_load_failure_policy", self.kv_load_failure_policy, "use recompute or fail")
        if not isinstance(self.policy, str) or not self.policy:
            raise ConfigError("policy", self.policy, "give the name of a policy, for example fcfs")
        if not is_known_policy(self.policy):
            raise ConfigError("policy", self.policy, policy_hint(self.policy))
        if not self.enable_chunked_prefill and self.max_num_batched_tokens < self.max_model_len:
            raise ConfigError(
                "max_num_batched_tokens",
                self.max_num_batched_tokens,
                f"without chunked prefill it must be at least §max_model_len ({self.max_model_len})",
            )

    @property
    def max_steps_in_flight(self) -> int:
        """Steps that an engine has in flight: one per stage, and one to come where it schedules ahead."""
        stages = self.pipeline_parallel_size
        return stages + (self.async_scheduling and (stages == 1 or self.profile.decodes_go_round_stages))

    @property
    def steps_per_decode(self) -> int:
        """Steps from one decode of a request to its next: it goes round the stages, or 1."""
        return self.pipeline_parallel_size if self.async_scheduling and self.profile.decodes_go_round_stages else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeConfig:
    """Speculative decoding."""

    num_speculative_tokens: int
    """Most draft tokens per request and step."""
    method: SpeculativeMethod = SpeculativeMethod.NGRAM
    """Source of the drafts."""

    def __repr__(self) -> str:
        """What differs from the defaults."""
        return _short(self)

    def __post_init__(self) -> None:
        require_int("num_speculative_tokens", self.num_speculative_tokens, 1, MAX_DRAFTS)
        _require_member(self, "method", SpeculativeMethod)

    @property
    def use_eagle(self) -> bool:
        """Drop the last matched block of a prefix hit: its hidden states have to be computed."""
        return self.method is SpeculativeMethod.EAGLE

    @property
    def supports_async_scheduling(self) -> bool:
        """Drafts can stay at the workers, so that steps can be scheduled ahead of them."""
        return self.method is not SpeculativeMethod.NGRAM

    @property
    def num_draft_slots(self) -> int:
        """Input slots that the drafter adds to a batch for every request: one for a token that it reads unsliced."""
        return 1 if self.method is SpeculativeMethod.DRAFT_MODEL else 0

    @property
    def num_lookahead_tokens(self) -> int:
        """KV slots to keep beyond the scheduled tokens."""
        needs_kv = self.method in (SpeculativeMethod.EAGLE, SpeculativeMethod.DRAFT_MODEL)
        return self.num_speculative_tokens if needs_kv else 0


def async_scheduling_by_default(speculative: SpeculativeConfig | None) -> bool:
    """Whether vLLM schedules asynchronously on a GPU by itself: yes, unless drafts come from the text or from a
    draft model (0.22).
    """
    return speculative is None or speculative.method in (SpeculativeMethod.EAGLE, SpeculativeMethod.NGRAM_GPU)


_CHOSEN_BY_SERVE = {
    "profile": "the newest known",
    "max_num_batched_tokens": "`vllm serve` chooses it by GPU",
    "max_num_seqs": "`vllm serve` chooses it by GPU",
    "max_model_len": "`vllm serve` takes the model's",
    "async_scheduling": "`vllm serve` schedules a step ahead unless a feature forbids it",
}
"""Settings of the scheduler that a server has other values of, and why."""


def hand_made_defaults(config: SchedulerConfig) -> dict[str, str]:
    """The settings that ``vllm serve`` would choose by itself and that stand at this module's default, and why
    that is an assumption.
    """
    defaults = {field.name: field.default for field in fields(SchedulerConfig)}
    return {name: why for name, why in _CHOSEN_BY_SERVE.items() if getattr(config, name) == defaults[name]}
