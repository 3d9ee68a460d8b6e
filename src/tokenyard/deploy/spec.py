"""A resolved deployment and a workload: what a replay needs."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field, fields, replace
from functools import partial
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from tokenyard.arguments import is_number
from tokenyard.connectors.config import OFFLOADING, KVTransferConfig
from tokenyard.core.config import CacheConfig, SchedulerConfig, SpeculativeConfig, settings_for
from tokenyard.core.profiles import DecisionProfile, decision_profile
from tokenyard.core.sched.policy import Policy
from tokenyard.deploy.header import (
    describe_deployment,
    with_front_end,
    with_idle_policies,
    with_images,
    with_known_error,
    with_notes,
    with_oracles,
)
from tokenyard.deploy.idle import with_idle_flags
from tokenyard.deploy.record import ASKED, asked_flags
from tokenyard.deploy.resolve import ResolvedSettings, resolve_settings, scheduler_with_images
from tokenyard.deploy.settings import (
    DeploymentSettings,
    ParallelSettings,
    SchedulerSettings,
    TraceSettings,
    TransferSettings,
)
from tokenyard.deploy.vllm_serve.speculation import AskedSpeculation, check_drafts, read_speculation, token_budget
from tokenyard.errors import ConfigError, NoStartError, WorkloadError, shown
from tokenyard.explain.assumed_drafts import AssumedAcceptance, assumed_acceptance
from tokenyard.explain.slo import MILLISECONDS, SLO
from tokenyard.memory.kv_plan import KVCachePlan
from tokenyard.patterns import lazy_pattern
from tokenyard.policies.eviction import EvictionChoice
from tokenyard.policies.named import PolicyMaker, policy_label, policy_maker
from tokenyard.quick_dataclass import dataclass
from tokenyard.record.writer import TraceWriter
from tokenyard.sim.choices import (
    ConnectorChoice,
    PolicyChoice,
    RouterChoice,
    latency_of,
    policy_maker_of,
    policy_name,
    router_of,
)
from tokenyard.sim.executor import SimulatedSpeculation
from tokenyard.sim.fleet import FleetEvent, FleetPolicy, check_events
from tokenyard.sim.named_routers import RouterMaker, router_maker
from tokenyard.sim.replicas import Autoscaling
from tokenyard.sim.routers import Fleet, Router
from tokenyard.sim.settings import KVLink, ReplaySettings
from tokenyard.sim.transfers import KVTransfer
from tokenyard.steptime.known_error import KnownError
from tokenyard.steptime.load import load_latency
from tokenyard.steptime.model import LatencyModel
from tokenyard.steptime.pace import VirtualClock
from tokenyard.steptime.scaled import ScaledLatency, error_in_words, front_end_of, known_error_of, read_factors
from tokenyard.trace.config import TraceConfig
from tokenyard.trace.schema import TraceStart
from tokenyard.trace.start import SECTION, Assumption, describe_run
from tokenyard.trace.start import DeploymentHeader as Header
from tokenyard.units import GIB
from tokenyard.workload.record import Workload

# ---------------------------------------------------------------------------------------------------------------------
# Times with their units, as people write them.

_TIME = lazy_pattern(r"([0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z]+)")


def seconds_of(field: str, text: str) -> float:
    """A time with its unit (``30s``, ``250ms``), in seconds. Raises ConfigError naming ``field``."""
    found = _TIME.fullmatch(text.strip().lower())
    try:
        seconds = float(found[1]) * MILLISECONDS[found[2]] / 1e3 if found is not None else -1.0
    except (KeyError, ValueError):
        seconds = -1.0
    if not 0 <= seconds < inf:
        raise ConfigError(field, text, f"give a time with its unit ({', '.join(MILLISECONDS)}), for example 30s")
    return seconds


# ---------------------------------------------------------------------------------------------------------------------
# Replicas of a deployment, as flags say how many there are.

_FORM = lazy_pattern(r"([0-9]{1,4})\.\.([0-9]{1,4})")


def read_autoscaling(parallel: ParallelSettings) -> Autoscaling | None:
    """How many replicas there are; None: the deployment is one. Raises ConfigError."""
    if not parallel.has_replicas:
        return None
    if parallel.data_parallel_size > 1:
        fix = "replicas are of one engine each here: give one of the two"
        raise ConfigError("data_parallel_size", parallel.data_parallel_size, fix)
    least, most = _least_and_most(parallel)
    startup = seconds_of("startup", parallel.startup)
    return Autoscaling(least=least, most=most, startup=startup, target=parallel.scale_target)


def _least_and_most(parallel: ParallelSettings) -> tuple[int, int]:
    if parallel.autoscale is None:
        assert parallel.replicas is not None
        return parallel.replicas, parallel.replicas
    if parallel.replicas is not None:
        fix = f"§replicas {parallel.replicas} says that so many are always there: give one of the two"
        raise ConfigError("autoscale", parallel.autoscale, fix)
    found = _FORM.fullmatch(parallel.autoscale.strip())
    if found is None:
        fix = "give the fewest replicas and the most, for example 1..8; a fixed number is §replicas"
        raise ConfigError("autoscale", parallel.autoscale, fix)
    return int(found[1]), int(found[2])


# ---------------------------------------------------------------------------------------------------------------------
# From settings to what a replay needs: configuration, latency model, header; then, with a workload, all of it.


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ResolvedDeployment:
    """A deployment with nothing left open: what vLLM would have settled when it starts, and how long its steps take.

    ``repr`` is one line, ``print`` shows all of it as the header of a report does. Two are equal if they come to the
    same; they can be hashed, copied and pickled. What the settings name (policy, router) is then made anew.
    """

    settings: DeploymentSettings = field(hash=False)
    """What was given."""
    settled: ResolvedSettings
    """Version, GPU, model, limits and the memory plan."""
    scheduler: SchedulerConfig
    policy: PolicyMaker = field(compare=False)
    """The one that ``scheduler`` names."""
    cache: CacheConfig
    """The paged KV cache of one engine."""
    latency: LatencyModel = field(compare=False)
    """How long a step takes."""
    kv_transfer: KVTransfer | None = field(hash=False)
    """KV kept elsewhere too."""
    speculation: SimulatedSpeculation | None
    """Drafts, and how many of them are right."""
    router: RouterMaker = field(compare=False)
    """The router, if there are several engines."""
    autoscaling: Autoscaling | None
    """How many replicas of the deployment there are; None: it is one."""
    header: Header = field(hash=False)
    """What a report says of it: with what was assumed, ignored and used."""

    def __getstate__(self) -> list[object]:
        return [None if each.name in ("policy", "router") else getattr(self, each.name) for each in fields(self)]

    def __setstate__(self, state: list[object]) -> None:
        for each, value in zip(fields(self), state, strict=True):
            object.__setattr__(self, each.name, value)
        object.__setattr__(self, "policy", policy_maker(self.scheduler.policy, "scheduling_policy"))
        object.__setattr__(self, "router", router_maker(self.settled.parallel.router))

    def __repr__(self) -> str:
        settled, limits = self.settled, self.scheduler
        gpus = f"{settled.num_gpus} {settled.gpu.name}"
        most = f"{limits.max_num_seqs:,} sequences of {limits.max_model_len:,} tokens"
        return f"<ResolvedDeployment: {settled.model.name} on {gpus}; {self.plan.num_blocks:,} KV blocks, {most}>"

    def __str__(self) -> str:
        from tokenyard.explain.console import printed  # noqa: PLC0415 - rich, where it prints
        from tokenyard.explain.render.parts import deployment_table  # noqa: PLC0415

        return printed(lambda console: console.print(deployment_table(self.header)))

    @property
    def plan(self) -> KVCachePlan:
        """The memory plan: blocks, their groups, the longest request that fits."""
        return self.settled.plan

    @property
    def known_error(self) -> KnownError | None:
        """How well step times are known, whatever the load; None of a latency model that does not say."""
        return known_error_of(self.latency)

    @property
    def assumed(self) -> tuple[Assumption, ...]:
        """Settings that were not given, and the values that were taken for them."""
        return tuple(self.header.assumed)

    @property
    def ignored(self) -> tuple[str, ...]:
        """What would change something in vLLM, and does not here."""
        return tuple(self.header.ignored)

    @property
    def used(self) -> tuple[str, ...]:
        """Flags and variables that are heeded."""
        return tuple(self.header.used)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySpec:
    """Everything that is settled before the first step."""

    workload: Workload
    scheduler: SchedulerConfig
    policy: PolicyMaker
    """The one that ``scheduler`` names."""
    cache: CacheConfig
    latency: LatencyModel
    kv_transfer: KVTransfer | None
    speculation: SimulatedSpeculation | None
    trace: TraceConfig
    start: TraceStart
    """The trace's first record."""
    settled: ResolvedSettings
    """Settings, with those that were not given resolved."""
    router: RouterMaker
    """The one that the settings name."""
    deployment: Header
    """What it stands for, as its header says."""
    slos: tuple[SLO, ...] = ()
    """What goodput is counted by."""
    autoscaling: Autoscaling | None = None
    """How many replicas of the deployment there are; None: it is one."""
    connector: ConnectorChoice | None = None
    """What keeps KV elsewhere in the place of ``kv_transfer``, where it is given."""
    eviction: EvictionChoice | None = None
    """The order in which cached blocks are given up; None: as the policy says."""
    fleet_policy: FleetPolicy | type[FleetPolicy] | None = None
    """What decides over the engines together."""
    events: tuple[FleetEvent, ...] = ()
    """What happens to engines."""
    kv_link_gb_per_s: float | None = None
    """GB a second of the link over which KV moves between engines; None: it takes no time."""
    beside: tuple[ReplaySpec, ...] = ()
    """Further engines, of other deployments."""

    @property
    def drafts(self) -> AssumedAcceptance | None:
        """What TPOT rests on, where the acceptance of drafts is not given."""
        speculation = self.speculation
        return None if speculation is None else assumed_acceptance(self.start, len(speculation.rates), None)

    @property
    def num_engines(self) -> int:
        """Engines that there are at most."""
        own = self.settled.parallel.data_parallel_size if self.autoscaling is None else self.autoscaling.most
        return own + sum(each.num_engines for each in self.beside)

    @property
    def gpus_per_replica(self) -> int:
        """GPUs of the deployment, with all its engines."""
        return self.settled.num_gpus

    def replays(self, *, skip_refused: bool) -> ReplaySettings:
        """What all its replays have in common."""
        parallel, link = self.settled.parallel, self.kv_link_gb_per_s
        size = self.num_engines
        return ReplaySettings(
            self.scheduler,
            self.cache,
            self.latency,
            skip_refused,
            self.kv_transfer if self.connector is None else self.connector,
            self.speculation,
            Fleet(size, self.settled.steps_together, self.settled.version, parallel.api_server_count or size),
            self.router,
            self.autoscaling,
            self.eviction,
            self.fleet_policy,
            self.events,
            None if link is None else KVLink(max(self.settled.plan.bytes_per_block, 1), link),
            tuple(one for each in self.beside for one in [each.replays(skip_refused=False)] * each.num_engines),
        )


