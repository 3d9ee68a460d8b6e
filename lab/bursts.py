"""Says how far predictions lie from measured bursts that no constant is fitted to (``bursts.toml``).

    PYTHONPATH=src python lab/bursts.py

A burst is a closed loop of one round: so many users, each with one request. Answers of a few tokens measure how quickly
a server takes requests, which is not predicted; the last lines say the errors with and without them, and how many
measured values lie within the ranges that a report would state.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tokenyard.core.profiles import OLDEST
from tokenyard.errors import ConfigError
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import MODELS
from tokenyard.questions.accuracy.measured_run import ClosedLoop, run_closed_loop
from tokenyard.questions.accuracy.points import kv_tokens
from tokenyard.steptime.calibrated import CalibratedLatency
from tokenyard.steptime.formula import Parallelism
from tokenyard.steptime.known_error import SentLoad

SOURCE = Path(__file__).parent / "bursts.toml"
_BLOCK = 16
_FEW = 16
"""Tokens of an answer, up to which a run measures the way to the engine more than the engine."""
_SAMPLED = 512
"""Requests that vLLM measures the peak of sampling with, about, as in the points of docs/accuracy.md."""
_MEMORY = 0.9
"""vLLM's default share of a GPU's memory."""


@dataclass(frozen=True, kw_only=True)
class Burst:
    """One run, measured and predicted; seconds."""

    model: str
    gpu: str
    tensor: int
    async_scheduling: bool
    requests: int
    input_tokens: int
    output_tokens: int
    measured: tuple[float, float, float]
    """Until the last ends, mean to the first token, mean per token after it."""
    predicted: tuple[float, float, float]
    in_range: tuple[bool, bool]
    """Whether TTFT and TPOT lie within the stated ranges."""

    @property
    def errors(self) -> tuple[float, ...]:
        """Predicted over measured, less 1."""
        return tuple(ours / theirs - 1 for ours, theirs in zip(self.predicted, self.measured, strict=True))


def bursts() -> Iterator[Burst]:
    """All of them."""
    for each in tomllib.loads(SOURCE.read_text())["deployments"]:
        spec, gpu = MODELS[each["model"]], named_gpu(each["gpu"])
        parallel = Parallelism(tensor=each["tensor_parallel_size"])
        latency = CalibratedLatency(
            spec, gpu, parallel=parallel, version=each["vllm"], prepared_ahead=each["async_scheduling"]
        )
        try:
            held = kv_tokens(
                spec,
                gpu,
                parallel,
                gpu_memory_utilization=_MEMORY,
                kv_cache_dtype=None,
                max_num_batched_tokens=each["max_num_batched_tokens"],
                max_num_seqs=min(each["max_num_seqs"], _SAMPLED),
            )
        except ConfigError as error:
            print(f"{len(each['runs'])} runs without a prediction: {error}")
            continue
        for requests, prompt, answer, *measured in each["runs"]:
            loop = ClosedLoop(
                users=requests,
                input_tokens=prompt,
                output_tokens=answer,
                shortest=1.0,
                rounds=1,
                max_num_batched_tokens=each["max_num_batched_tokens"],
                max_num_seqs=each["max_num_seqs"],
                num_gpu_blocks=int(max(held, 1.1 * (prompt + answer))) // _BLOCK,
                block_size=_BLOCK,
                profile=OLDEST,
            )
            schedule = run_closed_loop(loop, 1)
            host = 0.0 if each["async_scheduling"] else latency.host_seconds
            waits, paces = schedule.times(latency.rows_seconds(schedule.work) + host)
            ends = waits + paces * (answer - 1)
            ttft, tpot = float(waits.mean()), float(paces.mean())
            known = latency.known_error(SentLoad(users=requests, input_tokens=prompt, output_tokens=answer))
            ranges = known.ttft.around(ttft), known.tpot.around(tpot)
            yield Burst(
                model=each["model"],
                gpu=each["gpu"],
                tensor=parallel.tensor,
                async_scheduling=each["async_scheduling"],
                requests=requests,
                input_tokens=prompt,
                output_tokens=answer,
                measured=(measured[0], measured[1], measured[2]),
                predicted=(float(ends.max()), ttft, tpot),
                in_range=(ranges[0][0] <= measured[1] <= ranges[0][1], ranges[1][0] <= measured[2] <= ranges[1][1]),
            )


def table(every: Sequence[Burst]) -> Iterator[str]:
    """The errors by deployment, and of all, as lines of a table."""
    yield "| model | GPU | TP | runs | duration | TTFT | TPOT |\n| --- | --- | --: | --: | --: | --: | --: |\n"
    groups: dict[tuple[str, str, int], list[Burst]] = {}
    for each in every:
        name = each.model + (", a step ahead" if each.async_scheduling else "")
        groups.setdefault((name, each.gpu, each.tensor), []).append(each)
    for (name, gpu, tensor), own in groups.items():
        off = np.array([each.errors for each in own])
        cells = " | ".join(f"{off[:, i].min():+.0%} to {off[:, i].max():+.0%}" for i in range(off.shape[1]))
        yield f"| {name} | {gpu} | {tensor} | {len(own)} | {cells} |\n"
    yield "\n"
    yield _summary("All", every)
    yield _summary("With answers of 17 tokens and more", [each for each in every if each.output_tokens > _FEW])


def _summary(what: str, some: Sequence[Burst]) -> str:
    off = np.array([each.errors for each in some])
    middle, most = np.median(np.abs(off), axis=0), np.quantile(np.abs(off), 0.9, axis=0)
    shares = np.mean([each.in_range for each in some], axis=0)
    said = ", ".join(
        f"{name} {middle[i]:.1%} and {most[i]:.1%} (as a whole {np.median(off[:, i]):+.1%})"
        for i, name in enumerate(("duration", "TTFT", "TPOT"))
    )
    within = f"within the stated ranges {shares[0]:.0%} of TTFT and {shares[1]:.0%} of TPOT"
    return f"{what}, {len(some)} runs, median and p90: {said}; {within}.\n"


def main() -> None:
    """Print every run, and the tables."""
    every = [*bursts()]
    for each in every:
        lengths = f"{each.requests:,} x {each.input_tokens:,}+{each.output_tokens}"
        said = " ".join(f"{error:+.0%}" for error in each.errors)
        print(f"{each.model} {each.gpu} TP {each.tensor}: {lengths} in {each.measured[0]:.1f} s: {said}")
    print("".join(table(every)))


if __name__ == "__main__":
    main()
