"""Policies: the order of the waiting queue, the victim of a preemption, and the gate that checks what they answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import TypeVar, TypeVarTuple

import msgspec
import numpy as np

from tokenyard.core.basics import check_hook_names
from tokenyard.core.kv.allocation import KVShortage
from tokenyard.core.request import BlockHash, Request
from tokenyard.core.sched.calls import asked
from tokenyard.core.sched.candidate import AdmissionLimit, FeatureHook, Refused, Rejected, StepBounds
from tokenyard.core.sched.eviction import EvictionOrder
from tokenyard.core.sched.features.sessions import PinBoard
from tokenyard.core.sched.outcomes import Outcome
from tokenyard.core.sched.policy_context import PolicyContext
from tokenyard.core.sched.queues import FCFSQueue, PriorityQueue, RequestQueue, WaitingQueues
from tokenyard.core.sched.serving_one import ServesOne
from tokenyard.errors import ConfigError, PolicyError, shown
from tokenyard.vocabulary import ENTRY_POINT_GROUP, SHIPPED, file_and_class, policy_hint, registered_policies

_Given = TypeVarTuple("_Given")
_Answer = TypeVar("_Answer")


# ---------------------------------------------------------------------------------------------------------------------
# Policies: the order of the waiting queue, the victim of a preemption, what happens to a finished request's blocks.
#
# A policy of your own is a class with these methods, registered under the entry-point group ``tokenyard.policies``;
# no fork is needed. ``fcfs`` and ``priority`` are vLLM's.


class AdmissionView(msgspec.Struct, frozen=True):
    """What there is at the moment at which a policy may refuse a request."""

    running: Sequence[Request]
    """Running requests, with those that this step has admitted; not to be changed."""
    num_waiting: int
    """Requests in both queues, this one included."""
    free_blocks: int
    """KV blocks that are free, cached ones among them."""
    total_blocks: int
    budget_left: int
    """Tokens that this step can still schedule."""
    new_tokens: int
    """Tokens of the request that it would schedule."""
    cached_tokens: int
    """Tokens of its prompt that need no computing."""
    now: float
    """The scheduler's clock, in seconds."""


class Policy(ServesOne[PolicyContext]):
    """First come, first served, keeping nothing: override what your policy does otherwise.

    It is consulted by the scheduler, moves no request itself, and holds no blocks but through ``pins``. A class with a
    method that is called almost as one of these is refused when it is made (ConfigError). Which methods are its own is
    asked while the scheduler is made, up to its ``bind``, and not again.
    """

    _field, _error = "policy", PolicyError
    reorders = False
    """The order of those who wait may change although no request came, went or was skipped."""

    reads_max_tokens = False
    """It goes by ``max_tokens``: on a server a bound that clients set, in a replay the true length of the answer."""

    reads_tokens = True
    """It looks at token ids or block hashes of requests: a replay need not make them for a class that says False. Each
    class speaks for itself: what its bases say of themselves is not inherited.
    """

    limits: Sequence[AdmissionLimit] = ()
    """Further questions to every request that would be admitted, asked before its memory is."""

    hooks: Sequence[FeatureHook] = ()
    """Notified of requests and steps, within the scheduler: see :class:`FeatureHook`."""

    eviction: EvictionOrder | type[EvictionOrder] | None = None
    """Which cached block is given up when one is needed, a class or an object; None: the least recently used one."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        check_hook_names(cls, "policy")

    @property
    def pins(self) -> PinBoard:
        """Blocks of finished turns that this policy keeps."""
        return self.context.pins

    def new_queue(self) -> RequestQueue:
        """An empty queue in this policy's order."""
        return FCFSQueue()

    def next_queue(self, queues: WaitingQueues) -> RequestQueue:
        """The queue whose head is tried next; at least one of the two holds a request."""
        return queues.skipped if len(queues.skipped) else queues.waiting

    def victim(self, running: Sequence[Request]) -> int:
        """Index of the running request that loses its blocks; ``running`` is not empty."""
        return len(running) - 1

    def request_arrived(self, now: float, request: Request) -> None:
        """A request was added."""

    def step_begins(self, now: float, queues: WaitingQueues) -> StepBounds | None:
        """Before anything is decided: time to drop pins, to order the queue anew, or to bound this step.

        None: the step has what its configuration says. ``self.context.state`` says who runs and what is free.
        """
        return None

    def admits(self, request: Request, view: AdmissionView) -> bool | Refused | Rejected:
        """Whether the head of the queue may be admitted: True, :class:`Refused` with the reason why it waits on, or
        :class:`Rejected`, which ends it unserved.

        It is asked after every limit of the step but memory, so that ``view`` says what would be scheduled; whom it
        lets pass may still find no blocks. A policy that refuses all requests while nothing runs stands still: the
        engine then says so (StuckError), unless ``next_moment`` names a time at which that changes.
        """
        return True

    def request_admitted(self, now: float, request: Request) -> None:
        """A request has joined the running list."""

    def request_finished(self, now: float, request: Request) -> None:
        """A request has ended, in whatever way (``request.status``); its blocks are given back, or pinned."""

    def keeps_blocks(self, now: float, request: Request) -> bool:
        """Whether the blocks of a request that has ended by itself stay pinned for the next turn of its job."""
        return False

    def free_for_waiting(self, refusal: Outcome, num_running: int) -> bool:
        """Memory refused the head of the queue: True if a pin was dropped, so that it is worth asking again."""
        return False

    def free_for_running(self, shortage: KVShortage, num_running: int) -> bool:
        """A running request cannot grow: True if a pin was dropped, so that perhaps no request need be preempted."""
        return False

    def next_moment(self, now: float) -> float | None:
        """When, after ``now``, something of this policy changes by itself: a pin expires. None: nothing does.

        Hosts that would wait for an event, with requests in the queues, take another step then.
        """
        return None

    def skips(self, refusal: Outcome) -> bool:
        """Memory refused the head of the queue, and nothing relieves it: True to skip it and try the request behind it.

        The head is the first to be tried in the next step (under FCFS). Bound whom you skip, or it starves.
        """
        return False

    def keeps_tokens(self, request: Request) -> int:
        """How many computed tokens of a request that is preempted stay in memory, in whole cached blocks; 0: none.

        Only its tail is freed then. What is kept is given up, of the request preempted last first, before another
        request is preempted, or once no request could run otherwise. It takes prefix caching and a model with one
        KV-cache group of full attention; elsewhere this is not asked.
        """
        return 0

    def evicts_first(self, blocks: Sequence[int], contents: Sequence[BlockHash | None]) -> Sequence[bool]:
        """Which blocks that lost their last holder, the end of a sequence first, are used again before all others.

        ``contents`` are the hashes that they can be found by, None where they hold nothing of use. The others are used
        again last, in their order. A policy that overrides this replaces vLLM's rule.
        """
        return [content is None for content in contents]


