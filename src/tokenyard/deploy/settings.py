"""Settings of a deployment: groups of fields with their defaults and help, and settings that are a configuration's
own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import msgspec

from tokenyard.core.config import CacheConfig, HashAlgo, SchedulerConfig, SpeculativeMethod
from tokenyard.core.releases import version_that_brought
from tokenyard.deploy.vllm_serve.defaults import (
    BUDGETS_BY_GPU,
    DEFAULT_VERSION,
    GPU_MEMORY_UTILIZATION,
    SEQS_BY_GPU,
)
from tokenyard.deploy.vllm_serve.given import GivenFlags
from tokenyard.quick_dataclass import dataclass

# ---------------------------------------------------------------------------------------------------------------------
# Groups of settings: what their help says, and settings that have type, default and help from a configuration.
#
# @dataclass(frozen=True, slots=True, kw_only=True)
# @with_settings
# class SchedulerSettings(Settings):
#   | max_num_seqs: int = setting(SchedulerConfig)

_Group = TypeVar("_Group")
_AHEAD = (
    f"on; before {version_that_brought('draft_models_schedule_ahead')} off if drafts come from draft_model, before "
    f"{version_that_brought('all_drafts_schedule_ahead')} if they come from ngram"
)
_DRIFTS = f"on before {version_that_brought('running_index_drifts')}"


class Settings:
    """Base of the groups of settings."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Help:
    """What a help says of a setting, besides the text below it."""

    metavar: str | None = None
    """A word for the value: ``TOKENS``."""
    otherwise: str | None = None
    """What counts where it is not given, in words: it is worked out later."""


class SameAs(msgspec.Struct, frozen=True):
    """The text below the field of this name in ``config`` is that of the setting, too."""

    config: type


class Marker:
    """Says one thing of a setting, by being there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


OFF_UNLESS_NAMED = Marker("OFF_UNLESS_NAMED")
"""A switch that a command line turns on by its name; there is no ``--no-`` form."""
NO_SETTING = Marker("NO_SETTING")
"""A field that keeps what the user gave, and that is never given by itself."""

Switch = Annotated[bool, OFF_UNLESS_NAMED]
"""Off unless named."""


class _Setting(msgspec.Struct, frozen=True):
    config: type
    default: object


_SAME = object()


def setting(config: type, *, default: Any = _SAME) -> Any:
    """A setting like the field of ``config`` that has the same name; ``default`` is instead of the field's."""
    return _Setting(config, default)


def _default(config: type, name: str) -> object:
    return {field.name: field.default for field in fields(config)}[name]


def with_settings(group: type[_Group]) -> type[_Group]:
    """A class of settings with every :func:`setting` filled in, for ``dataclass`` to take over.

    A switch that is off unless named has no ``--no-`` form on a command line, one that is on has.
    """
    for name, value in list(vars(group).items()):
        if isinstance(value, _Setting):
            default = _default(value.config, name) if value.default is _SAME else value.default
            hint: Any = Switch if default is False else get_type_hints(value.config)[name]
            group.__annotations__[name] = Annotated[hint, SameAs(value.config)]
            setattr(group, name, default)
    return group


# ---------------------------------------------------------------------------------------------------------------------
# The settings of a deployment, in groups; names, defaults and meaning are those of ``vllm serve`` where it has them.
#
# A group is a plain dataclass. What only a help text needs to know stands beside the type, and the code that makes a
# command line of it reads it there (:class:`Help`); nothing here knows of command lines.

MAX_IDS_PER_STEP = 64
"""Bound of a replay's trace: request ids per list and step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSettings(Settings):
    """How vLLM is started. Any flag of `vllm serve` may also be given by itself; the page of flags lists them all."""

    serve: Annotated[str | None, Help(metavar="LINE|FILE", otherwise="no line")] = None
    """A whole `vllm serve ...` command line, or a file (@FILE) with one; other flags given here override it."""
    config: Annotated[Path | None, Help(metavar="FILE", otherwise="no file")] = None
    """YAML file of flags, as for `vllm serve --config`; --serve and other flags given here override it."""
    vllm_version: Annotated[str, Help(metavar="VERSION")] = DEFAULT_VERSION
    """Version of vLLM whose decisions and defaults apply, such as 0.22; any other name lists those that are known."""
    ignore_unmodelled: Switch = False
    """Continue without flags that a replay does not model; the report's header lists them."""
    asked: Annotated[GivenFlags, NO_SETTING] = field(default_factory=GivenFlags)
    """Flags of vLLM's that were given, however they were given."""
    objects: Annotated[Mapping[str, Any], NO_SETTING] = field(default_factory=dict)
    """Objects that take the place of what settings name: see ``Chosen`` in ``spec.py``."""


