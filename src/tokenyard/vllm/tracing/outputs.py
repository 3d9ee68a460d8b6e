"""vLLM's records of a step as the recorder asks for them: only what it asks, and only when it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tokenyard.columns import IntArray

__all__ = ["Decided", "TakenIn", "num_sampled"]


class _Counts(NamedTuple):
    """Draft tokens that a step verified."""

    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens_per_pos: IntArray


class Decided:
    """A ``SchedulerOutput`` of vLLM's, as far as a trace shows it."""

    __slots__ = (
        "_computed",
        "_ids",
        "_tokens",
        "admitted_new",
        "admitted_resumed",
        "num_running",
        "preempted_req_ids",
        "step",
        "theirs",
        "total_num_scheduled_tokens",
    )

    def __init__(self, step: int, theirs: Any, num_admitted: int, preempted: Sequence[str]) -> None:
        """``num_admitted``: how many it admits; they stand behind all that were running."""
        self.step = step
        self.theirs = theirs
        self.total_num_scheduled_tokens: int = theirs.total_num_scheduled_tokens
        self.num_running = len(theirs.num_scheduled_tokens) - num_admitted
        self.admitted_new: list[int] = []
        """Rows admitted for the first time."""
        self.admitted_resumed: list[int] = []
        """Rows admitted again after a preemption."""
        self.preempted_req_ids = preempted
        self._computed: dict[int, int] = {}
        self._ids: tuple[str, ...] | None = None
        self._tokens: IntArray | None = None

    @property
    def req_ids(self) -> tuple[str, ...]:
        """In scheduling order: running ones, then admitted ones."""
        if self._ids is None:
            self._ids = tuple(self.theirs.num_scheduled_tokens)
        return self._ids

    @property
    def num_new_tokens(self) -> IntArray:
        """Tokens of each row, shape ``[n]``."""
        if self._tokens is None:
            tokens = self.theirs.num_scheduled_tokens
            self._tokens = np.fromiter(tokens.values(), np.int64, len(tokens))
        return self._tokens

    @property
    def num_computed(self) -> dict[int, int]:
        """Admitted row -> tokens it had computed before the step."""
        return self._computed

    def admit(self, row: int, num_computed: int, *, is_new: bool) -> None:
        """Row ``row`` joined in this step."""
        (self.admitted_new if is_new else self.admitted_resumed).append(row)
        self._computed[row] = num_computed


class _Stats:
    """Lengths of the queues, and drafts that were verified."""

    __slots__ = ("num_running_reqs", "num_skipped_waiting_reqs", "num_waiting_reqs", "spec_decoding_stats")

    def __init__(self, running: int, waiting: int, drafts: _Counts | None) -> None:
        self.num_running_reqs, self.num_waiting_reqs, self.num_skipped_waiting_reqs = running, waiting, 0
        self.spec_decoding_stats = drafts


class _Size:
    """Stands for the matrix of tokens, of which a trace wants to know the size."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size


class TakenIn:
    """What a step brought."""

    __slots__ = ("requests", "scheduler_stats", "tokens")

    def __init__(self, sampled: int, running: int, waiting: int, stats: Any) -> None:
        """``stats``: vLLM's ``SpecDecodingStats`` of the step, or None."""
        self.requests = range(sampled)
        self.tokens = _Size(sampled)
        drafts = None
        if stats is not None and stats.num_drafts:
            accepted = np.asarray(stats.num_accepted_tokens_per_pos, np.int64)
            drafts = _Counts(stats.num_drafts, stats.num_draft_tokens, accepted)
        self.scheduler_stats = _Stats(running, waiting, drafts)


def num_sampled(outputs: Any) -> int:
    """Tokens in the ``EngineCoreOutputs`` of all clients."""
    total = 0
    for client in outputs.values():
        for each in client.outputs:  # a plain loop is the fastest: a third of the time of map() and sum()
            total += len(each.new_token_ids)
    return total
