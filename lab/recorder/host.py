"""vLLM's own scheduler, built without a model, a tokenizer or a network."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
import vllm
from vllm.config import CacheConfig, LoRAConfig, ModelConfig, SchedulerConfig, SpeculativeConfig, VllmConfig
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.pooling_params import PoolingParams
from vllm.sampling_params import RepetitionDetectionParams, SamplingParams, StructuredOutputsParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager, EncoderDecoderCacheManager
from vllm.v1.core.kv_cache_utils import init_none_hash, resolve_kv_cache_block_sizes
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager
from vllm.v1.structured_output.backend_types import StructuredOutputGrammar

from recorder.plan import Engine, Group, Image, Planned
from recorder.versions import (
    DECODES_GO_ROUND_STAGES,
    circular_buffer,
    complete_cache_config,
    derived_cache_fields,
    make_block_hasher,
)

__all__ = [
    "BlockHasher",
    "Host",
    "SchedulerArguments",
    "build_host",
    "compile_grammar",
    "draft_tokens",
    "make_request",
    "model_output",
    "scheduler_arguments",
    "vllm_facts",
]

BlockHasher: TypeAlias = Callable[[Any], list[Any]] | None

_MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1 << 20,
    "vocab_size": 1024,
    "torch_dtype": "float32",
}
"""A config.json that vLLM accepts; no weight is ever loaded."""


class SchedulerArguments(NamedTuple):
    """What vLLM's engine makes a scheduler of, by the names of the arguments."""

    vllm_config: VllmConfig
    kv_cache_config: KVCacheConfig
    structured_output_manager: StructuredOutputManager
    include_finished_set: bool
    log_stats: bool
    block_size: int
    hash_block_size: int


class Host:
    """A scheduler and what making requests for it takes."""

    def __init__(self, scheduler: Scheduler, block_hasher: BlockHasher, hash_block_size: int) -> None:
        self.scheduler = scheduler
        self.block_hasher = block_hasher
        self.hash_block_size = hash_block_size


def scheduler_arguments(engine: Engine, *, log_stats: bool = True) -> SchedulerArguments:
    """vLLM's own configuration of the engine, complete."""
    config = engine_config(engine)
    kv_cache_config = _kv_cache_config(engine, derived_cache_fields(config))
    config.cache_config.num_gpu_blocks = engine.num_blocks
    block_size, hash_block_size = resolve_kv_cache_block_sizes(kv_cache_config, config)
    complete_cache_config(kv_cache_config, config, block_size, hash_block_size)
    manager = StructuredOutputManager(config)
    return SchedulerArguments(config, kv_cache_config, manager, False, log_stats, block_size, hash_block_size)


def build_host(engine: Engine, *, log_stats: bool = True, arguments: SchedulerArguments | None = None) -> Host:
    """Build vLLM's scheduler, of ``arguments`` if they are made already."""
    arguments = arguments or scheduler_arguments(engine, log_stats=log_stats)
    config, hash_block_size = arguments.vllm_config, arguments.hash_block_size
    kind = AsyncScheduler if engine.async_scheduling else Scheduler
    if engine.async_scheduling and engine.pipeline_parallel_size:
        with model_runner(second=True):
            scheduler = _decides_in_stages(kind(**arguments._asdict()))
    else:
        scheduler = kind(**arguments._asdict())
        scheduler.use_v2_model_runner = False  # some versions take it for context parallelism: it is told other steps
    if engine.max_num_encoder_input_tokens:
        # vLLM derives both from a multi-modal model, which this one is not.
        scheduler.max_num_encoder_input_tokens = engine.max_num_encoder_input_tokens
        scheduler.is_encoder_decoder = bool(engine.encoder_decoder)
        manager = EncoderDecoderCacheManager if engine.encoder_decoder else EncoderCacheManager
        scheduler.encoder_cache_manager = manager(cache_size=engine.encoder_cache_size)
    hash_fn = get_hash_fn_by_name("sha256")
    init_none_hash(hash_fn)
    hasher = make_block_hasher(config, hash_block_size, hash_fn) if engine.enable_prefix_caching else None
    return Host(scheduler, hasher, hash_block_size)


