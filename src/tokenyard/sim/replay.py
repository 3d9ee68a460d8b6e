"""A workload through engines on a virtual clock: one engine, several behind a router, or prefill and decode apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Unpack

import msgspec
import numpy as np

from tokenyard.arguments import given_function
from tokenyard.connectors.prefill_decode import PrefillDecodeConnector
from tokenyard.core.config import CacheConfig, SchedulerConfig, require_int
from tokenyard.core.kv.groups import hash_block_size
from tokenyard.core.sched.connector import KVConnector
from tokenyard.core.sched.eviction import EvictionOrder, Evictor
from tokenyard.core.sched.observer import StepObserver
from tokenyard.core.sched.policy import Policy, looks_at_tokens
from tokenyard.core.sched.request_checks import check_lengths
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.errors import ConfigError
from tokenyard.explain.report.report import ClientFigures, ReplicaFigures
from tokenyard.policies.eviction import eviction_of
from tokenyard.quick_dataclass import dataclass
from tokenyard.sim.choices import (
    ConnectorChoice,
    ObserverChoice,
    PolicyChoice,
    RouterChoice,
    check_arguments,
    check_kinds,
    connector_of,
    observer_of,
    policy_maker_of,
    router_of,
    together,
)
from tokenyard.sim.engines import RankUse
from tokenyard.sim.executor import SimulatedSpeculation, WorkerTransfers
from tokenyard.sim.fleet import FleetPolicy, check_events, fleet_policy_of
from tokenyard.sim.loop import EngineGroup, EngineParts, FleetSettings, Loop
from tokenyard.sim.numbering import SymbolicHasher
from tokenyard.sim.options import ReplayKeywords, ReplayOptions, takes_options
from tokenyard.sim.replicas import Autoscaling
from tokenyard.sim.routers import Fleet, Router, VLLMBalancing
from tokenyard.sim.rows.rows import ReplayRows, RowsOfEngine
from tokenyard.sim.settings import MOST_ENGINES, DecodeSide, KVLink, ReplaySettings, check_link
from tokenyard.sim.traffic import (
    ClientSessions,
    EndedBy,
    Extent,
    OnProgress,
    RefusedRequest,
    Unfinished,
    require_patience,
    require_settled,
    shown_progress,
)
from tokenyard.sim.transfers import DecodeTransfers, Link, PrefillTransfers, SimulatedTransfers
from tokenyard.steptime.model import LatencyModel, StepShape, step_seconds
from tokenyard.steptime.pace import MachineSpeed, VirtualClock, paced
from tokenyard.workload.record import Workload

# ---------------------------------------------------------------------------------------------------------------------
# What came of it.


class EngineUse(msgspec.Struct, frozen=True):
    """What one group of engines did."""

    steps: int
    """Steps of all its engines."""
    busy_seconds: float
    """Seconds that one engine was busy, on average."""
    ranks: tuple[RankUse, ...]
    """What each of its engines did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult(Unfinished):
    """What happened.

    ``num_finished + num_aborted + len(refused) + num_left_out``, and of a replay that ended before its workload
    ``len(unfinished) + num_not_arrived``, are the number of the workload's requests.
    """

    seconds: float
    """Virtual time from 0 to the end of the last step."""
    groups: tuple[EngineUse, ...]
    """What the engines did: of a split those that prefill and those that decode, else all."""
    num_finished: int
    """Requests that ran to their end."""
    refused: tuple[RefusedRequest, ...]
    """Requests that can never be served, with ``skip_refused``."""
    num_left_out: int
    """Turns after a refused one: their session ended with it."""
    output_tokens: int
    """Tokens sampled."""
    num_aborted: int = 0
    """Requests whose clients went away before their end."""
    clients: ClientFigures | None = None
    """What clients did that retry; None where the workload's do not."""
    waves: int = 0
    """Times that all engines began to step together; 0 where each steps alone."""
    replicas: ReplicaFigures | None = None
    """What replicas did that come and go; None where none do."""
    kv_bytes: int = 0
    """Bytes that a split sent from one GPU of every prefill engine, added up."""
    link_busy_seconds: float = 0.0
    """Seconds that the wire of one prefill engine of a split was busy, on average."""
    rows: ReplayRows | None = None
    """Tables of requests, steps and waits, and the report, with ``rows=True``. Of a split, engines are counted from the
    first that prefills to the last that decodes; requests are those of the decode engines, and those that did not get
    there."""

    @property
    def ranks(self) -> tuple[RankUse, ...]:
        """What each engine did."""
        return tuple(rank for group in self.groups for rank in group.ranks)

    @property
    def steps(self) -> int:
        """Steps that were decided, on all engines."""
        return sum(group.steps for group in self.groups)

    @property
    def busy_seconds(self) -> float:
        """Time in steps, of all ``seconds``; of several engines, that of one on average."""
        return _use_of(self.ranks).busy_seconds

    @property
    def prefill(self) -> EngineUse:
        """What the engines did that prefill."""
        return self.groups[0]

    @property
    def decode(self) -> EngineUse:
        """What the engines did that decode."""
        return self.groups[-1]


