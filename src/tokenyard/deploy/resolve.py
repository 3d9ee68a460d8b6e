"""Settings that were not given, resolved: the model, limits by GPU and version, the size of the pool."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from tokenyard.core.config import MambaCacheMode, SchedulerConfig, SpeculativeConfig, require_int, require_limit
from tokenyard.core.profiles import release_facts
from tokenyard.deploy.kv_memory import (
    adapter_bytes_of,
    fewest_blocks,
    kv_memory,
    largest_item,
    largest_of_kinds,
    longest_in,
    measured_encoder,
    pool_of,
    said_to_be_estimated,
    step_memory_of,
    weight_bytes_of,
)
from tokenyard.deploy.settings import (
    AdapterSettings,
    DeploymentSettings,
    HardwareSettings,
    ParallelSettings,
    SchedulerSettings,
)
from tokenyard.deploy.vllm_serve import defaults, start_checks
from tokenyard.deploy.vllm_serve.models import (
    UNSAID,
    check_activations,
    check_method,
    encoders_in_use,
    input_limits,
    item_sizes,
    items_allowed,
    online_quantization,
    overridden,
)
from tokenyard.deploy.vllm_serve.refusals import refused
from tokenyard.deploy.vllm_serve.speculation import AskedSpeculation
from tokenyard.deploy.vllm_serve.start_checks import MOST_NODES, cuts_prompts, no_start, pooled, pools
from tokenyard.errors import ConfigError, NoStartError, WorkloadError, shown
from tokenyard.memory.kv_plan import KVCachePlan, plan_kv_cache
from tokenyard.memory.room import EncodedAtOnce, MemoryPart, capture_sizes, check_utilization
from tokenyard.models.additions import with_draft_head, with_draft_model, with_state_dtypes
from tokenyard.models.described import described_elsewhere
from tokenyard.models.gpus import GPU, named_gpu
from tokenyard.models.images.largest import with_limited_picture, with_limited_video
from tokenyard.models.images.processor_kwargs import with_processor_kwargs
from tokenyard.models.images.processors import Processors, processors_beside
from tokenyard.models.inputs import item_kind, kind_of, known_items, may_share_images, most_items
from tokenyard.models.named import config_called, hub_names
from tokenyard.models.reading.read import model_from_config
from tokenyard.models.spec import ModelSpec
from tokenyard.quick_dataclass import dataclass
from tokenyard.sim.settings import MOST_ENGINES
from tokenyard.steptime.encoders import timed_encoders
from tokenyard.workload.record import Workload, WorkloadRequest

# ---------------------------------------------------------------------------------------------------------------------
# Images, videos and sounds in a workload: whether a model takes them, how many, and what its encoder may compute.


def scheduler_with_images(scheduler: SchedulerConfig, settled: ResolvedSettings, workload: Workload) -> SchedulerConfig:
    """The limits with vLLM's budget for the encoder: as many embeddings as a step has tokens, or as the largest image
    or video that the line allows.

    WorkloadError if the model reads no images, a request has more of a kind than the line or the model's class allows,
    or an item has more tokens than any of this model's has; NoStartError where images may not be cut and one may be
    larger than a step.
    """
    model, first, line = settled.model, workload.first_with_images, settled.hardware.limit_mm_per_prompt
    usual = item_kind(model)
    most, allowed = most_items(model.architecture, usual), items_allowed(model.architecture, usual, line)
    largest = max((each.max_tokens_per_item for each in model.item_encoders), default=0) if most != 0 else 0
    # A line that allows none leaves the encoder out, too: what it says is why.
    is_forbidden = allowed == 0 and usual in known_items().get(model.architecture, {})
    if first is not None and not largest and not is_forbidden:
        why = "--language-model-only leaves the encoder out" if settled.hardware.language_model_only else "reads none"
        problem = f"request {shown(first.request_id)} has images, and {model.name} {why}"
        raise WorkloadError(workload.name, 0, f"{problem}: give a model with a vision encoder, or a log without images")
    if first is not None:
        _check_items(settled, workload, largest_of_kinds(model, line, settled.plan.max_model_len) | {usual: largest})
    planned = largest_item(model, line, settled.plan.max_model_len)
    budget = max(scheduler.max_num_batched_tokens, planned)
    if scheduler.disable_chunked_mm_input and planned > scheduler.max_num_batched_tokens:
        raise refused("images_cannot_be_cut", scheduler.max_num_batched_tokens, least=planned, model=model.name)
    return replace(scheduler, max_num_encoder_input_tokens=budget, encoder_cache_size=budget)


_ITEMS = {"audio": ("a sound", "sounds"), "video": ("a video", "videos")}


def _check_items(settled: ResolvedSettings, workload: Workload, largest: Mapping[str, int]) -> None:
    """WorkloadError for more items of a kind than vLLM takes, or for one that is larger than the model's ever are."""
    model, line = settled.model, settled.hardware.limit_mm_per_prompt
    for request in workload:
        kinds = [kind_of(model, each.modality) for each in request.images]
        for kind, count in Counter(kinds).items():
            if count > items_allowed(model.architecture, kind, line):
                raise _too_many(request, kind, count, settled, workload.name)
        for kind, item in zip(kinds, request.images, strict=True):
            if item.length > (most := largest.get(kind, item.length)):
                one, _ = _ITEMS.get(kind, ("an image", ""))
                problem = f"request {shown(request.request_id)} has {one} of {item.length:,} tokens"
                raise WorkloadError(workload.name, 0, f"{problem}; one of {model.name} has at most {most:,}")


