"""The event loop of every replay: groups of engines on one clock, from the first arrival to the last end.

    arrival -> the first group's router -> an engine's inbox -> its steps -> its end there
                                                                 |
               the next group's router <- one that goes on <-----+-----> the client's next turn arrives

The contract. Everything that happens is an :class:`Event`: it has a moment, and the clock stands there when it happens.
The one with the smallest moment is next. At one moment steps end first, then replicas come and go, then requests
arrive, then clients hang up, then steps begin; of equal ones the engine with the smaller rank is first, then the
earlier group. So a router sees every engine after the same moment, and who arrives at the end of a step is in the next
one.

An engine that is alone need not come back after every step: until its *horizon*, the first moment at which anything
else can happen, it goes on by itself, and may take steps that decide alike in one stroke
(:mod:`tokenyard.core.sched.fast_forward`). It comes back when a request ends, since that can bring a turn, and when it
is time to say how far the replay has come.

The loop ends when nothing is left that could happen, when its time is over, or when the observer says so. What
happens at the very last moment still does if it is the end of a step or an arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple, Protocol

from tokenyard.core.request import Request
from tokenyard.core.sched.outputs import EngineOutputs
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.errors import ConfigError, RejectedError, RequestError
from tokenyard.sim.engines import Lockstep, LockstepExecutor, Rank, RankInStep
from tokenyard.sim.executor import SimulatedModel, SimulatedSpeculation, WorkerTransfers, executor_for
from tokenyard.sim.fleet import FleetControl, FleetEvent, FleetPolicy, OwnRule, Slow, chosen_by, overrides
from tokenyard.sim.numbering import blank_tokens
from tokenyard.sim.replicas import Autoscaling, Replicas
from tokenyard.sim.routers import EngineReport, Router
from tokenyard.sim.traffic import ClientSessions, Extent
from tokenyard.steptime.model import LatencyModel, MappedLatency, StepShape
from tokenyard.steptime.pace import VirtualClock
from tokenyard.workload.record import WorkloadRequest

STEP_ENDS, _SCALING, ARRIVAL, HANGING_UP, _STEP_BEGINS, _QUESTION = range(6)
"""What may happen at a moment, in this order."""
_FETCHED_LATER: Mapping[str, object] = {"do_remote_decode": True}
"""What the first of two engines is told: the other will fetch the KV."""


class Event(NamedTuple):
    """Something that is about to happen."""

    moment: float
    kind: int
    rank: int = 0
    group: int = 0


# ---------------------------------------------------------------------------------------------------------------------
# Engines behind one router, on a clock that they may share with others.


class Agenda:
    """What each of many engines does next, so that an event costs as much with a hundred of them as with two.

    Only for engines that nothing moves but what is sent to them and what they do: each of that is ``touched``.
    """

    def __init__(self, ranks: Sequence[Rank]) -> None:
        self._ranks = ranks
        self.touched = set(range(len(ranks)))
        """Engines whose entries are to be made anew."""
        self._entries = [0] * len(ranks)
        """Number of the entry of each engine that counts; earlier ones are ignored."""
        self._later: list[tuple[float, int, int, int]] = []
        """A heap of moments to come: moment, kind, engine, number."""
        self._now: list[tuple[int, int, int]] = []
        """A heap of what is to happen at once: kind, engine, number."""
        self._with_work: set[int] = set()

    def touch(self, rank: int) -> None:
        """The engine was sent something, or has done something."""
        self.touched.add(rank)

    @property
    def has_work(self) -> bool:
        """Whether some engine will do something by itself."""
        self.look()
        return bool(self._with_work)

    def next_event(self, now: float, group: int) -> Event | None:
        """The first of what the engines do."""
        self.look()
        later, at_once, entries = self._later, self._now, self._entries
        while later and (later[0][0] <= now or entries[later[0][2]] != later[0][3]):
            _, kind, rank, entry = heappop(later)
            if entries[rank] == entry:
                heappush(at_once, (kind, rank, entry))
        while at_once and entries[at_once[0][1]] != at_once[0][2]:
            heappop(at_once)
        if at_once:
            return Event(now, at_once[0][0], at_once[0][1], group)
        return Event(later[0][0], later[0][1], later[0][2], group) if later else None

    def look(self) -> None:
        """Ask those that were touched what they do next."""
        for number in self.touched:
            rank = self._ranks[number]
            moment, kind = rank.wakes_at(), STEP_ENDS if rank.is_due else _STEP_BEGINS
            self._entries[number] = entry = self._entries[number] + 1
            if moment is None:
                self._with_work.discard(number)
                continue
            self._with_work.add(number)
            if moment == -inf:
                heappush(self._now, (kind, number, entry))
            elif moment < inf:
                heappush(self._later, (moment, kind, number, entry))
        self.touched.clear()


class EngineParts(NamedTuple):
    """What an engine is made of."""

    scheduler: Scheduler
    transfers: WorkerTransfers | None = None
    """What moves its KV; None: nothing does."""


class FleetSettings(NamedTuple):
    """What decides over the engines together, and what happens to them."""

    policy: FleetPolicy
    events: Sequence[FleetEvent]
    seconds_of: Callable[[int], float]
    """How long so many blocks take from one engine to another."""


class GroupOwner(Protocol):
    """What lets events of groups happen: a loop. It is notified of requests that end otherwise than by a step."""

    def refused(self, error: RequestError, request: Request, group: int, rank: int) -> None:
        """The engine that a request was sent to cannot serve it."""

    def aborted(self, requests: Sequence[Request], group: int) -> None:
        """Requests have ended because their clients went away."""


class EngineGroup:
    """The engines, each with its rank; it listens to them. It is made, then bound to its owner, then sent requests."""

    def __init__(
        self,
        clock: VirtualClock,
        latency: LatencyModel,
        router: Router | None,
        parts: Sequence[EngineParts],
        *,
        steps_together: bool = False,
        speculation: SimulatedSpeculation | None = None,
        autoscaling: Autoscaling | None = None,
        leaps: bool = False,
        blank: bool = False,
        models: Sequence[SimulatedModel] = (),
        latencies: Sequence[LatencyModel] = (),
        fleet: FleetSettings | None = None,
    ) -> None:
        """Without ``router`` there is one engine. ``leaps``: it may take steps that decide alike in one stroke.
        ``blank``: tokens are not looked at. ``models``: what the engines say, where it is not the usual. ``latencies``:
        those of engines that step alone, where each has its own.

        ConfigError for ranks that step together in several pipeline stages.
        """
        self._clock = clock
        self._router = router
        self.is_blank = blank
        self._bound_to: tuple[GroupOwner, int] | None = None
        """Its owner, and its number among the owner's groups."""
        self._lockstep = Lockstep(len(parts), latency) if steps_together and len(parts) > 1 else None
        stages = parts[0].scheduler.config.pipeline_parallel_size
        if self._lockstep is not None and stages > 1:
            fix = "stages of ranks that step together (experts, data parallel) are not modelled: give 1"
            raise ConfigError("pipeline_parallel_size", stages, fix)
        self.control: FleetControl | None = None
        """What its fleet's policy decides, and what happens to its engines; None: neither."""
        self.ranks: list[Rank] = []
        for rank, (scheduler, transfers) in enumerate(parts):
            model = models[rank] if models else None
            if self._lockstep is None:
                alone = executor_for(
                    clock,
                    self._latency_of(rank, latencies[rank] if latencies else latency, fleet),
                    scheduler.config,
                    transfers=transfers,
                    speculation=speculation,
                    silent=blank,
                    model=model,
                )
                self.ranks.append(Rank(rank, scheduler, alone, clock, transfers, self, leaps=leaps))
            else:
                joined = LockstepExecutor(
                    clock, latency, self._lockstep, rank, transfers=transfers, speculation=speculation, model=model
                )
                self.ranks.append(RankInStep(rank, scheduler, joined, clock, transfers, self))
        is_apart = self._lockstep is None and all(each.transfers is None for each in parts)
        if fleet is not None and router is not None:
            self.control = FleetControl(fleet.policy, fleet.events, self.ranks, self, router, fleet.seconds_of)
        self._agenda = Agenda(self.ranks) if is_apart and len(parts) > 1 else None
        """None: ranks keep step, or one's transfers move another, or there is but one."""
        rule = None
        if self.control is not None and autoscaling is not None and overrides(self.control.policy, "scale"):
            rule = OwnRule(self.control, autoscaling.least, autoscaling.most)
            autoscaling = replace(autoscaling, sync=self.control.policy.sync)
        self.replicas = None if autoscaling is None else Replicas(autoscaling, self.ranks, rule)
        """Which of the engines there are; None: all, always."""
        if self.control is not None:
            self.control.replicas = self.replicas

    def _latency_of(self, rank: int, latency: LatencyModel, fleet: FleetSettings | None) -> LatencyModel:
        """That of an engine, which an event may slow down."""
        if fleet is None or not any(isinstance(each, Slow) for each in fleet.events):
            return latency

        def slowed(seconds: float, shape: StepShape) -> float:
            return seconds if self.control is None else seconds * self.control.factors[rank]

        return MappedLatency(latency, slowed)

    def bind(self, owner: GroupOwner, number: int) -> None:
        """Once, before anything else: whose group this is, and which of them."""
        assert self._bound_to is None, "an owner needs groups of its own"
        self._bound_to = owner, number

    @property
    def _owner(self) -> tuple[GroupOwner, int]:
        assert self._bound_to is not None, "bind() comes before requests"
        return self._bound_to

    # ---- what there is to know

    @property
    def schedulers(self) -> list[Scheduler]:
        return [rank.scheduler for rank in self.ranks]

    @property
    def max_model_len(self) -> int:
        """The limit of the engine with the largest."""
        return max(rank.scheduler.config.max_model_len for rank in self.ranks)

    @property
    def waves(self) -> int:
        """Times that all ranks began to step together; 0 where each steps alone."""
        return 0 if self._lockstep is None else self._lockstep.wave + self._lockstep.is_running

    @property
    def has_work(self) -> bool:
        """Whether it will do something by itself."""
        if self.control is not None and self.control.has_work:
            return True
        return any(rank.has_work for rank in self.ranks) if self._agenda is None else self._agenda.has_work

    def events(self) -> list[Event]:
        """What its engines do next, were it only to keep step; the first of them is among these."""
        now, (_, group) = self._clock.now(), self._owner
        if self._agenda is None:
            events = [
                Event(max(moment, now), STEP_ENDS if rank.is_due else _STEP_BEGINS, rank.rank, group)
                for rank in self.ranks
                if (moment := rank.next_moment()) is not None and moment < inf
            ]
        else:
            first = self._agenda.next_event(now, group)
            events = [] if first is None else [first]
        if self._lockstep is not None and self._lockstep.is_running:
            held = [rank.held_until for rank in self.ranks if isinstance(rank, RankInStep)]
            ready = [each for each in held if each is not None]
            if len(ready) == len(held):
                events.append(Event(max(now, *ready), _QUESTION, 0, group))
        changes = [each.next_moment for each in (self.replicas, self.control) if each is not None]
        if changes and (change := min(changes)) < inf:
            events.append(Event(max(change, now), _SCALING, 0, group))
        return events

    # ---- what it does

    def happen(self, event: Event, horizon: float) -> EngineOutputs | None:
        """Let one of its events happen, once the clock is there; what a step brought, as ``Rank.act`` has it."""
        if event.kind == _QUESTION:
            assert self._lockstep is not None
            self._lockstep.ask(unfinished=any(each.has_unfinished_requests() for each in self.schedulers))
            return None
        if event.kind == _SCALING:
            now = self._clock.now()
            if self.replicas is not None and self.replicas.next_moment <= now:
                self.replicas.act(now)
            if self.control is not None:
                self.control.act(now)
            return None
        outputs = self.ranks[event.rank].act(horizon)
        self._touch(event.rank)
        if outputs is not None and self._router is not None:
            now = self._clock.now()
            for row in outputs.finish_reasons:
                self._tell_ended(now, outputs.requests[row].request_id, event.rank)
        if self.control is not None:
            self.control.worked(event.rank)
        if self.replicas is not None:
            self.replicas.worked(self._clock.now(), event.rank)
        return outputs

    def send(self, now: float, request: Request) -> None:
        """A request has arrived: the router says who gets it. ConfigError for a router that fails or names none."""
        if self.control is not None:
            self.control.arrived(now, request)
            return
        chosen = 0 if self._router is None else self._chosen(self._router, now, request)
        self.ranks[chosen].send(request)
        self._touch(chosen)

    def abort(self, request_ids: Sequence[str]) -> None:
        """Clients have gone away: each engine ends those of their requests that it has before its next step."""
        for rank in self.ranks:
            rank.abort(request_ids)
            self._touch(rank.rank)
        if self.control is not None:
            self.control.abort(request_ids)

    def _touch(self, rank: int) -> None:
        if self._agenda is not None:
            self._agenda.touch(rank)

    def _chosen(self, router: Router, now: float, request: Request) -> int:
        there = range(len(self.ranks)) if self.replicas is None else self.replicas.ready(self._clock.now())
        engines = [self.ranks[i] for i in there]
        chosen = chosen_by(router, now, request, engines)
        return there[chosen]

    # ---- what its ranks report to it

    @property
    def wants_reports(self) -> bool:
        return self._router is not None

    def engine_reported(self, report: EngineReport) -> None:
        if self._router is not None:
            self._router.engine_reported(self._clock.now(), report)

    def aborted(self, requests: Sequence[Request], rank: int) -> None:
        self._request_ended(requests, rank)
        owner, group = self._owner
        owner.aborted(requests, group)

    def refused(self, error: RequestError, request: Request, rank: int) -> None:
        self._request_ended([request], rank)
        owner, group = self._owner
        owner.refused(error, request, group, rank)

    def _request_ended(self, requests: Sequence[Request], rank: int) -> None:
        if self._router is not None:
            for request in requests:
                self._tell_ended(self._clock.now(), request.request_id, rank)

    def _tell_ended(self, now: float, request_id: str, rank: int) -> None:
        if self._router is not None:
            self._router.request_ended(now, request_id, rank)
        if self.control is not None:
            self.control.ended(now, request_id, rank)

    # ---- what its fleet's control reports to it

    def touched(self, rank: int) -> None:
        self._touch(rank)

    def turned_away(self, error: RejectedError, request: Request) -> None:
        owner, group = self._owner
        self.ranks[0].went_on_without(request)
        owner.refused(error, request, group, 0)

    def gone(self, requests: Sequence[Request]) -> None:
        owner, group = self._owner
        owner.aborted(requests, group)


