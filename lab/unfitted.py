"""Says how far predictions lie from measured runs that no constant is fitted to (``unfitted.toml``).

    PYTHONPATH=src python lab/unfitted.py

Requests came at a fixed rate, so that as many decode at once as arrive in the time that one takes: that number, and
with it the time of a step, is found by going round.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tokenyard.models.formats import WeightFormat
from tokenyard.models.gpus import named_gpu
from tokenyard.models.layers import MoE
from tokenyard.models.named import MODELS
from tokenyard.models.spec import ModelSpec
from tokenyard.steptime.calibrated import CalibratedLatency
from tokenyard.steptime.constants import Constants
from tokenyard.steptime.formula import Parallelism
from tokenyard.steptime.model import StepShape

SOURCE = Path(__file__).parent / "unfitted.toml"
FP8 = WeightFormat(name="fp8", bits=8, compute="float8")
_NEW = 16
"""Tokens of a prompt that are not found in the prefix cache: those of its last block."""
_ROUNDS = 30

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Run:
    """Requests at one rate."""

    model: str
    spec: ModelSpec
    gpu: str
    tensor: int
    vllm: str
    rate: float
    input_tokens: int
    output_tokens: int
    request: float
    """Mean seconds from sending a request to its last token."""
    ttft: float
    new: int = _NEW
    """Tokens of a prompt that are computed."""

    @property
    def tpot(self) -> float:
        """Measured, the mean."""
        return (self.request - self.ttft) / (self.output_tokens - 1)

    def predicted(self, constants: Constants | None = None) -> float:
        """Seconds per token: steps of decodes alone, and as many with the end of a prompt as prompts come."""
        latency = CalibratedLatency(
            self.spec,
            named_gpu(self.gpu),
            parallel=Parallelism(tensor=self.tensor),
            version=self.vllm,
            constants=constants,
        )
        tpot = 0.02
        for _ in range(_ROUNDS):
            decodes = max(1, round(self.rate * tpot * (self.output_tokens - 1)))
            alone, mixed = (self._step(latency, decodes, prompts) for prompts in (0, 1))
            share = min(1.0, self.rate * tpot)
            tpot = (tpot + alone * (1 - share) + mixed * share) / 2
        return tpot

    def _step(self, latency: CalibratedLatency, decodes: int, prompts: int) -> float:
        new = np.concatenate((np.ones(decodes, np.int64), np.full(prompts, self.new)))
        held = self.input_tokens + self.output_tokens // 2
        before = np.concatenate((np.full(decodes, held), np.full(prompts, self.input_tokens - self.new)))
        shape = StepShape(new, before, decodes + prompts, int(new.sum()))
        return latency.step_seconds(shape) - latency.host_seconds


def runs() -> Iterator[Run]:
    """All of them."""
    found = tomllib.loads(SOURCE.read_text())
    for each in found["deployments"]:
        spec = MODELS[each["model"]]
        spec = spec if "precision" not in each else _with_experts_in_fp8(spec)
        for rate, prompt, answer, request, ttft in each["runs"]:
            yield Run(
                model=each["model"],
                spec=spec,
                gpu=each["gpu"],
                tensor=each["tensor_parallel_size"],
                vllm=each.get("vllm", found["vllm"]),
                rate=rate,
                input_tokens=prompt,
                output_tokens=answer,
                request=request,
                ttft=ttft,
                new=prompt if each.get("prompts_are_new") else _NEW,
            )


def _with_experts_in_fp8(spec: ModelSpec) -> ModelSpec:
    layers = [
        replace(layer, mlp=replace(layer.mlp, weights=FP8, shared_weights=FP8)) if isinstance(layer.mlp, MoE) else layer
        for layer in spec.layers
    ]
    return replace(spec, layers=tuple(layers))


def errors(constants: Constants | None = None) -> dict[tuple[str, str, int], Floats]:
    """Model, GPU and tensor-parallel size -> predicted over measured, less 1."""
    found: dict[tuple[str, str, int], list[float]] = {}
    for run in runs():
        off = run.predicted(constants) / run.tpot - 1
        found.setdefault((run.model, run.gpu, run.tensor), []).append(off)
    return {key: np.array(each) for key, each in found.items()}


def table(constants: Constants | None = None) -> Iterator[str]:
    """The errors as lines of a table."""
    found = errors(constants)
    yield "| model | GPU | TP | runs | TPOT, lowest to highest error |\n| --- | --- | --: | --: | --: |\n"
    for (model, gpu, tensor), off in found.items():
        yield f"| {model} | {gpu} | {tensor} | {len(off)} | {off.min():+.1%} to {off.max():+.1%} |\n"
    every = np.abs(np.concatenate(list(found.values())))
    yield f"\n{len(every)} runs: median {np.median(every):.1%}, p90 {np.quantile(every, 0.9):.1%}.\n"


def main() -> None:
    """Print the table."""
    print("".join(table()))


if __name__ == "__main__":
    main()
