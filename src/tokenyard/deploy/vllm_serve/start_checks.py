"""What keeps vllm serve from starting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import gcd

from tokenyard.core.config import SpeculativeConfig, require_int
from tokenyard.core.profiles import release_facts, versions_with
from tokenyard.core.releases import VERSIONS
from tokenyard.deploy.vllm_serve.defaults import WORKER_METHOD, BatchLimits, variable
from tokenyard.deploy.vllm_serve.flags import KNOWN
from tokenyard.deploy.vllm_serve.given import GivenFlags
from tokenyard.deploy.vllm_serve.refusals import refused
from tokenyard.errors import ConfigError, NoStartError
from tokenyard.models.formats import NO_FLOAT16
from tokenyard.models.layers import MoE
from tokenyard.models.mixers import Attends, LatentAttention, ShortConvolution, SoftmaxAttention
from tokenyard.models.reading.read import versions_instead
from tokenyard.models.reading.table import only_pools, pools_whole_prompts
from tokenyard.models.spec import ModelSpec
from tokenyard.units import GIB

# ---------------------------------------------------------------------------------------------------------------------
# Models that pool: embeddings, scores and labels (``--runner pooling``), and what vLLM then does otherwise.
#
# Their requests end with their prompts. To a scheduler such a request is one whose first token is its last, so a replay
# counts its result as one token; ``tests/unit/deploy/test_pooling.py`` compares the two step by step.

RUNNERS = ("auto", "generate", "pooling")
_CONVERTED = ("embed", "classify")
_WHOLE = ("MEAN", "CLS", "STEP")
"""Ways of pooling for which vLLM computes a prompt in one step, and keeps none of it."""


def pools(model: ModelSpec, runner: str, convert: str) -> bool:
    """Whether a model is served for its hidden states. ConfigError for a name that is none, NoStartError as vLLM."""
    if runner not in RUNNERS:
        raise ConfigError("runner", runner, f"use one of: {', '.join(RUNNERS)}")
    if runner == "generate" and only_pools(model.architecture):
        raise refused("only_pools", runner, model=model.name, architecture=model.architecture)
    asked = runner == "pooling" or (runner == "auto" and convert in _CONVERTED)
    return asked or (runner == "auto" and only_pools(model.architecture))


def pooled(model: ModelSpec) -> ModelSpec:
    """A decoder as vLLM loads it to pool: without its output head. What only pools has what its row says."""
    if only_pools(model.architecture):
        return model
    return replace(model, tie_word_embeddings=True, head_weights=None)


def cuts_prompts(model: ModelSpec, pooler_config: object = None) -> bool:
    """Whether vLLM computes prompts in parts and keeps prefixes: where tokens see those before them alone, and the last
    one's state, or every one's, is requested. ConfigError if ``--pooler-config`` is no object.
    """
    if any(_both_ways(mixer) for layer in model.layers for mixer in layer.mixers):
        return False
    given = _pooler_fields(pooler_config)
    kinds = [given.get(name) for name in ("pooling_type", "seq_pooling_type", "tok_pooling_type")]
    if any(kinds):
        return not any(kind in _WHOLE for kind in kinds)
    return not pools_whole_prompts(model.architecture)


def _both_ways(mixer: object) -> bool:
    if isinstance(mixer, SoftmaxAttention):
        return mixer.attends is Attends.BOTH_WAYS
    return isinstance(mixer, LatentAttention | ShortConvolution) and mixer.both_ways


def _pooler_fields(value: object) -> dict[str, object]:
    if value is None or isinstance(value, dict):
        return value or {}
    raise ConfigError("pooler_config", value, 'give a JSON object: {"pooling_type": "MEAN"}')


# ---------------------------------------------------------------------------------------------------------------------

# ---------------------------------------------------------------------------------------------------------------------
# What keeps ``vllm serve`` from starting, as far as its flags and sizes show.

_SMALLEST_BLOCK = 32
"""Columns of the blocks that vLLM makes of larger ones."""


def check_limits(
    *,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    max_model_len: int,
    enable_chunked_prefill: bool,
    long_prefill_token_threshold: int,
    keeps_states: bool = False,
) -> None:
    """Raise NoStartError for limits of a step that contradict each other.

    ``keeps_states``: prefixes of a model with states are cached, so that steps have to end where blocks do.
    """
    if keeps_states and not enable_chunked_prefill:
        raise refused("states_need_chunks", value=False)
    if not enable_chunked_prefill and max_num_batched_tokens < max_model_len:
        raise refused("budget_below_length", max_num_batched_tokens, least=max_model_len)
    if max_num_batched_tokens < max_num_seqs:
        raise refused("budget_below_seqs", max_num_batched_tokens, least=max_num_seqs)
    if long_prefill_token_threshold > max_model_len:
        raise refused("threshold_above_length", long_prefill_token_threshold, most=max_model_len)


def check_length(max_model_len: int, known: int, model: str, ignored: Sequence[str] = ()) -> None:
    """Raise NoStartError for a length beyond the one that the model was made for.

    Overrides of its config.json that were ``ignored`` may say another length: then a ConfigError names them.
    """
    if max_model_len <= known:
        return
    overrides = "; ".join(said for said in ignored if said.startswith("--hf-overrides"))
    if overrides:
        beyond = f"is more than the {known} tokens that {model} was made for"
        fix = f"{beyond}, and what is ignored may say otherwise ({overrides}): give a changed config.json by §model"
        raise ConfigError("max_model_len", max_model_len, fix)
    raise refused("too_long", max_model_len, longest=known, model=model)


_NO_ADAPTERS: Sequence[str] = KNOWN["no_adapters"]
"""Architectures, of those that are read, whose classes in vLLM 0.22 and 0.33 take no LoRA adapters."""
_ADAPTERS_SINCE: Mapping[str, str] = KNOWN["adapters_since"]
"""Architectures of which later versions do, and the fact that they do."""
_SHARED_OBJECT_MB = 128
"""vLLM's default, which it takes for no answer."""