def _use_of(ranks: Sequence[RankUse]) -> EngineUse:
    busy = sum(use.busy_seconds for use in ranks) / len(ranks)
    return EngineUse(sum(use.steps for use in ranks), busy, tuple(ranks))


# ---------------------------------------------------------------------------------------------------------------------
# The ways to ask for a replay.


@takes_options
def replay(
    workload: Workload,
    config: SchedulerConfig,
    cache_config: CacheConfig,
    latency: LatencyModel,
    *,
    pace: MachineSpeed | None = None,
    kv_transfer: ConnectorChoice | None = None,
    speculation: SimulatedSpeculation | None = None,
    leaps: bool = True,
    **options: Unpack[ReplayKeywords],
) -> ReplayResult:
    """Run the workload; with ``kv_transfer`` on an engine that keeps KV elsewhere, too.

    ``policy`` (default: the one that ``config`` names) is a registered name, ``FILE.py:CLASS``, a class, an object, or
    a function that makes one; ``observer`` an object, a class, a function that makes one, a ``ReportBuilder``, or a
    list of them; ``kv_transfer`` a ``KVTransfer``, anything with its ``make``, or a function with the arguments of
    ``make``.

    ``rows``: the result has tables of requests, steps and waits. ``warmup``: requests that arrive in the first so many
    seconds of virtual time count neither there nor in a ``ReportBuilder``; they are replayed, and other observers see
    them. ``until``: the replay ends at so many seconds of virtual time, and the result names what is unfinished then;
    it also ends when ``on_progress``, which is called every 256 steps or so, returns ``"stop"``. ``progress`` shows a
    line on standard error.

    With ``config.pipeline_parallel_size`` above 1 several steps are in flight, each in another stage; a step's time is
    that of all stages together. ``pace``: the machine is slower than ``latency`` at some moments, faster at others.

    ``make_scheduler`` is called with what ``Scheduler`` takes, and returns one: a subclass, or one with ``limits`` and
    ``hooks`` of your own.

    ``speculation`` proposes drafts after every step and says how many are right; making them takes no time. With
    ``config.async_scheduling`` two steps are in flight: the host's part of a step passes while the GPU computes.

    A request that can never be served (longer than ``max_model_len`` or than the pool) raises its RequestError before
    the first step; with ``skip_refused`` it is counted, and the turns after it are left out with it. ConfigError for
    arguments that are something else, or in another order.

    Steps that decide alike are taken in one stroke, and token ids and hashes are made only where a reader looks at
    them (``reads_tokens`` of the observer and the policy); without ``leaps`` steps are taken one by one and everything
    is made, which gives the same.
    """
    check_arguments(workload, config, cache_config, latency)
    check_kinds(pace=(pace, MachineSpeed), speculation=(speculation, SimulatedSpeculation))
    clock = VirtualClock()
    if pace is not None:
        latency = paced(latency, pace, clock)
    engine = ReplaySettings(config, cache_config, latency, kv_transfer=kv_transfer, speculation=speculation)
    run = _Replay(workload, ReplayOptions(**options), clock, 1)
    return run.result([run.group(engine, alone=True, leaps=leaps)])