# ---------------------------------------------------------------------------------------------------------------------
# The loop.


class Loop:
    """Runs ``traffic`` through ``groups``: each request through all of them, one after the other."""

    def __init__(
        self, traffic: ClientSessions, groups: Sequence[EngineGroup], clock: VirtualClock, extent: Extent
    ) -> None:
        self._traffic = traffic
        self._groups = groups
        self._clock = clock
        self._extent = extent
        self._is_alone = (
            len(groups) == len(groups[0].ranks) == 1 and groups[0].replicas is None and groups[0].control is None
        )
        self.is_out_of_time = False
        self._arrived: dict[str, tuple[float, WorkloadRequest]] = {}
        """Requests that have to go on to another group, with the moments of their arrival."""
        for number, group in enumerate(groups):
            group.bind(self, number)

    @property
    def schedulers(self) -> list[Scheduler]:
        """The schedulers of all engines."""
        return [scheduler for group in self._groups for scheduler in group.schedulers]

    def run(self) -> None:
        """Run until nothing is left that could happen, or it is to end."""
        traffic, clock, extent = self._traffic, self._clock, self._extent
        while not traffic.is_stopped and (event := self._next_event()) is not None:
            if not extent.reaches(event.moment, may_be_last=event.kind <= ARRIVAL):
                self._run_out_of_time()
                return
            clock.advance_to(event.moment)
            if event.kind == ARRIVAL:
                for moment, request in traffic.due(clock.now()):
                    self._arrive(moment, request)
            elif event.kind == HANGING_UP:
                gone = traffic.leaving(clock.now())
                for group in self._groups:
                    group.abort(gone)
            else:
                horizon = min(traffic.next_event, extent.until) if self._is_alone else -inf
                outputs = self._groups[event.group].happen(event, horizon)
                if outputs is not None:
                    self._came_out(outputs, event)

    def _next_event(self) -> Event | None:
        """None: nothing will happen. Where a request waits for what never comes, the schedulers know who."""
        traffic, now = self._traffic, self._clock.now()
        arrival, leaving = traffic.next_moment, traffic.next_abort
        if (arrival is None or leaving is not None) and not any(group.has_work for group in self._groups):
            if arrival is None:
                return None
            leaving = None
        events = [event for group in self._groups for event in group.events()]
        if arrival is not None:
            events.append(Event(max(arrival, now), ARRIVAL))
        if leaving is not None:
            events.append(Event(max(leaving, now), HANGING_UP))
        return min(events, default=None)

    def _run_out_of_time(self) -> None:
        """Requests that arrived while the last steps ran have arrived."""
        self._clock.advance_to(self._extent.until)
        self.is_out_of_time = True
        for group in self._groups:
            for rank in group.ranks:
                rank.receive()

    # ---- requests

    def _arrive(self, moment: float, request: WorkloadRequest) -> None:
        first, goes_on = self._groups[0], len(self._groups) > 1
        try:
            length, longest = request.num_prompt_tokens, first.max_model_len
            tokens = blank_tokens(length) if first.is_blank and length < longest else None
            asked = replace(request, max_tokens=1, limit=None) if goes_on else request
            params = _FETCHED_LATER if goes_on else None
            arrived = asked.arrive(moment, longest, tokens=tokens, kv_transfer_params=params)
        except RequestError as error:
            self._traffic.refuse(moment, error, request.request_id)
            self._go_on_without(moment, request)
            return
        if goes_on:
            self._arrived[request.request_id] = moment, request
        first.send(moment, arrived)

    def _came_out(self, outputs: EngineOutputs, event: Event) -> None:
        """Requests have ended in a group: they go on to the next, or are done."""
        is_last = event.group == len(self._groups) - 1
        if is_last:
            self._traffic.ended(outputs, self._clock.now())
        else:
            self._go_on(outputs, self._groups[event.group + 1])
        if self._groups[event.group].ranks[event.rank].wants_report(outputs) and is_last:
            self._traffic.report(self._clock.now(), *self.schedulers)

    def _go_on(self, outputs: EngineOutputs, group: EngineGroup) -> None:
        """Prompts are computed: on with them to the engines that answer."""
        for row in outputs.finish_reasons:
            request_id = outputs.requests[row].request_id
            moment, request = self._arrived.pop(request_id)
            try:
                params = outputs.kv_transfer_params[request_id]
                second = request.arrive(moment, group.max_model_len, kv_transfer_params=params)
            except RequestError as error:
                self._traffic.refuse(self._clock.now(), error, request_id)
                self._go_on_without(moment, request)
                continue
            group.send(self._clock.now(), second)

    def refused(self, error: RequestError, request: Request, group: int, rank: int) -> None:
        is_last = group == len(self._groups) - 1
        moment = request.arrival_time if len(self._groups) == 1 else self._clock.now()
        self._traffic.refuse(moment, error, request.request_id)
        if not isinstance(error, RejectedError):  # whose end the scheduler has told
            self._groups[-1].ranks[rank if is_last else 0].went_on_without(request)

    def _go_on_without(self, moment: float, request: WorkloadRequest) -> None:
        """A request is refused that was no request of the scheduler's yet; where it would have ended, it is noted."""
        self._groups[-1].ranks[0].went_on_without(request.unserved(moment, blank_tokens(request.num_prompt_tokens)))

    def aborted(self, requests: Sequence[Request], group: int) -> None:
        self._traffic.aborted(requests, self._clock.now())
