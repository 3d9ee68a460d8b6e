"""Fits factors of a generation of GPUs to latencies that its vendor publishes, and says what they are worth.

    PYTHONPATH=src python lab/fit_gpu.py            fits and prints, a model left out at a time
    PYTHONPATH=src python lab/fit_gpu.py --write    also writes them into constants.json, as ``published``

The common constants stay as they are (``lab/fit_latency.py``). A batch's latency has no more in it than a few
numbers can say, so each factor is held near 1 by a prior; arithmetic keeps the factor 1, since decodes do not show it.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fit_latency import TARGET, written
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import MODELS
from tokenyard.steptime.calibrated import CalibratedLatency
from tokenyard.steptime.constants import Constants, shipped_constants
from tokenyard.steptime.formula import Parallelism, generation
from tokenyard.steptime.model import StepShape

SOURCE = Path(__file__).parent / "published.toml"
GROUPS = ("memory", "kernel", "all_reduce", "link", "kv_memory")
"""What a decode's latency shows. A time per request is not among them: of batches up to 128 it takes what links and
products cost, and thousands of requests at once then come out a quarter too slow."""
PRIOR = 3.0
"""Weight of a factor's logarithm, squared, against a hundred times that of a latency's."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Latency:
    """One published latency of a batch."""

    gpu: str
    vllm: str
    model: str
    tensor: int
    batch: int
    input_tokens: int
    output_tokens: int
    seconds: float

    def predicted(self, constants: Constants) -> float:
        """All prompts in one step, then all decodes. vLLM prepared no step ahead then: the host's part is shown."""
        gpu, parallel = named_gpu(self.gpu), Parallelism(tensor=self.tensor)
        latency = CalibratedLatency(
            MODELS[self.model],
            gpu,
            parallel=parallel,
            version=self.vllm,
            prepared_ahead=False,
            constants=constants,
        )
        new = np.full(self.batch, self.input_tokens, np.int64)
        first = StepShape(new, np.zeros(self.batch, np.int64), self.batch, int(new.sum()))
        decodes = latency.decode_seconds(self.batch, int(new.sum()), self.output_tokens - 1)
        return latency.step_seconds(first) + sum(decodes)


TABLES, CHECKS = "tables", "checks"
"""What factors are fitted to, and other releases on the same GPU, which nothing is fitted to."""


