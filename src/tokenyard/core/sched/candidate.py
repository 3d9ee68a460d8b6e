"""What the passes of a step work on: the budget that is left, the request that admission considers; and the moments at
which features are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np

from tokenyard.core.kv.allocation import ComputedBlocks
from tokenyard.core.request import Request
from tokenyard.core.sched.in_flight import StepInFlight
from tokenyard.core.sched.outcomes import Outcome, OutcomeKind, Reason
from tokenyard.core.sched.queues import WaitingQueues

# ---------------------------------------------------------------------------------------------------------------------
# What is left to spend in one step.


class StepBounds(NamedTuple):
    """Bounds of one step that a policy sets, within those of the configuration; None: it sets none.

    What is held back by them has the reason ``policy_refused``, with ``detail`` beside it.
    """

    tokens: int | None = None
    """Most tokens of the step, at least 1."""
    seats: int | None = None
    """No request is admitted while so many run, at least 1; those that run go on."""
    longest_prefill: int | None = None
    """Most tokens of one request, at least 1."""
    prefill_tokens: int | None = None
    """Most tokens of prompts in the step, of running and admitted requests together; from 0 on."""
    holds: Collection[str] = ()
    """Ids of running requests that get no token in this step, and keep their blocks."""
    preempts: Collection[str] = ()
    """Ids of running requests that lose their blocks before the step is decided, and wait at the head of the queue (of
    a policy's own order, where that puts them)."""
    rejects: Collection[str] = ()
    """Ids of waiting requests that end unserved, as :class:`Rejected` has it."""
    detail: str = "step_bounds"
    """A word of the policy's own; programs may go by it."""

    def problem(self) -> str | None:
        """What it should be instead; None if it is sound."""
        least = {"tokens": 1, "seats": 1, "longest_prefill": 1, "prefill_tokens": 0}
        for name, lowest in least.items():
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < lowest):
                return f"{name}: a whole number from {lowest} on, or None"
        for name in ("holds", "preempts", "rejects"):
            if not _are_ids(getattr(self, name)):
                return f"{name}: a collection of request ids, such as a set"
        if not isinstance(self.detail, str) or not self.detail:
            return "detail: a word"
        return None


def _are_ids(given: object) -> bool:
    """Whether it is a collection of texts; a text is none, whose parts would pass for ids."""
    if isinstance(given, str | np.ndarray) or not isinstance(given, Collection):
        return False
    return all(isinstance(each, str) for each in given)


class Refused(NamedTuple):
    """A no of a policy or of a limit of your own: the reason ``policy_refused``, with its word beside it everywhere."""

    detail: str
    """A word of your own, for example ``decode_reserve``; programs may go by it."""
    tries_others: bool = False
    """Look at the request behind it in this step; else no further one is admitted in it."""

    @property
    def is_sound(self) -> bool:
        """It says a word."""
        return isinstance(self.detail, str) and bool(self.detail)


class Rejected(NamedTuple):
    """A no for good: the request ends unserved, refused, and everything that counts requests counts it so."""

    detail: str
    """A word of your own, for example ``overload``; programs may go by it."""

    @property
    def is_sound(self) -> bool:
        """It says a word."""
        return isinstance(self.detail, str) and bool(self.detail)


class StepBudget:
    """Limits of one step, counted down while it is decided; none ever goes below zero."""

    max_tokens: int
    encoder: int
    """Encoder embeddings left."""
    longest_prefill: int
    """Most tokens of one request; 0 = no such limit."""
    slots_per_request: int
    """Input slots that every scheduled request takes beside its tokens, for its drafter."""
    tokens: int
    """Tokens left for the next request, shared by prefill and decode: less its slots."""
    tokens_used: int
    """Tokens granted."""
    has_run: bool
    """The running pass has granted tokens; not kept where no limit asks."""
    has_run_prefill: bool
    """It has granted some to a request in the middle of its prompt; not kept where no limit asks."""
    encoder_items: dict[str, list[int]]
    """Request id -> items whose encoder runs in this step."""
    loras: set[str]
    """LoRA adapters that take part in this step."""
    overdrawn: int
    """Slots of the last request that exceed the budget: it may be used up to the last token."""
    bounds: StepBounds | None
    """What the policy says of this step."""
    decode_tokens: int
    """Tokens granted to running requests that decode; counted only where there are ``bounds``."""

    def __init__(
        self,
        max_tokens: int,
        encoder: int = 0,
        longest_prefill: int = 0,
        slots_per_request: int = 0,
        tokens: int = 0,
        bounds: StepBounds | None = None,
    ) -> None:
        self.max_tokens = max_tokens
        self.encoder = encoder
        self.longest_prefill = longest_prefill
        self.slots_per_request = slots_per_request
        self.tokens = tokens
        self.tokens_used = 0
        self.has_run = self.has_run_prefill = False
        self.encoder_items = {}
        self.loras = set()
        self.overdrawn = 0
        self.bounds = bounds
        self.decode_tokens = 0

    def spend(self, tokens: int) -> None:
        """Count tokens that are granted to a request."""
        assert 0 <= tokens <= self.tokens, "more tokens are granted than are left"
        self.tokens_used += tokens
        self.tokens -= tokens + self.slots_per_request
        if self.tokens < 0:
            self.overdrawn, self.tokens = -self.tokens, 0

    def prefill_left(self) -> int | None:
        """Tokens of prompts that this step may still compute; None: as many as fit."""
        most = None if self.bounds is None else self.bounds.prefill_tokens
        return None if most is None else max(most - (self.tokens_used - self.decode_tokens), 0)

    def refund(self, tokens: int) -> None:
        """A request's grant of this step is rolled back."""
        self.tokens_used -= tokens
        self.tokens += tokens + self.slots_per_request - self.overdrawn
        self.overdrawn = 0
        assert self.tokens <= self.max_tokens, "refunded more than was spent"


