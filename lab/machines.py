"""The section of docs/deployments.md on AMD's GPUs and on several machines (lab/generate_deployments.py).

``deployments`` of lab/machines.toml are lines of ``vllm serve``, each with its GPU; what they come to is asked of
the library, as any user would.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fit_gpu import Latency, Throughput, latencies, sources, throughputs
from tokenyard import Deployment
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import MODELS
from tokenyard.steptime.calibrated import CalibratedLatency
from tokenyard.steptime.constants import shipped_constants
from tokenyard.steptime.formula import Parallelism, gpus_together, has_nvlink
from tokenyard.steptime.model import StepShape

SOURCE = Path(__file__).parent / "machines.toml"
DECODES, CONTEXT, PROMPT = 64, 2048, 8192
"""Steps that are priced: so many requests that decode with so much before them, and one prompt."""
GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One deployment of the table."""

    gpu: str
    serve: str

    @cached_property
    def resolved(self) -> Any:
        """What it comes to."""
        return Deployment(f"vllm serve {self.serve}", gpu=self.gpu, vllm_version="0.33").resolve()

    @property
    def num_gpus(self) -> int:
        """GPUs of all engines."""
        return int(self.resolved.settled.num_gpus)

    @property
    def latency(self) -> CalibratedLatency:
        """Its step times."""
        found = self.resolved.latency
        assert isinstance(found, CalibratedLatency)
        return found

    def links(self) -> str:
        """Which links the header took for those between its GPUs."""
        said = next((each for each in self.resolved.assumed if each.name == "machines"), None)
        gpu = self.resolved.settled.gpu
        together = gpus_together(gpu, self.resolved.settled.gpus_per_machine)
        inside = f"{gpu.link_bandwidth / 1e9:g} GB/s"
        kind = f"{inside} links" if has_nvlink(gpu) else f"PCIe, {inside}"
        if self.num_gpus == 1:
            return "none"
        if said is not None and self.num_gpus > together:
            return f"{said.value}: {kind}, {gpu.network_bandwidth / 1e9:g} GB/s between"
        return said.value if said is not None else kind

    def terms(self, shape: StepShape) -> dict[str, float]:
        """Seconds of a step by what they are spent on; the host's part is hidden."""
        terms = self.latency.terms(self.latency.work_of(shape))
        return {name: float(each) for name, each in terms.items() if name != "host"}

    def seconds(self, shape: StepShape) -> float:
        """Seconds of a step."""
        return sum(self.terms(shape).values())


def decodes(requests: int = DECODES, context: int = CONTEXT) -> StepShape:
    """A step in which requests decode."""
    ones = np.ones(requests, np.int64)
    return StepShape(ones, np.full(requests, context, np.int64), requests, requests)


def prompt(tokens: int = PROMPT) -> StepShape:
    """A step that computes one prompt."""
    return StepShape(np.array([tokens]), np.zeros(1, np.int64), 1, tokens)


def machines() -> list[Machine]:
    """The rows of the table."""
    return [Machine(**row) for row in tomllib.loads(SOURCE.read_text())["deployments"]]


WIDE_REQUESTS = (64, 128, 256, 512)
WIDE = (("h200", 8), ("h200", 16), ("h200", 32), ("gb200", 8))


def section() -> dict[str, Any]:
    """What the page says in the place of each name."""
    return {
        "decodes": DECODES,
        "context": CONTEXT,
        "prompt": PROMPT,
        "machines": "\n".join(map(_line, machines())),
        "sources": "\n".join(f"[{said}]({source})." for said, source in sources()),
        "published": "\n".join(_published()),
        "wide": "\n".join(_wide()),
    }


def _published() -> Iterator[str]:
    """What AMD publishes of vLLM, beside what we say of the same."""
    for each in latencies():
        found = each.predicted(shipped_constants())
        yield _compared(each, each.batch, f"{each.seconds:.1f} s", f"{found:.1f} s", found / each.seconds)
    for one in throughputs():
        found = one.predicted()
        cells = f"{one.tokens_per_second:,.0f} tokens/s", f"{found:,.0f} tokens/s"
        yield _compared(one, one.prompts, *cells, found / one.tokens_per_second)


def wide(num_gpus: int, requests: int, gpu: str = "h200", context: int = CONTEXT) -> float:
    """Tokens per second and GPU of DeepSeek R1: an engine on each GPU, all of which share the experts."""
    parallel = Parallelism(data=num_gpus, expert=True)
    latency = CalibratedLatency(MODELS["deepseek-r1"], named_gpu(gpu), parallel=parallel)
    terms = latency.terms(latency.work_of(decodes(requests, context)))
    return requests / sum(float(each) for name, each in terms.items() if name != "host")


def _wide() -> Iterator[str]:
    yield "| GPUs | machines |" + "".join(f" {count} requests a GPU |" for count in WIDE_REQUESTS)
    yield "| ---: | ---: |" + " ---: |" * len(WIDE_REQUESTS)
    for gpu, count in WIDE:
        cells = [f"{wide(count, requests, gpu):,.0f}" for requests in WIDE_REQUESTS]
        machines_taken = -(-count // named_gpu(gpu).gpus_per_machine)
        yield f"| {count} x {gpu} | {machines_taken} | {' | '.join(cells)} |"


def _compared(row: Latency | Throughput, requests: int, published: str, found: str, ratio: float) -> str:
    held = "yes" if in_range(row, ratio) else "no"
    tokens = f"{row.input_tokens:,} + {row.output_tokens:,}"
    return f"| {row.model} | {tokens} | {requests:,} | {published} | {found} | {ratio - 1:+.0%} | {held} |"


def in_range(row: Latency | Throughput, ratio: float) -> bool:
    """Whether a published figure lies in the range of TPOT; ``ratio`` is what we say of it over what is published."""
    latency = CalibratedLatency(
        MODELS[row.model], named_gpu(row.gpu), parallel=Parallelism(tensor=row.tensor), version=row.vllm
    )
    known = latency.known_error().tpot
    return known.low <= (1 / ratio if isinstance(row, Latency) else ratio) <= known.high


def _line(row: Machine) -> str:
    header, known = row.resolved.header, row.latency.known_error()
    cells = [f"`{row.serve}`", f"{row.num_gpus} x {row.gpu}", row.links(), f"{header.weight_gib:.1f}"]
    cells += [f"{header.num_gpu_blocks:,}", f"{header.kv_tokens:,}"]
    for shape in (decodes(), prompt()):
        terms = row.terms(shape)
        total = sum(terms.values())
        cells += [f"{total * 1000:.1f}", f"{terms['links'] / total:.0%}"]
    low, high = known.tpot.low, known.tpot.high
    return "| " + " | ".join([*cells, f"{low:.2f} to {high:.2f}"]) + " |"