def check_adapters(model: ModelSpec, max_loras: int, max_cpu_loras: int | None, version: str) -> None:
    """Raise NoStartError for a model that vLLM has no adapters for, and where fewer fit the CPU's memory than a step
    may have; 0 or less: vLLM's default.
    """
    fact = _ADAPTERS_SINCE.get(model.architecture)
    if model.architecture in _NO_ADAPTERS or (fact is not None and not getattr(release_facts(version), fact)):
        raise refused("no_adapters", value=True, version=version, model=model.name)
    if max_cpu_loras is not None and 0 < max_cpu_loras < max_loras:
        raise refused("few_cpu_adapters", max_cpu_loras, least=max_loras)


def check_drafts_fit(speculative: SpeculativeConfig, limits: BatchLimits, version: str, *, has_adapters: bool) -> None:
    """Raise NoStartError where a step cannot hold one token beside its drafts, where vLLM looks; beside adapters, where
    it cannot hold a token and all drafts of every request.
    """
    tokens, seqs = limits.max_num_batched_tokens, limits.max_num_seqs
    ahead, drafts = speculative.num_lookahead_tokens, speculative.num_speculative_tokens
    if release_facts(version).drafts_need_room and tokens <= ahead:
        raise refused("no_room_beside_drafts", tokens, drafts=drafts, most=ahead, least=ahead + 1)
    if has_adapters and tokens < seqs * (drafts + 1):
        raise refused("no_room_for_adapter_drafts", tokens, least=seqs * (drafts + 1), seqs=seqs)


def check_media(model: ModelSpec, asked: GivenFlags, num_gpus: int, version: str) -> None:
    """Raise NoStartError for ways to keep, read and pass on images that do not go together, on so many GPUs."""
    if not model.supports_multimodal:
        return
    most, transport = asked.value("mm-shm-cache-max-object-size-mb"), asked.value("mm-tensor-ipc")
    if most not in (None, _SHARED_OBJECT_MB) and asked.value("mm-processor-cache-type") != "shm":
        raise refused("limit_of_another_cache", most)
    device, options = asked.value("mm-processor-device"), asked.value("mm-processor-kwargs")
    of_options = options.get("device") if isinstance(options, dict) else None
    where = device if device not in (None, "auto") else of_options
    if release_facts(version).media_device_is_checked and str(where).partition(":")[0] == "cuda":
        raise refused("media_device", where, model=model.name)
    if transport == "torch_shm" and num_gpus > 1:
        raise refused("shared_images_of_one_gpu", transport, gpus=num_gpus)
    starts_workers = variable(WORKER_METHOD, asked.environment)
    if transport == "torch_shm" and release_facts(version).shared_images_need_spawn and starts_workers != "spawn":
        raise refused("shared_images_need_spawn", transport)


def check_model(model: ModelSpec, version: str) -> None:
    """Raise NoStartError for weights or a dtype that this version of vLLM does not run.

    ConfigError for a model that it leaves to transformers, and a replay does not know how.
    """
    have = versions_instead(model.architecture, version)
    if have:
        first, last = VERSIONS.index(have[0]), VERSIONS.index(have[-1])
        is_span = len(have) > 2 and len(have) == last - first + 1
        choice = f"one from {have[0]} to {have[-1]}" if is_span else " or ".join(have)
        lacks = f"has no class for {model.architecture} ({model.name}), and running it by transformers' code is not"
        raise ConfigError("vllm_version", version, f"{lacks} modelled: choose {choice}")
    if not release_facts(version).has_bitsandbytes and model.quantization == "bitsandbytes":
        last_version = versions_with("has_bitsandbytes")[-1]
        raise refused("no_bitsandbytes", model.quantization, version=version, last=last_version)
    if model.dtype == "float16" and model.model_type in NO_FLOAT16:
        raise refused("no_float16", model.dtype, model=model.name)


