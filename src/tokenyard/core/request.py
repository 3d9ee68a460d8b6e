"""The unit of work: a request, its status and its times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tokenyard.core.params import (
    MultiModalItem,
    PoolingParams,
    SamplingParams,
    TokenIds,
    check_embeds,
    check_grammar,
    check_id,
    check_items,
    check_texts,
    own_count,
    own_flag,
    own_mapping,
    own_moment,
    own_pooling_params,
    own_priority,
    own_sampling_params,
    own_seed,
    python_text,
    token_array,
)
from tokenyard.core.rows import NEVER, NO_TOKEN, Row, TokenRow
from tokenyard.errors import RequestError

if TYPE_CHECKING:
    from tokenyard.core.kv.hashing import PrefixHash
    from tokenyard.core.params import StructuredOutput

__all__ = [
    "TOKEN_BYTES",
    "BlockHash",
    "FinishReason",
    "MultiModalItem",
    "Request",
    "RequestStatus",
    "RequestTimes",
    "SamplingParams",
    "TokenIds",
]

BlockHash = bytes | int
"""What names the content of a block and of all before it: a digest, or a number where a replay makes no digests."""

TOKEN_BYTES = 4
"""Bytes of a token id, an int32, where tokens are kept or hashed."""


# ---------------------------------------------------------------------------------------------------------------------
# Where a request is in its life, and what its client is sent at the end.


class RequestStatus(IntEnum):
    """Where a request is in its life; everything after PREEMPTED is finished."""

    WAITING = 1
    WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR = 2
    WAITING_FOR_REMOTE_KVS = 3
    WAITING_FOR_STREAMING_REQ = 4
    RUNNING = 5
    PREEMPTED = 6
    FINISHED_STOPPED = 7
    FINISHED_LENGTH_CAPPED = 8
    FINISHED_ABORTED = 9
    FINISHED_IGNORED = 10
    FINISHED_ERROR = 11
    FINISHED_REPETITION = 12
    FINISHED_REJECTED = 13
    FINISHED_MOVED = 14

    @property
    def is_finished(self) -> bool:
        return self > RequestStatus.PREEMPTED

    @property
    def is_blocked(self) -> bool:
        """Waiting for something other than its turn."""
        return self in _BLOCKED


_BLOCKED = frozenset(
    (
        RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR,
        RequestStatus.WAITING_FOR_REMOTE_KVS,
        RequestStatus.WAITING_FOR_STREAMING_REQ,
    )
)


class FinishReason(StrEnum):
    """What the client is sent (the OpenAI words, as vLLM uses them)."""

    STOP = "stop"
    """The model ended it: end-of-sequence token, or a stop token."""
    LENGTH = "length"
    """It reached ``max_tokens`` or ``max_model_len``."""
    ABORT = "abort"
    """The client left, or the engine was paused."""
    ERROR = "error"
    """The engine could not go on with it."""
    REPETITION = "repetition"
    """Its output repeated itself."""
    REFUSED = "refused"
    """A policy rejected it: load is shed."""
    MOVED = "moved"
    """It goes on at another engine of its fleet."""

    @staticmethod
    def of(status: RequestStatus) -> FinishReason | None:
        """The reason that belongs to a finished status, or None."""
        return _FINISH_REASONS.get(status)


_FINISH_REASONS = {
    RequestStatus.FINISHED_STOPPED: FinishReason.STOP,
    RequestStatus.FINISHED_LENGTH_CAPPED: FinishReason.LENGTH,
    RequestStatus.FINISHED_ABORTED: FinishReason.ABORT,
    RequestStatus.FINISHED_IGNORED: FinishReason.LENGTH,
    RequestStatus.FINISHED_ERROR: FinishReason.ERROR,
    RequestStatus.FINISHED_REPETITION: FinishReason.REPETITION,
    RequestStatus.FINISHED_REJECTED: FinishReason.REFUSED,
    RequestStatus.FINISHED_MOVED: FinishReason.MOVED,
}


# ---------------------------------------------------------------------------------------------------------------------
# The unit of work: a request, its status, its sampling limits, its token stream, and how far it has come.


class RequestTimes:
    """Moments of a request's life in seconds on the scheduler's clock; None until they happen."""

    def __init__(self) -> None:
        self.first_scheduled: float | None = None
        self.first_token: float | None = None
        self.finished: float | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return _times, (self.first_scheduled, self.first_token, self.finished)


def _times(first_scheduled: float | None, first_token: float | None, finished: float | None) -> RequestTimes:
    times = RequestTimes()
    times.first_scheduled, times.first_token, times.finished = first_scheduled, first_token, finished
    return times


def _params_of(
    request_id: str, sampling: SamplingParams | None, pooling: PoolingParams | None
) -> tuple[SamplingParams, PoolingParams | None]:
    """When the request ends. A pooling request counts as one that stops after one token, and ends before it."""
    if pooling is None:
        return _USUAL_PARAMS if sampling is None else own_sampling_params(request_id, sampling), None
    pooling = own_pooling_params(request_id, pooling)
    if sampling is not None:
        raise RequestError(request_id, "sampling_params", sampling, "a pooling request samples nothing: leave it out")
    return SamplingParams(max_tokens=1, skip_reading_prefix_cache=pooling.skip_reading_prefix_cache), pooling


_USUAL_PARAMS = SamplingParams()


def _never_written(tokens: TokenIds) -> TokenIds:
    """The array itself if it cannot be written to, else a copy that cannot."""
    owner: object = tokens
    while isinstance(owner, np.ndarray) and not owner.flags.writeable:
        owner = owner.base
    if (owner is None or isinstance(owner, bytes)) and tokens.flags.c_contiguous:
        return tokens
    copy = np.array(tokens)
    copy.flags.writeable = False
    return copy


class Request:
    """One generation request, from arrival to its last token; counters are in tokens.

    The scheduler writes what stands below ``status``; everybody else reads.
    """

    request_id: str
    sampling_params: SamplingParams
    pooling_params: PoolingParams | None
    arrival_time: float
    arrives_when_added: bool
    priority: int
    mm_features: tuple[MultiModalItem, ...]
    prompt_embeds: npt.NDArray[np.generic] | None
    lora_name: str | None
    cache_salt: str | None
    job_id: str | None
    this_func_call: str | None
    resumable: bool
    is_last_step: bool
    ends_after: int | None
    predicted_output_tokens: int | None
    output_seed: int
    client_index: int
    trace_headers: Mapping[str, str] | None
    kv_transfer_params: Mapping[str, object] | None
    meta: Mapping[str, Any]
    structured_output: StructuredOutput | None
    has_extra_keys: bool
    """Something besides tokens enters its block hashes."""

    status: RequestStatus
    stop_reason: int | str | None
    times: RequestTimes
    num_prompt_tokens: int
    """Given at arrival."""
    num_tokens: int
    """Prompt and verified output."""
    num_computed_tokens: int
    """Positions whose KV is, or after the steps in flight will be, in the cache."""
    num_output_placeholders: int
    """Output tokens that steps in flight will bring (async scheduling)."""
    spec_token_ids: list[int]
    """Draft tokens to be verified in the next step; -1 stands for a draft only the worker knows."""
    num_cached_tokens: int
    """Prefix-cache hit when first scheduled; -1 before."""
    num_hit_tokens: int
    """Prefix-cache hit when last looked up, admitted then or not; -1 before."""
    num_external_computed_tokens: int
    num_preemptions: int
    shared_prefix_boundary: int
    """Tokens that it shares with others, where that is more than its last prefix hit; else 0."""
    async_steps_to_discard: int
    """Steps in flight whose output is stale (the request was reset meanwhile)."""
    is_prefill_chunk: bool
    """The last step that scheduled it left part of its known tokens uncomputed."""
    last_step: int
    """Number of the last step that scheduled it since it was admitted; -1: none."""
    num_scheduled: int
    """Tokens that the step being decided gives it."""

    stop_at: int
    """``num_tokens`` at which a length limit, or the end of a recorded answer, stops it."""
    max_total: int
    """Prompt and ``max_tokens``."""
    eos: int
    """Token that ends it, or NO_TOKEN."""
    looks_closer: bool
    """Further tokens, or repetition, may stop it."""

    slot: int
    """Row of a model runner's batch, as long as it holds blocks; -1: it holds none."""
    blocks: Row
    """Blocks that it holds in a cache of one group, in the order of its tokens."""
    first_new_block: int
    """Place of the first block that it has got in the step being decided."""
    num_published: int
    """Leading blocks that were offered to the prefix index."""
    publish_at: int
    """Tokens at which the next block can be found by others."""
    skip_at: int
    """Computed tokens at which a windowed group may free a block."""
    encoder_at: int
    """Position beyond which an encoder input has to be looked at first."""
    block_hashes: list[BlockHash]
    prefix_hash: PrefixHash | None
    """Where hashing goes on; None before the first block. Both belong to the block hasher."""
    given: TokenIds
    """Leading tokens, which are never written to: the prompt, and of a session what became prompt since."""
    num_given: int
    appended: TokenRow
    """Tokens behind them."""

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: Sequence[int] | TokenIds,
        sampling_params: SamplingParams | None = None,
        *,
        arrival_time: float | None = None,
        priority: int = 0,
        lora_name: str | None = None,
        cache_salt: str | None = None,
        mm_features: Sequence[MultiModalItem] = (),
        prompt_embeds: npt.NDArray[np.generic] | None = None,
        structured_output: StructuredOutput | None = None,
        resumable: bool = False,
        job_id: str | None = None,
        is_last_step: bool = False,
        this_func_call: str | None = None,
        output_seed: int = 0,
        client_index: int = 0,
        pooling_params: PoolingParams | None = None,
        trace_headers: Mapping[str, str] | None = None,
        kv_transfer_params: Mapping[str, object] | None = None,
        predicted_output_tokens: int | None = None,
        ends_after: int | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Make a request in status WAITING, or waiting for its grammar if it has ``structured_output``.

        ``arrival_time`` is in seconds on the scheduler's clock; None: the moment at which it is added.
        ``resumable`` opens a streaming-input session: a later request with the same id continues it.
        ``prompt_embeds`` has one row per prompt token; its bytes enter the block hashes.
        ``kv_transfer_params`` tell a KV connector where the request's KV is, or who will want it.
        ``job_id`` groups the turns of one agent; ``output_seed`` only means something to a simulated model.
        ``pooling_params`` make it a pooling request, which has no ``sampling_params`` and ends with its prompt.
        ``trace_headers`` come back with its outputs. ``predicted_output_tokens`` and ``meta`` are for policies and
        observers of your own: nothing else reads them. ``ends_after``: output tokens with which the answer ends by
        itself, as if the last were the end of the sequence, where no model says so (a replay). Raises RequestError if
        a field cannot work.
        """
        check_id(request_id)
        self.request_id = rid = str(request_id)
        prompt = token_array(rid, prompt_token_ids)
        self.sampling_params, self.pooling_params = _params_of(rid, sampling_params, pooling_params)
        self.arrival_time = 0.0 if arrival_time is None else own_moment(rid, arrival_time)
        self.arrives_when_added = arrival_time is None
        self.priority = own_priority(rid, priority)
        check_items(rid, mm_features, len(prompt))
        self.mm_features = tuple(sorted(mm_features, key=lambda item: item.offset))
        if prompt_embeds is not None:
            check_embeds(rid, prompt_embeds, len(prompt))
        self.prompt_embeds = prompt_embeds
        check_texts(rid, lora_name=lora_name, cache_salt=cache_salt, job_id=job_id, this_func_call=this_func_call)
        self.lora_name, self.cache_salt = python_text(lora_name), python_text(cache_salt)
        self.job_id, self.this_func_call = python_text(job_id), python_text(this_func_call)
        self.resumable = own_flag(rid, "resumable", resumable)
        self.is_last_step = own_flag(rid, "is_last_step", is_last_step)
        self.ends_after = None if ends_after is None else own_count(rid, "ends_after", ends_after, 1)
        predicted = predicted_output_tokens
        if predicted is not None:
            predicted = own_count(rid, "predicted_output_tokens", predicted, 0)
        self.predicted_output_tokens = predicted
        self.output_seed = own_seed(rid, "output_seed", output_seed)
        self.client_index = own_count(rid, "client_index", client_index, 0)
        self.trace_headers = own_mapping(rid, "trace_headers", trace_headers)
        self.kv_transfer_params = own_mapping(rid, "kv_transfer_params", kv_transfer_params)
        self.meta = own_mapping(rid, "meta", meta) or {}
        check_grammar(rid, structured_output)
        self.structured_output = structured_output
        self.has_extra_keys = bool(lora_name or cache_salt or mm_features or prompt_embeds is not None)
        self._begin(prompt)

    def _begin(self, prompt: TokenIds) -> None:
        """Stand before the first step: nothing is held, computed or said."""
        self.status = RequestStatus.WAITING
        if self.structured_output is not None:
            self.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        self.stop_reason = None
        self.times = RequestTimes()
        self.num_cached_tokens = self.num_hit_tokens = -1
        self.num_external_computed_tokens = self.num_preemptions = self.shared_prefix_boundary = 0
        self.block_hashes = []
        self.prefix_hash = None
        self.num_computed_tokens = self.num_output_placeholders = 0
        self.spec_token_ids = []
        self.async_steps_to_discard = 0
        self.is_prefill_chunk = False
        self.last_step = -1
        self.num_scheduled = 0
        self.slot = -1
        self.blocks = Row()
        self.first_new_block = self.num_published = 0
        self.publish_at = 0
        self.skip_at = self.encoder_at = NEVER
        self.replace_tokens(_never_written(prompt))

    # ---- token stream

    def replace_tokens(self, tokens: TokenIds) -> None:
        """Make these the prompt: at the beginning, and when a session goes on."""
        self.given = tokens
        self.num_given = self.num_prompt_tokens = self.num_tokens = len(tokens)
        self.appended = TokenRow()
        self.note_limits()

    def note_limits(self) -> None:
        """Work out from the sampling parameters when a token ends the request."""
        params = self.sampling_params
        max_tokens = params.max_tokens
        longest = max_tokens if self.ends_after is None else min(max_tokens, self.ends_after)
        self.max_total = self.num_prompt_tokens + max_tokens
        self.stop_at = self.num_prompt_tokens + longest
        self.eos = NO_TOKEN if params.ignore_eos or params.eos_token_id is None else params.eos_token_id
        self.looks_closer = bool(params.stop_token_ids) or params.repetition_detection is not None

    @property
    def max_tokens(self) -> int:
        return self.sampling_params.max_tokens

    @property
    def num_output_tokens(self) -> int:
        return self.num_tokens - self.num_prompt_tokens

    def append_token(self, token: int) -> None:
        """Append one output token."""
        self.appended.append(token)
        self.num_tokens += 1

    def token_slice(self, start: int, stop: int) -> TokenIds:
        """Return tokens ``start..stop-1`` as an int32 array that stays as it is; of the prompt it may be a view."""
        first = self.num_given
        if stop <= first or not self.appended.size:
            return self.given[start:stop]
        more = np.frombuffer(self.appended.part(max(start - first, 0), stop - first), np.int32)
        return more if start >= first else np.concatenate((self.given[start:], more))

    def token_bytes(self, start: int, stop: int) -> bytes:
        """Return tokens ``start..stop-1`` as native-endian int32 bytes."""
        first = self.num_given
        if start >= first:
            return self.appended.part(start - first, stop - first).tobytes()
        return self.token_slice(start, stop).tobytes()

    @property
    def prompt_token_ids(self) -> list[int]:
        tokens: list[int] = self.token_slice(0, self.num_prompt_tokens).tolist()
        return tokens

    @property
    def output_token_ids(self) -> list[int]:
        tokens: list[int] = self.token_slice(self.num_prompt_tokens, self.num_tokens).tolist()
        return tokens

    @property
    def all_token_ids(self) -> list[int]:
        tokens: list[int] = self.token_slice(0, self.num_tokens).tolist()
        return tokens

    # ---- order

    @property
    def sort_key(self) -> tuple[int, float, str]:
        """PRIORITY order: lower value first, then earlier arrival, then id (unique among live requests)."""
        return (self.priority, self.arrival_time, self.request_id)

    def __repr__(self) -> str:
        return (
            f"Request({self.request_id!r}, {self.status.name}, computed {self.num_computed_tokens}"
            f" of {self.num_tokens}, prompt {self.num_prompt_tokens})"
        )
