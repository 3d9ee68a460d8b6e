"""vLLM's requests as the recorder asks for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenyard.columns import IntArray
from tokenyard.errors import RequestError
from tokenyard.request import RequestTimes
from tokenyard.status import RequestStatus
from tokenyard.vllm.job_of_request import Turn, job_of, turn_of
from tokenyard.vllm.versions import status_name

__all__ = ["TracedRequest"]


class _Limits:
    """What a trace tells of sampling parameters."""

    __slots__ = ("ignore_eos", "min_tokens")

    def __init__(self, params: Any) -> None:
        self.min_tokens: int = getattr(params, "min_tokens", 0) or 0
        self.ignore_eos: bool = bool(getattr(params, "ignore_eos", False))


class _Item:
    """An image, clip or video in a prompt."""

    __slots__ = ("length", "mm_hash", "offset")

    def __init__(self, feature: Any) -> None:
        place = feature.mm_position
        self.mm_hash = str(getattr(feature, "identifier", None) or getattr(feature, "mm_hash", ""))
        self.offset, self.length = int(place.offset), int(place.length)


def _turn(theirs: Any) -> Turn:
    """What its client says of its job; vLLM's scheduler serves requests whose extra arguments mean nothing to us."""
    try:
        return turn_of(theirs)
    except RequestError:
        return Turn(job_of(theirs))


class TracedRequest:
    """A request of vLLM's, under the names of ours; what it does not say itself is asked of vLLM's.

    ``theirs`` is only ever read.
    """

    __slots__ = (
        "_hit_tokens",
        "is_last_step",
        "job_id",
        "local_hit_tokens",
        "lora_name",
        "mm_features",
        "num_external_computed_tokens",
        "request_id",
        "sampling_params",
        "theirs",
        "this_func_call",
        "times",
    )

    def __init__(self, theirs: Any) -> None:
        self.theirs = theirs
        self.request_id: str = theirs.request_id
        self.job_id, self.is_last_step, self.this_func_call = _turn(theirs)
        self.sampling_params = _Limits(theirs.sampling_params)
        self.lora_name: str | None = theirs.lora_request.lora_name if theirs.lora_request else None
        self.mm_features = [_Item(feature) for feature in theirs.mm_features or ()]
        self.times = RequestTimes()
        self.local_hit_tokens: int | None = None
        """Of the last prefix lookup before it was first scheduled; None if there was none."""
        self.num_external_computed_tokens = 0
        self._hit_tokens = -1

    def __getattr__(self, name: str) -> Any:
        return getattr(self.theirs, name)

    @property
    def status(self) -> RequestStatus:
        """Where it is in its life."""
        return RequestStatus[status_name(self.theirs)]

    @property
    def num_cached_tokens(self) -> int:
        """Prefix hits when it was first scheduled, local and external; -1 before."""
        return self._hit_tokens

    @property
    def num_output_tokens(self) -> int:
        """Tokens of its output so far."""
        return int(self.theirs.num_output_tokens)

    @property
    def resumable(self) -> bool:
        """It is a session whose input comes in pieces."""
        return bool(self.theirs.resumable)

    def first_scheduled(self, ts: float, num_computed_tokens: int) -> tuple[int, int]:
        """It was admitted for the first time with so many tokens computed; returns local and external hits."""
        self.times.first_scheduled = ts
        self._hit_tokens = num_computed_tokens
        local = (
            num_computed_tokens if self.local_hit_tokens is None else min(self.local_hit_tokens, num_computed_tokens)
        )
        self.num_external_computed_tokens = num_computed_tokens - local
        return local, num_computed_tokens - local

    def token_slice(self, start: int, stop: int) -> IntArray:
        """Its tokens from ``start`` to ``stop``; only per-request records hold any."""
        return np.asarray(self.theirs.all_token_ids[start:stop], np.int64)
