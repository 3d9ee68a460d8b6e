"""Which engine gets a request: the seam, simple routers, vLLM's own balancing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from tokenyard.core.basics import check_hook_names
from tokenyard.core.profiles import NEWEST, release_facts
from tokenyard.core.request import Request
from tokenyard.errors import ConfigError

if TYPE_CHECKING:
    pass

# ---------------------------------------------------------------------------------------------------------------------
# The seam: a router chooses an engine for every request that arrives, and gets the statistics that engines report.


class EngineState(Protocol):
    """An engine as it is at this moment."""

    @property
    def rank(self) -> int:
        """Its number, from 0."""

    @property
    def num_waiting(self) -> int:
        """Requests that do not run yet, those included that were sent to it during the step that it takes."""

    @property
    def num_running(self) -> int: ...

    @property
    def kv_usage(self) -> float:
        """Share of its KV blocks in use, from 0 to 1."""

    def num_cached_tokens(self, request: Request) -> int:
        """Leading tokens of the request whose KV it holds."""


class EngineReport(msgspec.Struct, frozen=True):
    """What an engine tells when its counts have changed: after requests came in, and after a step."""

    rank: int
    num_waiting: int
    num_running: int
    kv_usage: float
    wave: int
    """The wave, where the model's ranks step together; else 0."""
    step: int
    """Steps in the wave; else 0."""


class Router(ABC):
    """Decides who serves a request, once, when it arrives. Derive from it for one of your own.

    A class with a method that is called almost as one of these is refused when it is made (ConfigError).
    """

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        check_hook_names(cls, "router")
        if cls.choose is Router.choose:
            fix = "is missing, so no engine could be chosen: define choose(self, now, request, engines)"
            raise ConfigError("router", f"{cls.__qualname__}.choose", fix)

    @abstractmethod
    def choose(self, now: float, request: Request, engines: Sequence[EngineState]) -> int:
        """Index of the engine that gets ``request``; ``now`` is in seconds on the replay's clock."""

    def engine_reported(self, now: float, report: EngineReport) -> None:  # noqa: B027 - most routers need not know
        """An engine's counts have changed."""

    def request_ended(self, now: float, request_id: str, rank: int) -> None:  # noqa: B027
        """A request ended on the engine ``rank``, or was refused by it."""


# ---------------------------------------------------------------------------------------------------------------------
# Routers that look at the engines as they are: what a balancer in front of them could do at best.


class RoundRobin(Router):
    """One after the other."""

    def __init__(self) -> None:
        self._next = 0

    def choose(self, now: float, request: Request, engines: Sequence[EngineState]) -> int:
        chosen = self._next % len(engines)
        self._next = chosen + 1
        return chosen


class LeastLoaded(Router):
    """Chooses the engine with the fewest requests; of several, the one with the most free KV, then the first."""

    def choose(self, now: float, request: Request, engines: Sequence[EngineState]) -> int:
        return min(range(len(engines)), key=lambda i: load_of(engines[i]))


class PrefixAffinity(Router):
    """Chooses the engine that holds most of the request's beginning; of several, the least loaded.

    Engines that have ``most_ahead`` requests more than the one with the fewest are ignored; None: none is.
    """

    def __init__(self, most_ahead: int | None = None) -> None:
        self._most_ahead = most_ahead

    def choose(self, now: float, request: Request, engines: Sequence[EngineState]) -> int:
        fewest = min(load_of(each)[0] for each in engines)
        among = [
            i
            for i, each in enumerate(engines)
            if self._most_ahead is None or load_of(each)[0] < fewest + self._most_ahead
        ]
        return min(among, key=lambda i: (-engines[i].num_cached_tokens(request), *load_of(engines[i])))


def load_of(engine: EngineState) -> tuple[int, float, int]:
    """Requests that it has, KV in use, number: the least loaded has the least."""
    return engine.num_waiting + engine.num_running, engine.kv_usage, engine.rank


# ---------------------------------------------------------------------------------------------------------------------
# What vLLM's front ends know of the engines: counts that a coordinator gathers and publishes now and then.
#
# engines ── counts, when they change ──► coordinator ── every 100 ms, if they changed; else every 5 s ──► front ends
#
# Facts of ``v1/engine/coordinator.py``. It publishes when its poll times out, and every message from an engine begins
# the poll anew: 50 ms have to pass in silence, unless a step of all ranks was seen to end; what is published then are
# the counts before the step that follows. In later versions that holds for ranks that step together alone.

_INTERVAL, _IDLE_INTERVAL, _SILENCE = 0.1, 5.0, 0.05


class PublishedCounts(NamedTuple):
    """Counts of one engine, as they were published."""

    num_waiting: int = 0
    num_running: int = 0
    kv_usage: float = 0.0