def _too_many(request: WorkloadRequest, kind: str, count: int, settled: ResolvedSettings, where: str) -> WorkloadError:
    """What vLLM says to a request with more items than it takes: the class's number cannot be raised, a line's can."""
    model, per_prompt = settled.model, settled.hardware.limit_mm_per_prompt
    most, said = most_items(model.architecture, kind), input_limits(per_prompt).get(kind)
    _, items = _ITEMS.get(kind, ("", "images"))
    problem = f"request {shown(request.request_id)} has {count} {items}"
    if most is not None and (said is None or most <= said):
        fix = f"vLLM's class for {model.name} takes {most} in a prompt, and refuses it: leave the request out"
    elif said is not None:
        field = "limit_mm_per_prompt" if kind == "image" else f"limit_mm_per_prompt.{kind}"
        fix = f"{field} allows {said}, and vLLM refuses it: raise that, or leave the request out"
    else:
        fix = f"vLLM takes {UNSAID} where limit_mm_per_prompt says no number of {kind}: give one, or leave it out"
    return WorkloadError(where, 0, f"{problem}; {fix}")


# ---------------------------------------------------------------------------------------------------------------------
# Ways to spread a model over GPUs and machines that vLLM refuses, or that a replay cannot follow.

BACKENDS = ("mp", "uni", "ray", "external_launcher")
"""Values of ``--distributed-executor-backend``."""
_COUNTS_EXPERTS = ("NemotronHForCausalLM",)
"""Architectures whose configuration counts experts where the file, and the model, have none."""


def check_stages(parallel: ParallelSettings, gpus: int, model: ModelSpec, *, has_drafts: bool) -> None:
    """Raise ConfigError for what is wrong or not modelled, with a way around, NoStartError for too many stages, and for
    a model without a pipeline; ``gpus`` are those of a stage.
    """
    stages, backend = parallel.pipeline_parallel_size, parallel.distributed_executor_backend
    require_int("nnodes", parallel.nnodes, 1, MOST_NODES)
    require_int("pipeline_parallel_size", stages, 1)
    with no_start():
        require_int("pipeline_parallel_size", stages, 1, model.num_layers)
    if backend not in (None, *BACKENDS):
        raise ConfigError("distributed_executor_backend", backend, f"use one of: {', '.join(BACKENDS)}")
    if stages > 1 and backend == "uni":
        raise refused("uni_runs_no_pipeline", backend, stages=stages)
    if stages > 1 and not model.runs_in_stages:
        raise refused("no_pipeline", stages)
    problem = ""
    if stages > 1 and parallel.data_parallel_size > 1 and model.has_experts:
        problem = "stages of engines that share experts are not modelled: replay one engine's share of the traffic"
    elif stages > 1 and has_drafts:
        problem = "drafts in a pipeline are not modelled: leave one of the two out"
    if problem:
        raise ConfigError("pipeline_parallel_size", stages, problem)
    num_gpus = gpus * stages * parallel.data_parallel_size
    with no_start():
        if num_gpus % parallel.nnodes:
            fix = f"{num_gpus} GPUs (tensor x pipeline x data parallel) do not divide by it: give a divisor"
            raise ConfigError("nnodes", parallel.nnodes, fix)


