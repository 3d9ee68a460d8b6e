"""The server with a model: its flags are those of `vllm serve` where it has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import tyro.conf

from tokenyard.cli.support.flags.hints import default, optional
from tokenyard.cli.support.flags.output import TraceFlags
from tokenyard.cli.support.settings import Switch, setting, with_settings
from tokenyard.config import CacheConfig, SchedulerConfig
from tokenyard.launch.defaults import DEFAULT_VERSION

__all__ = ["EngineFlags", "FrontFlags", "Serve"]


@dataclass(frozen=True, slots=True, kw_only=True)
@with_settings
class EngineFlags:
    """The model, its memory and its scheduler."""

    dtype: str = "auto"
    """Of weights and KV cache: auto (the checkpoint's; bfloat16 for float32), float32, bfloat16, float16, float64."""
    device: Annotated[str | None, optional("NAME", "the first GPU, else the CPU")] = None
    """As torch names it."""
    max_model_len: Annotated[int | None, optional("TOKENS", "the model's own limit")] = None
    """Longest prompt and output together."""
    max_num_seqs: int = 256
    """Most requests that run at the same time."""
    max_num_batched_tokens: int = 2048
    """Token budget of one step, prefill and decode together."""
    block_size: Annotated[int | None, optional("TOKENS", "16")] = None
    """Tokens per KV block."""
    num_gpu_blocks_override: Annotated[int | None, optional("N", "as many as memory holds")] = None
    """KV blocks; one of them, the null block, holds no KV."""
    gpu_memory_utilization: Annotated[float | None, optional("SHARE", "0.9 of a GPU's, 0.4 of the machine's")] = None
    """Share of the device's memory that the engine may use."""
    kv_cache_memory_bytes: Annotated[int | None, optional("BYTES", "what is left of that share")] = None
    """Memory of the KV cache."""
    enable_prefix_caching: bool = setting(CacheConfig)
    enable_chunked_prefill: bool = setting(SchedulerConfig)
    long_prefill_token_threshold: int = setting(SchedulerConfig)
    async_scheduling: Annotated[bool | None, default("on, off with --speculative-config")] = None
    """Schedule a step while the one before runs."""
    scheduling_policy: str = SchedulerConfig().policy
    """fcfs, priority, another one that `tokenyard workloads` lists, or FILE.py:CLASS."""
    speculative_config: Annotated[str | None, optional("JSON", "no speculative decoding")] = None
    """As for vLLM: {"method": "ngram", "num_speculative_tokens": 3}, or with the folder of a draft "model"."""
    kv_transfer_config: Annotated[str | None, optional("JSON", "no connector")] = None
    """A KV connector and its settings; docs/connectors.md lists them."""
    enable_lora: Switch = False
    """Apply the LoRA adapters of --lora-modules to requests that ask for them."""
    lora_modules: tuple[str, ...] = ()
    """NAME=FOLDER of adapters as peft saves them; clients name one as their model."""
    max_loras: int = 1
    """Most adapters in one step."""
    max_lora_rank: int = 16
    """Greatest rank of an adapter."""
    seed: int = 0
    """Of the draws of requests without a seed of their own."""
    vllm_version: Annotated[str, tyro.conf.arg(metavar="VERSION")] = DEFAULT_VERSION
    """vLLM whose decisions are taken: 0.22 or 0.33."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontFlags:
    """Who may ask, and how much."""

    host: str = "127.0.0.1"
    """Address to listen on; the default can be reached from this machine alone."""
    port: int = 8000
    """Port to listen on; 0 takes any that is free."""
    api_key: tuple[str, ...] = ()
    """Keys, of which a request needs one; also VLLM_API_KEY. Without any, whoever reaches the address may ask."""
    served_model_name: tuple[str, ...] = ()
    """Names by which clients call the model; answers say the first."""
    tokenizer: Annotated[str | None, optional("DIR", "the model's")] = None
    """Directory with another tokenizer.json."""
    chat_template: Annotated[str | None, optional("FILE", "the model's")] = None
    """Jinja template that makes a prompt of messages."""
    generation_config: Annotated[str, tyro.conf.arg(metavar="auto|vllm|DIR")] = "auto"
    """Where requests get temperature, top_p ... from that say none: the model's generation_config.json, or nowhere."""
    override_generation_config: Annotated[str | None, optional("JSON", "nothing")] = None
    """Put over that file: {"temperature": 0.2}."""
    enable_auto_tool_choice: Switch = False
    """Read calls of tools out of answers, as --tool-call-parser says."""
    tool_call_parser: Annotated[str | None, optional("NAME", "calls stay in the text")] = None
    """How the model writes calls: hermes (also Qwen) or llama3_json."""
    max_logprobs: int = 20
    """Most log-probabilities per token; -1: as many as there are tokens."""
    gather_ms: float = 0.0
    """When the engine is idle, wait so many milliseconds for requests that share the first step."""
    max_queued_requests: int = 1000
    """Most unfinished requests beyond --max-num-seqs; others get 503."""
    max_body_bytes: int = 8 * 2**20
    """Largest body of a request."""
    max_grammar_bytes: int = 64 * 2**10
    """Longest schema, regular expression or grammar that an answer is to keep to."""
    request_timeout_s: float = 3600.0
    """Longest time from a request to the end of its answer."""
    shutdown_timeout: int = 30
    """Seconds that running requests have to end after SIGTERM or Ctrl-C; a second one ends at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serve:
    """Serve a model with the OpenAI API: our scheduler in front of PyTorch."""

    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")]
    """Folder of a Hugging Face checkpoint; `demo` makes a tiny one that knows nothing."""
    engine: tyro.conf.OmitArgPrefixes[EngineFlags] = field(default_factory=EngineFlags)
    front: tyro.conf.OmitArgPrefixes[FrontFlags] = field(default_factory=FrontFlags)
    output: tyro.conf.OmitArgPrefixes[TraceFlags] = field(default_factory=TraceFlags)
    view: Switch = False
    """Also show the trace in the viewer, live; without --trace, one in traces/serve."""
    demo_clients: int = 0
    """So many clients of our own that chat with the model until the server ends."""
