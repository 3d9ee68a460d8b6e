"""Memory for the KV cache of a deployment: what is left beside weights, adapters and a step, and the blocks in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from tokenyard.core.config import MAX_BLOCKS, require_int
from tokenyard.deploy.settings import AdapterSettings, DeploymentSettings, HardwareSettings, ParallelSettings
from tokenyard.deploy.vllm_serve.defaults import BatchLimits
from tokenyard.deploy.vllm_serve.models import items_allowed
from tokenyard.deploy.vllm_serve.start_checks import check_room, no_start
from tokenyard.errors import ConfigError, NoStartError
from tokenyard.memory.kv_plan import plan_kv_cache
from tokenyard.memory.room import SAMPLING_BYTES, EncodedAtOnce, StepMemory, step_memory
from tokenyard.models.additions import adapter_bytes
from tokenyard.models.gpus import GPU
from tokenyard.models.images.largest import LARGEST, Frames, LimitedVideo, heeds_frames, knows_its_budget
from tokenyard.models.inputs import item_kind
from tokenyard.models.spec import ModelSpec
from tokenyard.steptime.encoders import timed_encoders
from tokenyard.units import GIB

_NOTABLE_GIB = 0.1
"""Less of it would not be worth lowering a limit for."""
_OF_MEMORY = ("tensor_parallel_size", "max_model_len", "kv_cache_memory_bytes")
"""Fields of errors for a lack of memory; those of other fields hold whatever the memory is."""


class KVMemory(msgspec.Struct, frozen=True):
    """Memory for KV, in bytes on each GPU."""

    likely: int | None
    """The number that was given, or an estimate; None where the number of blocks was given."""
    least: int | None = None
    """The lower end of an estimate."""


def kv_memory(
    flags: DeploymentSettings,
    parallel: ParallelSettings,
    model: ModelSpec,
    gpu: GPU,
    limits: BatchLimits,
    graphs: tuple[int, ...],
    encoded: EncodedAtOnce | None,
) -> KVMemory:
    """What is left for KV on each GPU, or what was given; NoStartError where it is nothing.

    ``encoded``: what :func:`measured_encoder` says.
    """
    hardware = flags.hardware
    if hardware.num_gpu_blocks_override is not None:
        return KVMemory(None)
    if hardware.kv_cache_memory_bytes is not None:
        require_int("kv_cache_memory_bytes", hardware.kv_cache_memory_bytes, 1, 1 << 50)
        return KVMemory(hardware.kv_cache_memory_bytes)
    usable = int(gpu.memory_bytes * hardware.gpu_memory_utilization)
    weights = weight_bytes_of(model, hardware, parallel) + adapter_bytes_of(flags.adapters, hardware, parallel, model)
    to_run = step_memory_of(hardware, parallel, model, gpu, limits, graphs, encoded)
    left = KVMemory(usable - weights - to_run.likely, usable - weights - to_run.most)
    with said_to_be_estimated(left, model, limits):
        check_room(model.name, gpu.name, usable, weights, to_run.likely, hardware.tensor_parallel_size)
    return left


def weight_bytes_of(model: ModelSpec, hardware: HardwareSettings, parallel: ParallelSettings) -> int:
    """Experts lie on the GPUs of all engines, whole ones or a slice of each; every engine has all of the rest.

    Of a pipeline: on a GPU of the stage that has the most.
    """
    world = hardware.tensor_parallel_size * parallel.data_parallel_size
    spread = parallel.enable_expert_parallel or parallel.data_parallel_size > 1
    return model.weight_bytes(
        hardware.tensor_parallel_size,
        expert_parallel_size=world if spread else 1,
        pipeline_parallel_size=parallel.pipeline_parallel_size,
    )


def adapter_bytes_of(
    adapters: AdapterSettings, hardware: HardwareSettings, parallel: ParallelSettings, model: ModelSpec
) -> int:
    """Memory for LoRA adapters on each GPU; NotModelledError where it is not known."""
    if not adapters.enable_lora:
        return 0
    size = adapter_bytes(
        model,
        max_loras=adapters.max_loras,
        max_lora_rank=adapters.max_lora_rank,
        tensor_parallel_size=hardware.tensor_parallel_size,
        pipeline_parallel_size=parallel.pipeline_parallel_size,
    )
    if size is None:
        fix = (
            f"memory of adapters is known beside plain attention alone, and {model.name} has other layers: give"
            " --kv-cache-memory-bytes, as vLLM logs it"
        )
        raise ConfigError("enable_lora", True, fix)
    return size


def step_memory_of(
    hardware: HardwareSettings,
    parallel: ParallelSettings,
    model: ModelSpec,
    gpu: GPU,
    limits: BatchLimits,
    graphs: tuple[int, ...],
    encoded: EncodedAtOnce | None,
) -> StepMemory:
    """What a step takes on each GPU, by estimate."""
    return step_memory(
        model,
        gpu,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_num_seqs=limits.max_num_seqs,
        tensor_parallel_size=hardware.tensor_parallel_size,
        pipeline_parallel_size=parallel.pipeline_parallel_size,
        cudagraph_capture_sizes=graphs,
        encoded=encoded,
    )


def measured_encoder(
    flags: DeploymentSettings, model: ModelSpec, limits: BatchLimits, length: int
) -> EncodedAtOnce | None:
    """What vLLM has an encoder compute when it measures memory; of several in a row, the one that takes most.

    ``length``: tokens of the longest request. None where nothing is known of it, nothing may come in, or vLLM is set
    to leave it out (``--skip-mm-profiling``).
    """
    allowed = flags.hardware.limit_mm_per_prompt
    encoders, planned = timed_encoders(model), largest_of_kinds(model, allowed, length)
    if not encoders or not planned or flags.hardware.skip_mm_profiling:
        return None
    item, kind = max((tokens, kind) for kind, tokens in planned.items())
    of_prompt = max(1, min(items_allowed(model.architecture, kind, allowed), length // item))
    at_once = min(max(limits.max_num_batched_tokens, item) // item, limits.max_num_seqs * of_prompt)
    items = max(1, at_once)
    measured = _measured_item(model, kind, length) or item
    widest = max(encoders, key=lambda each: each.num_patches(measured) * each.hidden_size)
    return EncodedAtOnce(widest, measured * items, items)


def _measured_item(model: ModelSpec, kind: str, length: int) -> int:
    """Embeddings of the item that memory is measured with, where it is not the largest: sizes of a line leave less.

    The video is made without an image beside it.
    """
    if kind != "video":
        return max(each.limited_tokens_per_item for each in model.item_encoders)
    return _video(model, length, has_images=False, is_limited=True)


def _video(model: ModelSpec, length: int, *, has_images: bool, is_limited: bool) -> int:
    """Embeddings of the largest video, the class's or what sizes of a line leave of it; 0 where a model reads none."""
    video, through = LARGEST.get(model.architecture), model.item_encoders
    if video is None:
        return 0
    image = max(each.planned_tokens_per_item or each.max_tokens_per_item for each in through)
    frames = max(Frames(each.planned_tokens_per_frame, each.planned_frames, each.planned_videos) for each in through)
    limited = max(
        LimitedVideo(each.limited_tokens_per_frame, each.limited_frames, each.limited_videos) for each in through
    )
    return video.num_tokens(
        image, length, has_images=has_images, frames=frames, limited=limited if is_limited else None
    )