@dataclass(frozen=True, slots=True, kw_only=True)
@with_settings
class HardwareSettings(Settings):
    """What it runs on."""

    gpu: str = "h100"
    """GPU by its name, for example h100, mi300x, a10g, or a file of one's own (mine.toml): docs/gpus.md lists all."""
    model: str = "llama-3.1-8b"
    """Named model, or the path of a Hugging Face config.json."""
    tensor_parallel_size: int = 1
    """Tensor-parallel size: GPUs that each hold a part of every layer."""
    runner: str = "auto"
    """auto (what the model is made for), generate, or pooling: requests end with their prompts (embeddings, scores)."""
    dtype: str = "auto"
    """Data type of unquantised weights and of activations: auto (the checkpoint's), bfloat16, float16 or float32."""
    quantization: Annotated[str | None, Help(metavar="METHOD", otherwise="the checkpoint's")] = None
    """Quantization of the weights; fp8 and bitsandbytes also quantize an unquantized checkpoint."""
    kv_cache_dtype: str = "auto"
    """auto (the checkpoint's, else the model's), bfloat16, float16, fp8, fp8_e4m3, fp8_e5m2 or nvfp4."""
    mamba_cache_dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    """dtype of what layers with a state keep: auto (the model's), bfloat16, float16 or float32."""
    mamba_ssm_cache_dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    """dtype of recurrent states alone: auto (the checkpoint's, else that of mamba_cache_dtype)."""
    mamba_cache_mode: Literal["none", "align", "all"] = "none"
    """States that are kept with prefix caching: none leaves it to the version, all is of versions before 0.28."""
    language_model_only: Switch = False
    """Do not load the encoders of images and audio."""
    limit_mm_per_prompt: Annotated[str | None, Help(metavar="JSON", otherwise="vLLM's")] = None
    """Images, videos and sounds per prompt: an encoder is not loaded where all its inputs are 0."""
    skip_mm_profiling: Switch = False
    """Keep no memory free for the work of an encoder."""
    mm_encoder_tp_mode: Literal["weights", "data"] = "weights"
    """How GPUs of a tensor-parallel group share an encoder: its weights or, each holding all of them, the images."""
    mm_processor_kwargs: Annotated[str | None, Help(metavar="JSON", otherwise="as its files say")] = None
    """What the model's processor is told beside its files: max_pixels, min_pixels, size of Qwen's models are read."""
    hf_overrides: Annotated[str | None, Help(metavar="JSON", otherwise="none")] = None
    """Fields of config.json to exchange: those of rotary positions and max_position_embeddings are read."""
    enforce_eager: Switch = False
    """Use no CUDA graphs: the host launches every kernel of a step by itself."""
    max_cudagraph_capture_size: Annotated[int | None, Help(metavar="TOKENS", otherwise="as vllm serve")] = None
    """The largest number of tokens per step for which a CUDA graph is used."""
    cudagraph_capture_sizes: Annotated[tuple[int, ...], Help(metavar="N ...", otherwise="as vllm serve")] = ()
    """Numbers of tokens for which CUDA graphs are captured; a replay uses the largest."""
    gpu_memory_utilization: float = GPU_MEMORY_UTILIZATION
    """Fraction of the GPU's memory that the engine may use."""
    kv_cache_memory_bytes: Annotated[int | None, Help(metavar="BYTES", otherwise="what is left of the GPU")] = None
    """Memory for KV on each GPU, as vLLM logs it: "Available KV cache memory"."""
    num_gpu_blocks_override: Annotated[int | None, Help(metavar="N", otherwise="as many as fit the GPU")] = None
    """KV blocks on the GPU; one of them, the null block, holds no KV."""
    block_size: Annotated[int | None, Help(metavar="TOKENS", otherwise="16, or what the model's layers need")] = None
    """Tokens per KV block."""
    latency: str = "calibrated"
    """Model of step times: calibrated (to measured runs), roofline, constant:SECONDS, table:DIR or fitted:TRACE."""
    host_speed: Annotated[float, Help(metavar="X")] = 1.0
    """Speed of the host's processor beside those of the measured servers: 0.5 launches kernels, prepares steps and
    answers clients in twice the time."""
    step_time_factors: Annotated[str | None, Help(metavar="X[,Y]", otherwise="1")] = None
    """Factors of step times, of what decodes take and of what prompts add to it; `run --calibrate` finds them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelSettings(Settings):
    """GPUs and engines of one deployment; docs/parallel.md."""

    pipeline_parallel_size: int = 1
    """Pipeline stages, each on tensor-parallel-size GPUs; as many steps are in flight at once."""
    decode_context_parallel_size: int = 1
    """GPUs of a tensor-parallel group over which the KV of a sequence is split; its time is an estimate."""
    nnodes: int = 1
    """Machines over which the GPUs are spread; 1: as many as are needed with 8 GPUs each."""
    distributed_executor_backend: Annotated[str | None, Help(metavar="NAME", otherwise="mp")] = None
    """mp, uni, ray or external_launcher: who starts the workers."""
    data_parallel_size: int = 1
    """Engines, each with its own GPUs and KV cache; with mixture-of-experts models they step together."""
    data_parallel_size_local: Annotated[int | None, Help(metavar="N", otherwise="as many as fit 8 GPUs")] = None
    """Engines on each machine: those that share experts exchange tokens over a network between machines."""
    enable_expert_parallel: Switch = False
    """Put whole experts on each GPU of all engines, instead of a slice of every expert."""
    api_server_count: Annotated[int | None, Help(metavar="N", otherwise="as many as engines")] = None
    """API server processes, each of which balances by itself; changes a replay only with --router vllm."""
    router: Annotated[str, Help(metavar="NAME")] = "vllm"
    """Router of requests: vllm (its own balancing), round-robin, least-loaded, prefix-affinity, llm-d, dynamo,
    cache-aware, ray-serve, prefixaware, session-affinity, or FILE.py:CLASS."""
    replicas: Annotated[int | None, Help(metavar="N", otherwise="one deployment")] = None
    """Number of identical deployments behind a router, which are always there; docs/plan.md."""
    autoscale: Annotated[str | None, Help(metavar="MIN..MAX", otherwise="a fixed number")] = None
    """Replicas that come and go with the load instead: the fewest and the most, for example 1..8; docs/plan.md."""
    startup: Annotated[str, Help(metavar="TIME")] = "120s"
    """Time from the decision to start a replica until it takes requests."""
    scale_target: float = 5.0
    """Target of Kubernetes' HorizontalPodAutoscaler: waiting requests per replica."""

    @property
    def replicas_in_words(self) -> str | None:
        """How many replicas there are: ``4``, or ``1..8`` where they come and go; None: the deployment is one."""
        return str(self.replicas) if self.autoscale is None and self.replicas is not None else self.autoscale

    @property
    def has_replicas(self) -> bool:
        """Whether there are replicas, each with a deployment of its own, behind a router."""
        return self.replicas is not None or self.autoscale is not None


