"""From a checkpoint to an engine that is ready to step."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tokenyard.connectors.config import OFFLOADING, STORAGE, KVTransferConfig, cpu_tier
from tokenyard.connectors.prefill_decode import OfferExchange, PrefillDecodeConnector, PrefillDecodeWorker
from tokenyard.connectors.tier_worker import BlockFiles, BlockMemory, HostMemory, TierWorker
from tokenyard.connectors.tiered import TieredConnector
from tokenyard.connectors.tiers import ConnectorWorker, DiskTier
from tokenyard.core.config import (
    MAX_BLOCKS,
    MAX_DRAFTS,
    CacheConfig,
    GroupKind,
    HashAlgo,
    SchedulerConfig,
    SpeculativeConfig,
    SpeculativeMethod,
    async_scheduling_by_default,
    require_bool,
    require_fraction,
    require_int,
    require_limit,
)
from tokenyard.core.kv.allocation import BlockDeltas
from tokenyard.core.kv.manager import KVCacheManager
from tokenyard.core.params import SamplingParams
from tokenyard.core.profiles import NEWEST, DecisionProfile
from tokenyard.core.sched.connector import KVConnector
from tokenyard.core.sched.observer import StepObserver
from tokenyard.core.sched.policy import Policy
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import NewRequest, ScheduledDrafts, SchedulerOutput
from tokenyard.errors import ConfigError
from tokenyard.memory.kv_plan import KVCachePlan, LayerGroup, plan_kv_cache
from tokenyard.models.formats import kv_element_bytes
from tokenyard.quick_dataclass import dataclass
from tokenyard.serve.torch.adapters import LoRAConfig, lora_modules_of, read_adapter
from tokenyard.serve.torch.attention import MOST_PLACES, HeldBlocks, KVTensors, StepRows, register_attention
from tokenyard.serve.torch.checkpoint import (
    LoadedModel,
    device_named,
    eos_token_ids,
    load_checkpoint,
    read_spec,
    require_torch,
)
from tokenyard.serve.torch.executor import TorchEngineCore, TorchExecutor
from tokenyard.serve.torch.model import BlockGroup, PagedModel
from tokenyard.serve.torch.runner import Drafter, DraftModel, ModelRunner, NgramDrafter
from tokenyard.serve.torch.sampling import RequestRows

# ---------------------------------------------------------------------------------------------------------------------
# How an engine is set up: vLLM's flag names, those that mean something here.

_MOST_BYTES = 1 << 50


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSettings:
    """``speculative_config``: where drafts come from."""

    config: SpeculativeConfig
    model: Path | None = None
    """The folder of a draft model."""
    prompt_lookup_min: int = 5
    """Fewest last tokens that an n-gram drafter looks for."""
    prompt_lookup_max: int = 5
    """Most of them."""


def speculation_of(given: Mapping[str, Any] | None) -> DraftSettings | None:
    """Read what ``--speculative-config`` takes. Raises ConfigError for what is not known or cannot work."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise ConfigError("speculative_config", given, 'give an object, such as {"method": "ngram", ...}')
    known = ("method", "model", "num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max")
    for name, value in given.items():
        if name not in known:
            raise ConfigError(f"speculative_config.{name}", value, f"use some of: {', '.join(known)}")
    model = given.get("model")
    methods = {str(SpeculativeMethod.NGRAM): False, str(SpeculativeMethod.DRAFT_MODEL): True}
    method = given.get("method", SpeculativeMethod.DRAFT_MODEL if model is not None else SpeculativeMethod.NGRAM)
    if method not in methods:
        raise ConfigError("speculative_config.method", method, f"the engine drafts by: {', '.join(methods)}")
    if methods[method] != (model is not None):
        fix = "give the folder of a draft model" if methods[method] else "drafts come from the text: leave it out"
        raise ConfigError("speculative_config.model", model, fix)
    longest = given.get("prompt_lookup_max", given.get("prompt_lookup_min", 5))
    shortest = given.get("prompt_lookup_min", longest)
    require_int("speculative_config.prompt_lookup_max", longest, 1, 1024)
    require_int("speculative_config.prompt_lookup_min", shortest, 1, longest)
    number = given.get("num_speculative_tokens")
    require_int("speculative_config.num_speculative_tokens", number, 1, MAX_DRAFTS)
    return DraftSettings(
        config=SpeculativeConfig(num_speculative_tokens=int(number or 0), method=SpeculativeMethod(method)),
        model=None if model is None else Path(model),
        prompt_lookup_min=shortest,
        prompt_lookup_max=longest,
    )