@takes_options
def replay_parallel(
    workload: Workload,
    config: SchedulerConfig,
    cache_config: CacheConfig,
    latency: LatencyModel,
    router: RouterChoice,
    *,
    data_parallel_size: int,
    steps_together: bool = False,
    observers: Sequence[ObserverChoice | None] | None = None,
    policies: Sequence[PolicyChoice | None] | None = None,
    kv_transfer: ConnectorChoice | None = None,
    speculation: SimulatedSpeculation | None = None,
    autoscaling: Autoscaling | None = None,
    **options: Unpack[ReplayKeywords],
) -> ReplayResult:
    """Run the workload on ``data_parallel_size`` engines, each with a KV cache of its own.

    ``autoscaling``: of the engines there are at any moment as many as it says; they are its most.

    ``steps_together``: the ranks of a mixture of experts, which take every step with all others. ``router`` is a name,
    ``FILE.py:CLASS``, a class, an object, or a function that makes one (of the ``Fleet``, if it takes one).
    ``policy`` and ``observer`` are as for :func:`~tokenyard.sim.replay.replay`: a class or a function makes one for
    each engine, an object observes all of them. ``policies`` and ``observers`` are one for each engine. The rest is as
    for ``replay``, and with one engine so is everything that happens.

    Raises ConfigError for a router that fails or names no engine, RequestError as ``replay`` does.
    """
    check_arguments(workload, config, cache_config, latency)
    check_kinds(speculation=(speculation, SimulatedSpeculation), autoscaling=(autoscaling, Autoscaling))
    require_int("data_parallel_size", data_parallel_size, 1, MOST_ENGINES)
    fleet = Fleet(data_parallel_size, steps_together, config.profile.vllm_version)
    engines = ReplaySettings(
        config,
        cache_config,
        latency,
        kv_transfer=kv_transfer,
        speculation=speculation,
        fleet=fleet,
        router=router,
        autoscaling=autoscaling,
    )
    run = _Replay(workload, ReplayOptions(**options), VirtualClock(), data_parallel_size)
    return run.result([run.group(engines, observers=observers, policies=policies)])


def replay_engines(
    workload: Workload,
    settings: ReplaySettings,
    *,
    decode: DecodeSide | None = None,
    observers: Sequence[StepObserver | None],
    policy: PolicyChoice,
    on_progress: OnProgress | None = None,
    warmup: float = 0.0,
    until: float | None = None,
) -> ReplayResult:
    """Run the workload on the engines of ``settings``, or where there is a ``decode`` side on those of both.

    ``observers``: one for each engine, those that prefill first. Errors are those of :func:`replay` for one engine, of
    :func:`replay_parallel` for several, of :func:`replay_split` for two sides.
    """
    skip_refused = settings.skip_refused
    options = ReplayOptions(
        policy=policy, skip_refused=skip_refused, on_progress=on_progress, warmup=warmup, until=until
    )
    size = settings.fleet.num_engines
    if decode is not None:
        return _replayed_disaggregated(workload, options, settings, decode, (observers[:size], observers[size:]))
    alone = size == 1 and settings.autoscaling is None and settings.policy is None and not settings.events
    run = _Replay(workload, options, VirtualClock(), size)
    return run.result([run.group(settings, observers=observers, alone=alone, leaps=alone)])


@takes_options
def replay_split(
    workload: Workload,
    config: SchedulerConfig,
    cache_config: CacheConfig,
    latency: LatencyModel,
    link: KVLink,
    *,
    fleet: Fleet | None = None,
    router: RouterChoice = VLLMBalancing,
    decode: ReplaySettings | None = None,
    observers: tuple[Sequence[ObserverChoice | None], Sequence[ObserverChoice | None]] | None = None,
    **options: Unpack[ReplayKeywords],
) -> ReplayResult:
    """Run the workload on two fleets of engines of the same kind: one prefills, the other fetches the KV and answers.

    A request arrives at both with its own arrival time, so that the decode engines' latencies are those its client
    sees. Each side takes its steps when it likes. Every prefill engine has a wire of its own, and what it sends goes
    through it in turn.

    ``fleet`` (one engine, if it is None) and ``router`` are of each side. ``decode``: scheduler, cache, latency, fleet
    and router of the decode engines, where they are others than those of the prefill engines; blocks are as large.
    ``observers`` watch the prefill engines and the decode engines, one each, ``observer`` all of them. ``policy`` and
    ``router`` are names, classes, or functions that make one: one is needed for each engine, and for each side. The
    rest is as for :func:`~tokenyard.sim.replay.replay`.

    RequestError for a request that cannot be served, unless ``skip_refused``.
    """
    check_arguments(workload, config, cache_config, latency)
    check_link(link)
    check_kinds(fleet=(fleet, Fleet), decode=(decode, ReplaySettings))
    if observers is not None and not (isinstance(observers, tuple | list) and len(observers) == 2):
        raise ConfigError("observers", observers, "give two lists: of the prefill engines, and of the decode engines")
    prefill = ReplaySettings(config, cache_config, latency, fleet=fleet or Fleet(1), router=router)
    decoding, watching = DecodeSide(decode or prefill, link), observers or (None, None)
    return _replayed_disaggregated(workload, ReplayOptions(**options), prefill, decoding, watching)


