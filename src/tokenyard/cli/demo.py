"""``tokenyard demo``: coding agents on an engine of A100-40GB size, and what to type next."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from tokenyard.cli.run import run, where_it_is
from tokenyard.cli.support.console import results
from tokenyard.cli.support.flags.replays import DemoCommand, RunCommand
from tokenyard.compiled import core_is_compiled
from tokenyard.deploy.settings import HardwareSettings, LaunchSettings, SchedulerSettings, TraceSettings
from tokenyard.deploy.vllm_serve.given import GivenFlags
from tokenyard.explain.render.report import print_answer
from tokenyard.questions.settings import TrafficSettings

_HARDWARE = HardwareSettings(gpu="a100-40gb", model="llama-3.1-8b", num_gpu_blocks_override=10_318)
_SCHEDULER = SchedulerSettings(max_num_batched_tokens=2_048, max_num_seqs=100)
_WORKLOAD = "agentic"
_NAMED = frozenset(("gpu", "model", "num_gpu_blocks_override", "max_num_batched_tokens", "max_num_seqs"))
"""Settings that are given."""


def execute(flags: DemoCommand) -> int:
    """Replay, report, and say how to go on; 0 if it ends, 2 if its trace does not hold all of it."""
    console = results()
    program = _program()
    again = (
        f"{program} run {_WORKLOAD} --gpu {_HARDWARE.gpu} --num-gpu-blocks-override {_HARDWARE.num_gpu_blocks_override}"
        f" --max-num-batched-tokens {_SCHEDULER.max_num_batched_tokens} --max-num-seqs {_SCHEDULER.max_num_seqs}"
    )
    again += f" --vllm-version {flags.vllm_version}" if flags.vllm_version else ""
    again += f" --seed {flags.seed}" if flags.seed else ""
    console.print("100 coding agents share a system prompt, on an engine like Llama-3.1-8B on an A100-40GB:")
    console.print(f"[cyan]{escape(again)}[/]\n", soft_wrap=True)
    replayed = run(
        RunCommand(
            workload=_WORKLOAD,
            launch=_launch(flags),
            arrivals=TrafficSettings(seed=flags.seed),
            hardware=_HARDWARE,
            scheduler=_SCHEDULER,
            output=TraceSettings(trace=flags.trace),
        )
    )
    print_answer(replayed.report, console)
    if replayed.problem is None:
        _next(console, program, flags.trace)
    else:
        console.print(where_it_is("The trace is", flags.trace, replayed.problem), soft_wrap=True)
    return replayed.code


def _launch(flags: DemoCommand) -> LaunchSettings:
    if flags.vllm_version is None:
        return LaunchSettings(asked=GivenFlags(named=_NAMED))
    return LaunchSettings(asked=GivenFlags(named=_NAMED | {"vllm_version"}), vllm_version=flags.vllm_version)


def _next(console: Console, program: str, trace: Path) -> None:
    """Print what to type now, the page first."""
    console.print("\nWhat next")
    for what, command in (
        ("see this trace in the browser", f"{program} view {trace}"),
        ("who waited longest, and for what", f"{program} why {trace}"),
        ("all that was found", f"{program} report {trace} --full"),
    ):
        console.print(f"  {what:<34} [cyan]{escape(command)}[/]", soft_wrap=True)
    if not core_is_compiled():
        how = "make compile" if Path("setup.py").is_file() else "a platform wheel"
        console.print(f"\nThe core runs interpreted, several times slower; compiled by [cyan]{how}[/]", soft_wrap=True)


def _program() -> str:
    """How this program is called from here: by its name if the shell finds it, else by its path."""
    called = Path(sys.argv[0])
    if shutil.which("tokenyard") or called.name != "tokenyard":
        return "tokenyard"
    return os.path.relpath(called)