# ---------------------------------------------------------------------------------------------------------------------
# Objects in the place of what a deployment names: policy, router, latency model, order of eviction, connector, fleet.

_NO_NAME = lazy_pattern(r"[^A-Za-z0-9.+-]+")
_MOST_LETTERS = 100


class Chosen(msgspec.Struct, frozen=True):
    """What decides and moves in the place of what the deployment names."""

    policy: PolicyChoice | None = None
    router: RouterChoice | None = None
    kv_transfer: ConnectorChoice | None = None
    eviction: EvictionChoice | None = None
    latency: LatencyModel | None = None
    fleet: FleetPolicy | type[FleetPolicy] | None = None
    events: Sequence[FleetEvent] = ()
    beside: Sequence[ReplaySpec] = ()
    kv_link_gb_per_s: float | None = None

    @classmethod
    def of(cls, objects: Mapping[str, Any]) -> Chosen:
        """Return what the objects of a deployment choose; its latency model is settled with it."""
        return cls(objects.get("scheduling_policy"), objects.get("router"), None, objects.get("eviction"))

    def on(self, spec: ReplaySpec) -> ReplaySpec:
        """The same replay with it. Raises ConfigError."""
        policy, router = self.policy, self.router
        spec = self._with_fleet(spec)
        if policy is not None:
            if isinstance(policy, Policy) and spec.num_engines > 1:
                raise ConfigError("policy", policy, "several engines need one each: give the class, or what makes one")
            start = msgspec.structs.replace(spec.start, policy=policy_name(policy))
            spec = replace(spec, policy=policy_maker_of(policy), start=start, trace=_named(spec.trace, policy))
        if router is not None:
            if not isinstance(router, Router) and not callable(router):
                router_of(router, spec.replays(skip_refused=False).fleet)
            spec = replace(spec, router=partial(router_of, router))
        if self.eviction is not None:
            spec = replace(spec, eviction=self.eviction)
        if self.latency is not None:
            spec = replace(spec, latency=latency_of(self.latency))
        return spec if self.kv_transfer is None else replace(spec, connector=self.kv_transfer)

    def _with_fleet(self, spec: ReplaySpec) -> ReplaySpec:
        """The same replay with further engines, what decides over all of them, and what happens to them."""
        if self.beside:
            if spec.autoscaling is not None and not spec.autoscaling.is_fixed:
                fix = "beside others a deployment has a fixed number of replicas: give replicas, or leave them out"
                raise ConfigError("autoscale", f"{spec.autoscaling.least}..{spec.autoscaling.most}", fix)
            own = replace(spec, autoscaling=None)
            spec = replace(own, beside=(*[own] * (spec.num_engines - own.num_engines), *self.beside))
        if self.fleet is None and not self.events:
            return spec
        link = self.kv_link_gb_per_s
        if link is not None and not is_number(link, above=True):
            raise ConfigError("kv_link_gb_per_s", link, "give a number above 0, or None: KV moves in no time")
        events = check_events(self.events, spec.num_engines)
        return replace(spec, fleet_policy=self.fleet, events=events, kv_link_gb_per_s=link)


