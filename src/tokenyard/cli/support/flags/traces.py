"""Commands that read a trace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

<<<<<<< HEAD
from tokenyard.cli.support.flags.marks import SLO_FLAG, Arg, Positional, Repeated, Switch, optional
=======
from tokenyard.cli.support.flags.marks import SLO_FLAG, Arg, Grouped, Positional, Repeated, Switch, optional
from tokenyard.deploy.vllm_serve.defaults import MEASURED_VERSION
from tokenyard.questions.settings import TrafficSettings

__all__ = [
    "AccuracyCommand",
    "ConvertCommand",
    "DescribeCommand",
    "ExportCommand",
    "ImportCommand",
    "ParityCommand",
    "QueryCommand",
    "ReportCommand",
    "ViewCommand",
    "WatchCommand",
    "WhyCommand",
    "WorkloadsCommand",
]


# ---------------------------------------------------------------------------------------------------------------------
# Commands about workloads: what a log becomes, and what is known by name.


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCommand:
    """Convert a service's log, or vLLM's metrics, into a workload file: usage, vLLM's log, CSV, benchmarks, spans."""

    log: Annotated[Positional[tuple[str, ...]], Arg(metavar="LOG ...")] = ()
    """The log, or several, which are merged by time; - is standard input. Whatever `run` takes can be converted."""
    output: Annotated[Path | None, optional("FILE", "only say what is in it")] = None
    """Workload file to write, in Tokenyard's format, for `run`, `compare` and `split` (*.jsonl, *.jsonl.gz)."""
    overwrite: Switch = False
    """Replace the file if it exists."""
    prometheus: Annotated[str | None, optional("URL|FILE", "a log is read")] = None
    """Instead of a log: the address of a Prometheus, or of a server's /metrics, which is then scraped; or a file of
    scrapes or of Prometheus' answers. Says what that time was short of."""
    last: Annotated[str | None, optional("TIME", "60min; 1min of /metrics")] = None
    """How much of it is asked for."""
    step: Annotated[str | None, optional("TIME", "15s; 1s of /metrics")] = None
    """Time between two points."""
    arrivals: Grouped[TrafficSettings] = field(default_factory=TrafficSettings)
    json: Switch = False
    """Print what was read as one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeCommand:
    """Describe a model by the classes of an installed vLLM, for --model: models that docs/models.md does not have."""

    model: Annotated[Positional[str], Arg(metavar="MODEL")]
    """A config.json, the folder that holds it, or a name in the cache of the Hugging Face hub."""
    output: Annotated[Path, Arg(metavar="FILE")] = Path("model.json")
    """Description to write."""
    overwrite: Switch = False
    """Replace the file if it exists."""
    gpu: Annotated[str, Arg(metavar="NAME")] = "h100"
    """GPU that vLLM is made to believe in; no GPU is needed."""
    dtype: str = "auto"
    """As vLLM's --dtype."""
    json: Switch = False
    """Print the description as one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadsCommand:
    """List the known workloads, formats, policies, GPUs and models."""

    json: Switch = False
    """Print one JSON object and nothing else."""


# ---------------------------------------------------------------------------------------------------------------------
# Commands that compare what we say with what was recorded or measured.


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityCommand:
    """Replay decisions recorded from real vLLM and compare every one of them."""

    files: Annotated[
        Positional[tuple[Path, ...]],
        Arg(metavar="FILE ...", otherwise="the public points, where they are installed"),
    ] = ()
    """Golden vectors (*.jsonl or *.jsonl.gz), or directories with such files."""
    json: Switch = False
    """Print one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyCommand:
    """Compare the default step times with measured points and runs: errors by model, GPU, dtype and load."""

    files: Annotated[
        Positional[tuple[Path, ...]],
        Arg(metavar="FILE ...", otherwise="the public points, where they are installed"),
    ] = ()
    """Tables of measured points (*.csv, *.csv.gz), folders of measured runs, results of `vllm bench serve` (*.json)."""
    replay: Switch = False
    """Replay every step by itself instead of runs of equal steps at once: the same result, but slower."""
    model: Annotated[str | None, optional("NAME|FILE", "what the file says")] = None
    """Model of a run or a result: a name, or the config.json of a Hugging Face checkpoint."""
    gpu: Annotated[str | None, optional("NAME", "what the file says")] = None
    """GPU of a run or a result; a result of `vllm bench serve` does not record it."""
    tensor_parallel_size: int = 1
    """Tensor-parallel size of a result."""
    data_parallel_size: int = 1
    """Data-parallel size of a result."""
    enable_expert_parallel: Switch = False
    """The result was measured with expert parallelism."""
    max_num_batched_tokens: int = 8192
    """Token budget per step of a result (max_num_batched_tokens)."""
    kv_cache_dtype: str = "auto"
    """KV-cache dtype of a result."""
    vllm_version: Annotated[str, Arg(metavar="VERSION")] = MEASURED_VERSION
    """Version of vLLM whose decisions are replayed; 0.22 is the nearest to the measured servers."""
    json: Switch = False
    """Print one JSON object and nothing else: `tpot` and `ttft` with median, p90, p99, n and covered, and `rows`."""


