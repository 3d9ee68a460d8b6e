"""Other simulators and Tokenyard on the same requests, in turns: CPU time of the whole process, and what each predicts.

    python benchmarks/peers.py [--rounds 3] [--only TEXT] [--json]          (make bench-peers)

A peer is installed by pip into an environment of its own, below `.venv-peers`, at the first run. All get the same
requests, KV blocks, and limits per step; step times are each tool's own, so that their predictions show what a user
would be told, not which is right. What cannot be installed, or not run, is named. The recorded workloads are in the
folder of shared data (`shared` beside the repository, or TOKENYARD_SHARED).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tokenyard.workload.load import read_workload

__all__ = ["main"]

HERE = Path(__file__).resolve().parent
SIDES = HERE / "peer_sides"
ENVIRONMENTS = HERE.parent / ".venv-peers"
TRACE_BLOCK = 512
"""Tokens that one hash id of Mooncake's stands for."""


class Case(NamedTuple):
    """A workload, and who serves it."""

    name: str
    trace: str
    limit: int
    words: tuple[str, ...]


CASES = (
    Case(
        "Mooncake's conversations, overload",
        "mooncake_conversation.jsonl.gz",
        1000,
        ("--gpu", "h100", "--max-num-seqs", "1024", "--max-num-batched-tokens", "8192"),
    ),
    Case(
        "Mooncake's conversations, all",
        "mooncake_conversation.jsonl.gz",
        12_031,
        ("--gpu", "h100", "--max-num-seqs", "1024", "--max-num-batched-tokens", "8192"),
    ),
    Case(
        "Azure's conversations of 2023",
        "azure2023_conv.csv.gz",
        2000,
        ("--gpu", "a100-80gb", "--max-num-seqs", "256", "--max-num-batched-tokens", "2048"),
    ),
)


class Peer(NamedTuple):
    """Another simulator, and how pip gets it."""

    name: str
    side: str
    """The beginning of its module's name in `peer_sides`."""
    packages: tuple[str, ...]
    needed: tuple[str, ...]
    """What a replay imports of the packages' many requirements."""


PEERS = (
    Peer("Dynamo 1.6.1", "dynamo", ("ai-dynamo==1.6.1", "ai-dynamo-runtime==1.6.1"), ("typing-extensions>=4.10",)),
)
NOT_RUN = {
    "Vidur": "its package (0.0.26) installs, but holds none of the GPU profiles from which it learns step times",
    "AISimulate": "its package fetches from a registry of NVIDIA's; Dynamo's replay is the same core",
    "Inference Lab": "no package: its repository is built with cargo",
    "BLIS": "no package: its repository is built with Go",
    "LLMServingSim": "no package: a container with ASTRA-Sim",
}
"""What pip does not get, and why."""


class Run(NamedTuple):
    """One process."""

    cpu_s: float
    max_rss_mb: float
    said: dict[str, Any]


def run(command: Sequence[str], environment: dict[str, str]) -> Run:
    """Run to the end; its CPU time, user and system, and what it printed. Raises RuntimeError where it fails."""
    with TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(list(command), stdout=stdout, stderr=stderr, env=environment)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{command[0]}: {err.read_text(errors='replace').strip()[-500:]}")
        return Run(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, json.loads(out.read_text()))