def latencies(of: str = TABLES) -> Iterator[Latency]:
    """All that are published in ``of``."""
    for table in tomllib.loads(SOURCE.read_text())[of]:
        for row in table["latencies"]:
            for batch, seconds in zip(table["batches"], row["seconds"], strict=True):
                yield Latency(
                    gpu=table["gpu"], vllm=table["vllm"], model=row["model"], tensor=table["tensor_parallel_size"],
                    batch=batch, input_tokens=row["input"], output_tokens=row["output"], seconds=seconds,
                )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """One published throughput: so many prompts at once, all of which run together."""

    gpu: str
    vllm: str
    model: str
    tensor: int
    prompts: int
    input_tokens: int
    output_tokens: int
    tokens_per_second: float

    def predicted(self, constants: Constants | None = None) -> float:
        """Output tokens per second: prompts by as many as a step takes, then decodes of all of them."""
        latency = CalibratedLatency(
            MODELS[self.model], named_gpu(self.gpu), parallel=Parallelism(tensor=self.tensor), version=self.vllm,
            kv_cache_dtype="fp8", prepared_ahead=False, constants=constants,
        )  # fmt: skip
        seconds, left = 0.0, self.prompts
        while left > 0:
            count = min(left, _STEP_TOKENS // self.input_tokens)
            new = np.full(count, self.input_tokens, np.int64)
            seconds += latency.step_seconds(StepShape(new, np.zeros(count, np.int64), count, int(new.sum())))
            left -= count
        seconds += sum(latency.decode_seconds(self.prompts, self.prompts * self.input_tokens, self.output_tokens - 1))
        return self.prompts * self.output_tokens / seconds


_STEP_TOKENS = 131_072


def throughputs(of: str = TABLES) -> Iterator[Throughput]:
    """All that are published; nothing is fitted to them."""
    for table in tomllib.loads(SOURCE.read_text())[of]:
        for row in table["throughputs"]:
            yield Throughput(
                gpu=table["gpu"], vllm=table["vllm"], model=row["model"], tensor=table["tensor_parallel_size"],
                prompts=row["prompts"], input_tokens=row["input"], output_tokens=row["output"],
                tokens_per_second=row["tokens_per_second"],
            )  # fmt: skip


def sources(of: str = TABLES) -> Iterator[tuple[str, str]]:
    """What was published, in words, and where."""
    for table in tomllib.loads(SOURCE.read_text())[of]:
        yield table["said"], table["source"]


def with_factors(age: str, factors: dict[str, float]) -> Constants:
    """The shipped constants with these factors of a generation."""
    data = shipped_constants().data
    return Constants({**data, "published": {**data.get("published", {}), age: factors}})


def errors(points: Sequence[Latency], constants: Constants) -> Floats:
    """Predicted over measured, less 1."""
    return np.array([each.predicted(constants) / each.seconds - 1 for each in points])


def fitted(points: Sequence[Latency], age: str) -> dict[str, float]:
    """Factors by least squares of logarithms, each held near 1."""

    def residuals(logs: Floats) -> Floats:
        off = errors(points, with_factors(age, _factors(logs)))
        return np.concatenate([10 * np.log1p(off), np.sqrt(PRIOR) * logs])

    return {name: round(value, 3) for name, value in _factors(_least_squares(residuals, len(GROUPS))).items()}


def _factors(logs: Floats) -> dict[str, float]:
    return {name: float(np.exp(log)) for name, log in zip(GROUPS, logs, strict=True)}


def _least_squares(residuals: Callable[[Floats], Floats], count: int, step: float = 0.02) -> Floats:
    """Levenberg and Marquardt's method, from zeros."""
    at = np.zeros(count)
    off = residuals(at)
    for _ in range(25):
        slopes = np.array([(residuals(at + step * each) - off) / step for each in np.eye(count)]).T
        damping, better = 1e-3, None
        while damping < 1e3 and better is None:
            moved = at - np.linalg.solve(slopes.T @ slopes + damping * np.eye(count), slopes.T @ off)
            left = residuals(moved)
            better = (moved, left) if left @ left < off @ off else None
            damping *= 10
        if better is None or off @ off - better[1] @ better[1] < 1e-6:
            break
        at, off = better
    return at


def left_out(points: Sequence[Latency], age: str) -> dict[str, Floats]:
    """Errors of each model's latencies by factors that were fitted to the others'."""
    found = {}
    for model in dict.fromkeys(each.model for each in points):
        factors = fitted([each for each in points if each.model != model], age)
        found[model] = errors([each for each in points if each.model == model], with_factors(age, factors))
    return found


def of_other_releases(age: str, constants: Constants) -> Iterator[tuple[str, Floats]]:
    """Errors of what nothing was fitted to: latencies and throughputs of the checks of a generation; then what factors
    of those latencies would say of the ones that are fitted to.
    """
    checks = [each for each in latencies(CHECKS) if generation(named_gpu(each.gpu)) == age]
    if not checks:
        return
    yield "latencies", errors(checks, constants)
    rates = [each for each in throughputs(CHECKS) if generation(named_gpu(each.gpu)) == age]
    yield "throughputs", np.array([each.predicted(constants) / each.tokens_per_second - 1 for each in rates])
    own = [each for each in latencies() if generation(named_gpu(each.gpu)) == age]
    yield "the other way round, latencies", errors(own, with_factors(age, fitted(checks, age)))


def said(off: Floats) -> str:
    """Errors in words."""
    return f"median {np.median(abs(off)):.1%}, p90 {np.quantile(abs(off), 0.9):.1%}, worst {abs(off).max():.1%}"


def main() -> None:
    """Fit every generation, print what it is worth; write with ``--write``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {TARGET.name}")
    flags = parser.parse_args()
    points: dict[str, list[Latency]] = {}
    for each in latencies():
        points.setdefault(generation(named_gpu(each.gpu)), []).append(each)
    published: dict[str, Any] = {}
    for age, own in points.items():
        print(f"{age}: {len(own)} latencies")
        print(f"  no factors:     {said(errors(own, with_factors(age, {})))}")
        for model, off in left_out(own, age).items():
            print(f"  {model} left out: {said(off)}")
        published[age] = fitted(own, age)
        beside = [each for each in throughputs() if generation(named_gpu(each.gpu)) == age]
        for name, constants in (("no factors", with_factors(age, {})), ("factors", with_factors(age, published[age]))):
            off = np.array([each.predicted(constants) / each.tokens_per_second - 1 for each in beside])
            print(f"  {len(off)} throughputs, {name}: {said(off)}")
        for name, off in of_other_releases(age, with_factors(age, published[age])):
            print(f"  {len(off)} of another release, {name}: {said(off)}")
        print(f"  all:            {said(errors(own, with_factors(age, published[age])))}: {published[age]}")
    if flags.write:
        TARGET.write_text(written({**json.loads(TARGET.read_text()), "published": published}))
        print(f"wrote {TARGET}")


if __name__ == "__main__":
    main()
