"""What the command line takes: one frozen dataclass per sub-command, read by tyro.

Flags that set something in vLLM carry vLLM's name. This module is imported for every ``--help`` and therefore imports
nothing heavy; what a sub-command does stands in the module of its name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro.conf

from tokenyard.cli.support.settings import Switch, setting, with_settings
from tokenyard.config import CacheConfig, HashAlgo, SchedulerConfig, SpeculativeMethod
from tokenyard.launch.asked import Asked
from tokenyard.launch.defaults import DEFAULT_VERSION, GPU_MEMORY_UTILIZATION

__all__ = [
    "COMMANDS",
    "Accuracy",
    "AdapterFlags",
    "Command",
    "Compare",
    "Convert",
    "Demo",
    "Export",
    "HardwareFlags",
    "Import",
    "ParallelFlags",
    "Parity",
    "Query",
    "Report",
    "Run",
    "SchedulerFlags",
    "ServeFlags",
    "SpeculationFlags",
    "Split",
    "TraceFlags",
    "TransferFlags",
    "View",
    "Why",
    "WorkloadFlags",
    "Workloads",
]

MAX_IDS_PER_STEP = 64
"""Bound of a replay's trace: request ids per list and step."""


def _optional(metavar: str, otherwise: str) -> object:
    """A flag whose default is worked out later: the help says how."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {otherwise})")


def _default(text: str) -> object:
    """A switch that is thrown elsewhere if nobody names it: the help says which way."""
    return tyro.conf.arg(help_behavior_hint=f"(default: {text})")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFlags:
    """What arrives."""

    format: Annotated[str | None, _optional("NAME", "seen from the first line")] = None
    """Format of a workload file: azure, lmcache, mooncake, plain, servegen or weka; or kind of a service's log:
    burstgpt, csv, guidellm, jsonl, openai, otel, sharegpt, vllm-bench or vllm-log."""
    limit: Annotated[int | None, _optional("N", "all")] = None
    """Only the first N sessions of a workload that has sessions, else the first N requests."""
    seed: int = 0
    """Seed of what the workload does not record: token ids, arrivals of sessions, generators."""
    rate_scale: float = 1.0
    """Let requests and sessions arrive so many times as fast; gaps between an agent's turns stay."""
    session_rate: Annotated[float | None, _optional("FLOAT", "0.05; agentic 0.5, chat 4")] = None
    """Sessions per second where sessions start at random: agentic, chat, and files in format lmcache or weka."""
    skip_refused: Switch = False
    """Go on without the requests that the engine refuses (too long for the model or the pool)."""
    request_rate: Annotated[float | None, _optional("FLOAT", "as recorded")] = None
    """Send requests at random, so many a second on average, whatever was recorded; inf sends all at once."""
    burstiness: float = 1.0
    """Of --request-rate: 1 is a Poisson process, less is burstier, more is more regular."""
    max_concurrency: Annotated[int | None, _optional("N", "no limit")] = None
    """Never have more than N requests under way: the next is sent when one ends (a closed loop)."""
    num_prompts: Annotated[int | None, _optional("N", "1000")] = None
    """Requests of the workload `random`."""
    input_len: Annotated[int | None, _optional("TOKENS", "1024")] = None
    """Prompt tokens of the workload `random`, its prefix not counted."""
    output_len: Annotated[int | None, _optional("TOKENS", "128")] = None
    """Output tokens of the workload `random`."""
    random_prefix_len: Annotated[int | None, _optional("TOKENS", "0")] = None
    """Tokens that all prompts of the workload `random` begin with."""
    random_range_ratio: Annotated[float | None, _optional("FLOAT", "0")] = None
    """Lengths of the workload `random` vary by so much up and down."""
    columns: Annotated[str | None, _optional("FIELD=NAME,...", "known names")] = None
    """Columns or keys of a log: arrival_time, prompt_len, max_tokens, cached_tokens, duration, request_id, group,
    lora_name."""
    time_unit: Annotated[Literal["s", "ms", "us", "ns"] | None, _optional("{s,ms,us,ns}", "told by their size")] = None
    """Unit of a log's times that are numbers."""
    stamped: Literal["arrival", "completion"] = "arrival"
    """Which moment of a request a log's times are; arrivals are completions less durations."""
    max_bad_lines: int = 100
    """Lines of a log that may be unreadable before reading stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeFlags:
    """How vLLM is started. Any flag of `vllm serve` may also be given by itself; docs/vllm-flags.md lists them all."""

    serve: Annotated[str | None, _optional("LINE|FILE", "no line")] = None
    """A whole `vllm serve ...` line, or a file (@FILE) that holds one; flags beside it win over it."""
    config: Annotated[Path | None, _optional("FILE", "no file")] = None
    """YAML of flags, as `vllm serve --config` reads it; the line and flags beside it win over it."""
    vllm_version: Annotated[str, tyro.conf.arg(metavar="VERSION")] = DEFAULT_VERSION
    """vLLM whose decisions are taken, and whose defaults where a flag is not given: 0.22 or 0.33."""
    ignore_unmodelled: Switch = False
    """Go on without flags that a replay does not model; the report's header then lists them."""
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
    """GPUs that share the model."""
    dtype: str = "auto"
    """Of weights that are not quantised, and of activations: auto (the checkpoint's), bfloat16, float16 or float32."""
    quantization: Annotated[str | None, _optional("METHOD", "the checkpoint's")] = None
    """How weights are quantised; fp8 and bitsandbytes also of weights that are not."""
    kv_cache_dtype: str = "auto"
    """auto (the checkpoint's, else the model's), bfloat16, float16, fp8, fp8_e4m3, fp8_e5m2 or nvfp4."""
    language_model_only: Switch = False
    """Leave the encoders of images and sound out."""
    enforce_eager: Switch = False
    """No CUDA graphs: the host launches the kernels of every step one by one."""
    max_cudagraph_capture_size: Annotated[int | None, _optional("TOKENS", "twice max_num_seqs, at most 512")] = None
    """Tokens of the largest step that runs from a CUDA graph."""
    cudagraph_capture_sizes: Annotated[tuple[int, ...], _optional("N ...", "as vllm serve")] = ()
    """Tokens of the graphs; the largest counts."""
    gpu_memory_utilization: float = GPU_MEMORY_UTILIZATION
    """Fraction of the GPU's memory that the engine may use."""
    kv_cache_memory_bytes: Annotated[int | None, _optional("BYTES", "what is left of the GPU")] = None
    """Memory for KV on each GPU, as vLLM logs it: "Available KV cache memory"."""
    num_gpu_blocks_override: Annotated[int | None, _optional("N", "as many as fit the GPU")] = None
    """KV blocks on the GPU; one of them, the null block, holds no KV."""
    block_size: Annotated[int | None, _optional("TOKENS", "16, or what the model's layers need")] = None
    """Tokens per KV block."""
    latency: str = "calibrated"
    """How long a step takes: calibrated (to measured runs), roofline, constant:SECONDS, table:DIR or fitted:TRACE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterFlags:
    """LoRA adapters; requests name theirs in the workload."""

    enable_lora: Switch = False
    """Keep room for adapters, and apply those that requests name."""
    max_loras: int = 1
    """Adapters in one step."""
    max_lora_rank: int = 16
    """Greatest rank of an adapter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelFlags:
    """GPUs and engines that are one deployment; docs/parallel.md."""

    pipeline_parallel_size: int = 1
    """Stages of consecutive layers, each on tensor-parallel-size GPUs; as many steps are in flight."""
    nnodes: int = 1
    """Machines that the stages are spread over."""
    distributed_executor_backend: Annotated[str | None, _optional("NAME", "mp")] = None
    """mp, uni, ray or external_launcher; with ray vLLM 0.22 schedules no step ahead."""
    data_parallel_size: int = 1
    """Engines with a KV cache each, on GPUs of their own; the ranks of a mixture of experts step together."""
    enable_expert_parallel: Switch = False
    """Whole experts on each GPU of all engines, instead of a slice of every expert."""
    api_server_count: Annotated[int | None, _optional("N", "as many as engines")] = None
    """Front ends, each of which balances by what it knows; has a say with --router vllm alone."""
    router: Annotated[str, tyro.conf.arg(metavar="NAME")] = "vllm"
    """Who gets a request: vllm (its own balancing), round-robin, least-loaded, prefix-affinity, or FILE.py:CLASS."""