def python_of(peer: Peer) -> Path:
    """The interpreter of its environment, which is made at the first call. Raises CalledProcessError."""
    folder = ENVIRONMENTS / peer.side
    python = folder / "bin" / "python"
    if not (folder / "whole").exists():
        print(f"installing {peer.name} into {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *peer.needed], check=True, stdout=sys.stderr)
        subprocess.run([*pip, "--no-deps", *peer.packages], check=True, stdout=sys.stderr)
        (folder / "whole").touch()
    return python


def in_mooncakes_format(path: Path, limit: int, into: Path) -> None:
    """The requests of a trace as Mooncake writes them; prompts of traces without hashes share nothing."""
    lines: list[str] = []
    taken = 0
    if path.name.endswith(".jsonl.gz"):
        with gzip.open(path, "rt", encoding="utf-8") as recorded:
            lines = list(islice(recorded, limit))
    else:
        for request in read_workload(path, limit=limit):
            blocks = -(-request.num_prompt_tokens // TRACE_BLOCK)
            record = {
                "timestamp": round(1e3 * request.arrival_time),
                "input_length": request.num_prompt_tokens,
                "output_length": request.max_tokens,
                "hash_ids": list(range(taken, taken + blocks)),
            }
            taken += blocks
            lines.append(json.dumps(record) + "\n")
    into.write_text("".join(lines))


def ours(trace: Path, case: Case) -> list[str]:
    """The command of a replay of ours."""
    words = ("run", str(trace), "--limit", str(case.limit), "--model", "llama-3.1-8b", *case.words)
    return [sys.executable, "-m", "tokenyard.cli.main", *words, "--advice", "none", "--json"]


def our_figures(report: dict[str, Any]) -> dict[str, Any]:
    """What a report says, under the names of the peers' figures."""
    return {
        "requests": report["requests_finished"],
        "ttft_mean_ms": report["ttft_ms"]["mean"],
        "ttft_p99_ms": report["ttft_ms"]["p99"],
        "tpot_mean_ms": report["tpot_ms"]["mean"],
        "tpot_p99_ms": report["tpot_ms"]["p99"],
        "tokens_per_s": report["throughput"]["output_tokens_per_s"],
        "hit_rate": report["prefix_hit_rate"]["local"],
    }


def measure(case: Case, traces: Path, pythons: dict[str, Path], rounds: int) -> dict[str, list[Run]]:
    """The runs of everybody, in turns."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    found: dict[str, list[Run]] = {}
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "trace.jsonl"
        in_mooncakes_format(traces / case.trace, case.limit, copy)
        first = run(ours(traces / case.trace, case), environment)  # also compiles modules to bytecode
        header = first.said["header"]
        settings = {name: header[name] for name in ("num_gpu_blocks", "block_size", "max_num_seqs")}
        settings |= {"max_num_batched_tokens": header["max_num_batched_tokens"], "trace_block_size": TRACE_BLOCK}
        commands = {"Tokenyard": ours(traces / case.trace, case)} | {
            peer.name: [str(pythons[peer.name]), str(SIDES / f"{peer.side}_side.py"), str(copy), json.dumps(settings)]
            for peer in PEERS
            if peer.name in pythons
        }
        for _ in range(rounds):
            for name, command in commands.items():
                done = run(command, environment)
                figures = our_figures(done.said) if name == "Tokenyard" else done.said
                found.setdefault(name, []).append(done._replace(said=figures))
    return found


def rows_of(found: dict[str, list[Run]]) -> dict[str, dict[str, Any]]:
    """Per tool: median CPU time, its ratio to ours, and what it predicts."""
    cpu = {name: median(each.cpu_s for each in runs) for name, runs in found.items()}
    return {
        name: {
            "cpu_s": cpu[name],
            "ours_over_it": cpu["Tokenyard"] / cpu[name],
            "max_rss_mb": max(each.max_rss_mb for each in runs),
            **runs[-1].said,
        }
        for name, runs in found.items()
    }


def show(case: Case, rows: dict[str, dict[str, Any]]) -> None:
    """A table of one case."""
    print(f"\n{case.name}: {case.limit:,} requests")
    print(f"  {'':14}    CPU s  ours/it     MB   TTFT mean / p99 s   TPOT mean / p99 ms  tokens/s   hits")
    for name, row in rows.items():
        ttft = f"{row['ttft_mean_ms'] / 1e3:.2f} / {row['ttft_p99_ms'] / 1e3:.2f}"
        tpot = f"{row['tpot_mean_ms']:.1f} / {row['tpot_p99_ms']:.1f}"
        costs = f"{row['cpu_s']:8.2f} {row['ours_over_it']:8.2f} {row['max_rss_mb']:6.0f}"
        print(f"  {name:14} {costs} {ttft:>19} {tpot:>20} {row['tokens_per_s']:9.1f} {row['hit_rate']:6.1%}")


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 if no peer could be run."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    parser.add_argument("--json", action="store_true")
    flags = parser.parse_args(arguments)
    traces = Path(os.environ.get("TOKENYARD_SHARED") or HERE.parents[1] / "shared") / "data" / "traces"
    pythons, not_run = {}, dict(NOT_RUN)
    for peer in PEERS:
        try:
            pythons[peer.name] = python_of(peer)
        except (OSError, subprocess.CalledProcessError) as error:
            not_run[peer.name] = f"cannot be installed: {error}"
    answers = {}
    for case in CASES:
        if flags.only not in case.name:
            continue
        answers[case.name] = rows_of(measure(case, traces, pythons, flags.rounds))
        if not flags.json:
            show(case, answers[case.name])
    if flags.json:
        print(json.dumps({"cases": answers, "not_run": not_run}, indent=2))
    else:
        print("\nNot run")
        for name, why in not_run.items():
            print(f"  {name:14} {why}")
    return 0 if pythons else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
