"""Commands that replay many variants, and those that ask what a recorded run would have been with them."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import Annotated, Literal

from tokenyard.cli.support.flag_table import SLO_FLAG, Arg, Command, Positional, Repeated, optional
from tokenyard.cli.support.flags.replays import ReplayFlags
from tokenyard.deploy.settings import SpeculationSettings, SplitSettings, Switch, TransferSettings
from tokenyard.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFlags(ReplayFlags):
    """What every command with many replays needs."""

    workload: Annotated[Positional[str], Arg(metavar="WORKLOAD|TRACE")]
    """Built-in workload, a log, or a file, as for `run`; or a trace, as for `whatif`."""
    more: Annotated[Positional[tuple[str, ...]], Arg(metavar="LOG ...", otherwise="one")] = ()
    """Further logs, which are merged with the first by time."""
    transfer: TransferSettings = field(default_factory=TransferSettings)
    speculation: SpeculationSettings = field(default_factory=SpeculationSettings)
    slo: Annotated[Repeated, SLO_FLAG] = ()
    """Bounds on latencies: ttft_p90=500ms, tpot:40 (for each request, in ms); with --by also of one class:
    interactive:ttft_p95=1s batch:e2e_p95=10min."""
    by: Annotated[str | None, optional("COLUMN", "all requests together")] = None
    """Judge each class of requests by its own bounds: priority, user, tier, lora_name, prompt_tokens (in ranges), or a
    field of the requests' own `meta`."""
    price: Annotated[Repeated, Arg(metavar="GPU=PRICE ...", otherwise="none")] = ()
    """Price of one GPU for an hour: h100=2.5 h200=3.4."""
    processes: Annotated[
        int | None, Arg(aliases=("--jobs",), metavar="N", otherwise="one per core, where that pays")
    ] = None
    """Number of processes that replay in parallel; with --ray, variants that the search of a plan begins at a time."""
    ray: Annotated[str | None, optional("ADDRESS|local", "processes of this machine")] = None
    """Replay on a Ray cluster; every machine needs the same Tokenyard, and the workload's file under the same path."""
    json: Switch = False
    """Print one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCommand(SearchFlags):
    """Replay a grid of settings, or a file of variants, into a Parquet table; continues after an interruption."""

    grid: Annotated[Repeated, Arg(name="set", metavar="NAME=A,B,... ...", otherwise="none")] = ()
    """Values of a setting; every combination of all of them is a variant: --set max_num_seqs=64,128,256."""
    split_settings: SplitSettings = field(default_factory=SplitSettings)
    variants: Annotated[Path | None, optional("FILE", "the grid")] = None
    """A file of variants: a JSON list of objects, TOML tables [[variant]], or CSV with a header of names."""
    output: Annotated[Path, Arg(metavar="DIR")] = Path("sweep")
    """Directory of the results; after a crash the same command continues from it."""
    html: Annotated[Path | None, optional("FILE", "no page")] = None
    """Write the variants as a page: parallel coordinates, the front, and a table; `tokenyard view` shows it, too."""
    traces: Switch = False
    """Keep the trace of every variant, below --output; the page of --html then opens any two in Compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCommand(SearchFlags):
    """Find the settings that meet service levels best, the largest load they allow, and what limits them."""

    space: Annotated[
        Repeated,
        Arg(name="set", aliases=("--space",), metavar="NAME=A,B,... ...", otherwise="see docs"),
    ] = ()
    """Values to choose from: --set max_num_seqs=64,256 tensor_parallel_size=1,2; --gpu takes several, too. Couples of
    them, one for the other: --set tensor_parallel_size=1,replicas=8 tensor_parallel_size=2,replicas=4."""
    gpus: Annotated[int | None, optional("N", "no bound")] = None
    """GPUs that a variant may take, all its engines together; without --set engines of several sizes share them."""
    split: Annotated[Repeated, Arg(metavar="P+D ...", otherwise="no engine does one of both alone")] = ()
    """Splits to choose from, engines that prefill and that decode: --split 1+1 2+1, 1..3+1..2, none (no split)."""
    kv_link_gb_per_s: float = 50.0
    """Bandwidth of the network between two GPUs of a split, in GB/s; 50 is a port of 400 Gbit/s."""
    maximize: Literal["goodput", "throughput", "load"] | None = None
    """Requests per second within the bounds (what is meant if nothing is given), output tokens per second, or the load
    that can be borne within the bounds."""
    minimize: Literal["gpus", "cost"] | None = None
    """Fewest GPUs, or lowest cost, with every bound met."""
    header: Switch = False
    """Print the question and the deployment, with what was assumed, first and not last."""
    replays: int = 40
    """Largest number of variants to try; if there are no more than that, all are tried."""
    calibrate: Switch = False
    """Scale step times to what the workload's file measured on the deployment as it is named, before settings vary."""
    largest_load: bool = True
    """Find the largest load at which the recommended settings keep the bounds."""
    output: Annotated[Path | None, optional("DIR", "a folder in ~/.cache, until the plan is whole")] = None
    """Directory that keeps the variants that are replayed; after an interruption the same command continues from it."""
    write: Annotated[Literal["serve", "diff", "file"] | None, optional("serve|diff|file", "nothing is written")] = None
    """Also print the recommendation as a line of `vllm serve`, or as a patch of the file that --serve names, or change
    that file: a script, a manifest, values of a chart. Nothing else of it changes; the answer goes to stderr."""
    svg: Annotated[Path | None, optional("FILE", "no picture")] = None
    """Write a picture of the variants as SVG: what they reach over what they cost."""
    html: Annotated[Path | None, optional("FILE", "no page")] = None
    """Write the plan as a page, with the picture."""


