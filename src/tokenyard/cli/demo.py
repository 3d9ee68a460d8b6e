"""``tokenyard demo``: coding agents on an engine of A100-40GB size, and what to type next."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from tokenyard.cli.run import run, show
from tokenyard.cli.support.console import results
from tokenyard.cli.support.flags.replays import DemoCommand, RunCommand
from tokenyard.compiled import core_is_compiled
from tokenyard.deploy.settings import HardwareSettings, LaunchSettings, SchedulerSettings, TraceSettings
from tokenyard.deploy.vllm_serve.given import GivenFlags
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
    ) + (f" --vllm-version {flags.vllm_version}" if flags.vllm_version else "")
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
    show(replayed, console)
    if replayed.problem is None:
        _next(console, program, again + (f" --seed {flags.seed}" if flags.seed else ""), flags.trace)
    return replayed.code


def _launch(flags: DemoCommand) -> LaunchSettings:
    if flags.vllm_version is None:
        return LaunchSettings(asked=GivenFlags(named=_NAMED))
    return LaunchSettings(asked=GivenFlags(named=_NAMED | {"vllm_version"}), vllm_version=flags.vllm_version)


def _next(console: Console, program: str, again: str, trace: Path) -> None:
    """What to type now."""
    console.print("\nWhat next")
    kept = trace.parent / "kept"
    for what, command in (
        ("who waited longest, and for what", f"{program} why {trace}"),
        ("keep KV while tools run instead", f"{again} --scheduling-policy continuum-share --trace {kept}"),
        ("what that changed", f"{program} compare {trace} {kept}"),
        ("traffic of your own, GPUs, models", f"{program} workloads"),
        *_in_a_clone(program),
    ):
        console.print(f"  {what:<34} [cyan]{escape(command)}[/]", soft_wrap=True)
    if not core_is_compiled():
        how = "make compile" if Path("setup.py").is_file() else "a platform wheel"
        console.print(
            f"\nThe core runs interpreted, which costs 50 to 100 % more CPU time; compiled by [cyan]{how}[/]",
            soft_wrap=True,
        )
    console.print(
        f"\nSee this very trace in the browser   [cyan]{escape(f'{program} view {trace}')}[/]", soft_wrap=True
    )


def _in_a_clone(program: str) -> Iterator[tuple[str, str]]:
    """What lies beside the code, and is no part of the package."""
    if Path("conformance/vectors").is_dir():
        yield "is it really vLLM's scheduler?", f"{program} parity conformance/vectors/*"
    if Path("docs/getting-started.md").is_file():
        yield "everything else", "docs/getting-started.md"


def _program() -> str:
    """How this program is called from here: by its name if the shell finds it, else by its path."""
    called = Path(sys.argv[0])
    if shutil.which("tokenyard") or called.name != "tokenyard":
        return "tokenyard"
    return os.path.relpath(called)