def _named(trace: TraceConfig, policy: PolicyChoice) -> TraceConfig:
    """The trace, called as what decides is called, unless the environment gives it a name."""
    if TraceConfig.from_env().policy != TraceConfig().policy:
        return trace
    name = _NO_NAME.sub("_", policy_label(policy) if isinstance(policy, str) else policy_name(policy)).strip("_.+-")
    return replace(trace, policy=name[:_MOST_LETTERS] or trace.policy)


def _blocks_in_memory(
    settings: DeploymentSettings, speculative: SpeculativeConfig | None, drafts: AskedSpeculation | None
) -> int | None:
    """Blocks without those that were given by hand; None if none were, or if the engine would not start without."""
    if settings.hardware.num_gpu_blocks_override is None:
        return None
    own = replace(settings, hardware=replace(settings.hardware, num_gpu_blocks_override=None))
    try:
        return resolve_settings(own, speculative=speculative, drafts=drafts).plan.num_blocks
    except (ConfigError, NoStartError):
        return None


_MORE_MEMORY = ("raise §tensor_parallel_size", "use more or larger GPUs")
"""What errors propose that lack memory."""
_MOST_GPUS = 16
"""GPUs of an engine, up to which a size that starts is looked for."""


def _with_least_size(
    error: NoStartError, settings: DeploymentSettings, settle: Callable[[DeploymentSettings], ResolvedSettings]
) -> NoStartError:
    """The error with the least tensor-parallel size that starts, if it lacks memory and one of up to 16 GPUs does."""
    proposed = next((each for each in _MORE_MEMORY if each in error.marked_fix), None)
    size = 2 * settings.hardware.tensor_parallel_size
    while proposed is not None and size <= _MOST_GPUS:
        with suppress(ConfigError, NoStartError):
            settle(replace(settings, hardware=replace(settings.hardware, tensor_parallel_size=size)))
            reason, fix = (
                text.replace(proposed, f"raise §tensor_parallel_size to {size}")
                for text in (error.marked_reason, error.marked_fix)
            )
            details = {**error.details, "least_tensor_parallel_size": size}
            return NoStartError(reason, error.field, error.value, fix, details=details)
        size *= 2
    return error