def looks_at_tokens(policy: Policy) -> bool:
    """What the very class of the policy says in ``reads_tokens``: True if it says nothing."""
    return type(policy) is not Policy and bool(vars(type(policy)).get("reads_tokens", True))


class FCFS(Policy):
    """First come, first served: skipped requests first, the youngest running one is the victim."""

    reads_tokens = False


class Priority(Policy):
    """Lower ``priority`` first, then earlier arrival, then id; the worst running request is the victim."""

    reads_tokens = False

    def new_queue(self) -> RequestQueue:
        return PriorityQueue()

    def next_queue(self, queues: WaitingQueues) -> RequestQueue:
        if not len(queues.skipped):
            return queues.waiting
        if not len(queues.waiting):
            return queues.skipped
        ahead = queues.waiting.peek().sort_key < queues.skipped.peek().sort_key
        return queues.waiting if ahead else queues.skipped

    def victim(self, running: Sequence[Request]) -> int:
        # max() keeps the first of equals, as vLLM does: the id is no tie-breaker here.
        return max(range(len(running)), key=lambda i: (running[i].priority, running[i].arrival_time))


_BUILT_IN: dict[str, Callable[[], Policy]] = {"fcfs": FCFS, "priority": Priority}


def make_policy(name: str) -> Policy:
    """The policy registered under ``name``; ConfigError if there is none, or what was installed does not work."""
    if not isinstance(name, str):
        raise ConfigError("policy", name, "give the name of a policy, as a text")
    if name in _BUILT_IN:
        return _BUILT_IN[name]()
    if name in SHIPPED:
        from importlib.metadata import EntryPoint  # noqa: PLC0415 - vLLM's own policies need it not

        ours: Policy = EntryPoint(name, SHIPPED[name], ENTRY_POINT_GROUP).load()()
        return ours
    for point in registered_policies():
        if point.name == name:
            from tokenyard.plugins import made_of_package  # noqa: PLC0415 - vLLM's own policies need it not

            theirs: Policy = made_of_package(point, "policy", Policy, "tokenyard.Policy")
            return theirs
    if file_and_class(name)[0]:
        raise ConfigError("policy", name, "load it with tokenyard.policy_maker, and give the scheduler what that makes")
    raise ConfigError("policy", name, policy_hint(name))


