"""Small policies: bounded bypass, least computed, shortest remaining."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isnan

from tokenyard.arguments import is_number
from tokenyard.core.config import require_int
from tokenyard.core.request import Request, RequestStatus
from tokenyard.core.sched.calls import asked
from tokenyard.core.sched.outcomes import Outcome
from tokenyard.core.sched.policy import Policy
from tokenyard.core.sched.queues import PriorityQueue, RequestQueue, WaitingQueues
from tokenyard.errors import ConfigError, PolicyError, shown

# ---------------------------------------------------------------------------------------------------------------------
# Policies that order both waiting queues by a key of the request.

Key = tuple[float, ...]


class KeyedPolicy(Policy):
    """The least key first, whichever queue it is in; of equals who arrived first, then who joined the queue first.

    A subclass has a :meth:`key` of its own, or ConfigError says so when it is made: without one its order is FCFS's.
    """

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if cls.key is KeyedPolicy.key and cls.new_queue is KeyedPolicy.new_queue:
            fix = "is missing, so the policy would order as fcfs does: define key(self, request), which returns a tuple"
            raise ConfigError("policy", f"{cls.__qualname__}.key", fix)

    def key(self, request: Request) -> Key:
        """Sorts requests; taken when one joins a queue, and when a session that waits there gets its next input.

        So it must not change otherwise while the request waits.
        """
        return (request.arrival_time,)

    def new_queue(self) -> RequestQueue:
        def checked(request: Request) -> tuple[Key, float]:
            key = asked(PolicyError, self, "key", self.key, request)
            if not isinstance(key, tuple) or not all(isinstance(each, int | float) and not isnan(each) for each in key):
                raise PolicyError(self, "key", f"returned {shown(key)}: return a tuple of numbers")
            return key, request.arrival_time

        return PriorityQueue(key=checked, by_id=False)

    def next_queue(self, queues: WaitingQueues) -> RequestQueue:
        waiting, skipped = queues.waiting, queues.skipped
        if not len(skipped) or (len(waiting) and self.key(waiting.peek()) < self.key(skipped.peek())):
            return waiting
        return skipped


# ---------------------------------------------------------------------------------------------------------------------
# Service: tokens that requests have been given, counted while they run.
#
# A policy tells the meter of admissions and lets it settle before it compares. A token of output costs more than one
# of input, as in the virtual token counter (arXiv 2401.00588): it takes a step of its own.

OUTPUT_WEIGHT = 2
"""Cost of an output token in input tokens."""


class ServiceMeter:
    """Charges running requests for what they have been given since they were last looked at."""

    __slots__ = ("_charge", "_seen")

    def __init__(self, charge: Callable[[Request, int], None]) -> None:
        self._charge = charge
        self._seen: dict[Request, int] = {}
        """Admitted request -> output tokens it has paid for."""

    def __len__(self) -> int:
        return len(self._seen)

    def admitted(self, request: Request) -> None:
        """Charge for its prompt (what the cache held is charged as well) and watch its output."""
        self._charge(request, request.num_tokens)
        self._seen[request] = request.num_output_tokens

    def charge_output(self) -> None:
        """Charge for output; forget who does not run any more. A preempted request pays again when it comes back."""
        for request, paid in list(self._seen.items()):
            output = request.num_output_tokens
            if output > paid:
                self._charge(request, OUTPUT_WEIGHT * (output - paid))
                self._seen[request] = output
            if request.status.is_finished or request.status is RequestStatus.PREEMPTED:
                del self._seen[request]


# ---------------------------------------------------------------------------------------------------------------------
# Bounded bypass: while memory refuses the head of the queue, requests behind it may go first, but not for ever.
#
# With a strict queue one long prompt that has to wait for memory makes every short one behind it wait as well (vLLM's
# issues 31731 and 35852). Here those behind it are tried. The head ages: once it has been skipped for
# ``patience`` seconds, or by ``limit`` admitted requests, none passes it any more, memory comes back as running
# requests end, and it is admitted.


class _Blocked:
    """A request that memory refused."""

    __slots__ = ("admitted", "since")

    def __init__(self, since: float, admitted: int) -> None:
        self.since = since
        """When it was refused first."""
        self.admitted = admitted
        """Requests that had been admitted by then."""


class Bypass(Policy):
    """First come, first served, past a head that memory refuses.

    ``looks`` bounds the requests that are skipped in one step, and with them what a step costs.
    """

    reads_tokens = False

    def __init__(self, patience: float = 5.0, limit: int = 64, looks: int = 16) -> None:
        if not is_number(patience):
            raise ConfigError("patience", patience, "give a number of seconds from 0 on")
        require_int("limit", limit, 0)
        require_int("looks", looks, 1)
        self._patience = patience
        self._limit = limit
        self._looks = looks
        self._now = 0.0
        self._looked = 0
        self._admitted = 0
        self.blocked: dict[str, _Blocked] = {}

    def step_begins(self, now: float, queues: WaitingQueues) -> None:
        self._now, self._looked = now, 0
        if len(self.blocked) > 4 * self._looks:
            # Some were aborted while they were blocked: no hook of a policy is called then.
            self.blocked = {rid: each for rid, each in self.blocked.items() if queues.get(rid) is not None}

    def request_admitted(self, now: float, request: Request) -> None:
        self._admitted += 1
        self.blocked.pop(request.request_id, None)

    def skips(self, refusal: Outcome) -> bool:
        assert refusal.request_id is not None
        blocked = self.blocked.setdefault(refusal.request_id, _Blocked(self._now, self._admitted))
        self._looked += 1
        return (
            self._looked <= self._looks
            and self._now - blocked.since < self._patience
            and self._admitted - blocked.admitted < self._limit
        )


# ---------------------------------------------------------------------------------------------------------------------
# The victim that loses least: of the running requests the one with the fewest computed tokens.
#
# vLLM takes the youngest, however far its prefill has come. The request that has computed most is never the victim
# while others run, so one request always gets on (the waste was measured in vLLM's issue 54644).


class LeastComputed(Policy):
    """First come, first served; the least computed running request is the victim, the youngest of equals."""

    reads_tokens = False

    def victim(self, running: Sequence[Request]) -> int:
        return min(range(len(running)), key=lambda i: (running[i].num_computed_tokens, -i))


# ---------------------------------------------------------------------------------------------------------------------
# Shortest remaining work first, with ageing.
#
# Remaining work is what a request still has to compute: known tokens, plus its output up to ``max_tokens`` (twice,
# since each takes a step). ``max_tokens`` is all a scheduler knows; where all clients set it too high, prompts
# decide. A request with ``predicted_output_tokens`` is believed, up to ``max_tokens``; one that outlives its
# prediction has one token to go. Waiting is worth ``ageing`` tokens a second, so no request starves: one that
# arrives ``w / ageing`` seconds after one with ``w`` tokens more work does not go before it.


def remaining_work(request: Request) -> int:
    """Work left, in input tokens; cache hits that it may find when it is admitted are not counted."""
    output = request.max_tokens - request.num_output_tokens
    predicted = request.predicted_output_tokens
    if predicted is not None:
        output = min(output, max(predicted - request.num_output_tokens, 1))
    return request.num_tokens - request.num_computed_tokens + OUTPUT_WEIGHT * output


class ShortestRemaining(KeyedPolicy):
    """The request that has least to do goes first; the victim is the running request that has most to do."""

    reads_tokens = False
    reads_max_tokens = True

    def __init__(self, ageing: float = 1000.0) -> None:
        if not is_number(ageing, above=True):
            raise ConfigError("ageing", ageing, "give a number of tokens per second above 0")
        self._ageing = ageing

    def key(self, request: Request) -> Key:
        """Sorts requests. One that arrives later is that much behind, so none need be sorted anew."""
        return remaining_work(request) + self._ageing * request.arrival_time, request.arrival_time

    def victim(self, running: Sequence[Request]) -> int:
        return max(range(len(running)), key=lambda i: (remaining_work(running[i]), i))
