"""Fleets: what a policy over several engines may decide, what may happen to engines, and what carries it out.

    arrival ─► admit ─► route ─► an engine's inbox            rebalance ─► [Move]: KV over the link, then the inbox of
                  │ Rejected                                  another; what waits moves at once
    events     a crash loses requests and KV (clients send again, or lose them too), a slow engine, one that takes no
               more requests, a pool that shrinks

A request that moves goes on with the tokens that it has. What was computed of it is found again on the other engine as
a cached prefix, whole blocks of it, if there is room by the time that the link has brought it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from tokenyard.arguments import is_number
from tokenyard.core.basics import check_hook_names
from tokenyard.core.request import BlockHash, Request
from tokenyard.core.sched.candidate import Rejected
from tokenyard.errors import ConfigError, RejectedError, TokenyardError, shown
from tokenyard.sim.engines import Rank
from tokenyard.sim.replicas import Replicas
from tokenyard.sim.routers import EngineState, Router

__all__ = [
    "Crash",
    "Drain",
    "EngineView",
    "FleetControl",
    "FleetEvent",
    "FleetPolicy",
    "Move",
    "OwnRule",
    "PoolShrinks",
    "Slow",
    "check_events",
    "chosen_by",
    "fleet_policy_of",
    "overrides",
]

# ---------------------------------------------------------------------------------------------------------------------
# What happens to engines.


class Crash(msgspec.Struct, frozen=True, kw_only=True):
    """An engine loses all requests and all KV ``at``, and is there again from ``until`` on (None: never)."""

    rank: int
    at: float
    until: float | None = None
    resend: bool = True
    """Clients send their requests again, from the beginning; False: they are lost, and count as refused."""
    noticed_after: float = 0.0
    """Seconds until they do."""


class Slow(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of an engine take ``factor`` times as long: those that begin from ``at`` to ``until``."""

    rank: int
    at: float
    until: float | None = None
    factor: float = 2.0


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """An engine gets no further request from ``at`` to ``until``; it ends those that it has."""

    rank: int
    at: float
    until: float | None = None


class PoolShrinks(msgspec.Struct, frozen=True, kw_only=True):
    """An engine lacks ``blocks`` KV blocks from ``at`` to ``until``; they leave it as they become free."""

    rank: int
    at: float
    blocks: int
    until: float | None = None


FleetEvent: TypeAlias = Crash | Slow | Drain | PoolShrinks


def check_events(events: object, num_engines: int) -> tuple[FleetEvent, ...]:
    """Return the events. Raises ConfigError for what is none, or happens to no engine or at no time."""
    if not isinstance(events, Sequence) or not all(isinstance(each, FleetEvent) for each in events):
        raise ConfigError("events", events, "give a list of Crash, Slow, Drain and PoolShrinks")
    for each in events:
        if not isinstance(each.rank, int) or not 0 <= each.rank < num_engines:
            fix = f"rank: give the number of an engine, from 0 to {num_engines - 1}"
            raise ConfigError("events", each, fix)
        if not is_number(each.at) or (each.until is not None and not (is_number(each.until) and each.until > each.at)):
            raise ConfigError("events", each, "give at in seconds from 0 on, and until behind it, or None")
        if isinstance(each, Slow) and not is_number(each.factor, above=True):
            raise ConfigError("events", each, "factor: give a number above 0")
        if isinstance(each, PoolShrinks) and (not isinstance(each.blocks, int) or each.blocks < 1):
            raise ConfigError("events", each, "blocks: give a number from 1 on")
    return tuple(events)


# ---------------------------------------------------------------------------------------------------------------------
# What a policy sees, and decides.