@dataclass(frozen=True, slots=True, kw_only=True)
@with_settings
class SchedulerSettings(Settings):
    """Limits and order of the scheduler."""

    max_num_seqs: Annotated[int | None, Help(metavar="N", otherwise=SEQS_BY_GPU)] = None
    """Largest number of requests that run at the same time."""
    max_num_batched_tokens: Annotated[int | None, Help(metavar="N", otherwise=BUDGETS_BY_GPU)] = None
    """Largest number of tokens per step, prefill and decode together."""
    performance_mode: Literal["balanced", "interactivity", "throughput"] = "balanced"
    """throughput doubles these two defaults, as in vLLM."""
    max_model_len: Annotated[int | None, Help(metavar="TOKENS", otherwise="the model's own limit")] = None
    """Largest number of tokens of a request, prompt and output together."""
    scheduling_policy: str = SchedulerConfig().policy
    """fcfs, priority, another one that `tokenyard workloads` lists, or FILE.py:CLASS."""
    enable_prefix_caching: bool = setting(CacheConfig)
    prefix_caching_hash_algo: HashAlgo = setting(CacheConfig, default=HashAlgo.XXH3_128)
    enable_chunked_prefill: bool = setting(SchedulerConfig)
    long_prefill_token_threshold: int = setting(SchedulerConfig)
    scheduler_reserve_full_isl: bool = setting(SchedulerConfig)
    async_scheduling: Annotated[bool | None, Help(otherwise=_AHEAD)] = None
    """Async scheduling: schedule a step while the previous one runs."""
    watermark: float = setting(CacheConfig)
    disable_chunked_mm_input: bool = setting(SchedulerConfig)
    skip_oversized_prefill: bool = setting(SchedulerConfig)
    running_index_drifts: Annotated[bool, Help(otherwise=_DRIFTS)] = True
    """Skip the next running request where vLLM's loop does so after a preemption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSettings(Settings):
    """LoRA adapters; requests name theirs in the workload."""

    enable_lora: Switch = False
    """Reserve memory for LoRA adapters, and apply those that requests name."""
    max_loras: int = 1
    """Largest number of different adapters in one step."""
    max_cpu_loras: Annotated[int | None, Help(metavar="N", otherwise="as many as max_loras")] = None
    """Largest number of adapters in CPU memory; a replay loads adapters in no time."""
    max_lora_rank: int = 16
    """Largest rank of an adapter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationSettings(Settings):
    """Speculative decoding, and how many draft tokens are accepted."""

    speculative_config: Annotated[str | None, Help(metavar="JSON", otherwise="no speculative decoding")] = None
    """Speculative decoding, as vLLM takes it: {"method": "eagle3", "num_speculative_tokens": 3, ...}."""
    spec_method: Annotated[str | None, Help(metavar="NAME", otherwise="that of --speculative-config")] = None
    """vLLM's short form of its method."""
    spec_tokens: Annotated[int | None, Help(metavar="N", otherwise="that of --speculative-config")] = None
    """vLLM's short form of its num_speculative_tokens."""
    num_speculative_tokens: Annotated[int | None, Help(metavar="N", otherwise="no speculative decoding")] = None
    """Draft tokens per request and step."""
    speculative_method: SpeculativeMethod = SpeculativeMethod.NGRAM
    """Source of the draft tokens: eagle and draft_model use KV slots for them; drafting takes no time in a replay."""
    acceptance_rates: Annotated[str, Help(metavar="P,P,...")] = "0.7"
    """Probability that each position's draft token is accepted if those before it are; the last holds for the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferSettings(Settings):
    """KV offloading and connectors."""

    kv_offloading_size: Annotated[float | None, Help(metavar="GIB", otherwise="no offloading")] = None
    """CPU memory for KV blocks that leave the GPU, in GiB over all GPUs."""
    kv_offloading_backend: str = "native"
    """Implementation of the offloading; only native is supported."""
    kv_transfer_config: Annotated[str | None, Help(metavar="JSON", otherwise="no connector")] = None
    """A KV connector (OffloadingConnector, SharedStorageConnector) and its settings; docs/connectors.md lists them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSettings(Settings):
    """Prefill-decode disaggregation; docs/connectors.md."""

    split: Annotated[
        str | None, Help(metavar="P+D", otherwise="of split: as many on each side; of sweep: no split")
    ] = None
    """Numbers of prefill and of decode engines: 2+1."""
    kv_link_gb_per_s: float = 50.0
    """Bandwidth of the network between two of their GPUs, in GB/s; 50 is a port of 400 Gbit/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings(Settings):
    """The trace."""

    trace: Annotated[Path | None, Help(metavar="DIR", otherwise="SCHED_TRACE_PATH, else no trace")] = None
    """Write the trace into this directory."""
    record_requests: Switch = False
    """Also write one record per queued request and step; `report` then shows what the smallest waiting one needed."""
    max_ids_per_step: int = MAX_IDS_PER_STEP
    """Most request ids per list and step (0 = all): the trace's size then grows with steps, not with the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentSettings:
    """Every setting of a deployment that the user may give; the others have defaults, or are resolved later."""

    launch: LaunchSettings = field(default_factory=LaunchSettings)
    hardware: HardwareSettings = field(default_factory=HardwareSettings)
    scheduler: SchedulerSettings = field(default_factory=SchedulerSettings)
    parallel: ParallelSettings = field(default_factory=ParallelSettings)
    adapters: AdapterSettings = field(default_factory=AdapterSettings)
    transfer: TransferSettings = field(default_factory=TransferSettings)
    speculation: SpeculationSettings = field(default_factory=SpeculationSettings)
