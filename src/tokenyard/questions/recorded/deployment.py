"""The deployment of a trace, as flags: as the run was requested, as far as the trace says, or as the user says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from tokenyard.core.profiles import nearest_version
from tokenyard.deploy.given import settings_of_line
from tokenyard.deploy.record import filled, read_asked_flags
from tokenyard.deploy.serve_line import read_serve_line
from tokenyard.deploy.settings import (
    DeploymentSettings,
    HardwareSettings,
    LaunchSettings,
    ParallelSettings,
    SchedulerSettings,
    SpeculationSettings,
)
from tokenyard.deploy.spec import ReplaySpec, build_replay, resolve
from tokenyard.deploy.vllm_serve.defaults import GPU_MEMORY_UTILIZATION
from tokenyard.deploy.vllm_serve.given import GivenFlags
from tokenyard.errors import ConfigError, TokenyardError, shown
from tokenyard.models.gpus import GPUS, gpu_of_device, named_gpu
from tokenyard.questions.recorded.recorded_run import RecordedRun
from tokenyard.questions.recorded.variants import PlannedDeployment
from tokenyard.quick_dataclass import dataclass
from tokenyard.trace.start import deployment_of

_MODEL = "calibrated"
_NOT_RECORDED = "deployment_not_recorded"
"""Code: a trace does not say what it was recorded on."""
_COUNTED = ("num_gpu_blocks_override", "kv_cache_memory_bytes")
"""Settings by which the user says how many blocks there are."""


@dataclass(frozen=True, slots=True)
class GivenDeployment:
    """What the user says that a trace was recorded on."""

    serve: str | None = None
    """A line of ``vllm serve``, or a file."""
    gpu: str | None = None
    settings: DeploymentSettings | None = None
    """All of it."""


@dataclass(frozen=True, slots=True)
class RecordedDeployment:
    """What a trace was recorded on; where it is not known, why."""

    flags: DeploymentSettings | None = None
    planned: PlannedDeployment | None = None
    problem: ConfigError | None = None

    @property
    def known(self) -> tuple[DeploymentSettings, PlannedDeployment]:
        """The flags, and what they make. Raises ConfigError, which says what to add."""
        if self.flags is None or self.planned is None:
            assert self.problem is not None, "one of the two is there"
            raise self.problem
        return self.flags, self.planned


def recorded_deployment(run: RecordedRun, given: GivenDeployment) -> RecordedDeployment:
    """The deployment of ``run``. Raises TokenyardError for what is given and cannot be, not for what a trace lacks."""
    is_given = given != GivenDeployment()
    try:
        flags = _flags(run, given)
        return RecordedDeployment(flags, planned(build_replay(resolve(flags), run.workload)))
    except ConfigError as error:
        if is_given:
            raise
        if error.code == _NOT_RECORDED:
            return RecordedDeployment(problem=error)
        return RecordedDeployment(
            problem=_not_recorded(error.field, error.value, f"{error.marked_fix} (the deployment of the trace)")
        )
    except TokenyardError as error:
        if is_given:
            raise
        return RecordedDeployment(problem=_not_recorded("model", run.start.model, error.marked or str(error)))


def _not_recorded(field: str, value: object, problem: str) -> ConfigError:
    """A trace does not say what it was recorded on, or that is not known here."""
    how = "say with §recorded (vllm serve MODEL ...) and §recorded_gpu what it was"
    return ConfigError(field, value, f"{problem}: {how}", code=_NOT_RECORDED)


def planned(setup: ReplaySpec) -> PlannedDeployment:
    """What a what-if needs to know of a deployment. Raises ConfigError for one of several engines."""
    settled = setup.settled
    size = settled.parallel.data_parallel_size
    if size > 1 or setup.autoscaling is not None:
        raise ConfigError("data_parallel_size", size, "one engine is asked about: leave it out")
    hardware = settled.hardware
    return PlannedDeployment(
        model=settled.model,
        gpu=settled.gpu,
        scheduler=setup.scheduler,
        cache=setup.cache,
        bytes_per_block=settled.plan.bytes_per_block,
        counts_blocks=any(getattr(hardware, name) is not None for name in _COUNTED),
        latency=setup.latency,
        speculation=setup.speculation,
        kv_transfer=setup.kv_transfer,
        drafts=setup.drafts,
    )


def _flags(run: RecordedRun, given: GivenDeployment) -> DeploymentSettings:
    if given.settings is not None:
        flags, gpu = given.settings, given.settings.hardware.gpu
    elif given.serve is not None:
        gpu = _gpu_of(run) if given.gpu is None else named_gpu(given.gpu).name
        flags = settings_of_line(read_serve_line(given.serve, gpu=gpu), gpu=gpu)
    else:
        config = run.start.config or {}
        flags = read_asked_flags(config) or _as_settled(run, config)
        gpu = _gpu_of(run) if given.gpu is None else named_gpu(given.gpu).name
    latency = deployment_of(run.start.config).step_time or _MODEL
    # What scaled step times is in those of the trace already.
    flags = replace(flags, hardware=replace(flags.hardware, gpu=gpu, latency=latency, step_time_factors=None))
    return of_version(run, flags)


def of_version(run: RecordedRun, flags: DeploymentSettings) -> DeploymentSettings:
    """The flags for one engine, as a trace is of one, and the version that was recorded unless they say which."""
    flags = replace(flags, parallel=replace(flags.parallel, replicas=None, autoscale=None))
    version = deployment_of(run.start.config).vllm_version
    if version is None or flags.launch.asked.says(("vllm_version",)):
        return flags
    return replace(flags, launch=replace(flags.launch, vllm_version=nearest_version(version)))


def _gpu_of(run: RecordedRun) -> str:
    """Its name. Raises ConfigError for one that is not modelled."""
    name = run.start.gpu or ""
    gpu = GPUS.get(name) or gpu_of_device(name)
    if gpu is None:
        problem = f"the trace ran on {shown(name)}, whose step times are not modelled; settings can be asked about"
        raise _not_recorded("gpu", name, problem)
    return gpu.name


def _as_settled(run: RecordedRun, config: dict[str, Any]) -> DeploymentSettings:
    """By what a trace says that keeps nothing but what was settled: all of it counts as given."""
    deployment, scheduler, cache = deployment_of(config), run.scheduler, run.cache
    model, memory = (_section(config, name) for name in ("model", "engine"))
    hardware = _section(config, "hardware")
    if not run.start.model:
        raise _not_recorded("model", run.start.model, "the trace does not say what was served")
    found = {
        "gpu": "h100",
        "model": run.start.model,
        "tensor_parallel_size": deployment.tensor_parallel_size or 1,
        "dtype": str(model.get("dtype") or hardware.get("dtype") or "auto").removeprefix("torch."),
        "quantization": model.get("quantization") or hardware.get("quantization"),
        "kv_cache_dtype": str(hardware.get("kv_cache_dtype") or deployment.kv_dtype or "auto"),
        "enforce_eager": bool(model.get("enforce_eager") or hardware.get("enforce_eager")),
        "max_cudagraph_capture_size": hardware.get("max_cudagraph_capture_size"),
        "gpu_memory_utilization": _first("gpu_memory_utilization", memory, hardware) or GPU_MEMORY_UTILIZATION,
        "kv_cache_memory_bytes": _first("kv_cache_memory_bytes", memory, hardware),
        "num_gpu_blocks_override": _first("num_gpu_blocks_override", memory, hardware),
        "block_size": cache.block_size,
    }
    try:
        kept = filled(HardwareSettings, found)
    except msgspec.ValidationError as error:
        raise _not_recorded("config", found, f"the deployment of the trace cannot be read ({error})") from None
    limits = SchedulerSettings(
        max_num_seqs=scheduler.max_num_seqs,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        max_model_len=scheduler.max_model_len,
        scheduling_policy=scheduler.policy,
        enable_prefix_caching=cache.enable_prefix_caching,
        enable_chunked_prefill=scheduler.enable_chunked_prefill,
        long_prefill_token_threshold=scheduler.long_prefill_token_threshold,
        async_scheduling=scheduler.async_scheduling,
    )
    spread = ParallelSettings(
        pipeline_parallel_size=scheduler.pipeline_parallel_size,
        decode_context_parallel_size=cache.decode_context_parallel_size,
        enable_expert_parallel=bool(deployment.enable_expert_parallel),
    )
    drafts = None if run.speculation is None else run.speculation.config
    speculation = SpeculationSettings()
    if drafts is not None:
        speculation = SpeculationSettings(
            num_speculative_tokens=drafts.num_speculative_tokens, speculative_method=drafts.method
        )
    named = frozenset(("gpu", "model", "enable_prefix_caching", "block_size", "max_num_seqs", "max_num_batched_tokens"))
    launch = LaunchSettings(asked=GivenFlags(named=named), ignore_unmodelled=True)
    return DeploymentSettings(launch=launch, hardware=kept, scheduler=limits, parallel=spread, speculation=speculation)


def _section(config: dict[str, Any], name: str) -> dict[str, Any]:
    try:
        return msgspec.convert(config.get(name) or {}, dict[str, Any])
    except msgspec.ValidationError:
        return {}


def _first(name: str, *sections: dict[str, Any]) -> Any:
    return next((section[name] for section in sections if section.get(name) is not None), None)
