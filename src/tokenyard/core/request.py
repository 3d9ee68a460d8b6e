"""The unit of work: a request, its status and its times."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from tokenyard.core.columns import Index, IntArray
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
_MOST_PIECES = 32
"""Pieces of a token stream that it costs less to hand out than to join."""
_packed = struct.Struct("i").pack


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
}


# ---------------------------------------------------------------------------------------------------------------------
# The unit of work: a request, its status, its sampling limits and its token stream.
#
# While a request holds KV blocks it has a *slot* in the request table and its counters live in the table's columns;
# the properties here read through. Without a slot it keeps them itself.


class CounterTable(Protocol):
    """Where the counters of requests with a slot live: the request table, as far as a request reads it."""

    @property
    def num_tokens(self) -> IntArray: ...
    @property
    def num_computed(self) -> IntArray: ...
    @property
    def placeholders(self) -> IntArray: ...
    @property
    def num_drafts(self) -> IntArray: ...
    @property
    def drafts(self) -> IntArray: ...
    @property
    def prefilling(self) -> npt.NDArray[np.bool_]: ...
    def set_num_computed(self, slot: int, num_computed: int) -> None:
        """The computed tokens of the request in ``slot``."""

    def flush_tail(self, request: Request) -> None:
        """Copy its unsealed tokens into its own stream."""


class RequestTimes:
    """Moments of a request's life in seconds on the scheduler's clock; None until they happen."""

    __slots__ = ("finished", "first_scheduled", "first_token")

    def __init__(self) -> None:
        self.first_scheduled: float | None = None
        self.first_token: float | None = None
        self.finished: float | None = None


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
    """One generation request, from arrival to its last token.

    Counters (all in tokens):

    ``num_prompt_tokens``     given at arrival
    ``num_tokens``            prompt + verified output
    ``num_computed_tokens``   positions whose KV is, or after this step will be, in the cache
    ``num_cached_tokens``     prefix-cache hit when first scheduled; -1 before
    ``num_hit_tokens``        prefix-cache hit when last looked up, admitted then or not; -1 before
    ``shared_prefix_boundary``  tokens that it shares with others, where that is more than its last prefix hit; else 0
    """

    __slots__ = (
        "_behind",
        "_given",
        "_num_behind",
        "_num_computed_tokens",
        "_num_given",
        "_num_output_placeholders",
        "_table",
        "arrival_time",
        "arrives_when_added",
        "async_steps_to_discard",
        "block_hashes",
        "cache_salt",
        "client_index",
        "ends_after",
        "has_extra_keys",
        "is_last_step",
        "job_id",
        "kv_transfer_params",
        "lora_name",
        "meta",
        "mm_features",
        "num_cached_tokens",
        "num_external_computed_tokens",
        "num_hit_tokens",
        "num_preemptions",
        "num_prompt_tokens",
        "output_seed",
        "pooling_params",
        "predicted_output_tokens",
        "prefix_hash",
        "priority",
        "prompt_embeds",
        "request_id",
        "resumable",
        "sampling_params",
        "shared_prefix_boundary",
        "slot",
        "status",
        "stop_reason",
        "structured_output",
        "this_func_call",
        "times",
        "trace_headers",
    )

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
        """Whether anything besides tokens enters its block hashes."""
        self._begin(prompt)

    def _begin(self, prompt: TokenIds) -> None:
        """It holds nothing, has computed nothing and has said nothing: where it stands before its first step."""
        self.status = RequestStatus.WAITING
        if self.structured_output is not None:
            self.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        self.stop_reason: int | str | None = None
        self.times = RequestTimes()
        self.num_prompt_tokens = len(prompt)
        self.num_cached_tokens = self.num_hit_tokens = -1
        self.num_external_computed_tokens = self.num_preemptions = self.shared_prefix_boundary = 0
        self.block_hashes: list[BlockHash] = []
        self.prefix_hash: PrefixHash | None = None
        """Where hashing goes on; None before the first block. Both belong to the block hasher."""

        self.slot = -1
        self._table: CounterTable | None = None
        self._num_computed_tokens = self._num_output_placeholders = 0
        self.async_steps_to_discard = 0
        """Steps in flight whose output is stale (the request was reset meanwhile)."""
        # The token stream: its beginning as it came, which is long and never written to, and what has come behind it,
        # in the pieces in which it came: int32 bytes, mostly of a block.
        self._given = _never_written(prompt)
        self._num_given: Index = len(prompt)
        self._behind: list[bytes] = []
        self._num_behind: Index = 0

    # ---- token stream

    @property
    def max_tokens(self) -> int:
        return self.sampling_params.max_tokens

    @property
    def num_tokens(self) -> int:
        """Prompt and verified output."""
        table = self._table
        return self.num_sealed_tokens if table is None else int(table.num_tokens[self.slot])

    @property
    def num_output_tokens(self) -> int:
        return self.num_tokens - self.num_prompt_tokens

    @property
    def num_computed_tokens(self) -> int:
        table = self._table
        return self._num_computed_tokens if table is None else int(table.num_computed[self.slot])

    @num_computed_tokens.setter
    def num_computed_tokens(self, value: int) -> None:
        if self._table is None:
            self._num_computed_tokens = value
        else:
            self._table.set_num_computed(self.slot, value)

    @property
    def num_output_placeholders(self) -> int:
        """Output tokens that steps in flight will bring (async scheduling)."""
        table = self._table
        return self._num_output_placeholders if table is None else int(table.placeholders[self.slot])

    @num_output_placeholders.setter
    def num_output_placeholders(self, value: int) -> None:
        assert self._table is None, "a request with a slot counts placeholders in its table"
        self._num_output_placeholders = value

    @property
    def spec_token_ids(self) -> list[int]:
        """Draft tokens to be verified in the next step; -1 stands for a draft only the worker knows."""
        table = self._table
        return [] if table is None else table.drafts[self.slot, : table.num_drafts[self.slot]].tolist()

    @property
    def is_prefill_chunk(self) -> bool:
        """The last step that scheduled it left part of its known tokens uncomputed."""
        table = self._table
        return table is not None and bool(table.prefilling[self.slot])

    def token_slice(self, start: int, stop: int) -> TokenIds:
        """Tokens ``start..stop-1`` as an int32 array that stays as it is; of the prompt it may be a view, read-only."""
        if self._table is not None:
            self._table.flush_tail(self)
        return self.sealed_tokens(start, stop)

    def sealed_tokens(self, start: int, stop: int) -> TokenIds:
        """The same of tokens that are sealed: everything up to the last full block, at least."""
        given, first = self._given, self._num_given
        if stop <= first or not self._num_behind:
            return given[start:stop]
        more = np.frombuffer(self._joined(), np.int32)[max(start - first, 0) : stop - first]
        return more.copy() if start >= first else np.concatenate((given[start:], more))

    def pieces(self) -> tuple[TokenIds, tuple[bytes, ...]]:
        """The sealed tokens in pieces that stay as they are: their beginning, and int32 bytes of what follows."""
        behind = self._behind
        if len(behind) > _MOST_PIECES:
            self._joined()
        return self._given, tuple(behind)

    def _joined(self) -> bytes:
        """What has come behind the beginning, which is something, in one piece."""
        behind = self._behind
        if len(behind) > 1:
            behind[:] = [b"".join(behind)]
        return behind[0]

    def token_bytes(self, start: int, stop: int) -> bytes:
        """Sealed tokens ``start..stop-1`` as native-endian int32 bytes."""
        return self.sealed_tokens(start, stop).tobytes()

    @property
    def num_sealed_tokens(self) -> int:
        """Tokens that :meth:`sealed_tokens` can give."""
        return self._num_given + self._num_behind

    def append_token(self, token: int) -> None:
        """Append one output token to a request without a slot (preempted while a step was in flight)."""
        assert self._table is None, "a request with a slot grows through its table"
        self._behind.append(_packed(token))
        self._num_behind += 1

    @property
    def prompt_token_ids(self) -> list[int]:
        tokens: list[int] = self.sealed_tokens(0, self.num_prompt_tokens).tolist()
        return tokens

    @property
    def output_token_ids(self) -> list[int]:
        tokens: list[int] = self.token_slice(self.num_prompt_tokens, self.num_tokens).tolist()
        return tokens

    @property
    def all_token_ids(self) -> list[int]:
        tokens: list[int] = self.token_slice(0, self.num_tokens).tolist()
        return tokens

    def replace_tail(self, start: int, tokens: bytes) -> None:
        """Overwrite the stream from position ``start`` with int32 ``tokens`` (the table's flush)."""
        at: Index = start
        token_bytes: Index = TOKEN_BYTES
        num_left: Index = max(at - self._num_given, 0)
        if at < self._num_given:
            self._given, self._num_given = self._given[:at], at
        if num_left < self._num_behind:  # mostly not: blocks come one behind the other
            self._behind = [self._joined()[: num_left * token_bytes]]
            self._num_behind = num_left
        self._behind.append(tokens)
        self._num_behind += len(tokens) // token_bytes

    # ---- slot

    def attach(self, table: CounterTable, slot: int) -> None:
        """Take ``slot``: from now on the counters live in ``table``."""
        self._table = table
        self.slot = slot

    def detach(self, num_computed_tokens: int, num_output_placeholders: int) -> None:
        """Give the slot back; the tokens must have been flushed."""
        self._table = None
        self.slot = -1
        self._num_computed_tokens = num_computed_tokens
        self._num_output_placeholders = num_output_placeholders

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
