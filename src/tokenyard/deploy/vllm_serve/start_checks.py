"""What keeps vllm serve from starting, and ways to spread a model that are not modelled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import gcd

from tokenyard.core.config import SpeculativeConfig, require_int
from tokenyard.core.facts import release_facts, versions_with
from tokenyard.core.releases import VERSIONS
from tokenyard.deploy.vllm_serve.flags import KNOWN
from tokenyard.errors import ConfigError, NoStartError
from tokenyard.models.formats import NO_FLOAT16
from tokenyard.models.layers import MoE
from tokenyard.models.mixers import LatentAttention, SoftmaxAttention
from tokenyard.models.reading.versions import versions_instead
from tokenyard.models.spec import ModelSpec
from tokenyard.units import GIB

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
    tokens = max_num_batched_tokens
    if keeps_states and not enable_chunked_prefill:
        raise NoStartError(
            "prefix caching of a model with states needs chunked prefill: turn off the one or leave both on",
            "enable_chunked_prefill",
            False,
            "turn off §enable_prefix_caching, or leave both on",
        )
    if not enable_chunked_prefill and tokens < max_model_len:
        raise NoStartError(
            f"§max_num_batched_tokens = {tokens} is less than §max_model_len = {max_model_len}, and without chunked "
            "prefill a step has to hold a whole prompt: raise the one or lower the other",
            "max_num_batched_tokens",
            tokens,
            f"give {max_model_len} or more, or lower §max_model_len",
            details={"least": max_model_len},
        )
    if tokens < max_num_seqs:
        raise NoStartError(
            f"§max_num_batched_tokens = {tokens} is less than §max_num_seqs = {max_num_seqs}: every running "
            "request needs a token of each step; raise the one or lower the other",
            "max_num_batched_tokens",
            tokens,
            f"give {max_num_seqs} or more, or lower §max_num_seqs",
            details={"least": max_num_seqs},
        )
    if long_prefill_token_threshold > max_model_len:
        raise NoStartError(
            f"§long_prefill_token_threshold = {long_prefill_token_threshold} is more than "
            f"§max_model_len = {max_model_len}",
            "long_prefill_token_threshold",
            long_prefill_token_threshold,
            f"give at most {max_model_len}",
            details={"most": max_model_len},
        )


def check_length(max_model_len: int, known: int, model: str, ignored: Sequence[str] = ()) -> None:
    """Raise NoStartError for a length beyond the one that the model was made for.

    Overrides of its config.json that were ``ignored`` may say another length: then a ConfigError names them.
    """
    if max_model_len <= known:
        return
    beyond = f"is more than the {known} tokens that {model} was made for"
    overrides = "; ".join(said for said in ignored if said.startswith("--hf-overrides"))
    if overrides:
        fix = f"{beyond}, and what is ignored may say otherwise ({overrides}): give a changed config.json by §model"
        raise ConfigError("max_model_len", max_model_len, fix)
    raise NoStartError(
        f"§max_model_len = {max_model_len} {beyond} "
        "(VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 allows it, in the environment or in front of a --serve line)",
        "max_model_len",
        max_model_len,
        f"give at most {known}, or set VLLM_ALLOW_LONG_MAX_MODEL_LEN=1",
        details={"longest": known},
    )


def check_experts(model: ModelSpec, *, enable_expert_parallel: bool) -> None:
    """Raise NoStartError if experts are to be shared out and there are none."""
    if enable_expert_parallel and not model.has_experts and model.architecture not in _COUNTS_EXPERTS:
        problem = f"§enable_expert_parallel is set, and {model.name} has no experts: leave it out"
        raise NoStartError(problem, "enable_expert_parallel", True)


_NO_ADAPTERS: Sequence[str] = KNOWN["no_adapters"]
"""Architectures, of those that are read, whose classes in vLLM 0.22 and 0.33 take no LoRA adapters."""
_ADAPTERS_SINCE: Mapping[str, str] = KNOWN["adapters_since"]
"""Architectures of which later versions do, and the fact that they do."""
_COUNTS_EXPERTS = ("NemotronHForCausalLM",)
"""Architectures whose configuration counts experts where the file, and the model, have none."""
_SHARED_OBJECT_MB = 128
"""vLLM's default, which it takes for no answer."""