@dataclass(frozen=True, slots=True, kw_only=True)
@with_settings
class SchedulerFlags:
    """Limits and order of the scheduler."""

    max_num_seqs: Annotated[
        int | None, _optional("N", "as vllm serve: 1024 on GPUs of 70 GiB, A100 aside; else 256")
    ] = None
    """Most requests that run at the same time."""
    max_num_batched_tokens: Annotated[
        int | None, _optional("N", "as vllm serve: 8192 on GPUs of 70 GiB, A100 aside; else 2048")
    ] = None
    """Token budget of one step, prefill and decode together."""
    performance_mode: Literal["balanced", "interactivity", "throughput"] = "balanced"
    """throughput doubles these two defaults, as in vLLM."""
    max_model_len: Annotated[int | None, _optional("TOKENS", "the model's own limit")] = None
    """Longest prompt and output together."""
    scheduling_policy: str = SchedulerConfig().policy
    """fcfs, priority, another one that `tokenyard workloads` lists, or FILE.py:CLASS."""
    enable_prefix_caching: bool = setting(CacheConfig)
    prefix_caching_hash_algo: HashAlgo = setting(CacheConfig, default=HashAlgo.XXH3_128)
    enable_chunked_prefill: bool = setting(SchedulerConfig)
    long_prefill_token_threshold: int = setting(SchedulerConfig)
    scheduler_reserve_full_isl: bool = setting(SchedulerConfig)
    async_scheduling: Annotated[Switch, _default("on, off if drafts come from ngram or draft_model")] = False
    """Schedule a step while the one before runs."""
    no_async_scheduling: Annotated[Switch, _default("see --async-scheduling")] = False
    """Schedule a step when the output of the one before is there."""
    watermark: float = setting(CacheConfig)
    skip_oversized_prefill: bool = setting(SchedulerConfig)
    running_index_drifts: Annotated[bool, _default("as the version does: 0.22 yes, 0.33 no")] = True
    """Where a preemption makes vLLM lose its place, pass over the next running request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationFlags:
    """Drafts, and how many of them are right."""

    speculative_config: Annotated[str | None, _optional("JSON", "no speculative decoding")] = None
    """As for vLLM: {"method": "eagle3", "num_speculative_tokens": 3, ...}."""
    spec_method: Annotated[str | None, _optional("NAME", "that of --speculative-config")] = None
    """vLLM's short form of its method."""
    spec_tokens: Annotated[int | None, _optional("N", "that of --speculative-config")] = None
    """vLLM's short form of its num_speculative_tokens."""
    num_speculative_tokens: Annotated[int | None, _optional("N", "no speculative decoding")] = None
    """Drafts per request and step."""
    speculative_method: SpeculativeMethod = SpeculativeMethod.NGRAM
    """Where they come from: eagle and draft_model keep KV slots for them; making them takes no time here."""
    acceptance_rates: Annotated[str, tyro.conf.arg(metavar="P,P,...")] = "0.7"
    """Probability that the draft at each position is right if those before it are; the last counts for the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferFlags:
    """KV that is kept elsewhere too."""

    kv_offloading_size: Annotated[float | None, _optional("GIB", "no offloading")] = None
    """CPU memory, in GiB over all GPUs, that keeps KV blocks which leave the GPU."""
    kv_offloading_backend: str = "native"
    """What moves them; native is the only one here."""
    kv_transfer_config: Annotated[str | None, _optional("JSON", "no connector")] = None
    """A KV connector (OffloadingConnector, SharedStorageConnector) and its settings; docs/connectors.md lists them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFlags:
    """What is written down."""

    trace: Annotated[Path | None, _optional("DIR", "SCHED_TRACE_PATH, else no trace")] = None
    """Write the trace into this directory."""
    record_requests: Switch = False
    """Also write one record per queued request and step; `report` then knows what the smallest waiting one needed."""
    max_ids_per_step: int = MAX_IDS_PER_STEP
    """Most requests named per list and step (0 = all): a trace then grows with the steps, not with the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replay:
    """What every replay needs."""

    launch: tyro.conf.OmitArgPrefixes[ServeFlags] = field(default_factory=ServeFlags)
    arrivals: tyro.conf.OmitArgPrefixes[WorkloadFlags] = field(default_factory=WorkloadFlags)
    hardware: tyro.conf.OmitArgPrefixes[HardwareFlags] = field(default_factory=HardwareFlags)
    scheduler: tyro.conf.OmitArgPrefixes[SchedulerFlags] = field(default_factory=SchedulerFlags)
    parallel: tyro.conf.OmitArgPrefixes[ParallelFlags] = field(default_factory=ParallelFlags)
    adapters: tyro.conf.OmitArgPrefixes[AdapterFlags] = field(default_factory=AdapterFlags)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(_Replay):
    """Replay a workload on a virtual clock and report what held requests back."""

    workload: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="WORKLOAD")]
    """Built-in workload (agentic, chat, completion, rag, random), or a file; `tokenyard workloads` says more."""
    transfer: tyro.conf.OmitArgPrefixes[TransferFlags] = field(default_factory=TransferFlags)
    speculation: tyro.conf.OmitArgPrefixes[SpeculationFlags] = field(default_factory=SpeculationFlags)
    output: tyro.conf.OmitArgPrefixes[TraceFlags] = field(default_factory=TraceFlags)
    advice: Literal["auto", "all", "none"] = "auto"
    """Replay the changes that the report proposes, say what each would do, and leave out what does not help; auto takes
    some 30,000 steps for that, on the busiest part of a longer run, all replays the whole run."""
    buckets: Switch = False
    """Also count steps by what seems to have limited admission: guesses, as for a trace that records no reasons."""
    json: Switch = False
    """Print the report as one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Report on a trace: what held requests back, and what it cost them."""

    trace: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="TRACE")]
    """A trace directory, or a file of it (*.steps.jsonl, *.requests.jsonl; also .gz, .zst, .parquet)."""
    buckets: Switch = False
    """Also count steps by what seems to have limited admission: guesses, as for a trace that records no reasons."""
    json: Switch = False
    """Print the report as one JSON object and nothing else."""
    svg: Annotated[Path | None, _optional("FILE", "no picture")] = None
    """Also save the printed report as a picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Tell why a request waited: its time divided among the reasons that held it."""

    trace: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="TRACE")]
    """A trace directory, or a file of it."""
    request: Annotated[tyro.conf.Positional[str | None], _optional("[REQUEST]", "list who waited longest")] = None
    """Id of the request."""
    json: Switch = False
    """Print the answer as one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare(_Replay):
    """Compare two traces (`compare A B`), or one workload under several policies."""

    workload: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="WORKLOAD|TRACE")]
    """Built-in workload, or a file, as for `run`; or a trace, if another follows."""
    other: Annotated[tyro.conf.Positional[Path | None], _optional("[TRACE]", "compare policies")] = None
    """The trace to compare the first one with; the flags about replays then have no say."""
    align: Literal["step", "time", "job"] = "step"
    """How two traces are laid beside each other: step by step, by time since the start, or job by job."""
    policies: Annotated[str, tyro.conf.arg(metavar="A,B,...")] = "fcfs,continuum-fixed,continuum-ttl,continuum-share"
    """Policies by name, or FILE.py:CLASS; the baseline first. --scheduling-policy has no say here."""
    loads: Annotated[str, tyro.conf.arg(metavar="X,Y,...")] = "1"
    """Let requests and sessions arrive so many times as fast, one table each (on top of --rate-scale)."""
    seeds: int = 1
    """Seeds --seed, --seed + 1, ...: with two or more there are confidence intervals."""
    plot: Annotated[Path | None, _optional("FILE", "no drawing")] = None
    """Draw job completion times over loads, as SVG."""
    transfer: tyro.conf.OmitArgPrefixes[TransferFlags] = field(default_factory=TransferFlags)
    speculation: tyro.conf.OmitArgPrefixes[SpeculationFlags] = field(default_factory=SpeculationFlags)
    json: Switch = False
    """Print the comparison as one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """Export a trace to Perfetto, Chrome, OpenTelemetry or a page that can be mailed."""

    trace: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="TRACE")]
    """A trace directory, or a file of it."""
    perfetto: Annotated[Path | None, _optional("FILE", "not written")] = None
    """Perfetto's protobuf (*.pftrace), for ui.perfetto.dev and trace_processor."""
    chrome: Annotated[Path | None, _optional("FILE", "not written")] = None
    """Chrome's JSON, for chrome://tracing, Perfetto and Speedscope."""
    otlp: Annotated[str | None, _optional("URL", "not sent")] = None
    """OTLP/HTTP endpoint for OpenTelemetry spans, for example http://localhost:4318."""
    html: Annotated[Path | None, _optional("FILE", "not written")] = None
    """A copy of the viewer with this trace in it, without what was said in prompts and answers."""
    with_prompts: Switch = False
    """Keep text and token ids of prompts and answers in the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split(_Replay):
    """Replay a workload with prefill on one engine, or several, and decode on as many others."""

    workload: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="WORKLOAD")]
    """Built-in workload, or a file, as for `run`."""
    kv_link_gb_per_s: float = 50.0
    """What the network between two of their GPUs carries, in GB/s; 50 is a port of 400 Gbit/s."""
    output: tyro.conf.OmitArgPrefixes[TraceFlags] = field(default_factory=TraceFlags)
    buckets: Switch = False
    """Also count steps by what seems to have limited admission: guesses, as for a trace that records no reasons."""
    json: Switch = False
    """Print both reports and the use of engines and link as one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """Replay decisions recorded from real vLLM and compare every one of them."""

    files: Annotated[
        tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="FILE ...", help_behavior_hint="(required)")
    ]
    """Golden vectors (*.jsonl or *.jsonl.gz), or directories with such files."""
    json: Switch = False
    """Print one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Compare the default step times with measured points and runs: errors by model, GPU, dtype and load."""

    files: Annotated[
        tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="FILE ...", help_behavior_hint="(required)")
    ]
    """Tables of measured points (*.csv, *.csv.gz), folders of measured runs, results of `vllm bench serve` (*.json)."""
    replay: Switch = False
    """Run the scheduler for every point, step by step, instead of stretches of equal steps: the same, but slow."""
    model: Annotated[str | None, _optional("NAME|FILE", "what the file says")] = None
    """Model of a run or a result: a name, or the config.json of a Hugging Face checkpoint."""
    gpu: Annotated[str | None, _optional("NAME", "what the file says")] = None
    """GPU of a run or a result; a result of `vllm bench serve` does not tell."""
    tensor_parallel_size: int = 1
    """GPUs that share every layer, of a result."""
    data_parallel_size: int = 1
    """Engines that share the requests, of a result."""
    enable_expert_parallel: Switch = False
    """Whole experts were dealt out over the GPUs, of a result."""
    max_num_batched_tokens: int = 8192
    """Token budget of a step, of a result."""
    kv_cache_dtype: str = "auto"
    """Number format of keys and values, of a result."""
    json: Switch = False
    """Print one JSON object and nothing else: `tpot` and `ttft` with median, p90, n and covered, and `rows`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """Replay 100 coding agents, say what held them back and what to try next."""

    trace: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("traces/demo")
    """Where the trace is written."""
    seed: int = 0
    """Another seed gives another day's agents."""
    vllm_version: Annotated[str | None, _optional("VERSION", DEFAULT_VERSION)] = None
    """vLLM whose decisions are taken, and whose defaults where a flag is not given: 0.22 or 0.33."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convert:
    """Convert a trace to Parquet, which is far smaller and quick to query, or back."""

    trace: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="TRACE")]
    """A trace directory, or a file of it; what it holds stays the same to the byte, both ways."""
    output: Annotated[Path | None, _optional("PATH", "beside the source, .jsonl as .parquet and back")] = None
    """File (.parquet, .jsonl or .jsonl.gz) for one file, directory for a pair."""
    compression: Literal["zstd", "gzip", "snappy", "none"] = "zstd"
    """Of a Parquet file; zstd is smallest."""
    overwrite: Switch = False
    """Replace files that are there."""
    json: Switch = False
    """Print what was done as one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Ask a trace in SQL; "show tables" lists what can be asked."""

    trace: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="TRACE")]
    """A trace directory, or a file of it; Parquet is answered at once."""
    sql: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SQL")]
    """One SELECT, for DuckDB: "select reason, count(*) from outcomes group by all"."""
    limit: int = 1_000
    """Most rows shown."""
    json: Switch = False
    """Print columns and rows as one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Look at traces in a browser: timeline, requests, statistics, comparison."""

    paths: tyro.conf.Positional[Annotated[tuple[Path, ...], _optional("[PATH ...]", "this directory")]] = ()
    """Traces, or directories with traces; nothing else can be read from the browser."""
    host: str = "127.0.0.1"
    """Address to listen on; the default can be reached from this machine alone."""
    port: Annotated[int | None, _optional("N", "the first free one from 8642 on")] = None
    """Port to listen on; 0 takes any that is free."""
    browser: bool = True
    """Open the page in the browser."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """Make a workload file of a service's log: OpenAI usage, vLLM's log, CSV, ShareGPT, benchmarks, spans."""

    log: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="LOG")]
    """The log; whatever `run` takes can be converted."""
    output: Annotated[Path | None, _optional("FILE", "only say what is in it")] = None
    """Workload file to write, in our own format, for `run`, `compare` and `split` (*.jsonl, *.jsonl.gz)."""
    overwrite: Switch = False
    """Replace a file that is there."""
    arrivals: tyro.conf.OmitArgPrefixes[WorkloadFlags] = field(default_factory=WorkloadFlags)
    json: Switch = False
    """Print what was read as one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workloads:
    """List what is known by name: workloads, formats, policies, GPUs and models."""

    json: Switch = False
    """Print one JSON object and nothing else."""


Command = (
    Run
    | Report
    | Why
    | Export
    | Compare
    | Split
    | Parity
    | Accuracy
    | Demo
    | Workloads
    | Convert
    | Query
    | View
    | Import
)

COMMANDS: dict[type[Command], str] = {
    Run: "run",
    Report: "report",
    View: "view",
    Why: "why",
    Export: "export",
    Compare: "compare",
    Split: "split",
    Query: "query",
    Convert: "convert",
    Parity: "parity",
    Accuracy: "accuracy",
    Demo: "demo",
    Workloads: "workloads",
    Import: "import",
}
"""Every sub-command and its name, which is also the module with its ``execute``."""
