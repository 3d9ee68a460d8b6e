"""The request that the admission pass considers, and the question that every limit asks about it."""

from __future__ import annotations

from typing import Protocol

from tokenyard.kv.coordinator import ComputedBlocks
from tokenyard.request import Request
from tokenyard.sched.passes.budget import StepBudget
from tokenyard.sched.queues.waiting import WaitingQueues
from tokenyard.sched.steps.outcomes import Outcome

__all__ = ["Candidate", "Limit"]


class Candidate:
    """The request being considered, and what the limits have found out about it so far."""

    __slots__ = (
        "computed",
        "encoder_items",
        "is_padded",
        "loads_async",
        "must_fit",
        "num_computed_tokens",
        "num_encoder_tokens",
        "num_external_computed_tokens",
        "num_new_tokens",
        "request",
    )

    def __init__(self, request: Request) -> None:
        self.request = request
        self.computed: ComputedBlocks | None = None
        """Local prefix hit, once looked up."""
        self.num_external_computed_tokens = 0
        """Tokens a connector would bring."""
        self.num_computed_tokens = request.num_computed_tokens
        """Tokens that need no computing, of whatever origin."""
        self.num_new_tokens = 0
        """Tokens to compute in this step."""
        self.is_padded = False
        """Its one token is computed with placeholder drafts behind it."""
        self.must_fit = 0
        """Tokens that need room even if fewer are computed in this step: the way out of a stalemate."""
        self.loads_async = False
        """External tokens have to be waited for: blocks are allocated, nothing is computed yet."""
        self.encoder_items: tuple[int, ...] = ()
        """Multi-modal items whose encoder runs in this step."""
        self.num_encoder_tokens = 0
        """Of these, embeddings that cross-attention layers keep."""

    @property
    def num_local_hit_tokens(self) -> int:
        """Length of the local prefix hit."""
        return self.computed.num_tokens if self.computed is not None else 0


class Limit(Protocol):
    """One question to a candidate."""

    def ask(self, candidate: Candidate, budget: StepBudget, room: WaitingQueues) -> Outcome | None:
        """None if it may go on; else why not."""