class EngineView:
    """An engine as the policy of its fleet, and its router, see it: as it is, or as it was when it was last told of."""

    __slots__ = ("_rank",)

    def __init__(self, rank: Any) -> None:
        self._rank: Rank = rank

    @property
    def rank(self) -> int:
        """Its number, from 0."""
        return self._rank.rank

    @property
    def seen_at(self) -> float:
        """When it was like this, in seconds."""
        return self._rank.now

    @property
    def num_waiting(self) -> int:
        """Requests that do not run yet, those included that are on their way to it."""
        return self._rank.num_waiting

    @property
    def num_running(self) -> int:
        """Requests that run."""
        return self._rank.num_running

    @property
    def kv_usage(self) -> float:
        """Share of its KV blocks in use, from 0 to 1."""
        return self._rank.kv_usage

    @property
    def num_free_blocks(self) -> int:
        """KV blocks that are free, cached ones among them."""
        return self._rank.scheduler.num_free_blocks

    @property
    def running(self) -> Sequence[Request]:
        """Requests that run, in their order; not to be changed."""
        return tuple(self._rank.scheduler.state.running)

    @property
    def waiting(self) -> Sequence[Request]:
        """Requests that wait, in their order; not to be changed."""
        return self._rank.queued

    def num_cached_tokens(self, request: Request) -> int:
        """Leading tokens of the request whose KV it holds now, however old the rest of the view is."""
        return self._rank.num_cached_tokens(request)


_KEPT = ("seen_at", "num_waiting", "num_running", "kv_usage", "num_free_blocks", "running", "waiting")


class _OldView(EngineView):
    """The same as it was at one moment."""

    __slots__ = ("values",)

    def __init__(self, rank: Rank) -> None:
        super().__init__(rank)
        live = EngineView(rank)
        self.values: dict[str, Any] = {name: getattr(live, name) for name in _KEPT}


def _kept(name: str) -> property:
    def value(view: _OldView) -> Any:
        return view.values[name]

    return property(value)


for _name in _KEPT:
    setattr(_OldView, _name, _kept(_name))


class Move(NamedTuple):
    """A request that runs or waits goes on elsewhere."""

    request_id: str
    to: int
    """The engine's number."""


class FleetPolicy:
    """Decides over several engines. Override what yours decides; the rest is the router's and the autoscaler's.

    A class with a method that is called almost as one of these is refused when it is made (ConfigError).
    """

    sync: float = 1.0
    """Seconds between two calls of :meth:`rebalance`, and of :meth:`scale`."""
    stale: float = 0.0
    """Seconds between two looks at the engines: policy and router see them as they were at the last one; 0: as they
    are."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        check_hook_names(cls, "fleet")

    def admit(self, now: float, request: Request, engines: Sequence[EngineView]) -> bool | Rejected:
        """Whether a request that arrives is served: True, or :class:`Rejected`, which turns it away for good."""
        return True

    def route(self, now: float, request: Request, engines: Sequence[EngineView]) -> int | None:
        """Index, among ``engines``, of the one that gets the request; None: the router decides."""
        return None

    def rebalance(self, now: float, engines: Sequence[EngineView]) -> Sequence[Move]:
        """Requests that go on elsewhere; ``engines`` are those that are ready, one at least."""
        return ()

    def scale(self, now: float, engines: Sequence[EngineView]) -> int | None:
        """How many engines there should be, within the deployment's ``autoscale``; ``engines`` are those that are
        ready. None: as many as there are.
        """
        return None

    def request_ended(self, now: float, request_id: str, rank: int) -> None:
        """A request has ended on an engine, or was refused by it."""


def fleet_policy_of(choice: FleetPolicy | type[FleetPolicy]) -> FleetPolicy:
    """Return the policy of one replay's fleet. ConfigError for what is none, and for seconds that cannot be."""
    policy = choice
    if isinstance(choice, type) and issubclass(choice, FleetPolicy):
        try:
            policy = choice()
        except Exception as error:
            problem = f"it cannot be made without arguments: {type(error).__name__}: {error}"
            raise ConfigError("fleet", choice.__name__, problem) from error
    if not isinstance(policy, FleetPolicy):
        raise ConfigError("fleet", choice, "give a class derived from tokenyard.FleetPolicy, or an object of one")
    if not is_number(policy.sync, above=True) or not is_number(policy.stale):
        raise ConfigError("fleet", type(policy).__name__, "sync: give seconds above 0; stale: seconds from 0 on")
    return policy