def check_adapters(model: ModelSpec, max_loras: int, max_cpu_loras: int | None, version: str) -> None:
    """Raise NoStartError for a model that vLLM has no adapters for, and where fewer fit the CPU's memory than a step
    may have; 0 or less: vLLM's default.
    """
    fact = _ADAPTERS_SINCE.get(model.architecture)
    if model.architecture in _NO_ADAPTERS or (fact is not None and not getattr(release_facts(version), fact)):
        problem = f"§enable_lora is set, and vLLM {version} takes no adapters for {model.name}: leave it out"
        raise NoStartError(problem, "enable_lora", True)
    if max_cpu_loras is not None and 0 < max_cpu_loras < max_loras:
        problem = f"§max_cpu_loras = {max_cpu_loras} is less than §max_loras = {max_loras}"
        fix = f"give {max_loras} or more, or lower §max_loras"
        raise NoStartError(problem, "max_cpu_loras", max_cpu_loras, fix, details={"least": max_loras})


def check_draft_room(speculative: SpeculativeConfig, max_num_batched_tokens: int, version: str) -> None:
    """Raise NoStartError where a step cannot hold one token beside its drafts, where vLLM looks."""
    if release_facts(version).drafts_need_room and max_num_batched_tokens <= speculative.num_lookahead_tokens:
        raise NoStartError(
            f"§max_num_batched_tokens = {max_num_batched_tokens} holds no token beside"
            f" §num_speculative_tokens = {speculative.num_speculative_tokens} drafts",
            "max_num_batched_tokens",
            max_num_batched_tokens,
            f"give more than {speculative.num_lookahead_tokens}, or lower §num_speculative_tokens",
            details={"least": speculative.num_lookahead_tokens + 1},
        )


def check_adapter_drafts(speculative: SpeculativeConfig, max_num_batched_tokens: int, max_num_seqs: int) -> None:
    """Raise NoStartError where a step cannot hold a token and all drafts of every request; beside adapters alone."""
    needed = max_num_seqs * (speculative.num_speculative_tokens + 1)
    if max_num_batched_tokens < needed:
        raise NoStartError(
            f"§max_num_batched_tokens = {max_num_batched_tokens} is less than the {needed} that §max_num_seqs ="
            f" {max_num_seqs} requests may verify, and adapters (§enable_lora) need room for all:"
            " raise the one or lower the other",
            "max_num_batched_tokens",
            max_num_batched_tokens,
            f"give {needed} or more, or lower §max_num_seqs",
            details={"least": needed},
        )


def check_media_cache(model: ModelSpec, *, max_object_size_mb: object, cache_type: object) -> None:
    """Raise NoStartError for a limit of the cache in shared memory beside another cache; None: not given."""
    is_given = max_object_size_mb not in (None, _SHARED_OBJECT_MB)
    if model.supports_multimodal and is_given and cache_type != "shm":
        raise NoStartError(
            f"mm_shm_cache_max_object_size_mb = {max_object_size_mb} is a limit of the cache in shared memory: give "
            "--mm-processor-cache-type shm, or leave it out",
            "mm_shm_cache_max_object_size_mb",
            max_object_size_mb,
        )


def check_media_device(model: ModelSpec, device: object, *, options: object, version: str) -> None:
    """Raise NoStartError for images read on the GPU that runs the model; ``options``: of the processor."""
    of_options = options.get("device") if isinstance(options, dict) else None
    where = device if device not in (None, "auto") else of_options
    is_checked = release_facts(version).media_device_is_checked and model.supports_multimodal
    if is_checked and str(where).partition(":")[0] == "cuda":
        raise NoStartError(
            f"mm_processor_device = {where!r} is for engines that encode alone, this one also runs {model.name}: use"
            " cpu, or leave it out",
            "mm_processor_device",
            where,
        )


