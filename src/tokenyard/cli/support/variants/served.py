"""A variant of a recorded run that is another deployment: a line of ``vllm serve``, or another GPU.

Its step times are those of the trace, times the ratio that the model of step times gives between the two deployments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tokenyard.cli.support.flags import Run
from tokenyard.cli.support.parsing import parse
from tokenyard.cli.support.setup import Setup, prepare
from tokenyard.config import SpeculativeConfig
from tokenyard.errors import ConfigError, NoStartError, TokenyardError, shown
from tokenyard.kv.sizing.gpus import GPU, GPUS, gpu_of_device, named_gpu
from tokenyard.launch.model_names import known_as
from tokenyard.models.named import MODELS, model_spec
from tokenyard.models.spec import ModelSpec
from tokenyard.sim.drafts import SimulatedSpeculation
from tokenyard.sim.latency import LatencyModel, load_latency
from tokenyard.sim.latency.scaled import ScaledLatency, StretchedLatency
from tokenyard.sim.latency.steptime.known_error import KnownError, known_error
from tokenyard.sim.whatif.recorded_run import RecordedRun
from tokenyard.sim.whatif.settings import Variant, as_it_was
from tokenyard.trace.format.deployment import Deployment, deployment_of

__all__ = ["leaning_on_model", "on_gpu", "served_with"]

_MODEL = "calibrated"
_UTILIZATION = 0.9
"""Of a GPU's memory, that vLLM takes unless it is told otherwise."""
_MEMORY = ("num_gpu_blocks_override", "gpu_memory_utilization", "kv_cache_memory_bytes", "max_num_batched_tokens")
"""Settings by which somebody says how many blocks there are, or that change it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recorded:
    """The deployment of a trace, as far as its step times depend on it."""

    model: ModelSpec
    gpu: GPU
    deployment: Deployment
    eager: bool
    drafts: SpeculativeConfig | None

    def latency(self, gpu: GPU) -> LatencyModel:
        """Modelled step times of it on ``gpu``."""
        kept = self.deployment
        return load_latency(
            _MODEL,
            model=self.model,
            gpu=gpu,
            tensor_parallel_size=kept.tensor_parallel_size or 1,
            speculative=self.drafts,
            kv_cache_dtype=None if kept.kv_dtype in (None, "auto") else kept.kv_dtype,
            pipeline_parallel_size=kept.pipeline_parallel_size or 1,
            enable_expert_parallel=bool(kept.enable_expert_parallel),
            enforce_eager=self.eager,
        )


def leaning_on_model(run: RecordedRun) -> RecordedRun:
    """The run with modelled durations, scaled, for steps larger than it has, if its deployment is modelled at all.

    A replay whose steps took what another model says knows nothing of this one.
    """
    try:
        recorded = _recorded(run)
        if recorded.deployment.step_time not in (None, _MODEL):
            return run
        model = recorded.latency(recorded.gpu)
    except TokenyardError:
        return run
    return run.leaning_on(model, f"{recorded.model.name} on {recorded.gpu.name}")


def served_with(run: RecordedRun, line: str, gpu: str | None) -> Variant:
    """The recorded traffic on what ``line`` starts, on ``gpu`` or else that of the trace.

    Raises TokenyardError naming what of the line, or of the trace, is not modelled.
    """
    recorded = _recorded(run)
    device = recorded.gpu if gpu is None else named_gpu(gpu)
    flags = parse(["run", "chat", "--serve", line, "--gpu", device.name])
    assert isinstance(flags, Run), "the words of a run"
    setup = prepare(flags, run.workload)
    if setup.settled.parallel.data_parallel_size > 1:
        fix = "one engine is asked about: leave it out"
        raise ConfigError("data_parallel_size", setup.settled.parallel.data_parallel_size, fix)
    variant = replace(
        as_it_was(run),
        name=line if gpu is None else f"{line} on {device.name}",
        scheduler=setup.scheduler,
        cache=setup.cache,
        speculation=run.speculation if _config_of(setup.speculation) == recorded.drafts else setup.speculation,
        kv_transfer=setup.kv_transfer,
    )
    if _is_same_machine(setup, recorded):
        if flags.launch.asked.says(_MEMORY):
            return variant
        return replace(variant, cache=replace(setup.cache, num_gpu_blocks=run.cache.num_gpu_blocks))
    latency = ScaledLatency(run.latency, recorded.latency(recorded.gpu), setup.latency)
    blocks = f"{setup.cache.num_gpu_blocks:,} KV blocks, as for any deployment (docs/deployments.md)"
    known = known_error(setup.settled.model, device)
    notes: tuple[str, ...] = (_ratio(recorded, setup.settled.model, device, known), _range(known), blocks)
    if variant.speculation is not run.speculation:
        notes += ("drafts: how many are right is a guess (0.8, 0.6, 0.4): the trace cannot tell",)
    return replace(variant, latency=latency, extremes=_extremes(latency, known), keeps_time=False, notes=notes)


def on_gpu(run: RecordedRun, gpu: str) -> Variant:
    """The recorded run with its own settings on another GPU: more or fewer blocks, other step times.

    Raises ConfigError for an unknown GPU, or a trace that does not say on what it ran; NoStartError if nothing fits.
    """
    recorded, device = _recorded(run), named_gpu(gpu)
    if device == recorded.gpu:
        return replace(as_it_was(run), name=f"gpu={device.name}")
    per_block = run.start.bytes_per_block
    if not per_block:
        raise ConfigError("gpu", gpu, f"{run.source} does not say how large a block is: ask with --serve")
    more = int((device.memory_bytes - recorded.gpu.memory_bytes) * _UTILIZATION) // per_block
    blocks = run.cache.num_gpu_blocks + more
    if blocks < 2:
        raise NoStartError(f"gpu = {device.name!r}: the weights alone take more memory than it has")
    pool = (
        f"{blocks:,} KV blocks instead of {run.cache.num_gpu_blocks:,}, as the memory of {device.name} has it;"
        " --serve with a number keeps one"
    )
    latency = ScaledLatency(run.latency, recorded.latency(recorded.gpu), recorded.latency(device))
    known = known_error(recorded.model, device)
    return replace(
        as_it_was(run),
        name=f"gpu={device.name}",
        cache=replace(run.cache, num_gpu_blocks=blocks),
        latency=latency,
        extremes=_extremes(latency, known),
        keeps_time=False,
        notes=(_ratio(recorded, recorded.model, device, known), _range(known), pool),
    )


def _recorded(run: RecordedRun) -> _Recorded:
    """What the trace ran on. Raises ConfigError where it does not say, or where that is not modelled."""
    name = run.start.gpu or ""
    gpu = GPUS.get(name) or gpu_of_device(name)
    if gpu is None:
        fix = f"the trace ran on {shown(name)}, whose step times are not modelled: only settings can be asked about"
        raise ConfigError("gpu", name, fix)
    config = run.start.config or {}
    model = config.get("model") if isinstance(config.get("model"), dict) else None
    asked = run.start.model or ""
    known = known_as(asked, MODELS)
    spec = model_spec(asked if known is None else known.name)
    eager = bool((model or config.get("hardware") or {}).get("enforce_eager"))
    drafts = _config_of(run.speculation)
    return _Recorded(model=spec, gpu=gpu, deployment=deployment_of(config), eager=eager, drafts=drafts)


def _is_same_machine(setup: Setup, recorded: _Recorded) -> bool:
    """Whether a step of the same shape takes as long as in the trace."""
    settled, kept = setup.settled, recorded.deployment
    return (
        settled.gpu == recorded.gpu
        and settled.model == recorded.model
        and settled.hardware.tensor_parallel_size == (kept.tensor_parallel_size or 1)
        and settled.parallel.pipeline_parallel_size == (kept.pipeline_parallel_size or 1)
        and settled.hardware.enforce_eager == recorded.eager
        and _config_of(setup.speculation) == recorded.drafts
    )


def _ratio(recorded: _Recorded, model: ModelSpec, gpu: GPU, known: KnownError) -> str:
    return (
        f"step times: those of the trace, times the modelled ratio of {model.name} on {gpu.name} to"
        f" {recorded.model.name} on {recorded.gpu.name}; {known.sentence}"
    )


def _extremes(latency: LatencyModel, known: KnownError) -> tuple[LatencyModel, LatencyModel]:
    """Step times as short, and as long, as nine measured ones of ten would be."""
    return (
        StretchedLatency(latency, known.ttft.low, known.tpot.low),
        StretchedLatency(latency, known.ttft.high, known.tpot.high),
    )


def _range(known: KnownError) -> str:
    prefill, decode = (f"{each.low:.2f} and {each.high:.2f} times" for each in (known.ttft, known.tpot))
    return (
        f"range: the least and the most of three replays; in the others steps that compute prompts take {prefill}, and"
        f" steps that only decode {decode}, as long, as far as nine measurements of ten lay from the model"
    )


def _config_of(speculation: SimulatedSpeculation | None) -> SpeculativeConfig | None:
    return None if speculation is None else speculation.config
