"""Whether two traces are of the same workload: requests, prompts and arrivals beside each other.

Only of the same workload do figures beside each other say what the settings did. Lengths and moments are compared as
distributions, since a host names its requests anew in every run, and sampled answers make the next prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tokenyard.explain.figures import percentile
from tokenyard.trace.reader import TraceReader, find_ranks

ALIKE = 0.1
"""Share by which numbers, lengths and moments may differ, all in all, and still be those of one workload."""
_PERCENTS = range(0, 101, 5)


class WorkloadDifference(msgspec.Struct, frozen=True, kw_only=True):
    """In what the workloads of two traces differ."""

    code: str
    """``requests`` (their number), ``prompts`` (their lengths) or ``arrivals`` (their moments)."""
    a: float
    """Requests, mean prompt tokens, or arrivals a second, of A."""
    b: float

    @property
    def sentence(self) -> str:
        """The same in words."""
        return {
            "requests": f"{self.a:,.0f} requests in A, {self.b:,.0f} in B",
            "prompts": f"prompts of {self.a:,.0f} tokens on average in A, {self.b:,.0f} in B",
            "arrivals": f"{self.a:,.3g} arrivals a second in A, {self.b:,.3g} in B",
        }[self.code]


class _Sent(msgspec.Struct, frozen=True):
    """What a trace was sent."""

    prompts: list[float]
    """Tokens, ascending."""
    moments: list[float]
    """Seconds from the first arrival to each that waited for no other request, ascending."""
    is_open: bool
    """Its clients are known, and do not wait for answers before they send more."""

    @property
    def rate(self) -> float:
        """How many of these arrivals there were in a second."""
        return len(self.moments) / self.moments[-1] if self.moments and self.moments[-1] else 0.0


def workload_differences(a: Path | str, b: Path | str) -> list[WorkloadDifference]:
    """In what the workloads differ; nothing: they are one, as far as the traces tell."""
    first, second = _sent(a), _sent(b)
    numbers = float(len(first.prompts)), float(len(second.prompts))
    if not all(numbers):
        return []
    found = []
    if min(numbers) < (1 - ALIKE) * max(numbers):
        found.append(WorkloadDifference(code="requests", a=numbers[0], b=numbers[1]))
    means = sum(first.prompts) / numbers[0], sum(second.prompts) / numbers[1]
    if _distance(first.prompts, second.prompts) > ALIKE * max(means):
        found.append(WorkloadDifference(code="prompts", a=means[0], b=means[1]))
    if found or (first.is_open and second.is_open):
        span = max(first.moments[-1:] + second.moments[-1:], default=0.0)
        if first.moments and second.moments and _distance(first.moments, second.moments) > ALIKE * span:
            found.append(WorkloadDifference(code="arrivals", a=first.rate, b=second.rate))
    return found


def _distance(a: Sequence[float], b: Sequence[float]) -> float:
    """Mean distance of the percentiles of two distributions."""
    return sum(abs(percentile(a, each) - percentile(b, each)) for each in _PERCENTS) / len(_PERCENTS)


def _sent(path: Path | str) -> _Sent:
    prompts: list[float] = []
    moments: list[float] = []
    is_open = True
    for trace in find_ranks(path):
        reader = TraceReader(trace.files, requests=False)
        for step in reader.steps():
            for arrived in step.arrived:
                if arrived.num_prompt_tokens is not None:
                    prompts.append(arrived.num_prompt_tokens)
                if arrived.arrival_time is not None and not arrived.after:
                    moments.append(arrived.arrival_time)
        sent = {} if reader.start is None else (reader.start.config or {}).get("workload")
        is_open = is_open and isinstance(sent, dict) and bool(sent) and sent.get("max_concurrency") is None
    begin = min(moments, default=0.0)
    return _Sent(sorted(prompts), sorted(each - begin for each in moments), is_open)
