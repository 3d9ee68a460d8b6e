"""Acceptance of sampled tokens: append, seal full blocks, find who stops.

One stroke takes at most one token per request; a step that sampled several (accepted drafts) takes several strokes,
each over the requests that go on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tokenyard.columns import IntArray, anywhere
from tokenyard.profiles import VLLM_0_22, DecisionProfile
from tokenyard.request import Request, RequestStatus
from tokenyard.sched.update.repetition import repeats
from tokenyard.table import RequestTable

__all__ = ["Acceptance", "stop_status"]


def stop_status(
    request: Request, token: int, num_tokens: int, max_model_len: int, *, min_tokens_bar_stops: bool = True
) -> RequestStatus | None:
    """The status in which ``token``, which made the request ``num_tokens`` long, ends it; None if it goes on.

    Order of the questions as in vLLM: min_tokens (or only before the last of them), end of sequence, stop tokens,
    length, repetition.
    """
    params = request.sampling_params
    num_output = num_tokens - request.num_prompt_tokens
    below_min = num_output < params.min_tokens
    if below_min and min_tokens_bar_stops:
        return None
    if token == params.eos_token_id and not params.ignore_eos:
        return RequestStatus.FINISHED_STOPPED
    if token in params.stop_token_ids:
        request.stop_reason = token
        return RequestStatus.FINISHED_STOPPED
    if num_tokens >= max_model_len or num_output >= params.max_tokens:
        return RequestStatus.FINISHED_LENGTH_CAPPED
    if below_min:
        return None
    if params.repetition_detection is not None and repeats(request, num_tokens, params.repetition_detection):
        request.stop_reason = "repetition_detected"
        return RequestStatus.FINISHED_REPETITION
    return None


class Acceptance:
    """Writes tokens into the request table."""

    def __init__(
        self,
        table: RequestTable,
        max_model_len: int,
        on_seal: Callable[[list[tuple[Request, bytes]]], None],
        profile: DecisionProfile = VLLM_0_22,
    ) -> None:
        self._table = table
        self._stop_status = partial(
            stop_status, max_model_len=max_model_len, min_tokens_bar_stops=profile.min_tokens_bar_stops
        )
        self._on_seal = on_seal
        """Told about blocks that have just become full, with their tokens (to hash them)."""

    def stroke(self, slots: IntArray, tokens: IntArray) -> list[tuple[int, RequestStatus]]:
        """Append ``tokens[i]`` to the request in ``slots[i]``; returns rows that stop, with their status."""
        table = self._table
        num_tokens, full = table.append(slots, tokens)
        if anywhere(full):
            self._on_seal(table.seal(slots[full]))
        # A superset of the rows that stop, by columns; stop_status has the rule.
        may_stop = num_tokens >= table.stop_at[slots]
        if table.num_with_eos:
            may_stop |= tokens == table.eos[slots]
        if table.num_with_stop_ids:
            may_stop |= table.has_stop_ids[slots]
        return self._stopped(may_stop.nonzero()[0], slots, tokens, num_tokens) if anywhere(may_stop) else []

    def _stopped(
        self, rows: IntArray, slots: IntArray, tokens: IntArray, num_tokens: IntArray
    ) -> list[tuple[int, RequestStatus]]:
        stopped = []
        for row, request in zip(rows.tolist(), self._table.tenants(slots[rows]), strict=True):
            status = self._stop_status(request, int(tokens[row]), int(num_tokens[row]))
            if status is not None:
                stopped.append((row, status))
        return stopped

    def append_detached(self, request: Request, token: int) -> RequestStatus | None:
        """The same for a request that lost its slot while the step was in flight."""
        request.append_token(token)
        return self._stop_status(request, token, request.num_tokens)
