"""The header of a replay: what is served as we understood it, what was assumed, what was ignored."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from tokenyard.core.config import SchedulerConfig, SpeculativeMethod
from tokenyard.deploy.resolve import ResolvedSettings
from tokenyard.deploy.settings import DeploymentSettings
from tokenyard.deploy.vllm_serve.flags import KNOWN, FlagEffect, span_of
from tokenyard.deploy.vllm_serve.given import GivenFlags
from tokenyard.memory.layer_caches import LayerCache
from tokenyard.models.images.largest import LARGEST
from tokenyard.models.spec import EncoderSpec
from tokenyard.policies.named import policy_label, policy_maker
from tokenyard.sim.executor import SimulatedSpeculation
from tokenyard.steptime.calibrated import LORA_LAYER_SECONDS
from tokenyard.steptime.constants import shipped_constants
from tokenyard.steptime.encoders import timed_encoders
from tokenyard.steptime.formula import gpus_together
from tokenyard.steptime.known_error import SentLoad
from tokenyard.steptime.model import LatencyModel
from tokenyard.steptime.scaled import error_in_words
from tokenyard.trace.start import ACCEPTANCE, Assumption
from tokenyard.trace.start import DeploymentHeader as Header
from tokenyard.units import GIB
from tokenyard.workload.load import doubt_of_policy
from tokenyard.workload.record import Workload

IMAGES = "images and sound"
_STEP_TIME_ERRORS: Mapping[str, str] = KNOWN["step_time_errors"]
"""Word in front of the colon of ``--latency`` -> the error of its step times; docs/latency.md."""


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
        without_effect=asked.without_effect,
        ignored=[*asked.ignored(settled.version), *model.ignored, *ignored, *_not_in_step_times(settled)],
    )


def with_known_error(header: Header, latency: LatencyModel, workload: Workload) -> Header:
    """The same header, with what is known of the error of step times under this workload, if they are calibrated."""
    error = error_in_words(latency, load_of(workload))
    return header if error is None else msgspec.structs.replace(header, step_time_error=error)


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
    why = "an oracle: it uses max_tokens, which a replay knows to be the answer's true length, and no server does"
    oracles = [name for name in policies if policy_maker(name)().reads_max_tokens]
    said = [Assumption(name="scheduling-policy", value=policy_label(name), why=why) for name in oracles]
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


def _gib(num_bytes: int) -> float:
    return round(num_bytes / GIB, 3)


def _assumptions(
    flags: DeploymentSettings, settled: ResolvedSettings, speculation: SimulatedSpeculation | None
) -> Iterator[Assumption]:
    asked, hardware = flags.launch.asked, settled.hardware
    given = asked.named
    yield from (Assumption(name=each.name, value=each.value, why=each.why) for each in asked.found)
    default = f"vllm serve's default (vLLM {settled.version})"
    yield from _served(given, settled)
    if settled.model.encoders and not settled.model.max_encoder_tokens:
        why = "a log counts their tokens as prompt; with images of its own (docs/workloads.md) their budget is heeded"
        yield Assumption(name=IMAGES, value="none", why=why)
    yield from _not_reserved(settled)
    if settled.pools:
        why = "a pooling model's request ends with its prompt: TTFT is the time to its embedding, score or labels"
        yield Assumption(name="output tokens", value="one a request, its result", why=why)
        if not settled.plan.groups:
            why = "what sees a prompt both ways keeps nothing of it: a block in figures stands for a request that runs"
            yield Assumption(name="KV cache", value="none", why=why)
    yield from _limits_by_gpu(asked, settled, default)
    yield from _memory(asked, settled, default)
    yield from _logged(asked, settled)
    if "latency" not in given:
        yield Assumption(name="step times", value=hardware.latency, why="fitted to measured runs of vLLM")
    yield from _balancing(given, settled)
    yield from _untold(settled)
    if speculation is not None:
        rates = ", ".join(f"{rate:g}" for rate in speculation.acceptance)
        if "acceptance_rates" not in given:
            yield Assumption(name=ACCEPTANCE, value=rates, why="not given: how many drafts are right")
        yield _drafting(settled, speculation)
    for each in asked.missing_in(settled.version):
        yield Assumption(
            name=each.flag.name, value=" ".join(each.words[1:]), why=_no_such_flag(each.flag.versions, settled)
        )


def _not_reserved(settled: ResolvedSettings) -> Iterator[Assumption]:
    """An encoder that vLLM measures memory with, and that none is kept free for here."""
    model, hardware = settled.model, settled.hardware
    if not model.encoders or settled.encoded is not None or hardware.skip_mm_profiling:
        return
    is_given = hardware.kv_cache_memory_bytes is not None or hardware.num_gpu_blocks_override is not None
    is_timed = bool(timed_encoders(model))
    unknown = "the largest input of {}" if is_timed else "what the tower of {} computes"
    why = f"{unknown.format(model.architecture)} is not known here"
    if not is_given:
        value = "no memory for its work" if is_timed else "no memory for its work, no time"
        yield Assumption(name="encoder", value=value, why=f"{why}; vLLM has less room for KV than is shown")
    elif not is_timed:
        yield Assumption(name="encoder", value="no time", why=why)


def _drafting(settled: ResolvedSettings, speculation: SimulatedSpeculation) -> Assumption:
    """What makes drafts, and what it takes."""
    if not speculation.config.use_eagle:
        why = "drafts take neither time nor memory here"
        if speculation.config.method is SpeculativeMethod.DRAFT_MODEL:
            why += "; a draft model takes both, so that vLLM has less room for KV, and longer steps, than is shown"
        return Assumption(name="drafting", value="0 s", why=why)
    count = settled.loaded.num_layers - settled.model.num_layers
    layers = "one more layer" if count == 1 else f"{count} more layers"
    if settled.hardware.latency != "calibrated":
        why = f"its weights and KV are counted as {layers} of the model's, its steps take no time here"
        return Assumption(name="drafting", value="a head", why=why)
    why = f"the head counts as {layers} of the model: time, weights and KV"
    return Assumption(name="drafting", value="one layer per draft", why=why)


def _untold(settled: ResolvedSettings) -> Iterator[Assumption]:
    """What was not measured, and how it is counted."""
    if settled.hardware.latency != "calibrated":
        return
    hardware, parallel, adapters = settled.hardware, settled.parallel, settled.adapters
    if shipped_constants().published_for(settled.gpu):
        why = "fitted to what its vendor publishes of vLLM on this generation (docs/gpus.md)"
        yield Assumption(name=f"step times on {settled.gpu.name}", value="factors of six costs", why=why)
    if hardware.enforce_eager:
        why = "as in steps too large for a CUDA graph: an estimate; decodes without graphs were not measured"
        yield Assumption(name="launch of kernels", value="one by one", why=why)
    if parallel.pipeline_parallel_size > 1:
        why = "stages share layers evenly; none was measured"
        yield Assumption(name="pipeline", value=f"{parallel.pipeline_parallel_size} stages", why=why)
    yield from _machines(settled)
    if parallel.decode_context_parallel_size > 1:
        why = "each GPU reads its part of a context, and two small all-reduces a layer join them: an estimate"
        value = f"over {parallel.decode_context_parallel_size} GPUs"
        yield Assumption(name="KV of a sequence", value=value, why=why)
    if adapters.enable_lora:
        micros = LORA_LAYER_SECONDS * 1e6
        why = "in steps of a workload that names adapters: an estimate; loading an adapter takes no time"
        yield Assumption(name="LoRA", value=f"{micros:.0f} us a layer", why=why)


def _machines(settled: ResolvedSettings) -> Iterator[Assumption]:
    """Which GPUs of an engine, or of engines that share experts, are taken for joined by their own links."""
    parallel, given = settled.parallel, settled.gpus_per_machine
    ranks = parallel.data_parallel_size if settled.steps_together else 1
    num_gpus = settled.hardware.tensor_parallel_size * parallel.pipeline_parallel_size * ranks
    together = gpus_together(settled.gpu, given)
    said = "" if given else "not given (--nnodes): "
    if num_gpus > together:
        value = f"{-(-num_gpus // together)} of {together} GPUs"
        floor = shipped_constants().of(settled.model, settled.gpu)["network_all_reduce"]
        why = (
            f"{said}between them {settled.gpu.network_bandwidth / 1e9:.0f} GB/s per GPU (a port of"
            f" {settled.gpu.network_bandwidth / 1.25e8:.0f} Gbit/s), and {floor * 1e6:.0f} us for each exchange:"
            " assumed, nothing measured it"
        )
        yield Assumption(name="machines", value=value, why=why)
    elif num_gpus > (given or settled.gpu.gpus_per_machine):
        why = f"{said}{settled.gpu.name} GPUs of several machines are taken for joined by NVLink switches (NVL72)"
        yield Assumption(name="machines", value=f"one NVLink domain of {together} GPUs", why=why)


def _served(given: Collection[str], settled: ResolvedSettings) -> Iterator[Assumption]:
    hardware = settled.hardware
    if "vllm_version" not in given:
        yield Assumption(name="vllm-version", value=settled.version, why="not given: the newest that is known here")
    if "gpu" not in given:
        yield Assumption(name="gpu", value=hardware.gpu, why="not given")
    yield from (Assumption(name="model", value=settled.model.name, why=note) for note in settled.model.notes)
    if "model" not in given:
        yield Assumption(name="model", value=settled.model.name, why="not given")
    elif settled.model.name != hardware.model and "/" in hardware.model:
        yield Assumption(name="model", value=settled.model.name, why=f"what {hardware.model} has the shape of")


def _balancing(given: Collection[str], settled: ResolvedSettings) -> Iterator[Assumption]:
    parallel = settled.parallel
    if parallel.has_replicas and "router" not in given:
        why = "not given: a balancer that sees each replica's requests at every moment"
        yield Assumption(name="router", value=parallel.router, why=why)
    if parallel.data_parallel_size == 1:
        return
    if "router" not in given:
        yield Assumption(name="router", value=parallel.router, why=f"vLLM {settled.version}'s own balancing")
    if parallel.router == "vllm":
        why = "front ends take turns; in vLLM the system decides which one a connection is given to"
        yield Assumption(name="api-server-count", value=parallel.api_server_count, why=why)


def _limits_by_gpu(asked: GivenFlags, settled: ResolvedSettings, default: str) -> Iterator[Assumption]:
    by_gpu, limits = f"{default} on {settled.gpu.name}", settled.scheduling
    if "max_num_seqs" not in asked.named:
        yield Assumption(name="max-num-seqs", value=limits.max_num_seqs, why=by_gpu)
    if "max_num_batched_tokens" not in asked.named:
        yield Assumption(name="max-num-batched-tokens", value=limits.max_num_batched_tokens, why=by_gpu)
    if "max_model_len" not in asked.named:
        length = settled.plan.max_model_len
        fitted = f"the longest that {settled.plan.num_blocks:,} blocks hold, as auto would choose"
        why = "the model's own" if length == settled.model.max_model_len else fitted
        yield Assumption(name="max-model-len", value=length, why=why)


def _memory(asked: GivenFlags, settled: ResolvedSettings, default: str) -> Iterator[Assumption]:
    if asked.says(("num_gpu_blocks_override", "kv_cache_memory_bytes")):
        yield from _too_much(settled)
        return
    if "gpu_memory_utilization" not in asked.named:
        value = settled.hardware.gpu_memory_utilization
        yield Assumption(name="gpu-memory-utilization", value=value, why=default)
    if not settled.plan.groups:
        return
    blocks = f"{settled.plan.num_blocks:,}"
    fewest = settled.fewest_blocks
    least = f"{fewest:,}, if a step takes all it may" if fewest else "vLLM does not start, if a step takes all it may"
    why = f"estimated ({least}); --kv-cache-memory-bytes takes what vLLM logs as available KV cache memory"
    yield Assumption(name="KV blocks", value=blocks, why=why)


def _too_much(settled: ResolvedSettings) -> Iterator[Assumption]:
    """KV memory that was given, where the GPU does not have it beside the weights."""
    memory = settled.gpu.memory_bytes
    if settled.kv_bytes + settled.weight_bytes > memory:
        beside = f"as given; with {_gib(settled.weight_bytes):,.1f} GiB of weights that is more than the"
        why = f"{beside} {_gib(memory):,.1f} GiB of {settled.gpu.name}: vLLM runs out of memory when it starts"
        yield Assumption(name="KV memory", value=f"{_gib(settled.kv_bytes):,.1f} GiB", why=why)


def _logged(asked: GivenFlags, settled: ResolvedSettings) -> Iterator[Assumption]:
    """The capacity that a start-up log names, beside ours."""
    logged = asked.logged_kv_tokens
    if logged:
        here = settled.plan.num_tokens
        why = f"by the start-up log; {here:,} here ({100 * (here / logged - 1):+.1f} %)"
        yield Assumption(name="KV cache size", value=f"{logged:,} tokens", why=why)


def _no_such_flag(versions: tuple[str, ...], settled: ResolvedSettings) -> str:
    have = span_of(versions) if versions else "older versions"
    return f"a flag of {have}, not of {settled.version}"