def check_media_transport(
    model: ModelSpec, transport: object, *, num_gpus: int, starts_workers: str | None, version: str
) -> None:
    """Raise NoStartError for images passed in shared memory where vLLM does not do that.

    ``starts_workers``: how, as VLLM_WORKER_MULTIPROC_METHOD says.
    """
    if not model.supports_multimodal or transport != "torch_shm":
        return
    if num_gpus > 1:
        problem = f"mm_tensor_ipc = 'torch_shm' is for one GPU, this takes {num_gpus}: use direct_rpc"
        raise NoStartError(problem, "mm_tensor_ipc", transport)
    if release_facts(version).shared_images_need_spawn and starts_workers != "spawn":
        raise NoStartError(
            "mm_tensor_ipc = 'torch_shm' needs VLLM_WORKER_MULTIPROC_METHOD=spawn, in the environment or in front of a "
            "--serve line: set it, or use direct_rpc",
            "mm_tensor_ipc",
            transport,
            "set VLLM_WORKER_MULTIPROC_METHOD=spawn, or use direct_rpc",
        )


def check_model(model: ModelSpec, version: str) -> None:
    """Raise NoStartError for weights or a dtype that this version of vLLM does not run.

    ConfigError for a model that it leaves to transformers, and a replay does not know how.
    """
    facts, have = release_facts(version), versions_instead(model.architecture, version)
    if have:
        lacks = f"has no class for {model.architecture} ({model.name}), and running it by transformers' code is not"
        raise ConfigError("vllm_version", version, f"{lacks} modelled: choose {_choice(have)}")
    if not facts.has_bitsandbytes and model.quantization == "bitsandbytes":
        last = versions_with("has_bitsandbytes")[-1]
        problem = f"vLLM {version} has no quantization bitsandbytes: choose §vllm_version {last}, or fp8"
        raise NoStartError(problem, "quantization", model.quantization)
    if model.dtype == "float16" and model.model_type in NO_FLOAT16:
        raise NoStartError(f"dtype = 'float16' is not for {model.name}: use bfloat16", "dtype", model.dtype)


def _choice(versions: Sequence[str]) -> str:
    """Versions as a sentence offers them: from the first to the last where none between is missing."""
    first, last = VERSIONS.index(versions[0]), VERSIONS.index(versions[-1])
    if len(versions) > 2 and len(versions) == last - first + 1:
        return f"one from {versions[0]} to {versions[-1]}"
    return " or ".join(versions)


def check_kv_dtype(kv_cache_dtype: str, model: ModelSpec, version: str) -> None:
    """Raise NoStartError for a dtype of keys and values that does not go with the model."""
    field = "kv_cache_dtype"
    follows = release_facts(version).kv_dtype_follows_model and kv_cache_dtype in ("bfloat16", "float16")
    if follows and kv_cache_dtype != model.dtype:
        fix = f"use auto or {model.dtype}"
        problem = f"§kv_cache_dtype = {kv_cache_dtype!r} does not go with dtype = {model.dtype!r}: {fix}"
        raise NoStartError(problem, field, kv_cache_dtype)
    mixers = [mixer for layer, _ in model.layer_counts for mixer in layer.mixers]
    if kv_cache_dtype == "fp8_e5m2" and _brings_kv_scales(model, version):
        weights = f"{model.quantization} ({model.name})"
        problem = f"§kv_cache_dtype = {kv_cache_dtype!r} does not go with weights of {weights}: use fp8"
        raise NoStartError(problem, field, kv_cache_dtype)
    if kv_cache_dtype.startswith("nvfp4") and any(isinstance(mixer, LatentAttention) for mixer in mixers):
        problem = f"§kv_cache_dtype = {kv_cache_dtype!r} is not for latent attention ({model.name}): use fp8"
        raise NoStartError(problem, field, kv_cache_dtype)


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
            raise NoStartError(
                f"{width} columns of each expert on each of {gpus} GPUs are no multiple of the {block} by which"
                f" {model.name} is quantised: §enable_expert_parallel keeps experts whole",
                "enable_expert_parallel",
                False,
                "turn it on: it keeps experts whole",
            )


