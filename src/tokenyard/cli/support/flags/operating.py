"""Commands about a server that runs, and about what is to start one."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import Annotated, Literal

from tokenyard.cli.support.flag_table import SLO_FLAG, Arg, Command, Positional, Repeated, optional
from tokenyard.deploy.settings import Switch
from tokenyard.questions.settings import TrafficSettings
from tokenyard.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorCommand(Command):
    """Say what is wrong with a server that runs, from its metrics or log, without a trace and without a restart."""

    sources: Annotated[
        Positional[tuple[str, ...]], Arg(metavar="URL|FILE ...", otherwise="none: name one at least")
    ] = ()
    """Address of a server, or of a Prometheus; files or folders of scrapes, of vLLM's log; a log of the start. Several
    replicas are several addresses, or a folder each."""
    serve: Annotated[str | None, optional("LINE|FILE", "what a log of the start says")] = None
    """What starts the server: the time is rebuilt from its histograms, replayed, and remedies tried on it."""
    gpu: Annotated[str | None, optional("NAME", "what the line or the manifest says, else h100")] = None
    """GPU that it runs on."""
    last: Annotated[str | None, optional("TIME", "10s; 10min of a Prometheus")] = None
    """How long a server is watched, or how much a Prometheus is asked for."""
    step: Annotated[str | None, optional("TIME", "2s; 15s of a Prometheus")] = None
    """Time between two scrapes."""
    model_name: Annotated[str | None, optional("NAME", "the only one")] = None
    """Served model to look at, where there are several."""
    watch: Switch = False
    """Look again and again, a line each, until interrupted."""
    write: Annotated[Literal["serve", "diff", "file"] | None, optional("serve|diff|file", "nothing is written")] = None
    """Also print the first remedy that helped as a line of `vllm serve`, or as a patch of the file that --serve names,
    or change that file: a script, a manifest, values of a chart. Nothing else of it changes; the answer goes to stderr.
    """
    prom_rules: Switch = False
    """Print alert rules for a Prometheus instead; with --serve also one for seats."""
    json: Switch = False
    """Print the answer as one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCommand(Command):
    """Replay stored traffic on what files start, beside what they were, and fail on a bound: for pull requests."""

    files: Annotated[Positional[tuple[str, ...]], Arg(metavar="FILE ...", otherwise="none: name one at least")] = ()
    """Files that start vLLM: scripts, manifests, values of charts."""
    against: Annotated[str | None, Arg(metavar="WORKLOAD|TRACE", otherwise="none: name one")] = None
    """What is replayed: a log, a workload, or the requests of a trace."""
    slo: Annotated[Repeated, SLO_FLAG] = ()
    """Bounds on latencies, on any of which it fails: ttft_p90=500ms; tpot:40 is of each request and fails nothing."""
    since: Annotated[str | None, optional("REVISION", "all files, with nothing beside them")] = None
    """Only files that differ from this revision of git, beside what they were: origin/main."""
    before: Annotated[Path | None, optional("FILE", "nothing")] = None
    """What the file was before."""
    gpu: Annotated[str | None, optional("NAME", "what the file says, else h100")] = None
    """GPU that it runs on."""
    price: Annotated[float | None, optional("PRICE", "no cost")] = None
    """Price of one GPU for an hour: what a million output tokens cost, then."""
    markdown: Annotated[Path | None, optional("FILE", "no comment")] = None
    """Write the result as Markdown, for a comment."""
    arrivals: TrafficSettings = field(default_factory=TrafficSettings)
    json: Switch = False
    """Print a list of JSON objects and nothing else."""
