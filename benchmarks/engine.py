"""`make bench-engine`: tokens per second of this engine, of transformers' continuous batching, and of vLLM on a CPU.

One process per side, all with as many threads, the same checkpoint with random weights, blocks, limits and prompts;
greedy. In every round each side serves the same requests once, one side after the other, so that whatever else the
machine does falls on all. A ratio is the median of the rounds' ratios, with its quartiles.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean, median, quantiles
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.table import Table

from engine_sides.serving import Setup
from side import HERE, REPO, Side

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

SIDES = {"ours": "tokenyard", "transformers_side": "transformers", "vllm_side": "vLLM, CPU"}
"""Script among the sides -> what it is called."""
OURS = "ours"
VOCABULARY = 32_000
_VLLM = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"}


class Work(NamedTuple):
    """Requests of one round, all there from the start."""

    prompts: list[list[int]]
    max_tokens: list[int]

    @property
    def num_tokens(self) -> int:
        """Tokens of all answers."""
        return sum(self.max_tokens)


def work_of(requests: int, prompt: tuple[int, int], output: tuple[int, int], seed: int) -> Work:
    """Lengths and tokens are drawn evenly."""
    draw = random.Random(seed)
    prompts = [[draw.randrange(VOCABULARY) for _ in range(draw.randint(*prompt))] for _ in range(requests)]
    return Work(prompts, [draw.randint(*output) for _ in range(requests)])


def started(options: argparse.Namespace, folder: str) -> dict[str, Side]:
    """The sides that are asked for, in the order of their turns."""
    setup = Setup(
        model=folder,
        dtype=options.dtype,
        threads=options.threads,
        num_blocks=options.blocks,
        block_size=32,
        max_num_seqs=options.running,
        max_num_batched_tokens=512,
        max_model_len=2048,
    )
    common = {"OMP_NUM_THREADS": str(options.threads), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    sides = {}
    for name in SIDES:
        is_vllm = name == "vllm_side"
        if is_vllm and not options.vllm.is_file():
            print(f"without vLLM: {options.vllm} is not there (--vllm PYTHON)", file=sys.stderr)
            continue
        python, more = (options.vllm, _VLLM | _preloaded(options.vllm)) if is_vllm else (sys.executable, {})
        script = f"engine_sides/{name}.py"
        sides[name] = Side(python, script, [json.dumps(setup._asdict())], common | more)
    return sides


def _preloaded(python: Path) -> dict[str, str]:
    """Intel's OpenMP, if it is in vLLM's environment: vLLM's documents ask for it."""
    library = python.parent.parent / "lib" / "libiomp5.so"
    return {"LD_PRELOAD": str(library)} if library.is_file() else {}


def run(options: argparse.Namespace, sides: dict[str, Side]) -> list[dict[str, dict[str, Any]]]:
    """What every side answered in every round; a first, short one warms them up and is not told."""
    lengths = options.prompt, options.output
    for side in sides.values():
        side.ask(work_of(8, (16, 32), (4, 8), 0)._asdict())
    rounds = []
    for number in range(options.rounds):
        work = work_of(options.requests, *lengths, number + 1)
        answers = {name: side.ask(work._asdict()) for name, side in sides.items()}
        for name, each in answers.items():
            if [len(tokens) for tokens in each["tokens"]] != work.max_tokens:
                sys.exit(f"{name}: answers of other lengths than asked for")
            each["rate"] = work.num_tokens / each["seconds"]
        rounds.append(answers)
        rates = ", ".join(f"{SIDES[name]} {each['rate']:.0f}" for name, each in answers.items())
        print(f"round {number + 1}: tokens/s: {rates}", file=sys.stderr)
    return rounds


def same_answers(rounds: Sequence[dict[str, dict[str, Any]]], other: str) -> float:
    """The share of requests whose tokens are all the same as ours."""
    pairs = [
        float(mine == theirs)
        for each in rounds
        for mine, theirs in zip(each[OURS]["tokens"], each[other]["tokens"], strict=True)
    ]
    return mean(pairs)


def show(rounds: Sequence[dict[str, dict[str, Any]]], options: argparse.Namespace, parameters: int) -> None:
    """Print the comparison."""
    console = Console()
    title = (
        f"{parameters / 1e6:.0f} M random parameters in {options.dtype}, {options.threads} threads,"
        f" {len(rounds)} rounds of {options.requests} requests, {options.running} at a time"
    )
    table = Table(title=title, title_justify="left")
    for column in ("", "tokens/s", "ours / theirs", "quartiles", "same answers"):
        table.add_column(column, justify="left" if not column else "right")
    for name in rounds[0]:
        rate = f"{median(each[name]['rate'] for each in rounds):.0f}"
        if name == OURS:
            table.add_row(SIDES[name], rate)
            continue
        ratios = [each[OURS]["rate"] / each[name]["rate"] for each in rounds]
        low, middle, high = quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
        table.add_row(SIDES[name], rate, f"{middle:.2f}", f"{low:.2f}-{high:.2f}", f"{same_answers(rounds, name):.0%}")
    console.print(table)
    steps = sum(each[OURS]["full_steps"] for each in rounds)
    if steps:
        seconds = sum(each[OURS]["step_seconds"] for each in rounds)
        scheduler = sum(each[OURS]["scheduler_seconds"] for each in rounds)
        console.print(
            f"Scheduler's share of the step: {scheduler / seconds:.2%} ({1e3 * scheduler / steps:.2f} of"
            f" {1e3 * seconds / steps:.1f} ms, wall time over {steps} steps with {options.running} requests running)",
            soft_wrap=True,
        )


def _range(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    return int(low), int(high or low)


def main() -> None:
    """Parse the flags, make the checkpoint, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=96, help="in a round")
    parser.add_argument("--running", type=int, default=64, help="requests at a time (max_num_seqs)")
    parser.add_argument("--prompt", type=_range, default=(16, 64), metavar="A-B", help="tokens of prompts")
    parser.add_argument("--output", type=_range, default=(16, 32), metavar="A-B", help="tokens of answers")
    parser.add_argument("--blocks", type=int, default=750, help="of 32 tokens, in the KV cache")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    vllm = REPO / ".venv-vllm-0.32" / "bin" / "python"
    parser.add_argument("--vllm", type=Path, default=vllm, help="interpreter of vLLM's environment")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = [sys.executable, HERE / "engine_sides" / "checkpoint.py", folder, options.dtype]
        parameters = int(subprocess.run(made, check=True, capture_output=True, text=True).stdout)
        sides = started(options, folder)
        rounds = run(options, sides)
        for side in sides.values():
            side.close()
    show(rounds, options, parameters)


if __name__ == "__main__":
    main()
