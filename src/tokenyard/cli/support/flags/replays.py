"""Commands that replay a workload."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import Annotated, Literal

from tokenyard.cli.support.flag_table import SLO_FLAG, Arg, Command, Positional, Repeated, optional
from tokenyard.deploy.settings import (
    AdapterSettings,
    HardwareSettings,
    LaunchSettings,
    ParallelSettings,
    SchedulerSettings,
    SpeculationSettings,
    SplitSettings,
    Switch,
    TraceSettings,
    TransferSettings,
)
from tokenyard.deploy.vllm_serve.defaults import DEFAULT_VERSION
from tokenyard.questions.settings import TrafficSettings
from tokenyard.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFlags(Command):
    """What every replay needs."""

    launch: LaunchSettings = field(default_factory=LaunchSettings)
    arrivals: TrafficSettings = field(default_factory=TrafficSettings)
    hardware: HardwareSettings = field(default_factory=HardwareSettings)
    scheduler: SchedulerSettings = field(default_factory=SchedulerSettings)
    parallel: ParallelSettings = field(default_factory=ParallelSettings)
    adapters: AdapterSettings = field(default_factory=AdapterSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCommand(ReplayFlags):
    """Replay a workload on a virtual clock and report what held requests back."""

    workload: Annotated[Positional[str], Arg(metavar="WORKLOAD")]
    """Built-in workload (agentic, chat, completion, rag, random), or a file; `tokenyard workloads` says more."""
    more: Annotated[Positional[tuple[str, ...]], Arg(metavar="LOG ...", otherwise="one")] = ()
    """Further logs, which are merged with the first by time."""
    transfer: TransferSettings = field(default_factory=TransferSettings)
    speculation: SpeculationSettings = field(default_factory=SpeculationSettings)
    output: TraceSettings = field(default_factory=TraceSettings)
    advice: Literal["auto", "all", "none"] = "auto"
    """Try the changes that the report proposes: replay each, show its effect, drop those that do not help. auto uses
    about 60,000 steps, from the busiest part of a longer run; all replays the whole run; none does not try."""
    slo: Annotated[Repeated, SLO_FLAG] = ()
    """Say whether these bounds hold, and how many requests stay within them: ttft_p90=500ms, tpot:40 (in ms). With
    --by also of one class: interactive:ttft_p95=1s."""
    by: Annotated[str | None, optional("COLUMN", "all requests together")] = None
    """Also give figures per class: priority, user, tier, lora_name, prompt_tokens (in ranges), job_id, engine, or a
    field of the requests' own `meta`."""
    until: Annotated[str | None, optional("TIME", "all requests have ended")] = None
    """End the replay at this moment, with whatever is unfinished; nothing is tried then."""
    calibrate: Switch = False
    """Scale step times to what the workload's file has measured (TTFT, TPOT, durations), and say by how much."""
    full: Switch = False
    """Print all of the report, not one screen: each reason with its numbers, all advice, figures, the deployment."""
    buckets: Switch = False
    """Also count steps by what seems to have limited admission: guesses, as for a trace that records no reasons."""
    header: Switch = False
    """Print the run and its deployment, with what was assumed, first and not last."""
    json: Switch = False
    """Print the report as one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeCommand(ReplayFlags):
    """Show what another version of vLLM changes for a workload: decisions, defaults, flags, memory, latencies."""

    workload: Annotated[Positional[str], Arg(metavar="LOG|TRACE")]
    """Built-in workload, a log, a trace, or a file, as for `run`."""
    more: Annotated[Positional[tuple[str, ...]], Arg(metavar="LOG ...", otherwise="one")] = ()
    """Further logs, which are merged with the first by time."""
    older: Annotated[str, Arg(name="from", metavar="VERSION")]
    """The version that serves it now, such as 0.27; --vllm-version does not count here."""
    newer: Annotated[str, Arg(name="to", metavar="VERSION")] = DEFAULT_VERSION
    """The version to compare it with."""
    transfer: TransferSettings = field(default_factory=TransferSettings)
    speculation: SpeculationSettings = field(default_factory=SpeculationSettings)
    json: Switch = False
    """Print the answer as one JSON object and nothing else."""

    @property
    def slo(self) -> tuple[tuple[str, ...], ...]:
        """None: latencies are shown beside each other."""
        return ()


POLICIES_COMPARED = "fcfs, program-fcfs, continuum-fixed, continuum-ttl, continuum-share, continuum, program-admission"
"""Policies that `compare` replays unless others, or settings, are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareCommand(ReplayFlags):
    """Compare two traces (`compare A B`), or one workload under several policies or with several settings."""

    workload: Annotated[Positional[str], Arg(metavar="WORKLOAD|TRACE")]
    """Built-in workload, or a file, as for `run`; or a trace, if another follows."""
    other: Annotated[Positional[Path | None], optional("[TRACE]", "compare policies")] = None
    """The trace to compare the first one with; flags of replays are then ignored."""
    align: Literal["step", "time", "job"] = "step"
    """How to align two traces: by step number, by time since the start, or by job."""
    policies: Annotated[str | None, Arg(aliases=("--policy",), metavar="A,B,...", otherwise=POLICIES_COMPARED)] = None
    """Policies by name, or FILE.py:CLASS; the baseline first. --scheduling-policy is ignored here."""
    changes: Annotated[Repeated, Arg(name="set", metavar="NAME=A,B,... ...", otherwise="policies are compared")] = ()
    """Settings to compare instead, under one policy: the deployment as it is beside every combination of their values,
    --set max_num_seqs=64,256 kv_cache_dtype=fp8."""
    loads: Annotated[str, Arg(metavar="X,Y,...")] = "1"
    """Factors of the arrival rate, one table each (multiplied with --rate-scale)."""
    seeds: int = 1
    """Number of seeds (--seed, --seed + 1, ...); with two or more, confidence intervals are given."""
    plot: Annotated[Path | None, optional("FILE", "no drawing")] = None
    """Draw job completion times over loads, as SVG."""
    transfer: TransferSettings = field(default_factory=TransferSettings)
    speculation: SpeculationSettings = field(default_factory=SpeculationSettings)
    slo: Annotated[Repeated, SLO_FLAG] = ()
    """Count requests within these bounds (of traces: and whether they hold): ttft_p90=500ms, tpot:40 (in ms); with --by
    also of one class: interactive:ttft:1000."""
    by: Annotated[str | None, optional("COLUMN", "all requests together")] = None
    """Also give figures per class, if policies are compared, and how alike classes are served: priority, user, tier,
    lora_name, prompt_tokens (in ranges), job_id, or a field of the requests' own `meta`."""
    header: Switch = False
    """Print the deployment, with what was assumed, first and not last."""
    json: Switch = False
    """Print the comparison as one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsCommand(ReplayFlags):
    """Tell apart what agents' jobs gain: order of programs, pins, DRAM of several sizes, admission of programs."""

    workload: Annotated[Positional[str], Arg(metavar="LOG")]
    """A log whose requests name their sessions, or any workload with jobs, as for `run`."""
    more: Annotated[Positional[tuple[str, ...]], Arg(metavar="LOG ...", otherwise="one")] = ()
    """Further logs, which are merged with the first by time."""
    policies: Annotated[str | None, Arg(aliases=("--policy",), metavar="A,B,...", otherwise="all seven for agents")] = (
        None
    )
    """Policies by name, or FILE.py:CLASS; the baseline first. --scheduling-policy is ignored here."""
    dram_gib: Annotated[
        str | None, Arg(name="dram", metavar="GIB,GIB,...", otherwise="what holds the GPU's KV, and four times that")
    ] = None
    """Sizes of DRAM for KV (kv_offloading_size), beside none; none: no DRAM."""
    dram_price: Annotated[float | None, optional("PRICE", "sizes are shown")] = None
    """Price of a GiB of DRAM for an hour."""
    seeds: int = 3
    """Number of seeds (--seed, --seed + 1, ...). The first replays a file as it was recorded, each other one deals out
    anew which job begins when."""
    transfer: TransferSettings = field(default_factory=TransferSettings)
    speculation: SpeculationSettings = field(default_factory=SpeculationSettings)
    processes: Annotated[int | None, Arg(aliases=("--jobs",), metavar="N", otherwise="one per core")] = None
    """Number of processes that replay in parallel."""
    output: Annotated[Path | None, optional("DIR", "nothing is kept")] = None
    """Directory that keeps finished replays; after an interruption the same command continues from it."""
    full: Switch = False
    """Give every policy a row of its own, also beside DRAM where it comes to the same as others."""
    header: Switch = False
    """Print the deployment, with what was assumed, first."""
    json: Switch = False
    """Print the answer as one JSON object and nothing else."""

    @property
    def slo(self) -> tuple[tuple[str, ...], ...]:
        """None: jobs are compared by how long they take."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitCommand(ReplayFlags):
    """Replay a workload with prefill-decode disaggregation: prefill and decode on separate engines."""

    workload: Annotated[Positional[str], Arg(metavar="WORKLOAD")]
    """Built-in workload, or a file, as for `run`."""
    more: Annotated[Positional[tuple[str, ...]], Arg(metavar="LOG ...", otherwise="one")] = ()
    """Further logs, which are merged with the first by time."""
    split_settings: SplitSettings = field(default_factory=SplitSettings)
    output: TraceSettings = field(default_factory=TraceSettings)
    slo: Annotated[Repeated, SLO_FLAG] = ()
    """Say whether these bounds hold, and how many requests stay within them: ttft_p90=500ms, tpot:40 (in ms)."""
    buckets: Switch = False
    """Also count steps by what seems to have limited admission: guesses, as for a trace that records no reasons."""
    header: Switch = False
    """Print the run and its deployment, with what was assumed, first and not last."""
    json: Switch = False
    """Print both reports and the use of engines and link as one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoCommand(Command):
    """Replay 100 coding agents, report what held them back and what to try next."""

    trace: Annotated[Path, Arg(metavar="DIR")] = Path("traces/demo")
    """Where the trace is written."""
    seed: int = 0
    """Seed of the generated agents."""
    vllm_version: Annotated[str | None, optional("VERSION", DEFAULT_VERSION)] = None
    """Version of vLLM whose decisions and defaults apply, such as 0.22; any other name lists those that are known."""


# ---------------------------------------------------------------------------------------------------------------------
# Commands that replay many variants, and those that ask what a recorded run would have been with them.


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
    price: Annotated[Repeated, Arg(metavar="GPU=PRICE ...", otherwise="none; of plan --minimize cost a list")] = ()
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