def _replayed_disaggregated(
    workload: Workload,
    options: ReplayOptions,
    prefill: ReplaySettings,
    decode: DecodeSide,
    observers: tuple[Sequence[ObserverChoice | None] | None, Sequence[ObserverChoice | None] | None],
) -> ReplayResult:
    require_patience(workload)
    sides = [
        msgspec.structs.replace(side, kv_transfer=None, speculation=None, autoscaling=None)
        for side in (prefill, decode.engines)
    ]
    if sides[0].router is sides[1].router and isinstance(prefill.router, Router):
        name = type(prefill.router).__name__
        raise ConfigError("router", name, "each side needs one of its own: give the class, a function, or a name")
    clock, sizes = VirtualClock(), [side.fleet.num_engines for side in sides]
    wires = [Link(decode.link.seconds_of) for _ in range(sizes[0])]
    sources = {f"prefill-{rank}": PrefillTransfers(clock.now, wire) for rank, wire in enumerate(wires)}
    targets = {
        f"decode-{rank}": DecodeTransfers(clock.now, decode.link.bytes_per_block, sources) for rank in range(sizes[1])
    }
    run = _Replay(workload, options, clock, sum(sizes))

    def group(number: int, transfers: Mapping[str, WorkerTransfers]) -> EngineGroup:
        cache = sides[number].cache
        connectors = [(PrefillDecodeConnector(cache, name, clock.now), each) for name, each in transfers.items()]
        return run.group(sides[number], observers=observers[number], connectors=connectors)

    return run.result([group(0, sources), group(1, targets)], wires)


# ---------------------------------------------------------------------------------------------------------------------
# The engines of a replay, made of what was requested.


def prefill_seconds(latency: LatencyModel) -> Callable[[int], float]:
    """Seconds of one step that computes a prompt of so many tokens, alone and whole: what policies that weigh
    recomputing want to know.
    """

    def seconds(num_tokens: int) -> float:
        return step_seconds(latency, StepShape(np.array([num_tokens]), np.array([0]), 1, num_tokens))

    return seconds