def resolve(settings: DeploymentSettings, *, seed: int = 0) -> ResolvedDeployment:
    """Settle what is not given; ``seed`` is of the dice that say which drafts are right. Raises TokenyardError."""
    launch = settings.launch
    if not launch.ignore_unmodelled:
        launch.asked.require_modelled()
    ignored: list[str] = []
    speculation, drafts = _speculation(settings, ignored, seed)
    speculative = None if speculation is None else speculation.config
    settle = partial(resolve_settings, speculative=speculative, drafts=drafts)
    try:
        settled = settle(settings)
    except NoStartError as refused:
        raise _with_least_size(refused, settings, settle) from None
    asked = with_idle_flags(launch.asked, settled)
    if not launch.ignore_unmodelled:
        asked.require_modelled(is_settled=True)
    settings = replace(settings, launch=replace(launch, asked=asked))
    if drafts is not None:
        check_drafts(drafts, settled.model)
        ignored += drafts.uncounted(settled.drafter)
    kv_transfer = _kv_transfer(settings.transfer, settled)
    scheduler = _scheduler(settled, kv_transfer, speculative)
    policy = policy_maker(scheduler.policy, "scheduling_policy")
    router, autoscaling = router_maker(settled.parallel.router), read_autoscaling(settings.parallel)
    cache = _cache(settled)
    latency = _latency(settled, speculation, _own_latency(settings, seed))
    header = describe_deployment(
        settings,
        settled,
        scheduler,
        speculation,
        ignored,
        memory_num_gpu_blocks=_blocks_in_memory(settings, speculative, drafts),
    )
    header = with_oracles(header, [scheduler.policy])
    if (error := error_in_words(latency)) is not None:
        header = msgspec.structs.replace(header, step_time_error=error)
    if kv_transfer is not None:
        _check_transfer(kv_transfer, settings.transfer, cache, latency)
    return ResolvedDeployment(
        settings=settings,
        settled=settled,
        scheduler=scheduler,
        policy=policy,
        cache=cache,
        latency=latency,
        kv_transfer=kv_transfer,
        speculation=speculation,
        router=router,
        autoscaling=autoscaling,
        header=header,
    )


