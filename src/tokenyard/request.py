"""The unit of work: a request, its status, its sampling limits and its token stream.

While a request holds KV blocks it has a *slot* in the :class:`~tokenyard.table.RequestTable` and its counters
live in the table's columns; the properties here read through. Without a slot it keeps them itself.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tokenyard.config import MAX_COUNT
from tokenyard.errors import RequestError

if TYPE_CHECKING:
    from tokenyard.table import RequestTable

__all__ = [
    "FinishReason",
    "MultiModalItem",
    "Request",
    "RequestStatus",
    "RequestTimes",
    "SamplingParams",
    "TokenIds",
]

TokenIds = npt.NDArray[np.int32]
"""Token ids, one dimension."""


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
    """What the client is told (the OpenAI words, as vLLM uses them)."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"
    REPETITION = "repetition"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """The part of sampling that decides when a request ends."""

    max_tokens: int = 16
    """Most output tokens."""
    min_tokens: int = 0
    """No stop condition is looked at before this many output tokens."""
    eos_token_id: int | None = None
    """The model's end-of-sequence token."""
    ignore_eos: bool = False
    """Do not stop at ``eos_token_id``."""
    stop_token_ids: tuple[int, ...] = ()
    """Further tokens that end the request and are reported as ``stop_reason``."""
    skip_reading_prefix_cache: bool = False
    """Compute the whole prompt even if its prefix is cached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiModalItem:
    """An image, audio clip or video whose placeholder tokens stand in the prompt."""

    mm_hash: str
    """Content hash of the item."""
    offset: int
    """Position of its first placeholder token in the prompt."""
    length: int
    """Number of placeholder tokens."""


class RequestTimes:
    """Moments of a request's life in seconds on the scheduler's clock; None until they happen."""

    __slots__ = ("finished", "first_scheduled", "first_token")

    def __init__(self) -> None:
        self.first_scheduled: float | None = None
        self.first_token: float | None = None
        self.finished: float | None = None


def _tokens(request_id: str, value: Sequence[int] | TokenIds) -> TokenIds:
    """``value`` as int32, or RequestError."""
    wanted = "give a list of token ids from 0 to 2147483647"
    try:
        wide = np.asarray(value)
    except (TypeError, ValueError, OverflowError):
        raise RequestError(request_id, "prompt_token_ids", value, wanted) from None
    if wide.ndim != 1 or wide.size == 0:
        raise RequestError(request_id, "prompt_token_ids", value, "give at least one token id")
    if wide.dtype == np.int32 and int(wide.min()) >= 0:
        return wide
    if wide.dtype.kind not in "iu" or int(wide.min()) < 0 or int(wide.max()) > MAX_COUNT:
        raise RequestError(request_id, "prompt_token_ids", value, wanted)
    return wide.astype(np.int32)


def _check_count(request_id: str, field: str, value: object, low: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= MAX_COUNT:
        raise RequestError(request_id, field, value, f"give a whole number from {low} to {MAX_COUNT}")


def _check_params(request_id: str, params: SamplingParams) -> None:
    _check_count(request_id, "max_tokens", params.max_tokens, 1)
    _check_count(request_id, "min_tokens", params.min_tokens, 0)
    if params.min_tokens > params.max_tokens:
        raise RequestError(
            request_id, "min_tokens", params.min_tokens, f"must not exceed max_tokens ({params.max_tokens})"
        )
    if params.eos_token_id is not None:
        _check_count(request_id, "eos_token_id", params.eos_token_id, 0)
    for token in params.stop_token_ids:
        _check_count(request_id, "stop_token_ids", token, 0)


class Request:
    """One generation request, from arrival to its last token.

    Counters (all in tokens):

    ``num_prompt_tokens``     given at arrival
    ``num_tokens``            prompt + verified output
    ``num_computed_tokens``   positions whose KV is, or after this step will be, in the cache
    ``num_cached_tokens``     prefix-cache hit when first scheduled; -1 before
    """

    __slots__ = (
        "_num_computed_tokens",
        "_num_output_placeholders",
        "_table",
        "_tokens",
        "arrival_time",
        "async_steps_to_discard",
        "block_hashes",
        "cache_salt",
        "client_index",
        "is_last_step",
        "job_id",
        "lora_name",
        "mm_features",
        "num_cached_tokens",
        "num_external_computed_tokens",
        "num_preemptions",
        "num_prompt_tokens",
        "output_seed",
        "priority",
        "prompt_embeds",
        "request_id",
        "resumable",
        "sampling_params",
        "slot",
        "status",
        "stop_reason",
        "this_func_call",
        "times",
    )

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: Sequence[int] | TokenIds,
        sampling_params: SamplingParams | None = None,
        *,
        arrival_time: float = 0.0,
        priority: int = 0,
        lora_name: str | None = None,
        cache_salt: str | None = None,
        mm_features: Sequence[MultiModalItem] = (),
        prompt_embeds: npt.NDArray[np.generic] | None = None,
        job_id: str | None = None,
        is_last_step: bool = False,
        this_func_call: str | None = None,
        output_seed: int = 0,
        client_index: int = 0,
    ) -> None:
        """Make a request in status WAITING.

        ``prompt_embeds`` has one row per prompt token; its bytes enter the block hashes.
        ``job_id`` groups the turns of one agent; ``output_seed`` only means something to a simulated model.
        Raises RequestError if a field cannot work.
        """
        if not isinstance(request_id, str) or not request_id:
            raise RequestError(str(request_id), "request_id", request_id, "give a text that is not empty")
        params = sampling_params or SamplingParams()
        _check_params(request_id, params)
        prompt = _tokens(request_id, prompt_token_ids)
        if prompt_embeds is not None and len(prompt_embeds) != len(prompt):
            raise RequestError(
                request_id, "prompt_embeds", len(prompt_embeds), f"give one row per prompt token ({len(prompt)})"
            )
        if not isfinite(arrival_time):
            raise RequestError(request_id, "arrival_time", arrival_time, "give a finite number of seconds")
        self.request_id = request_id
        self.sampling_params = params
        self.arrival_time = arrival_time
        self.priority = priority
        self.lora_name = lora_name
        self.cache_salt = cache_salt
        self.mm_features = tuple(sorted(mm_features, key=lambda item: item.offset))
        self.prompt_embeds = prompt_embeds
        self.job_id = job_id
        self.is_last_step = is_last_step
        self.this_func_call = this_func_call
        self.output_seed = output_seed
        self.client_index = client_index
        self.resumable = False

        self.status = RequestStatus.WAITING
        self.stop_reason: int | str | None = None
        self.times = RequestTimes()
        self.num_prompt_tokens = len(prompt)
        self.num_cached_tokens = -1
        self.num_external_computed_tokens = 0
        self.num_preemptions = 0
        self.block_hashes: list[bytes] = []

        self.slot = -1
        self._table: RequestTable | None = None
        self._num_computed_tokens = 0
        self._num_output_placeholders = 0
        self.async_steps_to_discard = 0
        """Steps in flight whose output is stale (the request was reset meanwhile)."""
        self._tokens = array("i")
        self._tokens.frombytes(prompt.tobytes())

    # ---- token stream

    @property
    def max_tokens(self) -> int:
        return self.sampling_params.max_tokens

    @property
    def num_tokens(self) -> int:
        """Prompt and verified output."""
        table = self._table
        return len(self._tokens) if table is None else int(table.num_tokens[self.slot])

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
            self._table.num_computed[self.slot] = value

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
        """Tokens ``start..stop-1`` as a new int32 array."""
        if self._table is not None:
            self._table.flush_tail(self)
        return np.frombuffer(self._tokens, dtype=np.int32)[start:stop].copy()

    def token_bytes(self, start: int, stop: int) -> bytes:
        """Sealed tokens ``start..stop-1`` as native-endian int32 bytes, what block hashes are taken over."""
        return memoryview(self._tokens)[start:stop].tobytes()

    @property
    def num_sealed_tokens(self) -> int:
        """Tokens that :meth:`token_bytes` can give: everything up to the last full block, at least."""
        return len(self._tokens)

    def append_token(self, token: int) -> None:
        """Append one output token to a request without a slot (preempted while a step was in flight)."""
        assert self._table is None, "a request with a slot grows through its table"
        self._tokens.append(token)

    @property
    def prompt_token_ids(self) -> list[int]:
        return self._tokens[: self.num_prompt_tokens].tolist()

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_slice(self.num_prompt_tokens, self.num_tokens).tolist()

    @property
    def all_token_ids(self) -> list[int]:
        return self.token_slice(0, self.num_tokens).tolist()

    def replace_tail(self, start: int, tokens: bytes) -> None:
        """Overwrite the stream from position ``start`` with int32 ``tokens`` (the table's flush)."""
        del self._tokens[start:]
        self._tokens.frombytes(tokens)

    @property
    def has_extra_keys(self) -> bool:
        """Whether anything besides tokens enters its block hashes."""
        return bool(self.lora_name or self.cache_salt or self.mm_features or self.prompt_embeds is not None)

    # ---- slot

    def attach(self, table: RequestTable, slot: int) -> None:
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
