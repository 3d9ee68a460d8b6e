"""What is served and on what, and how `vllm serve` was started."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro.conf

from tokenyard.cli.support.flags.hints import optional
from tokenyard.cli.support.settings import Switch, with_settings
from tokenyard.launch.asked import Asked
from tokenyard.launch.defaults import DEFAULT_VERSION, GPU_MEMORY_UTILIZATION

__all__ = ["AdapterFlags", "HardwareFlags", "ParallelFlags", "ServeFlags", "SplitFlags"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeFlags:
    """How vLLM is started. Any flag of `vllm serve` may also be given by itself; docs/vllm-flags.md lists them all."""

    serve: Annotated[str | None, optional("LINE|FILE", "no line")] = None
    """A whole `vllm serve ...` command line, or a file (@FILE) with one; other flags given here override it."""
    config: Annotated[Path | None, optional("FILE", "no file")] = None
    """YAML file of flags, as for `vllm serve --config`; --serve and other flags given here override it."""
    vllm_version: Annotated[str, tyro.conf.arg(metavar="VERSION")] = DEFAULT_VERSION
    """Version of vLLM whose decisions and defaults apply: 0.22 or 0.33."""
    ignore_unmodelled: Switch = False
    """Continue without flags that a replay does not model; the report's header lists them."""
    asked: Annotated[tyro.conf.Suppress[tyro.conf.Fixed[Asked]], tyro.conf.arg(help="")] = field(default_factory=Asked)
    """Flags of vLLM's that were given, however they were given."""


@dataclass(frozen=True, slots=True, kw_only=True)
@with_settings
class HardwareFlags:
    """What it runs on."""

    gpu: str = "h100"
    """Named GPU: a10, a100-40gb, a100-80gb, h100, h200, b200, b300, gb200, l4, l40s, rtx4090, rtx5090, rtxpro6000."""
    model: str = "llama-3.1-8b"
    """Named model, or the path of a Hugging Face config.json."""
    tensor_parallel_size: int = 1
    """Tensor-parallel size: GPUs that each hold a part of every layer."""
    dtype: str = "auto"
    """Data type of unquantised weights and of activations: auto (the checkpoint's), bfloat16, float16 or float32."""
    quantization: Annotated[str | None, optional("METHOD", "the checkpoint's")] = None
    """Quantization of the weights; fp8 and bitsandbytes also quantize an unquantized checkpoint."""
    kv_cache_dtype: str = "auto"
    """auto (the checkpoint's, else the model's), bfloat16, float16, fp8, fp8_e4m3, fp8_e5m2 or nvfp4."""
    language_model_only: Switch = False
    """Do not load the encoders of images and audio."""
    limit_mm_per_prompt: Annotated[str | None, optional("JSON", "vLLM's")] = None
    """Images, videos and sounds per prompt: where all are 0, encoders are not loaded; else it changes nothing here."""
    hf_overrides: Annotated[str | None, optional("JSON", "none")] = None
    """Fields of config.json to exchange: those of rotary positions and max_position_embeddings are read."""
    enforce_eager: Switch = False
    """Use no CUDA graphs: the host launches every kernel of a step by itself."""
    max_cudagraph_capture_size: Annotated[int | None, optional("TOKENS", "as vllm serve")] = None
    """The largest number of tokens per step for which a CUDA graph is used."""
    cudagraph_capture_sizes: Annotated[tuple[int, ...], optional("N ...", "as vllm serve")] = ()
    """Numbers of tokens for which CUDA graphs are captured; a replay uses the largest."""
    gpu_memory_utilization: float = GPU_MEMORY_UTILIZATION
    """Fraction of the GPU's memory that the engine may use."""
    kv_cache_memory_bytes: Annotated[int | None, optional("BYTES", "what is left of the GPU")] = None
    """Memory for KV on each GPU, as vLLM logs it: "Available KV cache memory"."""
    num_gpu_blocks_override: Annotated[int | None, optional("N", "as many as fit the GPU")] = None
    """KV blocks on the GPU; one of them, the null block, holds no KV."""
    block_size: Annotated[int | None, optional("TOKENS", "16, or what the model's layers need")] = None
    """Tokens per KV block."""
    latency: str = "calibrated"
    """Model of step times: calibrated (to measured runs), roofline, constant:SECONDS, table:DIR or fitted:TRACE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterFlags:
    """LoRA adapters; requests name theirs in the workload."""

    enable_lora: Switch = False
    """Reserve memory for LoRA adapters, and apply those that requests name."""
    max_loras: int = 1
    """Largest number of different adapters in one step."""
    max_cpu_loras: Annotated[int | None, optional("N", "as many as max_loras")] = None
    """Largest number of adapters in CPU memory; a replay loads adapters in no time."""
    max_lora_rank: int = 16
    """Largest rank of an adapter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelFlags:
    """GPUs and engines of one deployment; docs/parallel.md."""

    pipeline_parallel_size: int = 1
    """Pipeline stages, each on tensor-parallel-size GPUs; as many steps are in flight at once."""
    decode_context_parallel_size: int = 1
    """GPUs of a tensor-parallel group over which the KV of a sequence is split; its time is an estimate."""
    nnodes: int = 1
    """Machines over which the GPUs are spread; 1: as many as are needed with 8 GPUs each."""
    distributed_executor_backend: Annotated[str | None, optional("NAME", "mp")] = None
    """mp, uni, ray or external_launcher: who starts the workers."""
    data_parallel_size: int = 1
    """Engines, each with its own GPUs and KV cache; with mixture-of-experts models they step together."""
    data_parallel_size_local: Annotated[int | None, optional("N", "as many as fit 8 GPUs")] = None
    """Engines on each machine: those that share experts exchange tokens over a network between machines."""
    enable_expert_parallel: Switch = False
    """Put whole experts on each GPU of all engines, instead of a slice of every expert."""
    api_server_count: Annotated[int | None, optional("N", "as many as engines")] = None
    """API server processes, each of which balances by itself; changes a replay only with --router vllm."""
    router: Annotated[str, tyro.conf.arg(metavar="NAME")] = "vllm"
    """Router of requests: vllm (its own balancing), round-robin, least-loaded, prefix-affinity, or FILE.py:CLASS."""
    replicas: Annotated[str | None, optional("N|MIN..MAX", "one deployment")] = None
    """Identical deployments behind a router: a number (4), or a range to autoscale in (1..8); docs/plan.md."""
    startup: Annotated[str, tyro.conf.arg(metavar="TIME")] = "120s"
    """Time from the decision to start a replica until it takes requests."""
    scale_target: float = 5.0
    """Target of Kubernetes' HorizontalPodAutoscaler: waiting requests per replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFlags:
    """Prefill-decode disaggregation; docs/connectors.md."""

    split: Annotated[str | None, optional("P+D", "of split: as many on each side; of sweep: no split")] = None
    """Numbers of prefill and of decode engines: 2+1."""
    kv_link_gb_per_s: float = 50.0
    """Bandwidth of the network between two of their GPUs, in GB/s; 50 is a port of 400 Gbit/s."""