def largest_item(model: ModelSpec, limit_mm_per_prompt: str | None, length: int) -> int:
    """Embeddings of the largest picture or video that a line allows, as vLLM takes it; 0 where none may come in."""
    return max(largest_of_kinds(model, limit_mm_per_prompt, length).values(), default=0)


def largest_of_kinds(model: ModelSpec, limit_mm_per_prompt: str | None, length: int) -> dict[str, int]:
    """Embeddings of the largest item of each kind of picture and video that a line allows, as vLLM takes it."""
    through = model.item_encoders
    if not through:
        return {}
    pictures = item_kind(model)
    allowed = {each: items_allowed(model.architecture, each, limit_mm_per_prompt) for each in (pictures, "video")}
    image = max(each.planned_tokens_per_item or each.max_tokens_per_item for each in through)
    builds = not knows_its_budget(model.architecture)
    limited = max(each.limited_tokens_per_item for each in through) if builds else 0
    largest = {pictures: limited or image} if allowed[pictures] else {}
    if allowed["video"]:
        is_limited = builds or heeds_frames(model.architecture)
        largest["video"] = _video(model, length, has_images=bool(allowed[pictures]), is_limited=is_limited)
    return {kind: tokens for kind, tokens in largest.items() if tokens}


@contextmanager
def said_to_be_estimated(memory: KVMemory, model: ModelSpec, limits: BatchLimits) -> Iterator[None]:
    """Within it, the error for a lack of memory says that it is an estimate, and what it depends on."""
    try:
        yield
    except NoStartError as error:
        if memory.least is None or error.field not in _OF_MEMORY:
            raise
        sampling = limits.max_num_seqs * model.vocab_size * SAMPLING_BYTES / GIB
        problem = error.marked_reason
        takes = f", and §max_num_seqs = {limits.max_num_seqs} takes {sampling:.1f} GiB of it: lower that, or"
        mend = f"{takes if sampling >= _NOTABLE_GIB else ':'} give what vLLM logs as §kv_cache_memory_bytes"
        raise NoStartError(
            f"{problem}. That memory is an estimate{mend}",
            error.field,
            error.value,
            f"{error.marked_fix}; that memory is an estimate{mend}",
            details=error.details,
        ) from None


def fewest_blocks(model: ModelSpec, memory: KVMemory, settings: dict[str, Any]) -> int | None:
    """Blocks with the least memory, 0 if vLLM would not start with it; None if nothing is estimated."""
    if memory.least is None:
        return None
    if memory.least <= 0:
        return 0
    plan = plan_kv_cache(model, available_bytes=memory.least, must_start=False, **settings)
    return plan.num_blocks if plan.longest == plan.max_model_len else 0


def pool_of(blocks: int | None, memory: KVMemory) -> dict[str, Any]:
    """The blocks that were given, or the bytes on each GPU."""
    if blocks is None:
        return {"available_bytes": memory.likely}
    if not 2 <= blocks <= MAX_BLOCKS:
        fix = f"give a whole number from 2 to {MAX_BLOCKS}; one of them is the null block, which holds no KV"
        raise ConfigError("num_gpu_blocks_override", blocks, fix)
    return {"num_gpu_blocks": blocks}


def longest_in(model: ModelSpec, **settings: Any) -> int:
    """The longest request that fits, as long as the model was made for at most."""
    with no_start():
        return max(1, plan_kv_cache(model, must_start=False, **settings).longest)