def transfer_config_of(given: Mapping[str, Any] | KVTransferConfig | None) -> KVTransferConfig | None:
    """Read what ``--kv-transfer-config`` takes. Raises ConfigError for what is not known or cannot work."""
    if given is None or isinstance(given, KVTransferConfig):
        return given
    try:
        return KVTransferConfig.from_json(json.dumps(given))
    except TypeError as error:
        raise ConfigError("kv_transfer_config", given, f"give an object of settings: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Raises ConfigError for a value that cannot work."""

    dtype: str = "auto"
    """Format of weights and KV cache: the checkpoint's (bfloat16 where that is float32), or float32, float64 ..."""
    device: str | None = None
    """The device as torch names it; None: the first GPU, else the CPU."""
    max_model_len: int | None = None
    """Most tokens of one request; None: the model's."""
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    block_size: int | None = None
    """Tokens per KV block; None: 16."""
    num_gpu_blocks_override: int | None = None
    """Blocks of the KV cache; None: as many as memory holds."""
    gpu_memory_utilization: float | None = None
    """Share of the device's memory that the engine may use; None: 0.9 of a GPU's, 0.4 of the machine's."""
    kv_cache_memory_bytes: int | None = None
    """Memory of the KV cache; None: what is left of that share."""
    enable_prefix_caching: bool = True
    seed: int = 0
    """Seed of the draws of requests without one of their own."""
    speculation: DraftSettings | None = None
    kv_transfer: KVTransferConfig | None = None
    adapters: LoRAConfig = field(default_factory=LoRAConfig)

    def __post_init__(self) -> None:
        if self.max_model_len is not None:
            require_limit("max_model_len", self.max_model_len)
        require_limit("max_num_seqs", self.max_num_seqs)
        require_limit("max_num_batched_tokens", self.max_num_batched_tokens)
        if self.block_size is not None:
            require_int("block_size", self.block_size, 1)
        if self.num_gpu_blocks_override is not None:
            require_int("num_gpu_blocks_override", self.num_gpu_blocks_override, 2)
        if self.gpu_memory_utilization is not None:
            require_fraction("gpu_memory_utilization", self.gpu_memory_utilization)
        if self.kv_cache_memory_bytes is not None:
            require_int("kv_cache_memory_bytes", self.kv_cache_memory_bytes, 1, _MOST_BYTES)
        require_bool("enable_prefix_caching", self.enable_prefix_caching)
        require_int("seed", self.seed, 0)


# ---------------------------------------------------------------------------------------------------------------------
# How much memory the KV cache gets: what the engine may use, less the weights and the peak of a step, measured.

# ---------------------------------------------------------------------------------------------------------------------
# The largest steps that a scheduler can make; whatever else a step needs is bounded where it is computed.
#
#     longest    all tokens in one row, at the end of the greatest length: most KV, masks and scores; a scored prompt
#     widest     as many rows as may run, with their drafts: most logits, draws and log-probabilities
#
# Attention of the widest step is that of prompts from position 0 on, and of rows whose KV fills one gather.


class StepLimits(msgspec.Struct, frozen=True):
    """What bounds a step."""

    num_tokens: int
    """``max_num_batched_tokens``."""
    max_num_seqs: int
    max_model_len: int
    num_drafts: int
    """Drafts of one request."""


def longest_step(limits: StepLimits) -> StepRows:
    """One row; further ones if it cannot have all tokens, as one of its own stays before them."""
    most = max(limits.max_model_len - 1, 1)
    left = [min(most, limits.num_tokens - done) for done in range(0, limits.num_tokens, most)]
    counts = np.array(left[: limits.max_num_seqs], np.int64)
    return StepRows(limits.max_model_len - counts, counts)


def widest_step(limits: StepLimits) -> StepRows:
    """Return a step whose rows have the same number of tokens each."""
    num_rows = max(1, min(limits.max_num_seqs, limits.num_tokens // (1 + limits.num_drafts)))
    counts = np.full(num_rows, limits.num_tokens // num_rows, np.int64)
    counts[-1] += limits.num_tokens % num_rows
    counts = np.minimum(counts, max(limits.max_model_len - 1, 1))
    length = MOST_PLACES // -(-MOST_PLACES // limits.max_model_len)
    starts = np.zeros(num_rows, np.int64)
    starts[: MOST_PLACES // length] = length
    return StepRows(np.maximum(starts - counts, 0), counts)


def run_largest_steps(runner: ModelRunner, limits: StepLimits, num_groups: int, adapter: str | None) -> None:
    """Compute them, up to their tokens and drafts. Their KV is that of one block, which all rows have everywhere."""
    longest, widest = longest_step(limits), widest_step(limits)
    for rows, params, num_drafts in (
        (longest, SamplingParams(prompt_logprobs=1), 0),
        (widest, SamplingParams(top_p=0.5, logprobs=1), min(limits.num_drafts, int(widest.counts.min()) - 1)),
    ):
        plan = _plan(rows, params, num_drafts, adapter)
        shape = (len(rows.counts), limits.max_model_len + limits.num_drafts + 1)
        table = np.broadcast_to(np.int32(1), shape)
        with require_torch().inference_mode():
            runner.forward(plan, HeldBlocks([table] * num_groups, np.full(shape[0], limits.max_model_len)))
            runner.sample(plan, None)


def _plan(rows: StepRows, params: SamplingParams, num_drafts: int, adapter: str | None) -> SchedulerOutput:
    """A step of new requests that sample behind it. The last of several does without the adapter that all others have:
    tokens that are picked out need more than all of them.
    """
    num_rows, none = len(rows.counts), np.zeros(0, np.int64)
    known = rows.starts + rows.counts - num_drafts
    names = [adapter if i < num_rows - 1 or num_rows == 1 else None for i in range(num_rows)]
    drafts = ScheduledDrafts(np.zeros((num_rows, num_drafts), np.int64), np.full(num_rows, num_drafts))
    return SchedulerOutput.of_columns(
        step=0,
        req_ids=tuple(f"{i} of {num_rows}" for i in range(num_rows)),
        slots=np.arange(num_rows),
        num_new_tokens=rows.counts,
        num_computed=rows.starts,
        num_known=known,
        num_prompt=known,
        drafts=drafts if num_drafts else None,
        num_running=0,
        total_num_scheduled_tokens=int(rows.counts.sum()),
        new_blocks=BlockDeltas(none, (), ()),
        new_requests={
            i: NewRequest(np.zeros(known[i], np.int32), params, None, names[i], None, (), None, 0)
            for i in range(num_rows)
        },
    )


# ---------------------------------------------------------------------------------------------------------------------
# What is left after them.

GPU_SHARE = 0.9
"""Share of a GPU's memory that is used, unless ``gpu_memory_utilization`` says otherwise; vLLM's default."""
CPU_SHARE = 0.4
"""Share of the machine's memory, which others use too."""
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_MAX_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes of ``ru_maxrss``."""


def left_for_blocks(device: str, share: float) -> int:
    """Bytes that are left of ``share`` of the memory, after what this process has needed at most so far."""
    if device.startswith("cuda"):
        return _left_of_gpu(require_torch(), device, share)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAX_RSS_UNIT
    return int(_machine_bytes() * share) - used


def _left_of_gpu(torch: Any, device: str, share: float) -> int:
    torch.cuda.synchronize(device)
    free, total = torch.cuda.mem_get_info(device)
    others = total - free - torch.cuda.memory_reserved(device)
    peak: int = torch.cuda.max_memory_reserved(device)
    return int(total * share - others) - peak


def _machine_bytes() -> int:
    """Bytes of memory of the machine, or of the container that this process lives in."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    text = _CGROUP_LIMIT.read_text().strip() if _CGROUP_LIMIT.is_file() else "max"
    return min(machine, int(text)) if text.isdigit() else machine


# ---------------------------------------------------------------------------------------------------------------------

# ---------------------------------------------------------------------------------------------------------------------
# Both halves of a KV connector for an engine's own blocks.


class ConnectorHalves(msgspec.Struct, frozen=True):
    """A connector; None and None without one."""

    scheduler: KVConnector | None
    worker: ConnectorWorker | None


def make_transfers(
    config: KVTransferConfig,
    cache: CacheConfig,
    memory: BlockMemory,
    bytes_per_block: int,
    clock: Callable[[], float],
    exchange: OfferExchange | None,
) -> ConnectorHalves:
    """The connector that ``config`` names, over ``memory``. ConfigError if it does not go with the cache."""
    if config.kv_connector == OFFLOADING:
        tier = cpu_tier(config, bytes_per_block)
        store_on, load_async = config.get("store_on", "finish"), config.get("load_async", True)
        connector = TieredConnector(cache, tier, store_on=store_on, load_async=load_async)
        return ConnectorHalves(connector, TierWorker(memory, HostMemory(tier.num_blocks)))
    if config.kv_connector == STORAGE:
        if "shared_storage_path" not in config.kv_connector_extra_config:
            raise ConfigError("shared_storage_path", None, "say in which folder the blocks are kept")
        files = BlockFiles(config.get("shared_storage_path", ""), config.get("namespace", "default"))
        connector = TieredConnector(cache, DiskTier(files), load_async=config.get("load_async", True))
        return ConnectorHalves(connector, TierWorker(memory, files))
    if exchange is None:
        fix = "prefill and decode need an exchange= that both engines are loaded with"
        raise ConfigError("kv_connector", config.kv_connector, fix)
    handing_over = PrefillDecodeConnector(cache, config.engine_id, clock)
    return ConnectorHalves(handing_over, PrefillDecodeWorker(memory, exchange, config.engine_id, clock))


# ---------------------------------------------------------------------------------------------------------------------
# The parts of an engine, made in the order in which each needs the ones before.
#
# folder -> spec -> groups of layers -> weights -> number of blocks -> KV tensors -> runner


class ModelParts:
    """Raises ConfigError if the checkpoint and the settings do not go together."""

    def __init__(self, folder: Path, settings: EngineSettings) -> None:
        torch = require_torch()
        self._settings = settings
        self._spec, self._dtype = read_spec(folder, settings.dtype)
        self._torch_dtype = getattr(torch, self._dtype)
        self._device = device_named(settings.device)
        self.max_model_len: int = settings.max_model_len or self._spec.max_model_len
        """Most tokens of one request."""
        if self.max_model_len > self._spec.max_model_len:
            fix = f"{self._spec.name} was made for {self._spec.max_model_len} tokens: give no more"
            raise ConfigError("max_model_len", self.max_model_len, fix)
        small = self._plan(2, must_start=False)
        self._target = PagedModel(load_checkpoint(folder, dtype=self._dtype, device=self._device), self._device)
        self._load_adapters()
        self._draft_model = self._load_draft_model(small)
        self._bytes_per_block = self._bytes_of_block(small)
        self._kv_plan = self._plan(self._num_blocks(small), must_start=True)
        self.tensors = self._bind(self._kv_plan)
        """The KV cache's memory."""
        self.loaded = LoadedModel(
            name=str(folder),
            spec=self._spec,
            dtype=self._dtype,
            device=self._device,
            bytes_per_block=self._bytes_per_block,
            max_model_len=self.max_model_len,
            eos_token_ids=eos_token_ids(folder),
            tokenizer=folder,
            adapters=tuple(settings.adapters.lora_modules),
        )

    def _plan(self, num_blocks: int, *, must_start: bool) -> KVCachePlan:
        settings = self._settings
        return plan_kv_cache(
            self._spec,
            num_gpu_blocks=num_blocks,
            must_start=must_start,
            block_size=settings.block_size,
            max_model_len=self.max_model_len,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            enable_prefix_caching=settings.enable_prefix_caching,
        )

    def _load_adapters(self) -> None:
        settings = self._settings.adapters
        rank, dtype, device = settings.max_lora_rank, self._torch_dtype, self._device
        self._target.adapt(
            [
                read_adapter(name, folder, max_rank=rank, dtype=dtype, device=device)
                for name, folder in settings.lora_modules.items()
            ]
        )

    def _load_draft_model(self, plan: KVCachePlan) -> DraftModel | None:
        speculation = self._settings.speculation
        if speculation is None or speculation.model is None:
            return None
        return DraftModel(speculation.model, self._spec, plan.groups, self._dtype, self._device, self.max_model_len)

    @property
    def cache_config(self) -> CacheConfig:
        """The scheduler's configuration of the KV cache."""
        return self._kv_plan.cache_config(prefix_caching_hash_algo=HashAlgo.SHA256)

    # ---- memory

    def _bytes_of_block(self, plan: KVCachePlan) -> int:
        """Over all layers of the target, and of the drafter behind the same block id."""
        own = 0 if self._draft_model is None else self._draft_model.elements_per_block
        return int((plan.bytes_per_block / kv_element_bytes(plan.kv_cache_dtype) + own) * self._torch_dtype.itemsize)

    def _num_blocks(self, plan: KVCachePlan) -> int:
        """The number of blocks that was given, or as many as fit; no more than the most requests of the greatest length
        can hold.
        """
        settings = self._settings
        if settings.num_gpu_blocks_override is not None:
            return settings.num_gpu_blocks_override
        room = settings.kv_cache_memory_bytes
        if room is None:
            self._profile(plan)
            share = settings.gpu_memory_utilization or (GPU_SHARE if self._device.startswith("cuda") else CPU_SHARE)
            room = left_for_blocks(self._device, share)
        fitting = room // self._bytes_per_block
        if fitting < 2:
            fix = f"leaves {room:,} bytes for the KV cache, and a block has {self._bytes_per_block:,}: raise it"
            field = "gpu_memory_utilization" if settings.kv_cache_memory_bytes is None else "kv_cache_memory_bytes"
            raise ConfigError(field, getattr(settings, field), fix)
        return int(min(fitting, plan.blocks_per_request * settings.max_num_seqs + 1, MAX_BLOCKS))

    def _profile(self, plan: KVCachePlan) -> None:
        """Run the largest steps, so that their memory is known."""
        self._bind(plan)
        settings, models = self._settings, [self._target]
        if self._draft_model is not None:
            models.append(self._draft_model.model)
        limits = StepLimits(
            settings.max_num_batched_tokens, settings.max_num_seqs, self.max_model_len, self._num_drafts
        )
        for model in models:
            model.attention.measures = True
        run_largest_steps(self._runner(), limits, len(plan.groups), next(iter(settings.adapters.lora_modules), None))
        for model in models:
            model.attention.measures = False

    def _bind(self, plan: KVCachePlan) -> KVTensors:
        """Memory for the layers of the target, and for those of the drafter."""
        tensors = KVTensors(plan.groups, plan.num_blocks, self._torch_dtype, self._device)
        groups = [BlockGroup(group.first.block_size, _window(group)) for group in plan.groups]
        self._target.bind(tensors.layers, groups)
        if self._draft_model is not None:
            self._draft_model.bind(plan.num_blocks, self._torch_dtype, self._device)
        return tensors

    # ---- around the model

    def transfers(self, clock: Callable[[], float], exchange: OfferExchange | None) -> ConnectorHalves:
        """The connector that was requested."""
        asked = self._settings.kv_transfer
        if asked is None:
            return ConnectorHalves(None, None)
        return make_transfers(asked, self.cache_config, self.tensors, self._bytes_per_block, clock, exchange)

    def executor(self, kv: KVCacheManager, worker: ConnectorWorker | None) -> TorchExecutor:
        """What computes the steps of the requests that hold blocks of ``kv``."""
        drafts = self._settings.speculation is not None
        return TorchExecutor(self.loaded, self._runner(), kv, self.tensors, drafts=drafts, connector=worker)

    @property
    def _num_drafts(self) -> int:
        speculation = self._settings.speculation
        return 0 if speculation is None else speculation.config.num_speculative_tokens

    def _runner(self) -> ModelRunner:
        """The runner, with its drafter."""
        speculation, num_drafts = self._settings.speculation, self._num_drafts
        drafter: Drafter | None = self._draft_model
        if speculation is not None and drafter is None:
            drafter = NgramDrafter(speculation.prompt_lookup_min, speculation.prompt_lookup_max)
        adapters = tuple(self._settings.adapters.lora_modules)
        rows = RequestRows(self.max_model_len, num_drafts, self._settings.seed, adapters)
        return ModelRunner(self._target, rows, drafter, num_drafts)


def _window(group: LayerGroup) -> int:
    return group.first.window if group.first.kind is GroupKind.SLIDING_WINDOW else 0


# ---------------------------------------------------------------------------------------------------------------------
# From a checkpoint to an engine that is ready to step.


def load_engine(
    model: str | Path,
    *,
    dtype: str = "auto",
    device: str | None = None,
    max_model_len: int | None = None,
    max_num_seqs: int = 256,
    max_num_batched_tokens: int = 2048,
    block_size: int | None = None,
    num_gpu_blocks_override: int | None = None,
    gpu_memory_utilization: float | None = None,
    kv_cache_memory_bytes: int | None = None,
    enable_prefix_caching: bool = True,
    async_scheduling: bool | None = None,
    speculative_config: Mapping[str, Any] | None = None,
    kv_transfer_config: Mapping[str, Any] | KVTransferConfig | None = None,
    exchange: OfferExchange | None = None,
    enable_lora: bool = False,
    lora_modules: Mapping[str, str | Path] | Sequence[str] | None = None,
    max_loras: int = 1,
    max_lora_rank: int = 16,
    seed: int = 0,
    policy: str | Policy = "fcfs",
    profile: DecisionProfile = NEWEST,
    clock: Callable[[], float] = time.monotonic,
    observer: StepObserver | None = None,
    log_stats: bool = False,
    debug: bool | None = None,
    **scheduler: Any,
) -> TorchEngineCore:
    """An engine core for the checkpoint in the folder ``model``; ``core.executor.model`` says what was loaded.

    Names are vLLM's flags; :class:`~tokenyard.serve.torch.load.EngineSettings` says what those of the model mean.
    ``scheduler`` are further fields of :class:`~tokenyard.SchedulerConfig`. ``async_scheduling`` is on unless there are
    drafts, as in vLLM. ``exchange`` is what two engines share of which one computes prompts for the other.
    ``lora_modules`` are folders of adapters by name, or texts ``NAME=FOLDER``; requests name theirs (``lora_name``).

    Raises ConfigError for a setting or a checkpoint that cannot work, MissingExtraError without torch.
    """
    require_torch()
    register_attention()
    settings = EngineSettings(
        dtype=dtype,
        device=device,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        block_size=block_size,
        num_gpu_blocks_override=num_gpu_blocks_override,
        gpu_memory_utilization=gpu_memory_utilization,
        kv_cache_memory_bytes=kv_cache_memory_bytes,
        enable_prefix_caching=enable_prefix_caching,
        seed=seed,
        speculation=speculation_of(speculative_config),
        kv_transfer=transfer_config_of(kv_transfer_config),
        adapters=LoRAConfig(
            enable_lora=enable_lora,
            max_loras=max_loras,
            max_lora_rank=max_lora_rank,
            lora_modules=lora_modules_of(lora_modules),
        ),
    )
    speculation = settings.speculation.config if settings.speculation is not None else None
    is_async = _is_async(async_scheduling, speculation)
    parts = ModelParts(Path(model), settings)
    name = policy if isinstance(policy, str) else "fcfs"
    config = _scheduler_config(settings, parts, profile, scheduler, async_scheduling=is_async, policy=name)
    connector = parts.transfers(clock, exchange)
    made = Scheduler(
        config,
        parts.cache_config,
        speculative_config=speculation,
        clock=clock,
        observer=observer,
        policy=None if isinstance(policy, str) else policy,
        kv_connector=connector.scheduler,
        log_stats=log_stats,
        debug=debug,
    )
    return TorchEngineCore(made, parts.executor(made.kv, connector.worker))


def _is_async(asked: bool | None, speculation: SpeculativeConfig | None) -> bool:
    if asked and speculation is not None and not speculation.supports_async_scheduling:
        fix = "drafts from the text need the tokens of the step before: turn it off, or take a draft model"
        raise ConfigError("async_scheduling", asked, fix)
    return async_scheduling_by_default(speculation) if asked is None else asked


def _scheduler_config(
    settings: EngineSettings, parts: ModelParts, profile: DecisionProfile, further: Mapping[str, Any], **own: Any
) -> SchedulerConfig:
    """The engine's, with its ``own`` and ``further`` fields; ConfigError for one that is none, or the engine's."""
    given = {
        "max_num_seqs": settings.max_num_seqs,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "max_model_len": parts.max_model_len,
        "max_loras": settings.adapters.most_in_a_step,
        # A window's blocks are freed where drafts of a step in flight count as computed, though they may be rejected.
        "profile": replace(profile, windows_free_processed_only=True),
        # vLLM 0.22 keeps blocks findable that were never written: tokens would be wrong.
        "rolled_back_work_stays_cached": False,
        **own,
    }
    for name, value in further.items():
        if name in given or name not in _SCHEDULER_FIELDS:
            raise ConfigError(name, value, "is no setting of the engine")
    return SchedulerConfig(**given, **further)


_SCHEDULER_FIELDS = tuple(field.name for field in fields(SchedulerConfig) if field.name != "pipeline_parallel_size")