@contextmanager
def model_runner(*, second: bool) -> Iterator[None]:
    """Within it vLLM takes its second model runner for the one that is used, or the first."""
    name = "VLLM_USE_V2_MODEL_RUNNER"
    before = os.environ.get(name)
    os.environ[name] = "1" if second else "0"
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def _decides_in_stages(scheduler: Any) -> Any:
    """Decides as with vLLM's second model runner, the default on a GPU; steps are told as with the first."""
    update = scheduler._update_after_schedule  # noqa: SLF001 - where vLLM sets the turn

    def updated(output: SchedulerOutput) -> None:
        scheduler.use_v2_model_runner = DECODES_GO_ROUND_STAGES
        update(output)
        scheduler.use_v2_model_runner = False

    scheduler._update_after_schedule = updated  # noqa: SLF001
    scheduler.use_v2_model_runner = False
    return scheduler


def engine_config(engine: Engine) -> VllmConfig:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(_MODEL))
        model = ModelConfig(
            model=folder, dtype="float32", seed=0, skip_tokenizer_init=True, max_model_len=engine.max_model_len
        )
        config = VllmConfig(
            model_config=model,
            scheduler_config=_scheduler_config(engine),
            cache_config=_cache_config(engine),
            lora_config=_lora_config(engine),
            speculative_config=_speculative_config(engine),
        )
    # The CPU platform turns this off, and these methods want a checkpoint of a draft model; the scheduler only reads
    # the settings.
    config.scheduler_config.async_scheduling = bool(engine.async_scheduling)
    config.scheduler_config.disable_chunked_mm_input = bool(engine.disable_chunked_mm_input)
    # These want a model with such layers, or several devices.
    config.cache_config.mamba_cache_mode = engine.mamba_cache_mode or "none"
    config.parallel_config.decode_context_parallel_size = engine.decode_context_parallel_size or 1
    config.parallel_config.prefill_context_parallel_size = engine.prefill_context_parallel_size or 1
    config.parallel_config.pipeline_parallel_size = engine.pipeline_parallel_size or 1
    if engine.spec_method:
        config.speculative_config.method = engine.spec_method
    _check_unchanged(config, engine)
    return config


def _scheduler_config(engine: Engine) -> SchedulerConfig:
    return SchedulerConfig(
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_model_len=engine.max_model_len,
        long_prefill_token_threshold=engine.long_prefill_token_threshold,
        enable_chunked_prefill=engine.enable_chunked_prefill,
        policy=engine.policy,
        is_encoder_decoder=False,
        async_scheduling=False,
        scheduler_reserve_full_isl=engine.scheduler_reserve_full_isl,
    )


def _cache_config(engine: Engine) -> CacheConfig:
    return CacheConfig(
        block_size=engine.block_size,
        cache_dtype="auto",
        enable_prefix_caching=engine.enable_prefix_caching,
        prefix_caching_hash_algo="sha256",
    )


def _lora_config(engine: Engine) -> LoRAConfig | None:
    if engine.max_loras is None:
        return None
    return LoRAConfig(max_loras=engine.max_loras, max_cpu_loras=max(8, engine.max_loras), max_lora_rank=8)


def _speculative_config(engine: Engine) -> SpeculativeConfig | None:
    if engine.num_speculative_tokens is None:
        return None
    return SpeculativeConfig(model="ngram", num_speculative_tokens=engine.num_speculative_tokens)


def _kv_cache_config(engine: Engine, derived: dict[str, Any]) -> KVCacheConfig:
    return KVCacheConfig(
        num_blocks=engine.num_blocks,
        kv_cache_tensors=[],
        kv_cache_groups=[
            KVCacheGroupSpec([f"layer{i}"], _kv_cache_spec(group, engine), is_eagle_group=bool(group.eagle))
            for i, group in enumerate(engine.groups or (Group(),))
        ],
        **derived,
    )


def _kv_cache_spec(group: Group, engine: Engine) -> KVCacheSpec:
    shape = {
        "block_size": group.block_size or engine.block_size,
        "num_kv_heads": 1,
        "head_size": 1,
        "dtype": torch.float32,
    }
    if group.kind == "swa":
        return SlidingWindowSpec(sliding_window=group.window, **shape)
    if group.kind == "chunked":
        return ChunkedLocalAttentionSpec(attention_chunk_size=group.window, **shape)
    if group.kind == "cross":
        return CrossAttentionSpec(**shape)
    if group.kind == "ring":
        return circular_buffer(**shape)
    if group.kind == "mamba":
        return MambaSpec(
            block_size=shape["block_size"],
            shapes=((1,),),
            dtypes=(torch.float32,),
            mamba_cache_mode=engine.mamba_cache_mode or "none",
            num_speculative_blocks=engine.num_speculative_tokens or 0,
        )
    return FullAttentionSpec(**shape)


_NOT_FROM_CONFIG = {"max_num_encoder_input_tokens", "encoder_cache_size"}
"""Given to the scheduler itself."""