def check_engines(parallel: ParallelSettings, model: ModelSpec) -> None:
    """Engines on each machine: ConfigError for what is no number, NoStartError for more than there are; and for experts
    that are to be shared out where there are none.
    """
    local = parallel.data_parallel_size_local
    if local is not None:
        require_int("data_parallel_size_local", local, 0, MOST_NODES)
        if local > parallel.data_parallel_size:
            raise refused("too_many_local_engines", local, most=parallel.data_parallel_size)
    if parallel.enable_expert_parallel and not model.has_experts and model.architecture not in _COUNTS_EXPERTS:
        raise refused("no_experts", value=True, model=model.name)


# ---------------------------------------------------------------------------------------------------------------------

# ---------------------------------------------------------------------------------------------------------------------
# The model that is served: known by name, by its name on the hub, or read from a config.json; with its weights.


def served_model(hardware: HardwareSettings, version: str, *, ignore_unmodelled: bool) -> ModelSpec:
    """The model, its weights in the dtype and by the method that were requested.

    Raises ConfigError for a model, a field or a method that is not known, NoStartError for a method or a dtype that its
    weights are not of.
    """
    found = config_called(hardware.model)
    raw, ignored = overridden(found.raw, hardware.hf_overrides, ignore_unmodelled=ignore_unmodelled)
    online = None if hardware.quantization is None else online_quantization(hardware.quantization)
    if online is not None and not raw.get("quantization_config"):
        raw = {**raw, "quantization_config": online}
    model = model_from_config(
        raw,
        name=found.name,
        where=found.where,
        dtype=hardware.dtype,
        ignore_unmodelled=ignore_unmodelled,
        vllm_version=version,
    )
    if hardware.quantization is not None:
        check_method(hardware.quantization, model)
    check_activations(model)
    if found.max_model_len is not None and hardware.hf_overrides is None:
        model = replace(model, max_model_len=found.max_model_len)
    elsewhere = described_elsewhere(model, version)
    notes = (*model.notes, *found.notes, *(() if elsewhere is None else (elsewhere,)))
    model = replace(model, ignored=(*model.ignored, *ignored), notes=notes)
    model = with_state_dtypes(model, hardware.mamba_cache_dtype, hardware.mamba_ssm_cache_dtype)
    if hardware.language_model_only:
        return model.with_encoders(())
    per_prompt, beside = hardware.limit_mm_per_prompt, processors_beside(found.where)
    model, told = with_processor_kwargs(model, raw, beside, hardware.mm_processor_kwargs, version)
    model = model.with_encoders(encoders_in_use(model, per_prompt))
    if per_prompt is not None and model.encoders:
        model = _with_sizes(model, raw, told, per_prompt)
    shares = hardware.mm_encoder_tp_mode == "data" and hardware.tensor_parallel_size > 1
    return _sharing_images(model) if shares else model


def _with_sizes(model: ModelSpec, raw: Mapping[str, Any], processors: Processors, per_prompt: str) -> ModelSpec:
    """The model, whose largest picture is no larger than a line says; what of its sizes is not heeded is noted."""
    left = item_sizes(per_prompt)
    for kind, with_largest in (("image", with_limited_picture), ("video", with_limited_video)):
        if kind not in left:
            continue
        try:
            limited = with_largest(model, raw, processors, left[kind])
        except ConfigError as error:
            problem = f"the {kind} it measures memory with is refused by its processor: {error}"
            raise NoStartError(problem, error.field, error.value, error.marked_fix) from None
        if limited is not None:
            model = limited
            del left[kind]
    if left or not timed_encoders(model):
        what = f"{json.dumps(left)}" if left else per_prompt
        note = f"limit_mm_per_prompt {what}: memory that vLLM keeps free for images, of sizes beside their counts"
        model = replace(model, ignored=(*model.ignored, note))
    return model


def _sharing_images(model: ModelSpec) -> ModelSpec:
    """The model whose encoder every GPU holds, if vLLM's class for it can share out images; else as it is."""
    if not may_share_images(model.architecture):
        note = "mm_encoder_tp_mode data: vLLM's class for the model has none, and its encoder's weights are shared out"
        return replace(model, notes=(*model.notes, note)) if model.encoders else model
    encoders = tuple(replace(each, shares_work=each.kind == "vision") for each in model.encoders)
    return replace(model, encoders=encoders)