# ---------------------------------------------------------------------------------------------------------------------
# Commands that read a trace.
>>>>>>> main


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportCommand:
    """Report on a trace: what held requests back, and how much time they lost to it."""

    trace: Annotated[Positional[Path], Arg(metavar="TRACE")]
    """A trace directory, or a file of it (*.steps.jsonl, *.requests.jsonl; also .gz, .zst, .parquet)."""
    buckets: Switch = False
    """Also count steps by what seems to have limited admission: guesses, as for a trace that records no reasons."""
    json: Switch = False
    """Print the report as one JSON object and nothing else."""
    svg: Annotated[Path | None, optional("FILE", "no picture")] = None
    """Also save the printed report as a picture."""
    slo: Annotated[Repeated, SLO_FLAG] = ()
    """Say whether these bounds hold, and how many requests stay within them: ttft_p90=500ms, tpot:40 (in ms)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyCommand:
    """Show why a request waited: its waiting time, divided by reason."""

    trace: Annotated[Positional[Path], Arg(metavar="TRACE")]
    """A trace directory, or a file of it."""
    request: Annotated[Positional[str | None], optional("[REQUEST]", "list who waited longest")] = None
    """Id of a request or a job, or an unambiguous beginning of a request's id (as vLLM's server gives to clients)."""
    stuck: Switch = False
    """Find where the engine did not move at all although requests waited, and say at whom and why."""
    json: Switch = False
    """Print the answer as one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportCommand:
    """Export a trace to Perfetto, Chrome, OpenTelemetry or a single HTML file."""

    trace: Annotated[Positional[Path], Arg(metavar="TRACE")]
    """A trace directory, or a file of it."""
    perfetto: Annotated[Path | None, optional("FILE", "not written")] = None
    """Perfetto's protobuf (*.pftrace), for ui.perfetto.dev and trace_processor."""
    chrome: Annotated[Path | None, optional("FILE", "not written")] = None
    """Chrome's JSON, for chrome://tracing, Perfetto and Speedscope."""
    otlp: Annotated[str | None, optional("URL", "not sent")] = None
    """OTLP/HTTP endpoint for OpenTelemetry spans, for example http://localhost:4318."""
    html: Annotated[Path | None, optional("FILE", "not written")] = None
    """HTML file with the viewer and this trace, without the text of prompts and answers."""
    with_prompts: Switch = False
    """Keep text and token ids of prompts and answers in the HTML file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertCommand:
    """Convert a trace to Parquet, which is smaller and faster to query, or back."""

    trace: Annotated[Positional[Path], Arg(metavar="TRACE")]
    """A trace directory, or a file of it; converting back gives the same bytes."""
    output: Annotated[Path | None, optional("PATH", "beside the source, .jsonl as .parquet and back")] = None
    """File (.parquet, .jsonl or .jsonl.gz) for one file, directory for a pair."""
    compression: Literal["zstd", "gzip", "snappy", "none"] = "zstd"
    """Compression of a Parquet file; zstd is smallest."""
    overwrite: Switch = False
    """Replace existing files."""
    json: Switch = False
    """Print what was done as one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCommand:
    """Query a trace in SQL; "show tables" lists the tables."""

    trace: Annotated[Positional[Path], Arg(metavar="TRACE")]
    """A trace directory, or a file of it; Parquet is fastest."""
    sql: Annotated[Positional[str], Arg(metavar="SQL")]
    """One SELECT, for DuckDB: "select reason, count(*) from outcomes group by all"."""
    limit: int = 1_000
    """Largest number of rows to print."""
    json: Switch = False
    """Print columns and rows as one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewCommand:
    """Show traces in a browser: timeline, requests, statistics, comparison."""

    paths: Positional[Annotated[tuple[Path, ...], optional("[PATH ...]", "this directory")]] = ()
    """Traces, or directories with traces; the browser can read no other files."""
    host: str = "127.0.0.1"
    """Address to listen on; the default can be reached from this machine alone."""
    port: Annotated[int | None, optional("N", "the first free one from 8642 on")] = None
    """Port to listen on; 0 takes any that is free."""
    browser: bool = True
    """Open the page in the browser."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchCommand:
    """Watch a running server in a browser: the Overview of its last five minutes, as its trace is written."""

    source: Annotated[Positional[str], Arg(metavar="DIR|URL")]
    """The directory to which a server writes traces, or the address of a viewer that shows them."""
    last: float = 300.0
    """Seconds that the figures are of."""
    host: str = "127.0.0.1"
    """Address to listen on; the default can be reached from this machine alone."""
    port: Annotated[int | None, optional("N", "the first free one from 8642 on")] = None
    """Port to listen on; 0 takes any that is free."""
    browser: bool = True
    """Open the page in the browser."""
