"""Commands that read a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from tokenyard.cli.support.flag_table import SLO_FLAG, Arg, Command, Positional, Repeated, optional
from tokenyard.deploy.settings import Switch
from tokenyard.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportCommand(Command):
    """Report on a trace: what held requests back, and how much time they lost to it."""

    trace: Annotated[Positional[Path], Arg(metavar="TRACE")]
    """A trace directory, or a file of it (*.steps.jsonl, *.requests.jsonl; also .gz, .zst, .parquet)."""
    full: Switch = False
    """Print all of the report, not one screen: each reason with its numbers, all advice, figures, the deployment."""
    buckets: Switch = False
    """Also count steps by what seems to have limited admission: guesses, as for a trace that records no reasons."""
    header: Switch = False
    """Print the run and its deployment, with what was assumed, first and not last."""
    json: Switch = False
    """Print the report as one JSON object and nothing else."""
    svg: Annotated[Path | None, optional("FILE", "no picture")] = None
    """Also save the printed report as a picture."""
    slo: Annotated[Repeated, SLO_FLAG] = ()
    """Say whether these bounds hold, and how many requests stay within them: ttft_p90=500ms, tpot:40 (in ms). With
    --by also of one class: 0:ttft_p95=1s."""
    by: Annotated[str | None, optional("COLUMN", "all requests together")] = None
    """Also give figures per class: priority, user (what begins a job's id), lora_name, tenant (the cache salt's hash),
    prompt_tokens (in ranges), job_id, engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyCommand(Command):
    """Show why a request waited: its waiting time, divided by reason."""

    trace: Annotated[Positional[Path], Arg(metavar="TRACE")]
    """A trace directory, or a file of it."""
    request: Annotated[Positional[str | None], optional("[REQUEST]", "list who waited longest")] = None
    """Id of a request or a job, or an unambiguous beginning of a request's id (as vLLM's server gives to clients)."""
    stuck: Switch = False
    """Find where the engine did not move at all although requests waited, and say at whom and why."""
    prefix: Switch = False
    """Say why prompts, or that of the request, were not found in the prefix cache."""
    json: Switch = False
    """Print the answer as one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportCommand(Command):
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
class ConvertCommand(Command):
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
class QueryCommand(Command):
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
class ViewCommand(Command):
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
class WatchCommand(Command):
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