def _check_unchanged(config: VllmConfig, engine: Engine) -> None:
    """vLLM's platform hooks may rewrite a configuration; a vector must say what really ran."""
    for part in (config.scheduler_config, config.cache_config):
        for field in Engine.__dataclass_fields__:
            wanted = getattr(engine, field)
            if wanted is not None and getattr(part, field, wanted) != wanted and field not in _NOT_FROM_CONFIG:
                raise RuntimeError(f"vLLM changed {field} from {wanted} to {getattr(part, field)}")


def make_request(planned: Planned, hasher: BlockHasher) -> Request:
    """The vLLM request of a planned one whose arrival time is known."""
    params = SamplingParams(
        temperature=0.0,
        max_tokens=planned.max_tokens,
        min_tokens=planned.min_tokens,
        ignore_eos=planned.eos is None,
        stop_token_ids=list(planned.stop_token_ids),
        skip_reading_prefix_cache=planned.skip_reading_prefix_cache or None,
        structured_outputs=None if planned.forbids is None else StructuredOutputsParams(regex=".*"),
    )
    params.update_from_generation_config({}, planned.eos)
    if planned.repetition is not None:
        longest, shortest, count = planned.repetition
        params.repetition_detection = RepetitionDetectionParams(
            max_pattern_size=longest, min_pattern_size=shortest, min_count=count
        )
    lora = None
    if planned.lora:
        name = f"lora{planned.lora}"
        lora = LoRARequest(lora_name=name, lora_int_id=planned.lora, lora_path=f"/nonexistent/{name}")
    request = Request(
        request_id=planned.id,
        prompt_token_ids=list(planned.prompt),
        sampling_params=None if planned.pooling else params,
        pooling_params=PoolingParams(task="embed") if planned.pooling else None,
        arrival_time=planned.arrival_time,
        lora_request=lora,
        cache_salt=planned.cache_salt,
        priority=planned.priority,
        block_hasher=hasher,
        mm_features=[_mm_feature(image) for image in planned.mm],
        resumable=planned.resumable,
    )
    if request.structured_output_request is not None:
        request.structured_output_request.grammar = Future()
    return request


def _mm_feature(image: Image) -> MultiModalFeatureSpec:
    mask = None if image.is_embed is None else torch.tensor(image.is_embed, dtype=torch.bool)
    place = PlaceholderRange(offset=image.offset, length=image.length, is_embed=mask)
    return MultiModalFeatureSpec(data=None, modality="image", identifier=image.mm_hash, mm_position=place)


@StructuredOutputGrammar.register  # some versions look whether it is one
class _Grammar:
    """Allows every token but some; the two methods that a scheduler calls."""

    def __init__(self, forbids: Sequence[int]) -> None:
        self._forbids = set(forbids)

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Advance."""
        return self._forbids.isdisjoint(tokens)

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """The leading tokens that are allowed."""
        stop = next((i for i, token in enumerate(tokens) if token in self._forbids), len(tokens))
        return tokens[:stop]


def compile_grammar(request: Request | None, planned: Planned) -> None:
    """The grammar of ``planned`` is there; its request may have ended meanwhile."""
    if request is not None:
        request.structured_output_request._grammar.set_result(_Grammar(planned.forbids or ()))  # noqa: SLF001


def model_output(ids: list[str], sampled: list[list[int]], pooled: list[str] | None = None) -> ModelRunnerOutput:
    """What a worker would return for one step; ``pooled`` are the pooling requests that are done with it."""
    done = set(pooled or ())
    return ModelRunnerOutput(
        req_ids=ids,
        req_id_to_index={request_id: row for row, request_id in enumerate(ids)},
        sampled_token_ids=sampled,
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=[torch.zeros(1) if request_id in done else None for request_id in ids] if done else [],
    )


def draft_tokens(ids: list[str], drafts: list[list[int]]) -> DraftTokenIds:
    """What a worker proposes after a step."""
    return DraftTokenIds(ids, drafts)


def vllm_facts(host: Host) -> dict[str, Any]:
    """What vLLM says of itself: version, scheduler class, and the sizes it derived from the configuration."""
    scheduler = host.scheduler
    return {
        "vllm": vllm.__version__,
        "scheduler": type(scheduler).__name__,
        "scheduler_block_size": scheduler.block_size,
        "hash_block_size": host.hash_block_size,
        "num_lookahead_tokens": scheduler.num_lookahead_tokens,
        "use_eagle": scheduler.use_eagle,
    }
