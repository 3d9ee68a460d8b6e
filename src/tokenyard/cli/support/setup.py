"""From flags to what a replay needs: configuration, latency model, trace settings and workload."""

from __future__ import annotations

import errno
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from tokenyard.cli.support.asked_flags import ASKED, asked_flags
from tokenyard.cli.support.console import warn
from tokenyard.cli.support.deployment import (
    describe_deployment,
    with_idle_policies,
    with_images,
    with_known_error,
    with_notes,
    with_oracles,
)
from tokenyard.cli.support.flags import ParallelFlags, Run, TraceFlags, TransferFlags
from tokenyard.cli.support.images import scheduler_with_images
from tokenyard.cli.support.planning.replicas import read_autoscaling
from tokenyard.cli.support.settled import Settled, settle
from tokenyard.cli.support.workload import workload_from
from tokenyard.config import (
    CacheConfig,
    SchedulerConfig,
    SpeculativeConfig,
    settings_for,
)
from tokenyard.connectors.config import OFFLOADING, KVTransferConfig
from tokenyard.errors import ConfigError, WorkloadError, shown
from tokenyard.explain.report.slo import SLO, read_slos
from tokenyard.launch.speculation import AskedSpeculation, check_drafts, read_speculation, token_budget
from tokenyard.policies.named import PolicyMaker, policy_label, policy_maker
from tokenyard.profiles import decision_profile
from tokenyard.sim.clock import VirtualClock
from tokenyard.sim.drafts import SimulatedSpeculation
from tokenyard.sim.latency import LatencyModel, load_latency
from tokenyard.sim.parallel.autoscaler import Autoscaling
from tokenyard.sim.parallel.routers.named import RouterMaker, router_maker
from tokenyard.sim.parallel.routers.vllm import Fleet
from tokenyard.sim.settings import ReplaySettings
from tokenyard.sim.transfers.offload import GIB, KVTransfer
from tokenyard.sim.workload import Workload
from tokenyard.trace.emit.writer import TraceWriter
from tokenyard.trace.format.config import TraceConfig
from tokenyard.trace.format.deployment import SECTION, Deployment
from tokenyard.trace.format.schema import TraceStart
from tokenyard.trace.format.start import describe_run

