"""What nobody said, settled: limits by GPU and version, the length of the model, the size of the pool."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tokenyard.cli.support.flags import HardwareFlags, Run, SchedulerFlags
from tokenyard.config import MAX_BLOCKS, MAX_COUNT, MAX_SEQS, require_int
from tokenyard.errors import ConfigError
from tokenyard.kv.sizing.gpus import GPU, named_gpu
from tokenyard.kv.sizing.hf_config import model_shape
from tokenyard.kv.sizing.num_blocks import check_utilization, size_kv_cache
from tokenyard.launch.defaults import batch_limits, known_version
from tokenyard.launch.model_names import known_as
from tokenyard.launch.start_checks import check_length, check_limits, check_pool, no_start
from tokenyard.models.named import MODELS
from tokenyard.models.spec import ModelSpec

__all__ = ["Settled", "settle"]

AUTO = -1
"""``--max-model-len auto``: as long as the pool holds."""
_ANY_LENGTH = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What is served, on what, within which limits; nothing is left to a default."""

    version: str
    """vLLM's, whose defaults were taken."""
    gpu: GPU
    model: ModelSpec
    hardware: HardwareFlags
    scheduler: SchedulerFlags
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    num_gpu_blocks: int

    @property
    def bytes_per_block(self) -> int:
        """Of one block on each GPU."""
        return self.model.kv_bytes_per_token(self.hardware.tensor_parallel_size) * self.hardware.block_size


def settle(flags: Run) -> Settled:
    """Settle what is not given. Raises ConfigError for a wrong value, NoStartError where vLLM would not start."""
    version = known_version(flags.launch.vllm_version)
    hardware, scheduler = flags.hardware, flags.scheduler
    gpu, model = named_gpu(hardware.gpu), served_model(hardware.model)
    _require_numbers(scheduler)
    length = scheduler.max_model_len
    if length is not None and length != AUTO and not _allows_any_length(flags):
        check_length(length, model.max_model_len, model.name)
    with no_start():
        model.check_tensor_parallel(hardware.tensor_parallel_size)
    limits = batch_limits(
        gpu,
        version=version,
        max_model_len=length if length not in (None, AUTO) else model.max_model_len,
        max_num_seqs=scheduler.max_num_seqs,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        enable_chunked_prefill=scheduler.enable_chunked_prefill,
        for_throughput=scheduler.performance_mode == "throughput",
    )
    scheduler = replace(
        scheduler, max_num_seqs=limits.max_num_seqs, max_num_batched_tokens=limits.max_num_batched_tokens
    )
    blocks = _num_blocks(hardware, model, gpu, scheduler)
    held = blocks * hardware.block_size
    if length is None or length == AUTO:
        settled_length = model.max_model_len if length is None else min(model.max_model_len, held)
    else:
        settled_length = length
    check_limits(
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_model_len=settled_length,
        enable_chunked_prefill=scheduler.enable_chunked_prefill,
        long_prefill_token_threshold=scheduler.long_prefill_token_threshold,
    )
    if hardware.num_gpu_blocks_override is None:
        check_pool(settled_length, held - (hardware.block_size if version != "0.22" else 0))
    return Settled(
        version=version,
        gpu=gpu,
        model=model,
        hardware=hardware,
        scheduler=replace(scheduler, max_model_len=settled_length),
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_model_len=settled_length,
        num_gpu_blocks=blocks,
    )


def _require_numbers(flags: SchedulerFlags) -> None:
    """Raise ConfigError for a limit that is given and is none."""
    for field, value, most in (
        ("max_num_seqs", flags.max_num_seqs, MAX_SEQS),
        ("max_num_batched_tokens", flags.max_num_batched_tokens, MAX_COUNT),
        ("max_model_len", flags.max_model_len, MAX_COUNT),
    ):
        if value is not None and not (field == "max_model_len" and value == AUTO):
            require_int(field, value, 1, most)


def served_model(name: str) -> ModelSpec:
    """A named model, one that the hub knows by a longer name, or the shape in a config.json. Raises ConfigError."""
    return model_shape(known_as(name, MODELS) or name)


def _allows_any_length(flags: Run) -> bool:
    return flags.launch.asked.environment.get(_ANY_LENGTH, "0") not in ("", "0")


def _num_blocks(hardware: HardwareFlags, model: ModelSpec, gpu: GPU, scheduler: SchedulerFlags) -> int:
    blocks = hardware.num_gpu_blocks_override
    check_utilization(hardware.gpu_memory_utilization)
    if blocks is not None:
        if not 2 <= blocks <= MAX_BLOCKS:
            fix = f"give a whole number from 2 to {MAX_BLOCKS}; one of them is the null block, which holds no KV"
            raise ConfigError("num_gpu_blocks_override", blocks, fix)
        return blocks
    if hardware.kv_cache_memory_bytes is not None:
        return _blocks_in(hardware, model)
    assert scheduler.max_num_batched_tokens is not None
    assert scheduler.max_num_seqs is not None
    with no_start():
        return size_kv_cache(
            model,
            gpu,
            gpu_memory_utilization=hardware.gpu_memory_utilization,
            block_size=hardware.block_size,
            max_num_batched_tokens=scheduler.max_num_batched_tokens,
            max_num_seqs=scheduler.max_num_seqs,
            tensor_parallel_size=hardware.tensor_parallel_size,
        ).num_blocks


def _blocks_in(hardware: HardwareFlags, model: ModelSpec) -> int:
    """Blocks that fit the memory that was given for them."""
    given = hardware.kv_cache_memory_bytes
    assert given is not None
    per_block = model.kv_bytes_per_token(hardware.tensor_parallel_size) * hardware.block_size
    if given < 2 * per_block:
        fix = f"a block takes {per_block} bytes, and there must be two at least"
        raise ConfigError("kv_cache_memory_bytes", given, fix)
    return given // per_block
