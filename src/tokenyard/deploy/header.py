"""The header of a replay: what is served as we understood it, what was assumed, what was ignored."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from tokenyard.core.config import SchedulerConfig, SpeculativeMethod
from tokenyard.deploy.resolve import ResolvedSettings
from tokenyard.deploy.settings import DeploymentSettings
from tokenyard.deploy.start_facts import AROUND, NOT_READ
from tokenyard.deploy.vllm_serve.defaults import is_known
from tokenyard.deploy.vllm_serve.flags import KNOWN, FlagEffect, span_of
from tokenyard.deploy.vllm_serve.given import GivenFlags
from tokenyard.files import packaged
from tokenyard.memory.layer_caches import LayerCache
from tokenyard.models.images.largest import LARGEST
from tokenyard.models.spec import EncoderSpec
from tokenyard.policies.named import policy_label, policy_maker
from tokenyard.sim.executor import SimulatedSpeculation
from tokenyard.steptime.calibrated import LORA_LAYER_SECONDS
from tokenyard.steptime.constants import shipped_constants
from tokenyard.steptime.encoders import timed_encoders
from tokenyard.steptime.formula import gpus_together
from tokenyard.steptime.front_end import FrontEndTime
from tokenyard.steptime.known_error import SentLoad
from tokenyard.steptime.model import LatencyModel
from tokenyard.steptime.scaled import error_in_words
from tokenyard.trace.start import Assumption
from tokenyard.trace.start import DeploymentHeader as Header
from tokenyard.units import GIB
from tokenyard.workload.load import doubt_of_policy
from tokenyard.workload.record import Workload

IMAGES = "images and sound"
_STEP_TIME_ERRORS: Mapping[str, str] = KNOWN["step_time_errors"]
"""Word in front of the colon of ``--latency`` -> the error of its step times; docs/latency.md."""


class _Assumed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    why: str
    value: str = ""


@cache
def _assumed() -> dict[str, _Assumed]:
    return msgspec.json.decode(packaged(__package__, "assumptions.json"), type=dict[str, _Assumed])


def assumed(key: str, value: object = None, /, **of: Any) -> Assumption:
    """Return what ``assumptions.json`` says by this key, with what its sentence names and, mostly, a ``value``."""
    said = _assumed()[key]
    taken = said.value.format(**of) if value is None else value
    return Assumption(name=said.name.format(**of), value=taken, why=said.why.format(**of))


def describe_deployment(
    flags: DeploymentSettings,
    settled: ResolvedSettings,
    scheduler: SchedulerConfig,
    speculation: SimulatedSpeculation | None,
    ignored: Sequence[str] = (),
    *,
    memory_num_gpu_blocks: int | None = None,
) -> Header:
    """Everything that the header of a report says.

    ``ignored`` is what the caller ignored; ``memory_num_gpu_blocks`` is known where others were given by hand.
    """
    asked, hardware, model = flags.launch.asked, settled.hardware, settled.model
    plan, tp = settled.plan, hardware.tensor_parallel_size
    latency = hardware.latency.partition(":")[0]
    return Header(
        kv_tokens=plan.num_tokens,
        num_gpu_blocks=plan.num_blocks,
        memory_num_gpu_blocks=memory_num_gpu_blocks,
        block_size=plan.block_size,
        kv_dtype=plan.kv_cache_dtype,
        kv_gib=_gib(settled.kv_bytes),
        kv_groups=[_group(group.first, len(group.layers)) for group in plan.groups],
        weight_gib=_gib(settled.weight_bytes),
        weight_dtype=model.weight_format.name,
        tensor_parallel_size=tp,
        pipeline_parallel_size=settled.parallel.pipeline_parallel_size,
        data_parallel_size=settled.parallel.data_parallel_size,
        enable_expert_parallel=settled.parallel.enable_expert_parallel,
        max_num_batched_tokens=settled.scheduling.max_num_batched_tokens,
        max_num_seqs=settled.scheduling.max_num_seqs,
        max_model_len=plan.max_model_len,
        async_scheduling=scheduler.async_scheduling,
        vllm_version=settled.version,
        step_time=hardware.latency,
        step_time_error=_STEP_TIME_ERRORS.get(latency),
        assumed=list(_assumptions(flags, settled, speculation)),
        used=[*(str(each) for each in asked.of(FlagEffect.USED)), *asked.obeyed(settled.version)],
        without_effect=[*asked.without_effect, *_passed_over(asked, AROUND)],
        ignored=[
            *asked.ignored(settled.version),
            *_passed_over(asked, NOT_READ),
            *model.ignored,
            *ignored,
            *_not_in_step_times(settled),
        ],
    )


def with_known_error(header: Header, latency: LatencyModel, workload: Workload) -> Header:
    """The same header, with what is known of the error of step times under this workload, if they are calibrated."""
    error = error_in_words(latency, load_of(workload))
    return header if error is None else msgspec.structs.replace(header, step_time_error=error)


def with_front_end(header: Header, front_end: FrontEndTime) -> Header:
    """The same header, with what requests take from their clients to the scheduler."""
    return msgspec.structs.replace(header, assumed=[*header.assumed, assumed("front_end", str(front_end))])


def load_of(workload: Workload) -> SentLoad:
    """What a workload says before it is replayed; who is in flight at once is known of a closed loop alone."""
    count = len(workload)
    return SentLoad(
        users=None if workload.max_concurrency is None else min(workload.max_concurrency, count),
        input_tokens=workload.num_prompt_tokens / count,
        output_tokens=workload.num_output_tokens / count,
    )


def with_notes(header: Header, workload: Workload) -> Header:
    """The same header, with what was assumed or left out when the workload was read."""
    said = [Assumption(name="workload", value=workload.name, why=note) for note in workload.notes]
    return msgspec.structs.replace(header, assumed=[*header.assumed, *said])


def with_oracles(header: Header, policies: Sequence[str]) -> Header:
    """The same header, which says of policies that they know in a replay what is not known on a server."""
    oracles = [name for name in policies if policy_maker(name)().reads_max_tokens]
    said = [assumed("oracle", policy_label(name)) for name in oracles]
    return msgspec.structs.replace(header, assumed=[*header.assumed, *said])


def with_idle_policies(header: Header, policies: Sequence[str], workload: Workload) -> Header:
    """The same header, which says of policies that the workload gives them nothing to decide by."""
    doubts = {name: doubt_of_policy(name, workload) for name in policies}
    said = {f"--scheduling-policy {name}": doubt for name, doubt in doubts.items() if doubt is not None}
    return msgspec.structs.replace(
        header,
        used=[each for each in header.used if each not in said],
        without_effect=[*header.without_effect, *(f"{flag}: {doubt}" for flag, doubt in said.items())],
    )


def with_images(header: Header, scheduler: SchedulerConfig, settled: ResolvedSettings) -> Header:
    """The same header, for a workload with images that the model reads."""
    others = [each for each in header.assumed if each.name != IMAGES]
    budget = f"{scheduler.max_num_encoder_input_tokens:,} embeddings a step, as many kept"
    asked = (
        "as vLLM plans for its largest image or video"
        if settled.model.architecture in LARGEST
        else "as for its largest image"
    )
    why = f"{asked}; {_encoder_time(settled)}"
    return msgspec.structs.replace(header, assumed=[*others, Assumption(name=IMAGES, value=budget, why=why)])


def _encoder_time(settled: ResolvedSettings) -> str:
    """How the time of an encoder is counted."""
    encoders = timed_encoders(settled.model)
    if settled.hardware.latency != "calibrated":
        return "the encoder takes no time with these step times"
    if not encoders:
        return "the encoder takes no time here"
    parts = ", then ".join(map(_patches_of, encoders))
    return f"the encoder's time is an estimate that nothing measured: {parts}, at the rates fitted for decoders"


def _patches_of(encoder: EncoderSpec) -> str:
    """What every patch goes through, and how many there are."""
    hears = encoder.kind == "audio"
    one, whole = ("frames", "all of a sound") if hears else ("patches", "all of a picture")
    if encoder.window and encoder.whole_layers:
        sees = f"{encoder.window} {one}, all in {encoder.whole_layers} of {encoder.num_layers} layers"
    else:
        sees = f"{encoder.window:,} {one}" if encoder.window else whole
    each = f"{encoder.patches_per_embedding} {one} an embedding"
    if encoder.tile_embeddings:
        each = f"{encoder.window:,} {one} for {encoder.tile_embeddings} embeddings"
    return f"{encoder.layer_parameters / 1e6:,.0f} M parameters for each of {each}, which see {sees}"


def _group(layer: LayerCache, num_layers: int) -> str:
    window = f" of {layer.window:,} tokens" if layer.window else ""
    return f"{num_layers} layers {layer.kind.value}{window}, blocks of {layer.block_size}"


def _not_in_step_times(settled: ResolvedSettings) -> Iterator[str]:
    """What makes steps faster or slower in vLLM, and the same here; docs/latency.md."""
    hardware, parallel = settled.hardware, settled.parallel
    kind, local = hardware.latency.partition(":")[0], parallel.data_parallel_size_local
    if local is not None and local < parallel.data_parallel_size and settled.steps_together and kind != "calibrated":
        yield f"step times: data_parallel_size_local = {local}, and all engines count as on one machine"
    if hardware.enforce_eager and kind in ("roofline", "table"):
        yield "step times: kernels count as launched from CUDA graphs"
    if parallel.decode_context_parallel_size > 1 and kind in ("roofline", "table"):
        yield "step times: each GPU counts as reading the whole context"
    if parallel.pipeline_parallel_size > 1 and kind == "roofline":
        yield "step times: what stages send each other takes no time"
    if kind != "roofline":
        return
    model, plan = settled.model, settled.plan
    if model.quantization is not None:
        yield f"step times: weights count as {model.dtype}, though most are {model.weight_format.name}"
    if settled.parallel.enable_expert_parallel or settled.steps_together:
        yield "step times: experts count as if each engine had all of them, and without the exchange of tokens"
    if plan.kv_cache_dtype != model.dtype:
        yield f"step times: KV counts as {model.dtype}, though it is {plan.kv_cache_dtype}"


_PLACES = (AROUND, NOT_READ)
"""Names of notes about a text that stand elsewhere than among what is assumed."""


def _passed_over(asked: GivenFlags, name: str) -> Iterator[str]:
    return (f"{each.name}: {each.value}: {each.why}" for each in asked.found if each.name == name)


def _gib(num_bytes: int) -> float:
    return round(num_bytes / GIB, 3)


def _assumptions(
    flags: DeploymentSettings, settled: ResolvedSettings, speculation: SimulatedSpeculation | None
) -> Iterator[Assumption]:
    asked, hardware = flags.launch.asked, settled.hardware
    given = asked.named
    yield from (
        Assumption(name=each.name, value=each.value, why=each.why) for each in asked.found if each.name not in _PLACES
    )
    default = f"vllm serve's default (vLLM {settled.version})"
    yield from _served(given, flags.launch.vllm_version, settled)
    if settled.model.encoders and not settled.model.max_encoder_tokens:
        yield assumed("no_images")
    yield from _not_reserved(settled)
    if settled.pools:
        yield assumed("pooled")
        if not settled.plan.groups:
            yield assumed("no_cache")
    yield from _limits_by_gpu(asked, settled, default)
    yield from _memory(asked, settled, default)
    yield from _logged(asked, settled)
    if "latency" not in given:
        yield assumed("step_times", hardware.latency)
    yield from _balancing(given, settled)
    yield from _untold(settled)
    if speculation is not None:
        if "acceptance_rates" not in given:
            yield assumed("acceptance", ", ".join(f"{rate:g}" for rate in speculation.acceptance))
        yield _drafting(settled, speculation)
    for each in asked.missing_in(settled.version):
        have = span_of(each.flag.versions) if each.flag.versions else "older versions"
        yield assumed("no_such_flag", " ".join(each.words[1:]), flag=each.flag.name, have=have, version=settled.version)


def _not_reserved(settled: ResolvedSettings) -> Iterator[Assumption]:
    """An encoder that vLLM measures memory with, and that none is kept free for here."""
    model, hardware = settled.model, settled.hardware
    if not model.encoders or settled.encoded is not None or hardware.skip_mm_profiling:
        return
    is_given = hardware.kv_cache_memory_bytes is not None or hardware.num_gpu_blocks_override is not None
    is_timed = bool(timed_encoders(model))
    name = model.architecture
    unknown = f"the largest input of {name}" if is_timed else f"what the tower of {name} computes"
    if not is_given:
        yield assumed("not_reserved", "no memory for its work" + ", no time" * (not is_timed), unknown=unknown)
    elif not is_timed:
        yield assumed("not_timed", unknown=unknown)


def _drafting(settled: ResolvedSettings, speculation: SimulatedSpeculation) -> Assumption:
    """What makes drafts, and what it takes."""
    if not speculation.config.use_eagle:
        is_model = speculation.config.method is SpeculativeMethod.DRAFT_MODEL
        return assumed("draft_model" if is_model else "drafts")
    count = settled.loaded.num_layers - settled.model.num_layers
    layers = "one more layer" if count == 1 else f"{count} more layers"
    return assumed("head" if settled.hardware.latency == "calibrated" else "untimed_head", layers=layers)


def _untold(settled: ResolvedSettings) -> Iterator[Assumption]:
    """What was not measured, and how it is counted."""
    if settled.hardware.latency != "calibrated":
        return
    hardware, parallel, adapters = settled.hardware, settled.parallel, settled.adapters
    if shipped_constants().published_for(settled.gpu):
        yield assumed("published_factors", gpu=settled.gpu.name)
    if hardware.enforce_eager:
        yield assumed("eager")
    if parallel.pipeline_parallel_size > 1:
        yield assumed("pipeline", stages=parallel.pipeline_parallel_size)
    yield from _machines(settled)
    if parallel.decode_context_parallel_size > 1:
        yield assumed("spread_kv", gpus=parallel.decode_context_parallel_size)
    if adapters.enable_lora:
        yield assumed("lora", micros=LORA_LAYER_SECONDS * 1e6)


def _machines(settled: ResolvedSettings) -> Iterator[Assumption]:
    """Which GPUs of an engine, or of engines that share experts, are taken for joined by their own links."""
    parallel, given = settled.parallel, settled.gpus_per_machine
    ranks = parallel.data_parallel_size if settled.steps_together else 1
    num_gpus = settled.hardware.tensor_parallel_size * parallel.pipeline_parallel_size * ranks
    together = gpus_together(settled.gpu, given)
    said = "" if given else "not given (--nnodes): "
    if num_gpus > together:
        of = {"rate": settled.gpu.network_bandwidth / 1e9, "port": settled.gpu.network_bandwidth / 1.25e8}
        floor = shipped_constants().of(settled.model, settled.gpu)["network_all_reduce"] * 1e6
        yield assumed("machines", said=said, machines=-(-num_gpus // together), together=together, floor=floor, **of)
    elif num_gpus > (given or settled.gpu.gpus_per_machine):
        yield assumed("one_domain", said=said, gpu=settled.gpu.name, together=together)


def _served(given: Collection[str], asked_version: str, settled: ResolvedSettings) -> Iterator[Assumption]:
    hardware = settled.hardware
    if "vllm_version" not in given:
        yield assumed("newest_version", settled.version)
    elif not is_known(asked_version):
        yield assumed("nearest_version", settled.version, asked=asked_version)
    if "gpu" not in given:
        yield assumed("not_given", hardware.gpu, name="gpu")
    yield from (Assumption(name="model", value=settled.model.name, why=note) for note in settled.model.notes)
    if "model" not in given:
        yield assumed("not_given", settled.model.name, name="model")
    elif settled.model.name != hardware.model and "/" in hardware.model:
        yield assumed("same_shape", settled.model.name, asked=hardware.model)


def _balancing(given: Collection[str], settled: ResolvedSettings) -> Iterator[Assumption]:
    parallel = settled.parallel
    if parallel.has_replicas and "router" not in given:
        yield assumed("balancer", parallel.router)
    if parallel.data_parallel_size == 1:
        return
    if "router" not in given:
        yield assumed("own_balancing", parallel.router, version=settled.version)
    if parallel.router == "vllm":
        yield assumed("front_ends", parallel.api_server_count)


def _limits_by_gpu(asked: GivenFlags, settled: ResolvedSettings, default: str) -> Iterator[Assumption]:
    by_gpu, limits = f"{default} on {settled.gpu.name}", settled.scheduling
    if "max_num_seqs" not in asked.named:
        yield assumed("default_of", limits.max_num_seqs, name="max-num-seqs", default=by_gpu)
    if "max_num_batched_tokens" not in asked.named:
        yield assumed("default_of", limits.max_num_batched_tokens, name="max-num-batched-tokens", default=by_gpu)
    if "max_model_len" not in asked.named:
        length = settled.plan.max_model_len
        is_own = length == settled.model.max_model_len
        yield assumed("own_length" if is_own else "fitted_length", length, blocks=settled.plan.num_blocks)


def _memory(asked: GivenFlags, settled: ResolvedSettings, default: str) -> Iterator[Assumption]:
    if asked.says(("num_gpu_blocks_override", "kv_cache_memory_bytes")):
        yield from _too_much(settled)
        return
    if "gpu_memory_utilization" not in asked.named:
        value = settled.hardware.gpu_memory_utilization
        yield assumed("default_of", value, name="gpu-memory-utilization", default=default)
    if not settled.plan.groups:
        return
    fewest = settled.fewest_blocks
    least = f"{fewest:,}, if a step takes all it may" if fewest else "vLLM does not start, if a step takes all it may"
    yield assumed("estimated_blocks", f"{settled.plan.num_blocks:,}", least=least)


def _too_much(settled: ResolvedSettings) -> Iterator[Assumption]:
    """KV memory that was given, where the GPU does not have it beside the weights."""
    memory = settled.gpu.memory_bytes
    if settled.kv_bytes + settled.weight_bytes > memory:
        of = {"weights": _gib(settled.weight_bytes), "memory": _gib(memory), "gpu": settled.gpu.name}
        yield assumed("too_much", f"{_gib(settled.kv_bytes):,.1f} GiB", **of)


def _logged(asked: GivenFlags, settled: ResolvedSettings) -> Iterator[Assumption]:
    """The capacity that a start-up log names, beside ours, both counted as the version of the log counts."""
    plan, logged = settled.plan, asked.logged_kv
    if logged.size_tokens:
        here = plan.num_blocks // len(plan.groups) * plan.block_size if logged.by_blocks else plan.num_tokens
        tokens = logged.size_tokens
        yield assumed("logged_capacity", f"{tokens:,} tokens", here=here, off=100 * (here / tokens - 1))
    if logged.concurrency and logged.max_model_len == plan.max_model_len:
        times = plan.max_concurrency
        said = {"here": times, "off": 100 * (times / logged.concurrency - 1), "length": plan.max_model_len}
        yield assumed("logged_concurrency", f"{logged.concurrency:.2f}x", **said)
