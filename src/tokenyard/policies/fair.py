"""Policies over users: weighted fair sharing, attained service."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from heapq import heappop, heappush, heapreplace
from itertools import chain, count
from typing import Generic, TypeVar
from weakref import WeakSet

from tokenyard.arguments import is_number
from tokenyard.core.params import user_name
from tokenyard.core.request import Request
from tokenyard.core.sched.policy import Policy
from tokenyard.core.sched.queues import FCFSQueue, RequestQueue, WaitingQueues
from tokenyard.errors import ConfigError
from tokenyard.policies.simple import Key, KeyedPolicy, ServiceMeter

# ---------------------------------------------------------------------------------------------------------------------
# A waiting queue with one line per user or program; the policy says whose turn it is.

User = tuple[int, str]
Line = TypeVar("Line", bound=Hashable)


def user_of(request: Request) -> User:
    """(``client_index``, the user's name within this client)."""
    return request.client_index, user_name(request.job_id)


class LineQueue(Generic[Line]):
    """Several lines, in each the first come is the first served; a subclass says which line is next."""

    __slots__ = ("__weakref__", "_line_of", "_requests", "lines")

    def __init__(self, line_of: Callable[[Request], Line]) -> None:
        self._line_of = line_of
        self.lines: dict[Line, FCFSQueue] = {}
        """Lines with at least one request, the one here longest in front."""
        self._requests: dict[str, Request] = {}

    def first_line(self) -> Line:
        """The line whose head is tried next; there is one."""
        raise NotImplementedError

    def has_new_head(self, line: Line) -> None:
        """Notified of a line that is new here, or whose head has others behind it now."""

    def add(self, request: Request) -> None:
        line = self._line_of(request)
        self._requests[request.request_id] = request
        if line in self.lines:
            self.lines[line].add(request)
        else:
            self.prepend(request)

    def prepend(self, request: Request) -> None:
        line = self._line_of(request)
        self._requests[request.request_id] = request
        self.lines.setdefault(line, FCFSQueue()).prepend(request)
        self.has_new_head(line)

    def prepend_all(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.prepend(request)

    def peek(self) -> Request:
        return self.lines[self.first_line()].peek()

    def pop(self) -> Request:
        request = self.peek()
        self.discard(request)
        return request

    def discard(self, request: Request) -> bool:
        line = self._line_of(request)
        waiting = self.lines.get(line)
        if waiting is None or not waiting.discard(request):
            return False
        del self._requests[request.request_id]
        if not len(waiting):
            del self.lines[line]
        return True

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return chain.from_iterable(self.lines.values())

    def get(self, request_id: str) -> Request | None:
        return self._requests.get(request_id)


class UserQueue(LineQueue[User]):
    """A line per user; the user with the least ``counter`` goes first, then the one here longest."""

    __slots__ = ("_counter", "_on_pop")

    def __init__(self, counter: Callable[[User], float], on_pop: Callable[[Request], None]) -> None:
        super().__init__(user_of)
        self._counter = counter
        self._on_pop = on_pop

    def first_line(self) -> User:
        return min(self.lines, key=self._counter)

    def pop(self) -> Request:
        request = super().pop()
        self._on_pop(request)
        return request

    def __iter__(self) -> Iterator[Request]:
        for user in sorted(self.lines, key=self._counter):
            yield from self.lines[user]


# ---------------------------------------------------------------------------------------------------------------------
# Weighted fair sharing between users: the one who has been given least goes first (virtual token counters).
#
# A *user* is a ``client_index`` (one per front end) and, within it, the part of ``job_id`` before its first ``/``:
# ``alice/task-7`` is alice's. A job id without ``/`` is a user of its own; requests without a job share their
# client's counter. Within a user it is first come, first served. A user who comes back from being idle starts no lower
# than the lowest of those that wait: idleness earns no credit.

_MANY_USERS = 10_000
"""Counters kept before those are dropped that an arrival would lift anyway."""


class FairShare(Policy):
    """The user who was given least goes first, by weight; a user is a client, or what stands before / in the job id.

    ``weights`` by user name: a user of weight 2 is given twice the tokens of one of weight 1 (the default).
    """

    reads_tokens = False
    reorders = True

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        if weights is not None and not isinstance(weights, Mapping):
            raise ConfigError("weights", weights, 'give the weight of each user by name: {"ann": 2.0}')
        self._weights = dict(weights or {})
        for name, weight in self._weights.items():
            if not is_number(weight, above=True):
                raise ConfigError("weights", f"{name}: {weight}", "give a number above 0")
        self.given: dict[User, float] = {}
        """Weighted tokens per user; only their differences mean something."""
        self._meter = ServiceMeter(self._charge)
        self._taken: dict[User, float] = {}
        """Prompts admitted in this step, until the meter charges for them."""
        self._queues: WeakSet[UserQueue] = WeakSet()
        """All queues in which a request may wait."""
        self._floor = 0.0
        """Counter of the user served last: where users start when no request waits."""

    def new_queue(self) -> RequestQueue:
        queue = UserQueue(self._counter, self._charge_in_advance)
        self._queues.add(queue)
        return queue

    def next_queue(self, queues: WaitingQueues) -> RequestQueue:
        if not len(queues.skipped) or (
            len(queues.waiting) and self._counter_of_head(queues.waiting) < self._counter_of_head(queues.skipped)
        ):
            return queues.waiting
        return queues.skipped

    def request_arrived(self, now: float, request: Request) -> None:
        user = user_of(request)
        lines = [queue.lines for queue in self._queues]
        if sum(len(line[user]) for line in lines if user in line) > 1:
            return
        others = {other for line in lines for other in line} - {user}
        least = min((self.given.get(other, 0.0) for other in others), default=self._floor)
        self.given[user] = max(self.given.get(user, 0.0), least)
        if len(self.given) > _MANY_USERS:
            self.given = {
                u: counter for u, counter in self.given.items() if counter > least or u in others or u == user
            }

    def step_begins(self, now: float, queues: WaitingQueues) -> None:
        self._taken.clear()
        if len(queues) or len(self._meter) > _MANY_USERS:
            self._meter.charge_output()

    def request_admitted(self, now: float, request: Request) -> None:
        self._meter.admitted(request)
        self._floor = self.given.get(user_of(request), 0.0)

    def _counter_of_head(self, queue: RequestQueue) -> float:
        return self._counter(user_of(queue.peek()))

    def _counter(self, user: User) -> float:
        return self.given.get(user, 0.0) + self._taken.get(user, 0.0)

    def _weighted(self, request: Request, tokens: int) -> float:
        return tokens / self._weights.get(user_of(request)[1], 1.0)

    def _charge_in_advance(self, request: Request) -> None:
        user = user_of(request)
        self._taken[user] = self._taken.get(user, 0.0) + self._weighted(request, request.num_tokens)

    def _charge(self, request: Request, tokens: int) -> None:
        user = user_of(request)
        self.given[user] = self.given.get(user, 0.0) + self._weighted(request, tokens)


# ---------------------------------------------------------------------------------------------------------------------
# Least attained service: the program that has been given least goes first, so short programs are not held up by long.
#
# Service is counted over all turns of a job, as in program-level schedulers for agents (Autellix): a new program
# starts at nothing, one that has had much waits. Waiting is worth ``ageing`` tokens a second, so none starves: a
# request that arrives ``s / ageing`` seconds after one with ``s`` tokens more does not go before it.

_MANY_PROGRAMS = 65_536


class ProgramQueue(LineQueue[str | None]):
    """A line per job, and one for requests without; the line whose head has the least key goes first.

    A key may rise while its request waits, as other turns of the job run: a key that is found too small is put back
    with the one it has now, so the least that is left as it was is the least of all.
    """

    __slots__ = ("_heap", "_key", "_newest", "_numbers")

    def __init__(self, key: Callable[[Request], Key]) -> None:
        super().__init__(lambda request: request.job_id)
        self._key = key
        self._heap: list[tuple[Key, int, str | None]] = []
        self._newest: dict[str | None, int] = {}
        """Line -> the number of its entry in the heap; others of the line are out of date."""
        self._numbers = count()

    def has_new_head(self, line: str | None) -> None:
        heappush(self._heap, self._entry(line))

    def _entry(self, line: str | None) -> tuple[Key, int, str | None]:
        number = self._newest[line] = next(self._numbers)
        return self._key(self.lines[line].peek()), number, line

    def first_line(self) -> str | None:
        heap = self._heap
        while True:
            key, number, line = heap[0]
            if self._newest.get(line) != number:
                heappop(heap)
            elif line not in self.lines:
                heappop(heap)
                del self._newest[line]
            elif self._key(self.lines[line].peek()) == key:
                return line
            else:
                heapreplace(heap, self._entry(line))

    def __iter__(self) -> Iterator[Request]:
        return iter(sorted(super().__iter__(), key=self._key))


class AttainedService(KeyedPolicy):
    """Orders by tokens that the request's job has been given, output counted twice; no job, no service."""

    reads_tokens = False

    def __init__(self, ageing: float = 1000.0) -> None:
        if not is_number(ageing, above=True):
            raise ConfigError("ageing", ageing, "give a number of tokens per second above 0")
        self._ageing = ageing
        self._given: OrderedDict[str, int] = OrderedDict()
        self._meter = ServiceMeter(self._charge)

    def new_queue(self) -> RequestQueue:
        return ProgramQueue(self.key)

    def key(self, request: Request) -> Key:
        """Sorts requests: one that arrives later is that much behind. It rises while other turns of the job run."""
        given = self._given.get(request.job_id, 0) if request.job_id is not None else 0
        return given + self._ageing * request.arrival_time, request.arrival_time

    def step_begins(self, now: float, queues: WaitingQueues) -> None:
        self._meter.charge_output()

    def request_admitted(self, now: float, request: Request) -> None:
        self._meter.admitted(request)

    def _charge(self, request: Request, tokens: int) -> None:
        if request.job_id is not None:
            self._given[request.job_id] = self._given.get(request.job_id, 0) + tokens
            self._given.move_to_end(request.job_id)
            if len(self._given) > _MANY_PROGRAMS:
                self._given.popitem(last=False)