def check_room(model: str, gpu: str, usable: int, weights: int, to_run: int, gpus: int) -> None:
    """Raise NoStartError if weights and a step leave no memory for KV; all in bytes, on each of so many ``gpus``."""
    if usable <= weights + to_run:
        raise NoStartError(
            f"{model} needs {_gib(weights)} for weights and {_gib(to_run)} to run, and {_gib(usable)} of {gpu} are "
            f"usable: raise §tensor_parallel_size ({gpus}), or take a larger GPU",
            "tensor_parallel_size",
            gpus,
            details={"weight_bytes": weights, "bytes_to_run": to_run, "usable_bytes": usable},
        )


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.1f} GiB"


@contextmanager
def no_start() -> Iterator[None]:
    """Within it, a setting that cannot work is what keeps vLLM from starting."""
    try:
        yield
    except ConfigError as error:
        reason = error.marked.replace("vLLM would not start: ", "")
        raise NoStartError(reason, error.field, error.value, error.marked_fix, details=error.details) from None


# ---------------------------------------------------------------------------------------------------------------------
# Ways to spread a model over GPUs and machines that a replay cannot follow.

BACKENDS = ("mp", "uni", "ray", "external_launcher")
"""Values of ``--distributed-executor-backend``."""
MOST_NODES = 1024


def check_parallelism(
    *,
    pipeline_parallel_size: int,
    num_gpus: int,
    nnodes: int,
    backend: str | None,
    num_layers: int,
    engines_share_experts: bool,
    has_drafts: bool,
    runs_in_stages: bool = True,
) -> None:
    """Raise ConfigError for what is wrong or not modelled, with a way around, NoStartError for too many stages.

    ``num_gpus`` are those of all engines; ``runs_in_stages``: vLLM has a pipeline for the model.
    """
    stages = pipeline_parallel_size
    require_int("nnodes", nnodes, 1, MOST_NODES)
    require_int("pipeline_parallel_size", stages, 1)
    with no_start():
        require_int("pipeline_parallel_size", stages, 1, num_layers)
    if backend not in (None, *BACKENDS):
        raise ConfigError("distributed_executor_backend", backend, f"use one of: {', '.join(BACKENDS)}")
    if stages > 1 and backend == "uni":
        problem = f"§distributed_executor_backend = 'uni' runs no pipeline of {stages} stages: use mp or ray"
        raise NoStartError(problem, "distributed_executor_backend", backend)
    if stages > 1 and not runs_in_stages:
        problem = f"§pipeline_parallel_size = {stages}: the model runs in no pipeline of vLLM: use 1"
        raise NoStartError(problem, "pipeline_parallel_size", stages)
    problem = ""
    if stages > 1 and engines_share_experts:
        problem = "stages of engines that share experts are not modelled: replay one engine's share of the traffic"
    elif stages > 1 and has_drafts:
        problem = "drafts in a pipeline are not modelled: leave one of the two out"
    if problem:
        raise ConfigError("pipeline_parallel_size", stages, problem)
    with no_start():
        if num_gpus % nnodes:
            fix = f"{num_gpus} GPUs (tensor x pipeline x data parallel) do not divide by it: give a divisor"
            raise ConfigError("nnodes", nnodes, fix)


def check_local_engines(local: int | None, engines: int) -> None:
    """Engines on each machine: ConfigError for what is no number, NoStartError for more than there are."""
    if local is None:
        return
    require_int("data_parallel_size_local", local, 0, MOST_NODES)
    if local > engines:
        problem = f"§data_parallel_size_local = {local} is more than §data_parallel_size = {engines}"
        fix = f"give at most {engines}"
        raise NoStartError(problem, "data_parallel_size_local", local, fix, details={"most": engines})


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