def build_replay(
    resolved: ResolvedDeployment,
    workload: Workload | Callable[[], Workload],
    *,
    arrivals: Mapping[str, Any] = MappingProxyType({}),
    trace: TraceSettings | None = None,
    slos: Sequence[SLO] = (),
) -> ReplaySpec:
    """What replays ``workload``, which is read last where a function reads it, on the deployment.

    ``arrivals`` says how the workload was read, for the trace's first record. Raises TokenyardError.
    """
    settled, scheduler = resolved.settled, resolved.scheduler
    written = _trace(
        trace or TraceSettings(), policy_label(scheduler.policy), of_replicas=resolved.autoscaling is not None
    )
    traffic = workload if isinstance(workload, Workload) else workload()
    if settled.pools:
        traffic = traffic.with_one_token_each()
    header = with_idle_policies(with_notes(resolved.header, traffic), [scheduler.policy], traffic)
    if traffic.first_with_images is not None:
        scheduler = scheduler_with_images(scheduler, settled, traffic)
        header = with_images(header, scheduler, settled)
    latency = _latency_of(resolved, traffic)
    header = with_known_error(header, latency, traffic)
    front_end = front_end_of(latency)
    if front_end is not None and not traffic.knows_ways:
        header = with_front_end(header, front_end)
        traffic = traffic.with_front_end(front_end.seconds)
        arrivals = {**arrivals, "front_end": msgspec.structs.asdict(front_end)}
    start = describe_run(
        scheduler,
        resolved.cache,
        host="replay",
        model=settled.model.name,
        gpu=settled.gpu.name,
        bytes_per_block=settled.plan.bytes_per_block,
        sections={
            SECTION: msgspec.to_builtins(header),
            "workload": {"workload": traffic.name, **arrivals, **_clients_of(traffic)},
            **_sections(resolved.settings, settled, resolved.kv_transfer, resolved.speculation),
        },
    )
    spec = ReplaySpec(
        workload=traffic,
        scheduler=scheduler,
        policy=resolved.policy,
        cache=resolved.cache,
        latency=latency,
        kv_transfer=resolved.kv_transfer,
        speculation=resolved.speculation,
        trace=written,
        start=start,
        settled=settled,
        router=resolved.router,
        deployment=header,
        slos=tuple(slos),
        autoscaling=resolved.autoscaling,
    )
    return Chosen.of(resolved.settings.launch.objects).on(spec)


