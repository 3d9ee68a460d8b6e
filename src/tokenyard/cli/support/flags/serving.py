"""The server with a model: its flags are those of `vllm serve` where it has them."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import Annotated

from tokenyard.cli.support.flag_table import Arg, Command, Positional, optional
from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.deploy.settings import Help, Settings, Switch, TraceSettings, setting, with_settings
from tokenyard.deploy.vllm_serve.defaults import DEFAULT_VERSION
from tokenyard.quick_dataclass import dataclass
from tokenyard.serve.emulate.settings import EmulateSettings
from tokenyard.serve.front import AccessSettings, FrontSettings


@dataclass(frozen=True, slots=True, kw_only=True)
@with_settings
class EngineFlags(Settings):
    """The model, its memory and its scheduler."""

    dtype: str = "auto"
    """Type of weights and KV: auto (the checkpoint's; bfloat16 for float32), float32, bfloat16, float16 or float64."""
    device: Annotated[str | None, optional("NAME", "the first GPU, else the CPU")] = None
    """Device, by its name in torch."""
    max_model_len: Annotated[int | None, optional("TOKENS", "the model's own limit")] = None
    """Largest number of tokens of a request, prompt and output together."""
    max_num_seqs: int = 256
    """Largest number of requests that run at the same time."""
    max_num_batched_tokens: int = 2048
    """Largest number of tokens per step, prefill and decode together."""
    block_size: Annotated[int | None, optional("TOKENS", "16")] = None
    """Tokens per KV block."""
    num_gpu_blocks_override: Annotated[int | None, optional("N", "as many as memory holds")] = None
    """KV blocks; one of them, the null block, holds no KV."""
    gpu_memory_utilization: Annotated[float | None, optional("SHARE", "0.9 of a GPU's, 0.4 of the machine's")] = None
    """Fraction of the device's memory that the engine may use."""
    kv_cache_memory_bytes: Annotated[int | None, optional("BYTES", "what is left of that share")] = None
    """Memory of the KV cache."""
    enable_prefix_caching: bool = setting(CacheConfig)
    enable_chunked_prefill: bool = setting(SchedulerConfig)
    long_prefill_token_threshold: int = setting(SchedulerConfig)
    async_scheduling: Annotated[bool | None, Help(otherwise="on, off with --speculative-config")] = None
    """Async scheduling: schedule a step while the previous one runs."""
    scheduling_policy: str = SchedulerConfig().policy
    """fcfs, priority, another one that `tokenyard workloads` lists, or FILE.py:CLASS."""
    speculative_config: Annotated[str | None, optional("JSON", "no speculative decoding")] = None
    """As for vLLM: {"method": "ngram", "num_speculative_tokens": 3}, or with the folder of a draft "model"."""
    kv_transfer_config: Annotated[str | None, optional("JSON", "no connector")] = None
    """A KV connector and its settings; docs/connectors.md lists them."""
    enable_lora: Switch = False
    """Apply the LoRA adapters of --lora-modules to requests that ask for them."""
    lora_modules: tuple[str, ...] = ()
    """NAME=FOLDER of LoRA adapters saved by peft; a client selects one as its `model`."""
    max_loras: int = 1
    """Largest number of different adapters in one step."""
    max_lora_rank: int = 16
    """Largest rank of an adapter."""
    seed: int = 0
    """Seed of the sampling of requests that have no seed of their own."""
    vllm_version: Annotated[str, Arg(metavar="VERSION")] = DEFAULT_VERSION
    """Version of vLLM whose decisions apply, such as 0.22; any other name lists those that are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeCommand(Command):
    """Serve a model with the OpenAI API: Tokenyard's scheduler and PyTorch."""

    model: Annotated[Positional[str], Arg(metavar="MODEL")]
    """Folder of a Hugging Face checkpoint; `demo` makes a tiny one with random weights."""
    engine: EngineFlags = field(default_factory=EngineFlags)
    access: AccessSettings = field(default_factory=AccessSettings)
    front: FrontSettings = field(default_factory=FrontSettings)
    output: TraceSettings = field(default_factory=TraceSettings)
    view: Switch = False
    """Also show the live trace in the viewer; without --trace it is written to traces/serve."""
    demo_clients: int = 0
    """Number of simulated clients that chat with the model until the server ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadroomCommand(Command):
    """Say how much GPU memory a deployment leaves, by cause, which steps it is too little for, and what would start."""

    serve: Annotated[Positional[str], Arg(metavar="LINE|FILE")]
    """What starts the server: "vllm serve MODEL ..." as one text, or a file that holds it (script, manifest, log)."""
    gpu: Annotated[str | None, optional("NAME", "what the line or the manifest says, else h100")] = None
    """GPU that it runs on."""
    vllm_version: Annotated[str | None, optional("VERSION", "the newest")] = None
    """Version of vLLM whose defaults and memory plan apply."""
    ignore_unmodelled: Switch = False
    """Go on where the line has flags that would change the result and are not modelled."""
    json: Switch = False
    """Print the answer as one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulateCommand(Command):
    """A vLLM server without a GPU, that behaves like yours: its API, its decisions, its step times, made-up tokens."""

    serve: Annotated[Positional[str], Arg(metavar="LINE|FILE")]
    """What starts the server: "vllm serve MODEL ..." as one text, or a file that holds it (script, manifest)."""
    gpu: Annotated[str | None, optional("NAME", "what the line or the manifest says, else h100")] = None
    """GPU that it would run on."""
    host: Annotated[str, Arg(metavar="ADDRESS")] = "127.0.0.1"
    """Address to listen on; the default can be reached from this machine alone."""
    port: Annotated[int | None, optional("PORT", "that of the line, else 8000")] = None
    """Port to listen on; 0 takes any that is free."""
    latency: Annotated[str | None, optional("MODEL", "calibrated")] = None
    """Step times: calibrated, constant:..., or a file of fitted or recorded ones; as for `tokenyard run`."""
    replicas: Annotated[int | None, optional("N", "one")] = None
    """Number of replicas of the deployment behind a router."""
    autoscale: Annotated[str | None, optional("MIN..MAX", "a fixed number")] = None
    """Replicas that come and go with the load instead: the fewest and the most, for example 1..8."""
    router: Annotated[str | None, optional("NAME", "vllm")] = None
    """Router of several engines, as for `tokenyard run`."""
    vllm_version: Annotated[str | None, optional("VERSION", "the newest")] = None
    """Version of vLLM whose decisions and metrics apply."""
    max_late_s: float = 5.0
    """Seconds by which tokens may be late before new requests get 503 with Retry-After; 0: none is refused."""
    fault: tuple[str, ...] = ()
    """Faults from the start: KIND or KIND:NAME=VALUE,..., such as slow_start:seconds=20; docs/emulate.md lists them."""
    trace: Annotated[Path | None, optional("DIR", "no trace")] = None
    """Write a trace of every decision, and what a replay of it needs."""
    ignore_unmodelled: Switch = False
    """Go on where the line has flags that would change the result and are not modelled."""
    emulation: EmulateSettings = field(default_factory=EmulateSettings)
