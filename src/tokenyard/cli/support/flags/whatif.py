"""The command that asks what would have happened."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tokenyard.cli.support.flags.marks import SLO_FLAG, Arg, Positional, Repeated, optional
from tokenyard.deploy.settings import Switch
from tokenyard.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfCommand:
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