def check_kv_dtype(kv_cache_dtype: str, model: ModelSpec, version: str) -> None:
    """Raise NoStartError for a dtype of keys and values that does not go with the model."""
    follows = release_facts(version).kv_dtype_follows_model and kv_cache_dtype in ("bfloat16", "float16")
    if follows and kv_cache_dtype != model.dtype:
        raise refused("kv_dtype_of_another_model", kv_cache_dtype, dtype=model.dtype)
    if kv_cache_dtype == "fp8_e5m2" and _brings_kv_scales(model, version):
        raise refused("kv_dtype_of_weights", kv_cache_dtype, weights=model.quantization, model=model.name)
    mixers = [mixer for layer, _ in model.layer_counts for mixer in layer.mixers]
    if kv_cache_dtype.startswith("nvfp4") and any(isinstance(mixer, LatentAttention) for mixer in mixers):
        raise refused("kv_dtype_of_latent", kv_cache_dtype, model=model.name)


def _brings_kv_scales(model: ModelSpec, version: str) -> bool:
    """Whether vLLM looks for scales of keys and values in the checkpoint, which fp8_e5m2 has none of.

    Later versions look into checkpoints of compressed-tensors only where they declare a dtype of keys and values.
    """
    kinds = {type(mixer) for layer, _ in model.layer_counts for mixer in layer.mixers}
    if model.quantization == "compressed-tensors":
        looks = release_facts(version).looks_for_all_kv_scales or model.kv_cache_dtype is not None
        return SoftmaxAttention in kinds and looks
    if model.quantization == "fp8":
        return SoftmaxAttention in kinds
    return model.quantization == "modelopt" and bool(kinds & {SoftmaxAttention, LatentAttention})


def check_expert_blocks(model: ModelSpec, gpus: int, version: str) -> None:
    """Raise NoStartError where a slice of an expert on one of so many ``gpus`` is no whole number of blocks.

    Later versions make the blocks of fp8 files smaller then, down to 32 columns; earlier ones do not look at groups of
    integers.
    """
    facts, is_fp8 = release_facts(version), model.quantization == "fp8"
    for layer, _ in model.layer_counts:
        if not isinstance(layer.mlp, MoE) or not (is_fp8 or model.quantization == "compressed-tensors"):
            continue
        width, block = layer.mlp.width // gpus, layer.mlp.weights.alignment
        smaller = gcd(block, width, layer.mlp.hidden_size)
        shrinks = is_fp8 and facts.expert_blocks_shrink and smaller >= _SMALLEST_BLOCK
        unseen = facts.cuts_expert_groups and layer.mlp.weights.name.startswith("int")
        if width % block and not shrinks and not unseen:
            raise refused("cut_blocks", value=False, width=width, gpus=gpus, block=block, model=model.name)


def check_room(model: str, gpu: str, usable: int, weights: int, to_run: int, gpus: int) -> None:
    """Raise NoStartError if weights and a step leave no memory for KV; all in bytes, on each of so many ``gpus``."""
    if usable <= weights + to_run:
        sizes = {"weight_bytes": weights, "bytes_to_run": to_run, "usable_bytes": usable}
        said = {
            name: f"{size / GIB:.1f} GiB"
            for name, size in zip(("weights", "to_run", "usable"), sizes.values(), strict=True)
        }
        raise refused("no_memory", gpus, model=model, gpu=gpu, **said, **sizes)


@contextmanager
def no_start() -> Iterator[None]:
    """Within it, a setting that cannot work is what keeps vLLM from starting."""
    try:
        yield
    except ConfigError as error:
        reason = error.marked.replace("vLLM would not start: ", "")
        raise NoStartError(reason, error.field, error.value, error.marked_fix, details=error.details) from None


# ---------------------------------------------------------------------------------------------------------------------
# The KV of a sequence on several GPUs.

MOST_NODES = 1024


def check_context_parallel(model: ModelSpec, ranks: int, tensor_parallel_size: int, *, has_drafts: bool) -> None:
    """Whether the KV of a sequence can be spread over ``ranks`` GPUs of a tensor-parallel group.

    NoStartError where vLLM says no: heads of keys and values that each GPU has alone cannot be spread. ConfigError for
    what is not modelled.
    """
    name = "decode_context_parallel_size"
    require_int(name, ranks, 1, MOST_NODES)
    if ranks == 1:
        return
    if has_drafts:
        raise ConfigError(name, ranks, "is not modelled together with speculative decoding: leave one of the two out")
    copies = tensor_parallel_size
    kinds = [mixer for layer, _ in model.layer_counts for mixer in layer.mixers]
    if any(isinstance(mixer, SoftmaxAttention) for mixer in kinds):
        copies = tensor_parallel_size // model.num_kv_heads
    with no_start():
        if copies < ranks or tensor_parallel_size % ranks:
            fix = (
                f"{tensor_parallel_size} GPUs that share the layers have {max(copies, 1)} copies of each KV head of "
                f"{model.name}: give a divisor of that, or a larger §tensor_parallel_size"
            )
            raise ConfigError(name, ranks, fix)