def _clients_of(traffic: Workload) -> dict[str, Any]:
    """What clients do that do not wait for ever, as a workload's own format has it."""
    return {} if traffic.clients is None else {"clients": asdict(traffic.clients)}


def _latency_of(resolved: ResolvedDeployment, traffic: Workload) -> LatencyModel:
    """The deployment's, with what the traffic's adapters and pictures add to a step."""
    if (asking := traffic.first_with_adapter) is not None and not resolved.settled.adapters.enable_lora:
        fix = f"give --enable-lora: {shown(asking.request_id)} is the first that asks for an adapter"
        raise WorkloadError(traffic.name, 0, f"lora_name = {shown(asking.lora_name)}: {fix}")
    has_adapters, has_images = asking is not None, traffic.first_with_images is not None
    if not (has_adapters or has_images):
        return resolved.latency
    if "latency" in resolved.settings.launch.objects:
        return resolved.latency
    return _latency(resolved.settled, resolved.speculation, has_adapters=has_adapters, has_images=has_images)


def _sections(
    flags: DeploymentSettings,
    settled: ResolvedSettings,
    kv_transfer: KVTransfer | None,
    speculation: SimulatedSpeculation | None,
) -> dict[str, dict[str, Any]]:
    """Parts of the trace's configuration besides the deployment: what was asked, and what it came to."""
    sections: dict[str, dict[str, Any]] = {"hardware": asdict(settled.hardware), ASKED: asked_flags(flags)}
    if _is_spread(settled.parallel):
        sections["parallel"] = asdict(settled.parallel)
    if kv_transfer is not None:
        sections["kv_transfer"] = asdict(kv_transfer.config)
    if speculation is not None:
        sections["speculation"] = asdict(flags.speculation)
    return sections


def _is_spread(parallel: ParallelSettings) -> bool:
    sizes = parallel.data_parallel_size, parallel.pipeline_parallel_size, parallel.decode_context_parallel_size
    return max(sizes) > 1 or parallel.has_replicas


def _speculation(
    settings: DeploymentSettings, ignored: list[str], seed: int
) -> tuple[SimulatedSpeculation | None, AskedSpeculation | None]:
    """Drafts, and vLLM's speculative configuration, if there is one."""
    given = settings.speculation
    try:
        rates = tuple(float(rate) for rate in given.acceptance_rates.split(","))
    except ValueError:
        fix = "give probabilities with commas between them, for example 0.8,0.6"
        raise ConfigError("acceptance_rates", given.acceptance_rates, fix) from None
    named = settings.launch.asked.value("spec-model")
    asked = read_speculation(
        given.speculative_config,
        method=given.spec_method,
        num_tokens=given.spec_tokens,
        draft_model=None if named is None else str(named),
        target=settings.hardware.model,
        ignore_unmodelled=settings.launch.ignore_unmodelled,
    )
    if asked is not None:
        ignored += asked.ignored
        config = asked.config
    elif given.num_speculative_tokens is not None:
        config = SpeculativeConfig(num_speculative_tokens=given.num_speculative_tokens, method=given.speculative_method)
    else:
        return None, None
    return SimulatedSpeculation(config=config, acceptance=rates, seed=seed), asked