# ---------------------------------------------------------------------------------------------------------------------
# The request that the admission pass considers, and the question that a limit of a plug-in asks about it.


class Candidate:
    """The request being considered, and what the limits have found out about it so far."""

    request: Request
    computed: ComputedBlocks | None
    """Local prefix hit, once looked up."""
    num_external_computed_tokens: int
    """Tokens a connector would bring."""
    num_computed_tokens: int
    """Tokens that need no computing, of whatever origin."""
    num_new_tokens: int
    """Tokens to compute in this step."""
    is_padded: bool
    """Its one token is computed with placeholder drafts behind it."""
    must_fit: int
    """Tokens that need room even if fewer are computed in this step: the way out of a deadlock."""
    loads_async: bool
    """External tokens have to be waited for: blocks are allocated, nothing is computed yet."""
    encoder_items: tuple[int, ...]
    """Multi-modal items whose encoder runs in this step."""
    num_encoder_tokens: int
    """The embeddings among them that cross-attention layers keep."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.computed = None
        self.num_external_computed_tokens = 0
        self.num_computed_tokens = request.num_computed_tokens
        self.num_new_tokens = 0
        self.is_padded = self.loads_async = False
        self.must_fit = 0
        self.encoder_items = ()
        self.num_encoder_tokens = 0

    def drop_cut_padding(self, wanted: int) -> None:
        """Some of the ``wanted`` tokens may have been cut off: placeholder drafts come whole or not at all."""
        if self.is_padded and self.num_new_tokens < wanted:
            self.num_new_tokens, self.is_padded = 1, False

    def skipped(self, reason: Reason, budget: StepBudget) -> Outcome:
        """It is skipped, for this reason; others are tried."""
        return Outcome(OutcomeKind.SKIPPED, reason, self.request.request_id, 1, budget_left=budget.tokens)

    def refused(self, answer: Refused, budget: StepBudget, queues: WaitingQueues) -> Outcome:
        """A policy, or a limit of its own, will not have it."""
        if answer.tries_others:
            return msgspec.structs.replace(self.skipped(Reason.POLICY_REFUSED, budget), detail=answer.detail)
        stopped = self.stopped(Reason.POLICY_REFUSED, budget.tokens, queues, self.num_new_tokens)
        return msgspec.structs.replace(stopped, detail=answer.detail)

    def stopped(self, reason: Reason, budget_left: int, queues: WaitingQueues, wanted_tokens: int) -> Outcome:
        """Admission ends with it, for this reason."""
        kind, name = OutcomeKind.STOPPED, self.request.request_id
        return Outcome(kind, reason, name, len(queues), wanted_tokens=wanted_tokens, budget_left=budget_left)

    @property
    def num_local_hit_tokens(self) -> int:
        """Length of the local prefix hit."""
        return self.computed.num_tokens if self.computed is not None else 0


class AdmissionLimit(Protocol):
    """A question of your own to every request that would be admitted, asked before its memory is."""

    def ask(self, candidate: Candidate, budget: StepBudget, queues: WaitingQueues) -> Refused | Outcome | None:
        """None if it may go on; else why not. It may also lower ``candidate.num_new_tokens``, to 1 at least."""


# ---------------------------------------------------------------------------------------------------------------------
# Step hooks: the moments of a step at which optional features have something to do, in their order.
#
# Like the limits of admission, a feature is asked where it may matter and nowhere by name: it overrides the moments
# that concern it, and a moment that concerns no configured feature costs nothing.


class FeatureHook:
    """A feature's part in the life of requests and steps: override what concerns it."""

    def check_request(self, request: Request) -> None:
        """A request is about to be added. Raises RequestError, before anything has changed, if it cannot be served."""

    def request_added(self, now: float, request: Request) -> None:
        """A request waits, or a session got its next input."""

    def request_admitted(self, now: float, candidate: Candidate) -> None:
        """A request has joined the running list."""

    def request_preempted(self, now: float, request: Request) -> None:
        """A running request has lost its blocks."""

    def request_aborted(self, request: Request) -> None:
        """A request was ended from outside: its client is not notified any more."""

    def request_reset(self, request: Request, in_flight: Iterable[StepInFlight]) -> None:
        """A request starts over, or goes on with other input: what steps in flight bring for it is worthless."""

    def step_planned(self, step: StepInFlight) -> None:
        """A step is decided; ``step.plan`` may be replaced by one that says more."""


class StepHooks:
    """Per moment, the calls of those features that it concerns."""

    def __init__(self, features: Sequence[FeatureHook]) -> None:
        self.check_request: Sequence[Callable[[Request], None]] = _calls(features, "check_request")
        self.request_added: Sequence[Callable[[float, Request], None]] = _calls(features, "request_added")
        self.request_admitted: Sequence[Callable[[float, Candidate], None]] = _calls(features, "request_admitted")
        self.request_preempted: Sequence[Callable[[float, Request], None]] = _calls(features, "request_preempted")
        self.request_aborted: Sequence[Callable[[Request], None]] = _calls(features, "request_aborted")
        self.request_reset: Sequence[Callable[[Request, Iterable[StepInFlight]], None]] = _calls(
            features, "request_reset"
        )
        self.step_planned: Sequence[Callable[[StepInFlight], None]] = _calls(features, "step_planned")


def _calls(features: Sequence[FeatureHook], moment: str) -> Sequence[Callable[..., Any]]:
    default = getattr(FeatureHook, moment)
    return tuple(getattr(each, moment) for each in features if getattr(type(each), moment) is not default)