# ---------------------------------------------------------------------------------------------------------------------
# Between the scheduler and its policy: what a policy answers is checked, and whatever is wrong is reported in its name.


def _overrides(policy: Policy, method: str) -> bool:
    """Whether the policy does something of its own there."""
    return getattr(getattr(policy, method), "__func__", None) is not getattr(Policy, method)


_QUEUE_METHODS = ("__len__", "__iter__", *(name for name in vars(RequestQueue) if not name.startswith("_")))


_ANSWERED_ALIKE = (
    *("next_queue", "victim", "request_arrived", "request_admitted", "request_finished", "keeps_blocks"),
    *("keeps_tokens", "free_for_waiting", "free_for_running", "next_moment", "skips"),
)
"""Methods of a policy that its gate has as well, and answers as the policy does."""


class PolicyGate:
    """A policy whose answers can be relied on. Raises PolicyError for those that cannot, and for what it raises."""

    def __init__(self, policy: Policy) -> None:
        """ConfigError if it is no policy at all."""
        if not isinstance(policy, Policy):
            raise ConfigError("policy", policy, "give an object of a class derived from tokenyard.Policy")
        self.policy = policy
        self.acts_each_step = _overrides(policy, "step_begins")
        """It has something to do before a step is decided."""
        self.may_refuse = _overrides(policy, "admits")
        """It may refuse a request that the limits let pass."""
        self.hears_ends = _overrides(policy, "request_finished")
        """It is notified of the end of requests."""
        self.rejected: list[tuple[Request, str]] = []
        """Waiting requests that end unserved once the step is decided, each with its word."""
        self.keeps_some = _overrides(policy, "keeps_tokens")
        """It may keep a part of a preempted request."""
        self.evicts_first = self._evicts_first if _overrides(policy, "evicts_first") else None
        """Where freed blocks go; None: the pool's own rule."""

    def bind(self, context: PolicyContext) -> None:
        """Bind the policy, and check that it called its base class's ``bind``."""
        self._ask("bind", self.policy.bind, context)
        if not self.policy.is_bound or self.policy.context is not context:
            problem = "keeps its context to itself, or an earlier one: call super().bind(context) in it, every time"
            raise PolicyError(self.policy, "bind", problem)
        # What it leaves as it is raises nothing and needs no check, but where it asks a queue of the policy's own. It
        # may have chosen a method in its ``bind``.
        for method in _ANSWERED_ALIKE:
            asks_its_queues = method == "next_queue" and _overrides(self.policy, "new_queue")
            if not asks_its_queues and not _overrides(self.policy, method):
                setattr(self, method, getattr(self.policy, method))

    def new_queue(self, *in_use: RequestQueue) -> RequestQueue:
        """A queue that is none of those ``in_use``."""
        queue = self._ask("new_queue", self.policy.new_queue)
        missing = [name for name in _QUEUE_METHODS if not callable(getattr(queue, name, None))]
        if missing:
            fix = f"a queue of requests, empty and new at every call; this one lacks {', '.join(missing)}"
            raise self._wrong("new_queue", queue, fix)
        if any(queue is each for each in in_use) or len(queue):
            fix = "a queue of requests, empty and new at every call: it has returned this one before, or it holds some"
            raise self._wrong("new_queue", queue, fix)
        return queue

    def next_queue(self, queues: WaitingQueues) -> RequestQueue:
        """As :meth:`Policy.next_queue`."""
        queue = self._ask("next_queue", self.policy.next_queue, queues)
        if queue is not queues.waiting and queue is not queues.skipped:
            raise self._wrong("next_queue", queue, "queues.waiting or queues.skipped")
        if not len(queue):
            raise self._wrong("next_queue", queue, "the one of the two queues that holds a request: this one is empty")
        return queue

    def victim(self, running: Sequence[Request]) -> int:
        """As :meth:`Policy.victim`."""
        position = self._ask("victim", self.policy.victim, running)
        try:
            at = index(position)
        except TypeError:
            at = -1
        if not 0 <= at < len(running) or isinstance(position, bool):
            raise self._wrong("victim", position, f"an index of running, from 0 to {len(running) - 1}")
        return at

    def request_arrived(self, now: float, request: Request) -> None:
        """As :meth:`Policy.request_arrived`."""
        self._ask("request_arrived", self.policy.request_arrived, now, request)

    def step_begins(self, now: float, queues: WaitingQueues) -> StepBounds | None:
        """As :meth:`Policy.step_begins`."""
        bounds = self._ask("step_begins", self.policy.step_begins, now, queues)
        if bounds is None:
            return None
        problem = bounds.problem() if isinstance(bounds, StepBounds) else "None, or StepBounds(...)"
        if problem is not None:
            raise self._wrong("step_begins", bounds, problem)
        return bounds

    def admits(self, request: Request, view: AdmissionView) -> Refused | None:
        """As :meth:`Policy.admits`; None: it does."""
        answer = self._ask("admits", self.policy.admits, request, view)
        if isinstance(answer, Refused) and answer.is_sound:
            return answer
        if isinstance(answer, Rejected) and answer.is_sound:
            self.rejected.append((request, answer.detail))
            return Refused(answer.detail, tries_others=True)
        if not (isinstance(answer, bool | np.bool_) and answer):
            raise self._wrong("admits", answer, 'True, Refused("a word of your own") or Rejected("a word")')
        return None

    def request_admitted(self, now: float, request: Request) -> None:
        """As :meth:`Policy.request_admitted`."""
        self._ask("request_admitted", self.policy.request_admitted, now, request)

    def request_finished(self, now: float, request: Request) -> None:
        """As :meth:`Policy.request_finished`."""
        self._ask("request_finished", self.policy.request_finished, now, request)

    def keeps_blocks(self, now: float, request: Request) -> bool:
        """As :meth:`Policy.keeps_blocks`."""
        return self._yes_or_no("keeps_blocks", self._ask("keeps_blocks", self.policy.keeps_blocks, now, request))

    def free_for_waiting(self, refusal: Outcome, num_running: int) -> bool:
        """As :meth:`Policy.free_for_waiting`."""
        pinned = len(self.policy.pins)
        freed = self._ask("free_for_waiting", self.policy.free_for_waiting, refusal, num_running)
        return self._freed("free_for_waiting", freed, pinned)

    def free_for_running(self, shortage: KVShortage, num_running: int) -> bool:
        """As :meth:`Policy.free_for_running`."""
        pinned = len(self.policy.pins)
        freed = self._ask("free_for_running", self.policy.free_for_running, shortage, num_running)
        return self._freed("free_for_running", freed, pinned)

    def next_moment(self, now: float) -> float | None:
        """As :meth:`Policy.next_moment`."""
        moment = self._ask("next_moment", self.policy.next_moment, now)
        if moment is None:
            return None
        if isinstance(moment, bool) or not isinstance(moment, int | float | np.number) or not moment > now:
            raise self._wrong("next_moment", moment, f"a moment after now ({now:g}), in seconds, or None")
        return float(moment)

    def skips(self, refusal: Outcome) -> bool:
        """As :meth:`Policy.skips`."""
        return self._yes_or_no("skips", self._ask("skips", self.policy.skips, refusal))

    def keeps_tokens(self, request: Request) -> int:
        """As :meth:`Policy.keeps_tokens`."""
        kept = self._ask("keeps_tokens", self.policy.keeps_tokens, request)
        if isinstance(kept, bool) or not isinstance(kept, int | np.integer) or kept < 0:
            raise self._wrong("keeps_tokens", kept, "a number of tokens, from 0 on")
        return int(kept)

    def _evicts_first(self, freed: Sequence[int], contents: Sequence[BlockHash | None]) -> Sequence[bool]:
        """As :meth:`Policy.evicts_first`."""
        first = self._ask("evicts_first", self.policy.evicts_first, tuple(freed), contents)
        is_row = isinstance(first, Sequence) or (isinstance(first, np.ndarray) and first.ndim == 1)
        if not is_row or len(first) != len(freed):
            raise self._wrong("evicts_first", first, f"{len(freed)} answers, one for each block")
        return first

    def _ask(self, method: str, call: Callable[[*_Given], _Answer], *given: *_Given) -> _Answer:
        return asked(PolicyError, self.policy, method, call, *given)

    def _wrong(self, method: str, value: object, fix: str) -> PolicyError:
        return PolicyError(self.policy, method, f"returned {shown(value)}: return {fix}")

    def _yes_or_no(self, method: str, answer: object) -> bool:
        if not isinstance(answer, bool | np.bool_):
            raise self._wrong(method, answer, "True or False")
        return bool(answer)

    def _freed(self, method: str, answer: object, pinned: int) -> bool:
        """The scheduler asks again as long as the answer is True: it has to have freed one of so many pins."""
        freed = self._yes_or_no(method, answer)
        if freed and len(self.policy.pins) >= pinned:
            raise self._wrong(method, freed, "True only where a pin was dropped")
        return freed