def _kv_transfer(transfer: TransferSettings, settled: ResolvedSettings) -> KVTransfer | None:
    if transfer.kv_offloading_backend != "native":
        raise ConfigError("kv_offloading_backend", transfer.kv_offloading_backend, "use native")
    config = None if transfer.kv_transfer_config is None else KVTransferConfig.from_json(transfer.kv_transfer_config)
    if transfer.kv_offloading_size is not None:
        if not 0 < transfer.kv_offloading_size < inf:
            raise ConfigError("kv_offloading_size", transfer.kv_offloading_size, "give a number of GiB above 0")
        config = config or KVTransferConfig(kv_connector=OFFLOADING)
        if config.kv_connector != OFFLOADING:
            raise ConfigError("kv_offloading_size", transfer.kv_offloading_size, f"it needs kv_connector {OFFLOADING}")
        extra = {**config.kv_connector_extra_config, "cpu_bytes_to_use": transfer.kv_offloading_size * GIB}
        config = replace(config, kv_connector_extra_config=extra)
    if config is None:
        return None
    if settled.parallel.decode_context_parallel_size > 1:
        ranks = settled.parallel.decode_context_parallel_size
        raise ConfigError("decode_context_parallel_size", ranks, "is not modelled together with a KV connector: give 1")
    num_gpus = settled.hardware.tensor_parallel_size * settled.parallel.pipeline_parallel_size
    return KVTransfer(config=config, bytes_per_block=settled.plan.bytes_per_block, num_gpus=num_gpus)


def _check_transfer(
    kv_transfer: KVTransfer, transfer: TransferSettings, cache: CacheConfig, latency: LatencyModel
) -> None:
    """Raise ConfigError for a transfer that cannot be made, before the workload is read."""
    try:
        kv_transfer.make(cache, VirtualClock(), latency)
    except ConfigError as error:
        if error.field == "cpu_bytes_to_use" and transfer.kv_offloading_size is not None:
            raise ConfigError("kv_offloading_size", transfer.kv_offloading_size, error.marked_fix) from None
        raise


def _scheduler(
    settled: ResolvedSettings, kv_transfer: KVTransfer | None, speculative: SpeculativeConfig | None
) -> SchedulerConfig:
    scheduling, profile = settled.scheduling, decision_profile(settled.version)
    given = asdict(scheduling) | {
        "policy": scheduling.scheduling_policy,
        "async_scheduling": settled.async_scheduling,
        "max_num_batched_tokens": token_budget(
            speculative, profile, scheduling.max_num_batched_tokens, scheduling.max_num_seqs
        ),
        "max_loras": settled.adapters.max_loras if settled.adapters.enable_lora else 0,
        "profile": replace(profile, **_switches(scheduling)),
        "max_num_encoder_input_tokens": settled.plan.max_num_encoder_input_tokens,
        "pipeline_parallel_size": settled.parallel.pipeline_parallel_size,
    }
    if kv_transfer is not None:
        given["kv_load_failure_policy"] = kv_transfer.config.kv_load_failure_policy
    return SchedulerConfig(**settings_for(SchedulerConfig, given))


def _switches(scheduling: SchedulerSettings) -> dict[str, Any]:
    """Switches of the profile that are settings as well, and that the user has set: None and True leave them alone."""
    given = settings_for(DecisionProfile, asdict(scheduling))
    return {name: value for name, value in given.items() if value is not None and value is not True}


_UNBOUND = 1 << 16
"""Blocks where none can be missing."""


def _cache(settled: ResolvedSettings) -> CacheConfig:
    given = asdict(settled.scheduling) | asdict(settled.hardware) | asdict(settled.parallel)
    if not settled.plan.groups:
        return _no_cache(settled)
    return settled.plan.cache_config(**settings_for(CacheConfig, given))