def overrides(policy: FleetPolicy, method: str) -> bool:
    """Whether the policy does something of its own there."""
    return getattr(type(policy), method) is not getattr(FleetPolicy, method)


# ---------------------------------------------------------------------------------------------------------------------
# What carries it out.


class FleetOwner(Protocol):
    """The group of engines."""

    def touched(self, rank: int) -> None:
        """Something has changed about an engine."""

    def turned_away(self, error: RejectedError, request: Request) -> None:
        """A request ends unserved that no engine has."""

    def gone(self, requests: Sequence[Request]) -> None:
        """Clients of requests have left that no engine has."""


class _OnItsWay(NamedTuple):
    moment: float
    number: int
    request: Request
    contents: Sequence[BlockHash]
    """What was computed of it, block by block."""
    to: int | None
    """The engine; None: it is routed when it is there."""


class FleetControl:
    """Asks a policy, lets events happen, and moves requests between the engines of one group."""

    def __init__(
        self,
        policy: FleetPolicy,
        events: Sequence[FleetEvent],
        ranks: Sequence[Rank],
        owner: FleetOwner,
        router: Router,
        seconds_of: Callable[[int], float],
    ) -> None:
        """``seconds_of`` so many blocks over the link."""
        self.policy = policy
        self._ranks = ranks
        self._owner = owner
        self._router = router
        self._seconds_of = seconds_of
        self.replicas: Replicas | None = None
        """Which of the engines there are; None: all."""
        self.factors = [1.0] * len(ranks)
        """What the step times of each engine are multiplied by."""
        self._away: dict[int, int] = {}
        """Engine -> events for which it gets no request now."""
        self._to_come: list[tuple[float, int, bool, FleetEvent]] = []
        """Moment, number, whether it ends then; a heap."""
        for each in events:
            heappush(self._to_come, (each.at, len(self._to_come), False, each))
        self._numbers = len(events)
        self._on_their_way: list[_OnItsWay] = []
        self._backlog: list[Request] = []
        """Requests that came while no engine was there."""
        self._where: dict[str, int] = {}
        """Request under way -> its engine."""
        self._taken: list[list[int]] = [[] for _ in ranks]
        self._shrunk = [0] * len(ranks)
        """Blocks that have left each engine, and the number that should have."""
        self._seen: Sequence[EngineView] = [EngineView(rank) for rank in ranks]
        self._looked_at = -inf
        self._asks, self._hears_ends = overrides(policy, "rebalance"), overrides(policy, "request_ended")
        self._next_sync = policy.sync if self._asks else inf
        self.num_moved = self.num_resent = 0
        self.link_seconds = 0.0

    # ---- what there is to know

    @property
    def next_moment(self) -> float:
        """When something happens by itself."""
        event = self._to_come[0][0] if self._to_come else inf
        coming = self._on_their_way[0].moment if self._on_their_way else inf
        return min(event, coming, self._next_sync if self._where else inf)

    @property
    def has_work(self) -> bool:
        """Whether a request waits for something that will happen here."""
        if self._on_their_way or (self._backlog and self._can_come_back):
            return True
        return bool(self._to_come) and bool(self._where)

    def ready(self, now: float) -> list[int]:
        """Engines that take requests."""
        there = range(len(self._ranks)) if self.replicas is None else self.replicas.ready(now)
        return [rank for rank in there if not self._away.get(rank)]

    @property
    def _can_come_back(self) -> bool:
        """Whether an engine may be there later, when none is there now."""
        return bool(self._to_come) or (self.replicas is not None and self.replicas.one_starts)

    def views(self, now: float, ranks: Iterable[int]) -> Sequence[EngineView]:
        """Return engines as the policy sees them."""
        if self.policy.stale > 0 and now - self._looked_at >= self.policy.stale:
            self._looked_at = now
            self._seen = [_OldView(rank) for rank in self._ranks]
        return [self._seen[rank] for rank in ranks]

    # ---- requests

    def arrived(self, now: float, request: Request) -> None:
        """A request has come: it is admitted and routed, or turned away."""
        if overrides(self.policy, "admit"):
            answer = self._asked("admit", self.policy.admit, now, request, self.views(now, self.ready(now)))
            if isinstance(answer, Rejected) and answer.is_sound:
                self._owner.turned_away(RejectedError(request.request_id, answer.detail), request)
                return
            if answer is not True:
                raise self._wrong("admit", answer, 'return True, or Rejected("a word of your own")')
        self._route(now, request)

    def _route(self, now: float, request: Request) -> None:
        there = self.ready(now)
        if not there:
            if self._can_come_back:
                self._backlog.append(request)
            else:
                self._owner.turned_away(RejectedError(request.request_id, "no_engine"), request)
            return
        views = self.views(now, there)
        chosen: object = None
        if overrides(self.policy, "route"):
            chosen = self._asked("route", self.policy.route, now, request, views)
        if chosen is None:
            chosen = chosen_by(self._router, now, request, views)
        if isinstance(chosen, bool) or not isinstance(chosen, int) or not 0 <= chosen < len(there):
            raise self._wrong("route", chosen, f"return None, or an index of engines, from 0 to {len(there) - 1}")
        self._send(there[chosen], request)

    def _send(self, rank: int, request: Request) -> None:
        self._where[request.request_id] = rank
        self._ranks[rank].send(request)
        self._owner.touched(rank)

    def ended(self, now: float, request_id: str, rank: int) -> None:
        """A request has ended on an engine, or was refused by it."""
        self._where.pop(request_id, None)
        if self._hears_ends:
            self._asked("request_ended", self.policy.request_ended, now, request_id, rank)

    def abort(self, request_ids: Sequence[str]) -> None:
        """Clients have left: those of their requests end that no engine has."""
        gone = set(request_ids)
        left = [each for each in self._backlog if each.request_id in gone]
        left += [each.request for each in self._on_their_way if each.request.request_id in gone]
        if left:
            self._backlog = [each for each in self._backlog if each.request_id not in gone]
            self._on_their_way = [each for each in self._on_their_way if each.request.request_id not in gone]
            heapify(self._on_their_way)
            self._owner.gone(left)

    # ---- moments

    def act(self, now: float) -> None:
        """Let happen what is due: events, arrivals over the link, the policy's own moves."""
        while self._to_come and self._to_come[0][0] <= now:
            _, number, ends, event = heappop(self._to_come)
            self._happens(now, event, ends=ends)
            if not ends and event.until is not None:
                heappush(self._to_come, (event.until, number, True, event))
        while self._on_their_way and self._on_their_way[0].moment <= now:
            self._comes_in(now, heappop(self._on_their_way))
        if now >= self._next_sync:
            self._next_sync = now + self.policy.sync
            self._rebalance(now)
        if self._backlog and (self.ready(now) or not self._can_come_back):
            waiting, self._backlog = self._backlog, []
            for request in waiting:
                self._route(now, request)

    def worked(self, rank: int) -> None:
        """An engine has done something: blocks may have become free that are to leave it."""
        if len(self._taken[rank]) < self._shrunk[rank]:
            self._shrink(rank)

    def close(self) -> None:
        """Give all blocks back, at the end."""
        for rank in range(len(self._ranks)):
            self._shrunk[rank] = 0
            self._shrink(rank)

    def _happens(self, now: float, event: FleetEvent, *, ends: bool) -> None:
        rank = event.rank
        if isinstance(event, Slow):
            self.factors[rank] *= 1 / event.factor if ends else event.factor
        elif isinstance(event, PoolShrinks):
            self._shrunk[rank] += -event.blocks if ends else event.blocks
            self._shrink(rank)
        else:
            self._away[rank] = self._away.get(rank, 0) + (-1 if ends else 1)
            if isinstance(event, Crash) and not ends:
                self._crash(now, event)
        self._ranks[rank].wake()
        self._owner.touched(rank)

    def _shrink(self, rank: int) -> None:
        pool, taken = self._ranks[rank].scheduler.kv.pool, self._taken[rank]
        more = self._shrunk[rank] - len(taken)
        if more > 0:
            taken += pool.take(min(more, pool.num_free))
        elif more < 0:
            pool.release([taken.pop() for _ in range(-more)])

    def _crash(self, now: float, event: Crash) -> None:
        self._shrunk[event.rank], shrunk = 0, self._shrunk[event.rank]
        self._shrink(event.rank)
        lost = self._ranks[event.rank].lose_all(resend=event.resend)
        self._shrunk[event.rank] = shrunk
        self._shrink(event.rank)
        for request in lost:
            self._where.pop(request.request_id, None)
            if event.resend:
                self.num_resent += 1
                self._comes_later(now + event.noticed_after, request, (), None)

    def _rebalance(self, now: float) -> None:
        ready = self.ready(now)
        if not ready:
            return
        moves = self._asked("rebalance", self.policy.rebalance, now, self.views(now, ready))
        if not isinstance(moves, Sequence) or not all(isinstance(each, Move) for each in moves):
            raise self._wrong("rebalance", moves, 'return a list of Move("request id", to=rank)')
        there = set(ready)
        for move in moves:
            source = self._where.get(move.request_id)
            if move.to not in range(len(self._ranks)):
                raise self._wrong("rebalance", move, f"to: the number of an engine, from 0 to {len(self._ranks) - 1}")
            if source is None or source == move.to or move.to not in there:
                continue
            taken = self._ranks[source].take_out(move.request_id)
            if taken is None:
                continue
            request, contents = taken
            del self._where[move.request_id]
            self._owner.touched(source)
            seconds = self._seconds_of(len(contents)) if contents else 0.0
            self.num_moved += 1
            self.link_seconds += seconds
            self._comes_later(now + seconds, request, contents, move.to)

    def _comes_later(self, moment: float, request: Request, contents: Sequence[BlockHash], to: int | None) -> None:
        self._numbers += 1
        heappush(self._on_their_way, _OnItsWay(moment, self._numbers, request, contents, to))

    def _comes_in(self, now: float, coming: _OnItsWay) -> None:
        if coming.to is None or coming.to not in self.ready(now):
            self._route(now, coming.request)
            return
        self._ranks[coming.to].take_in_kv(coming.contents)
        self._send(coming.to, coming.request)

    # ---- the policy, asked

    def _asked(self, method: str, call: Callable[..., object], *given: object) -> object:
        try:
            return call(*given)
        except TokenyardError:
            raise
        except Exception as error:
            name = type(self.policy).__name__
            raise ConfigError("fleet", name, f"{method}() fails: {type(error).__name__}: {error}") from error

    def _wrong(self, method: str, answer: object, fix: str) -> ConfigError:
        return ConfigError("fleet", type(self.policy).__name__, f"{method}() returned {shown(answer)}: {fix}")