__all__ = ["Setup", "open_trace", "prepare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
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
    settled: Settled
    """Flags, with what nobody said settled."""
    router: RouterMaker
    """The one that the flags name."""
    deployment: Deployment
    """What it stands for, as its header says."""
    slos: tuple[SLO, ...] = ()
    """What goodput is counted by."""
    autoscaling: Autoscaling | None = None
    """How many replicas of the deployment there are; None: it is one."""

    @property
    def num_engines(self) -> int:
        """Engines that there are at most."""
        return self.settled.parallel.data_parallel_size if self.autoscaling is None else self.autoscaling.most

    @property
    def gpus_per_replica(self) -> int:
        """GPUs of the deployment, with all its engines."""
        return self.settled.num_gpus

    def replays(self, *, skip_refused: bool) -> ReplaySettings:
        """What all its replays have in common."""
        parallel = self.settled.parallel
        size = self.num_engines
        return ReplaySettings(
            self.scheduler,
            self.cache,
            self.latency,
            skip_refused,
            self.kv_transfer,
            self.speculation,
            Fleet(size, self.settled.steps_together, self.settled.version, parallel.api_server_count or size),
            self.router,
            self.autoscaling,
        )


def prepare(flags: Run, workload: Workload | None = None) -> Setup:
    """Check every flag, then read the workload, unless it is given. Raises TokenyardError."""
    serve = flags.launch
    if not serve.ignore_unmodelled:
        serve.asked.require_modelled()
    slos = read_slos(flags.slo)
    passed_over: list[str] = []
    speculation, drafts = _speculation(flags, passed_over)
    speculative = None if speculation is None else speculation.config
    settled = settle(flags, speculative=speculative)
    if drafts is not None:
        check_drafts(drafts, settled.model)
    kv_transfer = _kv_transfer(flags.transfer, settled)
    scheduler = _scheduler(settled, kv_transfer, speculative)
    policy = policy_maker(scheduler.policy, "scheduling_policy")
    router, autoscaling = router_maker(settled.parallel.router), read_autoscaling(flags.parallel)
    cache = _cache(settled)
    latency = _latency(settled, speculation, has_adapters=False)
    deployment = describe_deployment(flags, settled, scheduler, speculation, passed_over)
    deployment = with_oracles(deployment, [scheduler.policy])
    if kv_transfer is not None:
        _check_transfer(kv_transfer, flags.transfer, cache, latency)
    trace = _trace(flags.output, policy_label(scheduler.policy), of_replicas=autoscaling is not None)
    if workload is None:
        workload = workload_from(flags.workload, flags.arrivals, flags.more)
    deployment = with_idle_policies(with_notes(deployment, workload), [scheduler.policy], workload)
    if workload.first_with_images is not None:
        scheduler = scheduler_with_images(scheduler, settled, workload)
        deployment = with_images(deployment, scheduler)
    if (asking := workload.first_with_adapter) is not None:
        if not settled.adapters.enable_lora:
            fix = f"give --enable-lora: {shown(asking.request_id)} is the first that asks for an adapter"
            raise WorkloadError(workload.name, 0, f"lora_name = {shown(asking.lora_name)}: {fix}")
        latency = _latency(settled, speculation, has_adapters=True)
    deployment = with_known_error(deployment, latency, workload)
    start = describe_run(
        scheduler,
        cache,
        host="replay",
        model=settled.model.name,
        gpu=settled.gpu.name,
        bytes_per_block=settled.plan.bytes_per_block,
        sections={
            SECTION: msgspec.to_builtins(deployment),
            "workload": {"workload": workload.name, **asdict(flags.arrivals)},
            **_sections(flags, settled, kv_transfer, speculation),
        },
    )
    return Setup(
        workload=workload,
        scheduler=scheduler,
        policy=policy,
        cache=cache,
        latency=latency,
        kv_transfer=kv_transfer,
        speculation=speculation,
        trace=trace,
        start=start,
        settled=settled,
        router=router,
        deployment=deployment,
        slos=slos,
        autoscaling=autoscaling,
    )


def _sections(
    flags: Run, settled: Settled, kv_transfer: KVTransfer | None, speculation: SimulatedSpeculation | None
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


def _is_spread(parallel: ParallelFlags) -> bool:
    sizes = parallel.data_parallel_size, parallel.pipeline_parallel_size, parallel.decode_context_parallel_size
    return max(sizes) > 1 or parallel.replicas is not None


def _speculation(command: Run, passed_over: list[str]) -> tuple[SimulatedSpeculation | None, AskedSpeculation | None]:
    """Drafts, and how vLLM was asked for them, if it was."""
    flags = command.speculation
    try:
        rates = tuple(float(rate) for rate in flags.acceptance_rates.split(","))
    except ValueError:
        fix = "give probabilities with commas between them, for example 0.8,0.6"
        raise ConfigError("acceptance_rates", flags.acceptance_rates, fix) from None
    named = command.launch.asked.value("spec-model")
    asked = read_speculation(
        flags.speculative_config,
        method=flags.spec_method,
        num_tokens=flags.spec_tokens,
        draft_model=None if named is None else str(named),
        ignore_unmodelled=command.launch.ignore_unmodelled,
    )
    if asked is not None:
        passed_over += asked.ignored
        config = asked.config
    elif flags.num_speculative_tokens is not None:
        config = SpeculativeConfig(num_speculative_tokens=flags.num_speculative_tokens, method=flags.speculative_method)
    else:
        return None, None
    return SimulatedSpeculation(config=config, acceptance=rates, seed=command.arrivals.seed), asked


def _kv_transfer(flags: TransferFlags, settled: Settled) -> KVTransfer | None:
    if flags.kv_offloading_backend != "native":
        raise ConfigError("kv_offloading_backend", flags.kv_offloading_backend, "use native")
    config = None if flags.kv_transfer_config is None else KVTransferConfig.from_json(flags.kv_transfer_config)
    if flags.kv_offloading_size is not None:
        if not 0 < flags.kv_offloading_size < inf:
            raise ConfigError("kv_offloading_size", flags.kv_offloading_size, "give a number of GiB above 0")
        config = config or KVTransferConfig(kv_connector=OFFLOADING)
        if config.kv_connector != OFFLOADING:
            raise ConfigError("kv_offloading_size", flags.kv_offloading_size, f"it needs kv_connector {OFFLOADING}")
        extra = {**config.kv_connector_extra_config, "cpu_bytes_to_use": flags.kv_offloading_size * GIB}
        config = replace(config, kv_connector_extra_config=extra)
    if config is None:
        return None
    if settled.parallel.decode_context_parallel_size > 1:
        ranks = settled.parallel.decode_context_parallel_size
        raise ConfigError("decode_context_parallel_size", ranks, "is not modelled together with a KV connector: give 1")
    num_gpus = settled.hardware.tensor_parallel_size * settled.parallel.pipeline_parallel_size
    return KVTransfer(config=config, bytes_per_block=settled.plan.bytes_per_block, num_gpus=num_gpus)


def _check_transfer(kv_transfer: KVTransfer, flags: TransferFlags, cache: CacheConfig, latency: LatencyModel) -> None:
    """Whatever is wrong with it shall be said before the workload is read."""
    try:
        kv_transfer.make(cache, VirtualClock(), latency)
    except ConfigError as error:
        if error.field == "cpu_bytes_to_use" and flags.kv_offloading_size is not None:
            raise ConfigError("kv_offloading_size", flags.kv_offloading_size, error.fix) from None
        raise


def _scheduler(
    settled: Settled, kv_transfer: KVTransfer | None, speculative: SpeculativeConfig | None
) -> SchedulerConfig:
    flags, profile = settled.scheduler, decision_profile(settled.version)
    given = asdict(flags) | {
        "policy": flags.scheduling_policy,
        "async_scheduling": settled.async_scheduling,
        "max_num_batched_tokens": token_budget(
            speculative, profile, settled.max_num_batched_tokens, settled.max_num_seqs
        ),
        "max_loras": settled.adapters.max_loras if settled.adapters.enable_lora else 0,
        "profile": replace(profile, running_index_drifts=profile.running_index_drifts and flags.running_index_drifts),
        "max_num_encoder_input_tokens": settled.plan.max_num_encoder_input_tokens,
        "pipeline_parallel_size": settled.parallel.pipeline_parallel_size,
    }
    if kv_transfer is not None:
        given["kv_load_failure_policy"] = kv_transfer.config.kv_load_failure_policy
    return SchedulerConfig(**settings_for(SchedulerConfig, given))


def _cache(settled: Settled) -> CacheConfig:
    given = asdict(settled.scheduler) | asdict(settled.hardware) | asdict(settled.parallel)
    return settled.plan.cache_config(**settings_for(CacheConfig, given))


def _latency(settled: Settled, speculation: SimulatedSpeculation | None, *, has_adapters: bool) -> LatencyModel:
    hardware = settled.hardware
    return load_latency(
        hardware.latency,
        model=settled.model,
        gpu=settled.gpu,
        tensor_parallel_size=hardware.tensor_parallel_size,
        kv_cache_dtype=settled.plan.kv_cache_dtype,
        speculative=speculation.config if speculation is not None else None,
        data_parallel_size=settled.parallel.data_parallel_size if settled.steps_together else 1,
        enable_expert_parallel=settled.parallel.enable_expert_parallel,
        pipeline_parallel_size=settled.parallel.pipeline_parallel_size,
        gpus_per_machine=settled.gpus_per_machine,
        enforce_eager=hardware.enforce_eager,
        max_cudagraph_capture_size=settled.capture_size,
        enable_lora=settled.adapters.enable_lora,
        has_adapters=has_adapters,
        decode_context_parallel_size=settled.parallel.decode_context_parallel_size,
        version=settled.version,
    )


def _trace(flags: TraceFlags, policy: str, *, of_replicas: bool) -> TraceConfig:
    """The environment's settings, overridden by flags. ConfigError for a trace of replicas."""
    environment = TraceConfig.from_env()
    wanted = environment.path if flags.trace is None else flags.trace
    if of_replicas and wanted is not None:
        raise ConfigError("trace", str(wanted), "a replay with replicas writes no trace: leave out trace, or replicas")
    named = environment.policy != TraceConfig().policy
    return replace(
        environment,
        path=wanted,
        policy=environment.policy if named else policy,
        request_records=flags.record_requests,
        max_ids_per_step=flags.max_ids_per_step or None,
    )


def open_trace(writer: TraceWriter) -> Path | None:
    """Make sure that the trace can be written, by this run alone, and clear away an earlier one of the same name.

    Returns its directory; None if no trace is wanted. The emitter itself never fails (it must not harm an engine); a
    command that was asked for a trace should.
    """
    config = writer.config
    try:
        files = [path for path in (config.steps_path, config.requests_path) if path is not None]
        is_overwritten = any(path.is_file() and path.stat().st_size for path in files)
        writer.claim()
    except OSError as error:
        if error.errno == errno.EBUSY:
            fix = f"another run is writing {Path(error.filename).name} there: wait for it, or name another directory"
            raise ConfigError("trace", str(config.path), fix) from None
        raise ConfigError("trace", str(config.path), f"cannot be written: {error.strerror or error}") from None
    if is_overwritten:
        warn(f"the trace that was in {config.path} is overwritten; --trace DIR keeps both")
    return config.path