def load_seconds(transfers: object, tokens_per_block: int) -> Callable[[int], float] | None:
    """Seconds that the KV of so many tokens takes from a connector's tier; None where there is none, or none is said.

    A connector of another's making need not say it.
    """
    if not isinstance(transfers, SimulatedTransfers):
        return None
    return lambda num_tokens: transfers.load_seconds(-(-num_tokens // tokens_per_block))


def _require_one_each(name: str, several: Sequence[object] | None, num_engines: int) -> None:
    is_list = isinstance(several, Sequence) and not isinstance(several, str)
    if several is not None and not (is_list and len(several) == num_engines):
        fix = f"give one for each of {num_engines} engines, or {name[:-1]}= for all of them"
        raise ConfigError(name, several, fix.replace("policie=", "policy="))


def _fleet_of(engines: ReplaySettings) -> FleetSettings | None:
    """What decides over the engines together, and what happens to them; None: nothing. Raises ConfigError."""
    if engines.policy is None and not engines.events:
        return None
    if engines.fleet.steps_together:
        raise ConfigError("fleet", engines.policy, "ranks that step together (experts, data parallel) are one engine")
    events, link = check_events(engines.events, engines.fleet.num_engines), engines.link

    def seconds(num_blocks: int) -> float:
        return 0.0 if link is None else link.seconds_of(num_blocks * link.bytes_per_block)

    return FleetSettings(fleet_policy_of(engines.policy or FleetPolicy), events, seconds)


class _Replay:
    """One replay: makes its groups of engines, and runs the workload through them."""

    def __init__(self, workload: Workload, options: ReplayOptions, clock: VirtualClock, num_engines: int) -> None:
        """``num_engines`` of all groups. Raises ConfigError for an option that cannot be."""
        for name in ("make_scheduler", "on_progress"):
            given_function(name, getattr(options, name), "give a function, or leave it out")
        self._workload = workload
        self._options = options
        self._extent = Extent.of(options.warmup, options.until)
        self._clock = clock
        self._num_engines = num_engines
        self._recorded: list[RowsOfEngine] = []
        self._make_policy = None if options.policy is None else policy_maker_of(options.policy)

    def group(
        self,
        engines: ReplaySettings,
        *,
        observers: Sequence[ObserverChoice | None] | None = None,
        policies: Sequence[PolicyChoice | None] | None = None,
        connectors: Sequence[tuple[KVConnector, WorkerTransfers]] | None = None,
        alone: bool = False,
        leaps: bool = False,
    ) -> EngineGroup:
        """``connectors`` of each engine, where they are not those of ``engines``; ``alone``: one, without a router.

        Raises ConfigError for observers or policies that are not one for each engine.
        """
        for name, several in (("observers", observers), ("policies", policies)):
            _require_one_each(name, several, engines.fleet.num_engines)
        make_policy = self._make_policy or policy_maker_of(engines.scheduler.policy)
        router = None if alone else router_of(engines.router, engines.fleet)
        transfer = connector_of(engines.kv_transfer)
        blocks: SymbolicHasher | None = None
        parts: list[EngineParts] = []
        kinds = [engines] * (engines.fleet.num_engines - len(engines.beside)) + list(engines.beside)
        for rank, engine in enumerate(kinds):
            own = None if policies is None else policies[rank]
            policy = make_policy() if own is None else policy_maker_of(own)()
            observer = self._observer(engine, policy, None if observers is None else observers[rank])
            connector: KVConnector | None = None
            transfers: WorkerTransfers | None = None
            if connectors is not None:
                connector, transfers = connectors[rank]
            elif transfer is not None:
                connector, transfers = transfer.make(engine.cache, self._clock, engine.latency)
            if alone and leaps and connector is None and engines.speculation is None:
                blocks = self._blocks(engines, observer, policy)
            load = load_seconds(transfers, engine.cache.tokens_per_block)
            parts.append(EngineParts(self._scheduler(engine, observer, policy, connector, load, blocks), transfers))
        return EngineGroup(
            self._clock,
            engines.latency,
            router,
            parts,
            steps_together=engines.fleet.steps_together,
            speculation=engines.speculation,
            autoscaling=engines.autoscaling,
            leaps=leaps,
            blank=blocks is not None,
            latencies=[each.latency for each in kinds] if engines.beside else (),
            fleet=_fleet_of(engines),
        )

    def _scheduler(
        self,
        engines: ReplaySettings,
        observer: StepObserver | None,
        policy: Policy,
        connector: KVConnector | None,
        load: Callable[[int], float] | None,
        blocks: SymbolicHasher | None,
    ) -> Scheduler:
        """That of one engine."""
        chosen = engines.eviction if self._options.eviction is None else self._options.eviction
        if isinstance(chosen, EvictionOrder) and self._num_engines > 1:
            raise ConfigError("eviction", chosen, "several engines need one each: give the class, or a name")
        made = (self._options.make_scheduler or Scheduler)(
            engines.scheduler,
            engines.cache,
            clock=self._clock.now,
            observer=observer,
            policy=policy,
            kv_connector=connector,
            speculative_config=engines.speculation.config if engines.speculation is not None else None,
            prefill_seconds=prefill_seconds(engines.latency),
            load_seconds=load,
            block_hasher=blocks,
            eviction=eviction_of(chosen),
        )
        if not isinstance(made, Scheduler):
            raise ConfigError("make_scheduler", made, "return a Scheduler made with what it is given")
        self._foresee(made)
        return made

    def _foresee(self, scheduler: Scheduler) -> None:
        """Tell an order of eviction that looks ahead what is to come."""
        chooser = scheduler.kv.pool.chooser
        if not isinstance(chooser, Evictor) or not chooser.order.looks_ahead:
            return
        if self._num_engines > 1:
            fix = "looks ahead, which is known of one engine alone: use another, or one engine"
            raise ConfigError("eviction", type(chooser.order).__name__, fix)
        longest = scheduler.config.max_model_len
        fitting = [each for each in self._workload if each.num_prompt_tokens < longest]
        made = (each.arrive(0.0, longest) for each in fitting)
        chooser.foresee((each.request_id, scheduler.kv.hasher.extend(each)) for each in made)

    def _observer(self, engines: ReplaySettings, policy: Policy, apart: ObserverChoice | None) -> StepObserver | None:
        """The observers of one engine."""
        config, cache, warmup = engines.scheduler, engines.cache, self._extent.warmup
        watching = [
            observer_of(self._options.observer, config, cache, engines=self._num_engines, warmup=warmup),
            observer_of(apart, config, cache, warmup=warmup),
        ]
        if self._options.rows:
            self._recorded.append(RowsOfEngine(config, cache, warmup=warmup, policy=policy))
            watching.insert(0, self._recorded[-1].observer)
        return together(watching)

    def _blocks(self, engines: ReplaySettings, observer: StepObserver | None, policy: Policy) -> SymbolicHasher | None:
        """Numbers in place of hashes, if token ids and hashes decide nothing but which blocks are equal."""
        watched = observer is not None and observer.reads_tokens
        if (
            engines.speculation is not None
            or watched
            or engines.cache.enable_kv_cache_events
            or looks_at_tokens(policy)
        ):
            return None
        size = hash_block_size(engines.cache)
        return SymbolicHasher(self._workload, size) if SymbolicHasher.knows(self._workload, size) else None

    def result(self, groups: Sequence[EngineGroup], wires: Sequence[Link] = ()) -> ReplayResult:
        """Run the workload, and say what came of it; ``wires`` lead from the first group to the second."""
        options, workload = self._options, self._workload
        if not options.skip_refused and len(groups) == 1:
            (scheduler, *_) = groups[0].schedulers
            for each in workload:
                check_lengths(
                    each.request_id, len(each.prompt), each.max_tokens, config=scheduler.config, kv=scheduler.kv
                )
        with shown_progress(options.on_progress, len(workload), shown=options.progress) as told:
            traffic = ClientSessions(workload, skip_refused=options.skip_refused, on_progress=told)
            loop = Loop(traffic, groups, self._clock, self._extent)
            loop.run()
            return self._result(traffic, loop, groups, wires)

    def _result(
        self, traffic: ClientSessions, loop: Loop, groups: Sequence[EngineGroup], wires: Sequence[Link]
    ) -> ReplayResult:
        now, warmup = self._clock.now(), self._extent.warmup
        for group in groups:
            if group.control is not None:
                group.control.close()
        is_cut = loop.is_out_of_time or traffic.is_stopped
        ended_by = self._extent.ended_by(traffic, out_of_time=loop.is_out_of_time)
        traffic.report(now, *loop.schedulers)
        if not is_cut:
            for scheduler in loop.schedulers:
                require_settled(scheduler)
            traffic.require_whole()
        replicas = groups[0].replicas
        ended_at = None if ended_by is EndedBy.WORKLOAD else now
        rows = None
        if self._options.rows:
            rows = ReplayRows(self._recorded, warmup=warmup, leave_out=len(wires), ended_at=ended_at)
        return ReplayResult(
            seconds=now,
            groups=tuple(_use_of([rank.use for rank in group.ranks]) for group in groups),
            num_finished=traffic.num_finished,
            refused=tuple(traffic.refused),
            num_left_out=traffic.num_left_out,
            output_tokens=traffic.output_tokens,
            num_aborted=traffic.num_aborted,
            clients=traffic.clients,
            waves=groups[0].waves,
            replicas=None if replicas is None else replicas.figures(now),
            kv_bytes=sum(wire.num_bytes for wire in wires),
            link_busy_seconds=sum(wire.busy_seconds for wire in wires) / max(len(wires), 1),
            rows=rows,
            ended_by=ended_by,
            unfinished=traffic.unfinished,
            num_not_arrived=traffic.num_not_arrived,
        )