class DPCoordinator:
    """Published counts at any moment; messages take no time. It starts, and publishes, at 0."""

    def __init__(self, num_engines: int, *, needs_silence: bool, steps_together: bool) -> None:
        """``needs_silence``: the 50 ms; ``steps_together``: what is published are the counts between two steps."""
        self._counts = [PublishedCounts()] * num_engines
        self._silence = _SILENCE if needs_silence else 0.0
        self._steps_together = steps_together
        self._published = tuple(self._counts)
        self._number = 0
        """The publication's number: front ends forget what they added when it changes."""
        self._published_at = 0.0
        self._heard_at = 0.0
        self._changed = False
        self._before_step: tuple[PublishedCounts, ...] | None = None
        self._last_step = (-1, -1)

    def hear(self, now: float, report: EngineReport) -> None:
        """An engine's counts have changed."""
        self._publish_until(now)
        step = (report.wave, report.step)
        if self._steps_together and step > self._last_step:
            if self._changed:
                self._before_step = tuple(self._counts)
            self._last_step = step
        self._counts[report.rank] = PublishedCounts(report.num_waiting, report.num_running, report.kv_usage)
        self._changed = True
        self._heard_at = now

    def published(self, now: float) -> tuple[int, tuple[PublishedCounts, ...]]:
        """The last counts that were published before ``now``, and how many times that had happened."""
        self._publish_until(now)
        return self._number, self._published

    def _publish_until(self, now: float) -> None:
        while (moment := self._next_moment) < now:
            if self._before_step is not None:
                self._published, self._before_step = self._before_step, None
            else:
                self._published = tuple(self._counts)
                self._changed = False
            self._number += 1
            self._published_at = self._heard_at = moment

    @property
    def _next_moment(self) -> float:
        interval = _INTERVAL if self._changed else _IDLE_INTERVAL
        silence = self._silence if self._before_step is None else 0.0
        return max(self._heard_at + silence, self._published_at + interval)


# ---------------------------------------------------------------------------------------------------------------------
# vLLM's own balancing: every front end (API server) takes the engine with the lowest score, by what it knows.
#
#     earlier   4 x waiting + running                         ties: the first from its own start, which later moves on
#     later     the larger of: its own requests under way (x front ends), waiting + running;
#               + 6 x waiting x (KV use above one half)
#
# Facts of ``DPLBAsyncMPClient`` in ``v1/engine/core_client.py``. Waiting and running are those that the coordinator
# published last, and every request that the front end has sent since counts as waiting (x front ends). In earlier
# versions the engines of a dense model report nothing: all is 0 again every five seconds. Which front end a client is
# connected to is the operating system's affair: here they take turns.


class Fleet(msgspec.Struct, frozen=True):
    """What there is to balance."""

    num_engines: int
    steps_together: bool = False
    """The ranks of a mixture of experts."""
    vllm_version: str = NEWEST.vllm_version
    num_front_ends: int = 1
    """vLLM starts as many as there are engines, unless a setting says otherwise."""


class VLLMBalancing(Router):
    """Front ends in turns, each choosing as vLLM's does."""

    def __init__(self, fleet: Fleet) -> None:
        facts = release_facts(fleet.vllm_version)
        is_old = not facts.dense_ranks_are_alone
        self._coordinator = DPCoordinator(
            fleet.num_engines,
            needs_silence=is_old or fleet.steps_together,
            steps_together=is_old or fleet.steps_together,
        )
        self._engines_report = fleet.steps_together or not is_old
        front_end = _OwnCountingFrontEnd if facts.front_ends_count_own else _FrontEnd
        self._front_ends = [front_end(i, fleet) for i in range(fleet.num_front_ends)]
        self._senders: dict[str, _FrontEnd] = {}
        self._next = 0

    def choose(self, now: float, request: Request, engines: Sequence[EngineState]) -> int:
        front_end = self._front_ends[self._next]
        self._next = (self._next + 1) % len(self._front_ends)
        self._senders[request.request_id] = front_end
        return front_end.choose(*self._coordinator.published(now))

    def engine_reported(self, now: float, report: EngineReport) -> None:
        if self._engines_report:
            self._coordinator.hear(now, report)

    def request_ended(self, now: float, request_id: str, rank: int) -> None:
        self._senders.pop(request_id).under_way[rank] -= 1


class _FrontEnd:
    """What one API server knows, and whom it takes, by what engines have published."""

    def __init__(self, index: int, fleet: Fleet) -> None:
        self._times = fleet.num_front_ends
        self._rotates = release_facts(fleet.vllm_version).front_ends_rotate
        self._start = fleet.num_engines * index // fleet.num_front_ends
        self._known = [PublishedCounts()] * fleet.num_engines
        self._number = -1
        """Number of the publication that it knows."""
        self.under_way = [0] * fleet.num_engines
        """Requests of its own that have not ended, on each engine."""

    def choose(self, number: int, published: Sequence[PublishedCounts]) -> int:
        """The engine, by what was published; it is remembered that it has one more."""
        if number != self._number:
            self._number, self._known = number, list(published)
        order = [(self._start + i) % len(self._known) for i in range(len(self._known))]
        chosen = min(order, key=self._score)
        counts = self._known[chosen]
        self._known[chosen] = counts._replace(num_waiting=counts.num_waiting + self._times)
        self.under_way[chosen] += 1
        self._start = (self._start + self._rotates) % len(self._known)
        return chosen

    def _score(self, rank: int) -> float:
        counts = self._known[rank]
        return 4 * counts.num_waiting + counts.num_running


class _OwnCountingFrontEnd(_FrontEnd):
    """Knows what it has sent itself as well, and how full the KV caches are."""

    def _score(self, rank: int) -> float:
        waiting, running, usage = self._known[rank]
        return max(self._times * self.under_way[rank], waiting + running) + 6 * waiting * max(0.0, usage - 0.5)