def chosen_by(router: Router, now: float, request: Request, engines: Sequence[EngineState]) -> int:
    """Return the index that a router chooses. Raises ConfigError for one that fails or names no engine."""
    name = type(router).__name__
    try:
        chosen = router.choose(now, request, engines)
    except TokenyardError:
        raise
    except Exception as error:
        raise ConfigError("router", name, f"choose() fails: {type(error).__name__}: {error}") from error
    if isinstance(chosen, bool) or not isinstance(chosen, int) or not 0 <= chosen < len(engines):
        fix = f"choose() has to return the index of an engine, from 0 to {len(engines) - 1}"
        raise ConfigError("router", name, f"{fix}, not {chosen!r}")
    return chosen


class OwnRule:
    """The number of replicas that a policy wants."""

    def __init__(self, control: FleetControl, least: int, most: int) -> None:
        self._control, self._least, self._most = control, least, most

    def desired(self, now: float, waiting: int, current: int) -> int:
        """Replicas that there should be, within the bounds. Raises ConfigError for what is no number."""
        control = self._control
        wanted = control.policy.scale(now, control.views(now, control.ready(now)))
        if wanted is None:
            return current
        if isinstance(wanted, bool) or not isinstance(wanted, int):
            problem = f"scale() returned {shown(wanted)}: return a number of engines, or None"
            raise ConfigError("fleet", type(control.policy).__name__, problem)
        return min(max(wanted, self._least), self._most)