def _no_cache(settled: ResolvedSettings) -> CacheConfig:
    """What stands in where a model keeps nothing: a block for each request that runs, and never too few of them."""
    return CacheConfig(
        num_gpu_blocks=max(_UNBOUND, 2 * settled.scheduling.max_num_seqs),
        block_size=settled.plan.max_model_len,
        enable_prefix_caching=False,
    )


def _own_latency(settings: DeploymentSettings, seed: int) -> LatencyModel | None:
    """The user's model, with the dice of this seed where it has any; None: there is none."""
    own: LatencyModel | None = settings.launch.objects.get("latency")
    seeded = getattr(own, "seeded", None)
    return seeded(seed) if callable(seeded) else own


def _latency(
    settled: ResolvedSettings,
    speculation: SimulatedSpeculation | None,
    own: LatencyModel | None = None,
    *,
    has_adapters: bool = False,
    has_images: bool = False,
) -> LatencyModel:
    hardware = settled.hardware
    latency = own or load_latency(
        hardware.latency,
        model=settled.model,
        gpu=settled.gpu,
        tensor_parallel_size=hardware.tensor_parallel_size,
        kv_cache_dtype=settled.plan.kv_cache_dtype,
        speculative=speculation.config if speculation is not None else None,
        drafter=settled.drafter,
        data_parallel_size=settled.parallel.data_parallel_size if settled.steps_together else 1,
        enable_expert_parallel=settled.parallel.enable_expert_parallel,
        pipeline_parallel_size=settled.parallel.pipeline_parallel_size,
        gpus_per_machine=settled.gpus_per_machine,
        enforce_eager=hardware.enforce_eager,
        host_speed=hardware.host_speed,
        max_cudagraph_capture_size=settled.capture_size,
        enable_lora=settled.adapters.enable_lora,
        has_adapters=has_adapters,
        has_images=has_images,
        decode_context_parallel_size=settled.parallel.decode_context_parallel_size,
        async_scheduling=settled.async_scheduling,
        version=settled.version,
    )
    if hardware.step_time_factors is None:
        return latency
    drafts = speculation.config.num_speculative_tokens if speculation is not None else 0
    return ScaledLatency(latency, read_factors(hardware.step_time_factors), decode_tokens=1 + drafts)


def _trace(given: TraceSettings, policy: str, *, of_replicas: bool) -> TraceConfig:
    """The environment's settings, overridden by those that are given. ConfigError for a trace of replicas."""
    environment = TraceConfig.from_env()
    wanted = environment.path if given.trace is None else given.trace
    if of_replicas and wanted is not None:
        raise ConfigError("trace", str(wanted), "a replay with replicas writes no trace: leave out trace, or replicas")
    named = environment.policy != TraceConfig().policy
    return replace(
        environment,
        path=wanted,
        policy=environment.policy if named else policy,
        request_records=given.record_requests,
        max_ids_per_step=given.max_ids_per_step or None,
    )


def open_trace(writer: TraceWriter, on_overwritten: Callable[[Path], None] | None = None) -> Path | None:
    """Make sure that the trace can be written, by this run alone, and clear away an earlier one of the same name.

    Returns its directory; None if no trace is wanted. ``on_overwritten`` is called with the directory where there is
    an earlier one, before it goes. The emitter itself never fails (it must not harm an engine); a
    command that was asked for a trace should.
    """
    config, tell = writer.config, None
    if on_overwritten is not None and config.path is not None:
        tell = partial(on_overwritten, config.path)
    try:
        writer.claim(tell)
    except OSError as error:
        if error.errno == errno.EBUSY:
            fix = f"another run is writing {Path(error.filename).name} there: wait for it, or name another directory"
            raise ConfigError("trace", str(config.path), fix) from None
        raise ConfigError("trace", str(config.path), f"cannot be written: {error.strerror or error}") from None
    return config.path