# ---------------------------------------------------------------------------------------------------------------------
# Settings that were not given, resolved: limits by GPU and version, the length of the model, the size of the pool.

AUTO = -1
"""``--max-model-len auto``: as long as the pool holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledScheduling(SchedulerSettings):
    """The settings of the scheduler as vLLM has them once it has started: no limit is left to a default."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    """Tokens above which a request is refused; the model's own, and not what the pool holds, where blocks alone were
    typed (:func:`_leaves_length_open`).
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSettings:
    """What is served, on what, within which limits; nothing is left to a default."""

    version: str
    """vLLM's, whose defaults were taken."""
    gpu: GPU
    model: ModelSpec
    loaded: ModelSpec
    """The model, with what drafts if anything does: what takes memory."""
    drafter: ModelSpec | None
    """A model of its own that drafts; None where there is none, or it is not known."""
    hardware: HardwareSettings
    """The hardware settings, with the block size of the memory plan."""
    scheduling: SettledScheduling
    """The settings of the scheduler: the one place that has the limits of a step and of a request."""
    parallel: ParallelSettings
    adapters: AdapterSettings
    plan: KVCachePlan
    """Its ``max_model_len`` is the longest request that memory was planned for."""
    fewest_blocks: int | None
    """Blocks if a step takes as much memory as it may, 0 if vLLM would not start then; None if nothing is estimated."""
    cudagraph_capture_sizes: tuple[int, ...]
    """Tokens of the steps that run from CUDA graphs, ascending; none without graphs."""
    async_scheduling: bool
    pools: bool
    """Requests end with their prompts."""
    encoded: EncodedAtOnce | None
    """What memory is kept free for an encoder to compute at once."""

    @property
    def steps_together(self) -> bool:
        """Whether every step is one of all engines: their GPUs share the experts."""
        return self.parallel.data_parallel_size > 1 and self.model.has_experts

    @property
    def num_gpus(self) -> int:
        """GPUs of all engines."""
        parallel = self.parallel
        engines = parallel.data_parallel_size * parallel.pipeline_parallel_size
        return engines * self.hardware.tensor_parallel_size

    @property
    def gpus_per_machine(self) -> int:
        """GPUs of one machine, by ``--nnodes`` or by the engines on each (``-dpl``); 0 where neither says anything."""
        nodes, engines = self.parallel.nnodes, self.parallel.data_parallel_size_local or 0
        if nodes > 1:
            return self.num_gpus // nodes
        return engines * self.num_gpus // self.parallel.data_parallel_size

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights on each GPU; of a pipeline, on the GPU that has the most."""
        return weight_bytes_of(self.loaded, self.hardware, self.parallel)

    def memory_parts(self) -> tuple[MemoryPart, ...]:
        """What takes memory on each GPU besides the KV cache; what a step takes is an estimate."""
        adapters = adapter_bytes_of(self.adapters, self.hardware, self.parallel, self.loaded)
        step = step_memory_of(
            self.hardware,
            self.parallel,
            self.loaded,
            self.gpu,
            defaults.BatchLimits(self.scheduling.max_num_seqs, self.scheduling.max_num_batched_tokens),
            self.cudagraph_capture_sizes,
            self.encoded,
        )
        weights = self.weight_bytes
        return (MemoryPart("weights", weights, weights), MemoryPart("adapters", adapters, adapters), *step.parts)

    @property
    def kv_bytes(self) -> int:
        """Bytes of the pool, on the GPU with the most layers."""
        return self.plan.num_blocks * self.plan.bytes_per_block

    @property
    def capture_size(self) -> int:
        """Tokens of the largest step that runs from a CUDA graph; 0 without graphs."""
        return max(self.cudagraph_capture_sizes, default=0)


def resolve_settings(
    flags: DeploymentSettings, *, speculative: SpeculativeConfig | None, drafts: AskedSpeculation | None = None
) -> ResolvedSettings:
    """Settle what is not given. ``drafts``: what a flag says of speculative decoding, if one does.

    Raises ConfigError for a wrong value, NoStartError where vLLM would not start.
    """
    version = defaults.known_version(flags.launch.vllm_version)
    flags.launch.asked.require_companions()
    gpu = named_gpu(flags.hardware.gpu)
    model, flags, is_pooled = _served(flags, version)
    drafter = None if drafts is None else drafts.drafter()
    loaded = _loaded(model, speculative, drafts, drafter)
    num_drafts = 0 if speculative is None else speculative.num_speculative_tokens
    _require_limits(flags.scheduler)
    parallel = _parallel(flags, model, num_drafts)
    hardware, exchange = flags.hardware, flags.launch.asked.value("all2all-backend")
    if exchange in defaults.NOT_IN_GRAPHS and parallel.data_parallel_size > 1 and model.has_experts:
        hardware = replace(hardware, enforce_eager=True)  # as vLLM does by itself
        flags = replace(flags, hardware=hardware)
    check_utilization(hardware.gpu_memory_utilization)
    is_free = _leaves_length_open(flags)
    is_fitted = is_free or flags.scheduler.max_model_len == AUTO
    length = _length(flags, model, is_fitted=is_fitted)
    _check_model(flags, model, version, has_drafts=speculative is not None)
    limits = _batch_limits(flags, gpu, version, length)
    if speculative is not None:
        start_checks.check_drafts_fit(speculative, limits, version, has_adapters=flags.adapters.enable_lora)
    async_scheduling = defaults.schedules_ahead(
        version,
        flags.scheduler.async_scheduling,
        speculative,
        flags.launch.asked.environment,
        backend=parallel.distributed_executor_backend,
        stages=parallel.pipeline_parallel_size,
    )
    settings: dict[str, Any] = {
        "block_size": _block_size(flags),
        "kv_cache_dtype": hardware.kv_cache_dtype,
        "tensor_parallel_size": hardware.tensor_parallel_size,
        "decode_context_parallel_size": parallel.decode_context_parallel_size,
        "max_model_len": length,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
        "async_scheduling": async_scheduling,
        "enable_prefix_caching": _caches_prefixes(flags, version, model),
        "states_kept": hardware.mamba_cache_mode,
        "num_speculative_tokens": num_drafts,
        "compute_capability": gpu.compute_capability,
        "planner": version,
        "pipeline_parallel_size": parallel.pipeline_parallel_size,
    }
    graphs = _graphs(flags, gpu, version, model, limits, num_drafts)
    encoded = measured_encoder(flags, loaded, limits, length)
    memory = kv_memory(flags, parallel, loaded, gpu, limits, graphs, encoded)
    pool = pool_of(hardware.num_gpu_blocks_override, memory)
    if is_fitted:
        settings["max_model_len"] = longest_in(loaded, **pool, **settings)
    with said_to_be_estimated(memory, model, limits), start_checks.no_start():
        plan = plan_kv_cache(loaded, **pool, **settings)
    return ResolvedSettings(
        version=version,
        gpu=gpu,
        model=model,
        loaded=loaded,
        drafter=drafter,
        hardware=replace(hardware, block_size=plan.block_size),
        scheduling=_scheduling(flags, model, version, limits, plan, is_free=is_free),
        parallel=parallel,
        adapters=flags.adapters,
        plan=plan,
        fewest_blocks=fewest_blocks(loaded, memory, settings),
        cudagraph_capture_sizes=graphs,
        async_scheduling=async_scheduling,
        pools=is_pooled,
        encoded=encoded,
    )


def _length(flags: DeploymentSettings, model: ModelSpec, *, is_fitted: bool) -> int:
    """Tokens of the longest request, as given, else as the model has it; NoStartError for more without its leave."""
    given = None if is_fitted else flags.scheduler.max_model_len
    if given is not None and not defaults.is_on(defaults.ALLOW_LONG_MAX_MODEL_LEN, flags.launch.asked.environment):
        start_checks.check_length(given, max(model.max_model_len, model.longest_model_len), model.name, model.ignored)
    return given or model.max_model_len


def _scheduling(
    flags: DeploymentSettings,
    model: ModelSpec,
    version: str,
    limits: defaults.BatchLimits,
    plan: KVCachePlan,
    *,
    is_free: bool,
) -> SettledScheduling:
    """The settings of the scheduler, settled; NoStartError where vLLM would not start with them."""
    given = flags.scheduler
    # An encoder's output is read as a whole.
    reads_whole = bool(model.max_encoder_tokens)
    threshold = 0 if reads_whole else given.long_prefill_token_threshold
    start_checks.check_limits(
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        # vLLM checks before it knows how long a request the pool holds.
        max_model_len=model.max_model_len if given.max_model_len == AUTO else plan.max_model_len,
        enable_chunked_prefill=given.enable_chunked_prefill,
        long_prefill_token_threshold=threshold if release_facts(version).encoder_thresholds_are_checked else 0,
        keeps_states=plan.mamba_cache_mode is MambaCacheMode.ALIGN,
    )
    settled = {
        "max_num_seqs": limits.max_num_seqs,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
        # Answers were not to be cut: what the pool cannot hold is refused, with the blocks that it takes.
        "max_model_len": model.max_model_len if is_free else plan.max_model_len,
        "enable_prefix_caching": plan.enable_prefix_caching,
        "enable_chunked_prefill": given.enable_chunked_prefill and not reads_whole,
        "long_prefill_token_threshold": threshold,
        "disable_chunked_mm_input": given.disable_chunked_mm_input or _sees_images_whole(flags, model, version),
    }
    return SettledScheduling(**{**asdict(given), **settled})


def _served(flags: DeploymentSettings, version: str) -> tuple[ModelSpec, DeploymentSettings, bool]:
    """The model as it is loaded, the flags with what vLLM turns off unless asked for it, and whether it pools."""
    asked, given = flags.launch.asked, flags.scheduler
    model = served_model(flags.hardware, version, ignore_unmodelled=flags.launch.ignore_unmodelled)
    is_embedder = flags.hardware.runner == "auto" and model.name in hub_names().pools
    if not (is_embedder or pools(model, flags.hardware.runner, str(asked.value("convert")))):
        return model, flags, False
    model = pooled(model)
    off: dict[str, Any] = {} if given.async_scheduling else {"async_scheduling": False}
    if not cuts_prompts(model, asked.value("pooler-config")):
        off |= {each: False for each in ("enable_chunked_prefill", "enable_prefix_caching") if not asked.says((each,))}
    return model, replace(flags, scheduler=replace(given, **off)), True


def _loaded(
    model: ModelSpec,
    speculative: SpeculativeConfig | None,
    drafts: AskedSpeculation | None,
    drafter: ModelSpec | None,
) -> ModelSpec:
    """The model with what drafts: a model of its own, or layers on its hidden states."""
    if drafts is not None and drafter is not None:
        return with_draft_model(model, drafter, shares_kv=drafts.shares_kv)
    if speculative is None or not speculative.use_eagle or (drafts is not None and drafts.shares_kv):
        return model
    return with_draft_head(model, predicts_itself=drafts is not None and drafts.predicts_itself)


def _check_model(flags: DeploymentSettings, model: ModelSpec, version: str, *, has_drafts: bool) -> None:
    """Raise NoStartError for a model that vLLM does not run like that."""
    parallel, adapters, asked = flags.parallel, flags.adapters, flags.launch.asked
    tensor = flags.hardware.tensor_parallel_size
    with start_checks.no_start():
        model.check_tensor_parallel(tensor)
    start_checks.check_media(
        model, asked, parallel.data_parallel_size * parallel.pipeline_parallel_size * tensor, version
    )
    start_checks.check_model(model, version)
    start_checks.check_kv_dtype(flags.hardware.kv_cache_dtype, model, version)
    caches = flags.scheduler.enable_prefix_caching and asked.says(("enable_prefix_caching",))
    if model.max_encoder_tokens and caches:
        fix = f"leave it out: vLLM starts {model.name} with it, and then every request fails"
        raise ConfigError("enable_prefix_caching", True, fix)
    if not parallel.enable_expert_parallel:
        start_checks.check_expert_blocks(model, tensor * parallel.data_parallel_size, version)
    if adapters.enable_lora:
        start_checks.check_adapters(model, adapters.max_loras, adapters.max_cpu_loras, version)
    start_checks.check_context_parallel(model, parallel.decode_context_parallel_size, tensor, has_drafts=has_drafts)


def _parallel(flags: DeploymentSettings, model: ModelSpec, num_speculative_tokens: int) -> ParallelSettings:
    """The flags, with as many front ends as engines where their number is not given.

    ConfigError for numbers that are none, and for ways to spread a model that are not modelled.
    """
    parallel = flags.parallel
    require_int("data_parallel_size", parallel.data_parallel_size, 1, MOST_ENGINES)
    check_stages(parallel, flags.hardware.tensor_parallel_size, model, has_drafts=num_speculative_tokens > 0)
    check_engines(parallel, model)
    count = parallel.api_server_count
    if count is not None:
        require_int("api_server_count", count, 1, MOST_ENGINES)
    router = parallel.router
    if parallel.has_replicas and router == "vllm":
        if "router" in flags.launch.asked.named:
            fix = "it balances the engines of one vllm serve: for replicas use least-loaded, round-robin, ..."
            raise ConfigError("router", router, fix)
        router = "least-loaded"
    count = parallel.data_parallel_size if count is None else count
    return replace(parallel, api_server_count=count, router=router)


def _batch_limits(flags: DeploymentSettings, gpu: GPU, version: str, max_model_len: int) -> defaults.BatchLimits:
    given, parallel = flags.scheduler, flags.parallel
    return defaults.batch_limits(
        gpu,
        version=version,
        max_model_len=max_model_len,
        max_num_seqs=given.max_num_seqs,
        max_num_batched_tokens=given.max_num_batched_tokens,
        enable_chunked_prefill=given.enable_chunked_prefill,
        for_throughput=given.performance_mode == "throughput",
        batches_experts=flags.launch.asked.value("all2all-backend") in defaults.BATCHED_EXPERTS
        and parallel.data_parallel_size > 1
        and parallel.enable_expert_parallel,
    )


def _graphs(
    flags: DeploymentSettings, gpu: GPU, version: str, model: ModelSpec, limits: defaults.BatchLimits, drafts: int
) -> tuple[int, ...]:
    """Sizes of the CUDA graphs, ascending."""
    hardware = flags.hardware
    if hardware.enforce_eager:
        return ()
    return capture_sizes(
        gpu,
        version=version,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        num_speculative_tokens=drafts,
        architecture=model.architecture,
        interactive=flags.scheduler.performance_mode == "interactivity",
        given=hardware.cudagraph_capture_sizes,
        most=hardware.max_cudagraph_capture_size,
    )


def _require_limits(given: SchedulerSettings) -> None:
    """Raise ConfigError for a limit that is given and is none."""
    length = None if given.max_model_len == AUTO else given.max_model_len
    limits = {"max_num_seqs": given.max_num_seqs, "max_num_batched_tokens": given.max_num_batched_tokens}
    for field, value in (limits | {"max_model_len": length}).items():
        if value is not None:
            require_limit(field, value)


def _leaves_length_open(flags: DeploymentSettings) -> bool:
    """Whether requests may be as long as the pool holds, because no length was given.

    vLLM takes the model's own and does not start if the pool is smaller; so it does here for memory that a GPU has, and
    for a line of flags that was pasted. Blocks that are typed beside a workload are an experiment.
    """
    launch, hardware = flags.launch, flags.hardware
    was_pasted = launch.serve is not None or launch.config is not None
    return flags.scheduler.max_model_len is None and hardware.num_gpu_blocks_override is not None and not was_pasted


def _sees_images_whole(flags: DeploymentSettings, model: ModelSpec, version: str) -> bool:
    """Whether vLLM never computes part of an image: its tokens attend to each other, or an encoder reads it.

    Later versions look whether any can come, as pixels or as embeddings.
    """
    looks = release_facts(version).images_whole_if_any_come
    can_come = not looks or bool(model.encoders) or bool(flags.launch.asked.value("enable-mm-embeds"))
    return (model.images_attend_both_ways and can_come) or bool(model.max_encoder_tokens)


def _block_size(flags: DeploymentSettings) -> int | None:
    """The block size that was given; None leaves it to the attention kernels, some of which want another than the
    default.
    """
    given = flags.launch.asked.says(("block_size",)) or flags.hardware.block_size != defaults.BLOCK_SIZE
    return flags.hardware.block_size if given else None


def _caches_prefixes(flags: DeploymentSettings, version: str, model: ModelSpec) -> bool:
    """Whether prefixes are cached: as given; earlier versions cache none of models with states by default, and all none
    of an encoder's.
    """
    told = flags.launch.asked.says(("enable_prefix_caching", "no_enable_prefix_caching"))
    off = model.has_states and not release_facts(version).hybrid_models_cache_prefixes and not told
    return flags.scheduler.enable_prefix_caching and not off and not model.max_encoder_tokens
