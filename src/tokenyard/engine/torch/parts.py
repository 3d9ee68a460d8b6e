"""The parts of an engine, made in the order in which each needs the ones before.

folder -> spec -> groups of layers -> weights -> number of blocks -> KV tensors -> runner
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tokenyard.config import MAX_BLOCKS, CacheConfig, GroupKind, HashAlgo
from tokenyard.connectors.prefill_decode_worker import OfferExchange
from tokenyard.engine.torch.adapters.adapter_file import read_adapter
from tokenyard.engine.torch.attention.kv_tensors import KVTensors
from tokenyard.engine.torch.checkpoint import (
    LoadedModel,
    device_named,
    eos_token_ids,
    load_checkpoint,
    read_spec,
    require_torch,
)
from tokenyard.engine.torch.drafting.draft_model import DraftModel
from tokenyard.engine.torch.drafting.drafters import Drafter, NgramDrafter
from tokenyard.engine.torch.memory import CPU_SHARE, GPU_SHARE, left_for_blocks, run_dummy_step
from tokenyard.engine.torch.model import BlockGroup, PagedModel
from tokenyard.engine.torch.request_rows import RequestRows
from tokenyard.engine.torch.runner import ModelRunner
from tokenyard.engine.torch.settings import EngineSettings
from tokenyard.engine.torch.transfers import Transfers, make_transfers
from tokenyard.errors import ConfigError
from tokenyard.kv.sizing.grouping import LayerGroup
from tokenyard.kv.sizing.layer_cache import kv_element_bytes
from tokenyard.kv.sizing.plan import KVCachePlan, plan_kv_cache

__all__ = ["EngineParts"]


class EngineParts:
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
        """Of the scheduler."""
        return self._kv_plan.cache_config(prefix_caching_hash_algo=HashAlgo.SHA256)

    # ---- memory

    def _bytes_of_block(self, plan: KVCachePlan) -> int:
        """Over all layers of the target, and of the drafter behind the same block id."""
        own = 0 if self._draft_model is None else self._draft_model.elements_per_block
        return int((plan.bytes_per_block / kv_element_bytes(plan.kv_cache_dtype) + own) * self._torch_dtype.itemsize)

    def _num_blocks(self, plan: KVCachePlan) -> int:
        """As given, or as many as fit; no more than the most requests of the greatest length can hold."""
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
        """Run the largest step, so that its memory is known."""
        tensors = self._bind(plan)
        torch = require_torch()
        with torch.inference_mode():
            run_dummy_step(
                self._target,
                tensors,
                self._settings.max_num_batched_tokens,
                self._settings.max_num_seqs,
                self.max_model_len,
            )

    def _bind(self, plan: KVCachePlan) -> KVTensors:
        """Memory for the layers of the target, and for those of the drafter."""
        tensors = KVTensors(plan.groups, plan.num_blocks, self._torch_dtype, self._device)
        groups = [BlockGroup(group.first.block_size, _window(group)) for group in plan.groups]
        self._target.bind(tensors.layers, groups)
        if self._draft_model is not None:
            self._draft_model.bind(plan.num_blocks, self._torch_dtype, self._device)
        return tensors

    # ---- around the model

    def transfers(self, cache: CacheConfig, clock: Callable[[], float], exchange: OfferExchange | None) -> Transfers:
        """The connector that was asked for."""
        assert self._settings.kv_transfer is not None
        return make_transfers(self._settings.kv_transfer, cache, self.tensors, self._bytes_per_block, clock, exchange)

    def runner(self) -> ModelRunner:
        """The runner, with its drafter."""
        speculation = self._settings.speculation
        num_drafts = speculation.config.num_speculative_tokens if speculation is not None else 0
        drafter: Drafter | None = self._draft_model
        if speculation is not None and drafter is None:
            drafter = NgramDrafter(speculation.prompt_lookup_min, speculation.prompt_lookup_max)
        adapters = tuple(self._settings.adapters.lora_modules)
        rows = RequestRows(self.max_model_len, num_drafts, self._settings.seed, adapters)
        return ModelRunner(self._target, rows, drafter, num_drafts)


def _window(group: LayerGroup) -> int:
    return group.first.window if group.first.kind is GroupKind.SLIDING_WINDOW else 0