# ---------------------------------------------------------------------------------------------------------------------
# What would have happened to a recorded run.


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfCommand(Command):
    """Predict what other settings would have done to a recorded run, and the error of the prediction."""

    trace: Annotated[Positional[Path], Arg(metavar="TRACE")]
    """A trace directory, or a file of it: recorded inside vLLM with Tokenyard's classes, or by a replay."""
    changes: Annotated[
        Repeated,
        Arg(name="set", metavar="NAME=A,B,... ...", otherwise="only the check"),
    ] = ()
    """Settings to change, by vLLM's names, one variant for each value: --set max_num_seqs=128,512 watermark=0; those in
    one argument together: tensor_parallel_size=4,gpu=h200."""
    policies: Annotated[
        Repeated,
        Arg(name="policy", aliases=("--policies",), metavar="A,B,...", otherwise="none"),
    ] = ()
    """Policies to ask about, one variant each; as --set scheduling_policy=NAME, or FILE.py:CLASS."""
    serve: Annotated[Repeated, Arg(metavar='"vllm serve ..." ...', otherwise="none")] = ()
    """Whole deployments to ask about, one variant each: a `vllm serve` command line, or a file with one."""
    gpu: Annotated[Repeated, Arg(metavar="NAME ...", otherwise="none")] = ()
    """GPUs to ask about, one variant each; with --serve, each command line on each GPU."""
    recorded: Annotated[str | None, optional("LINE|FILE", "what the trace says")] = None
    """What the trace's engine was started with, where the trace does not say: a `vllm serve` line, or a file."""
    recorded_gpu: Annotated[str | None, optional("NAME", "what the trace says")] = None
    """The GPU that the trace was recorded on, where the trace does not say."""
    by: Annotated[str | None, optional("COLUMN", "all requests together")] = None
    """Also show each class of requests: priority, user, lora_name, job_id, prompt_tokens (in ranges)."""
    slo: Annotated[Repeated, SLO_FLAG] = ()
    """Count requests within these bounds, before and then: ttft_p90=500ms, tpot:40 (for each request, in ms); with --by
    also of one class: 0:ttft_p95=1s."""
    yes: Switch = False
    """Continue although the replay of the recorded run is off by more than 10 %."""
    json: Switch = False
    """Print the answer as one JSON object and nothing else."""
