"""The comparison of two traces: figures and settings side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec

from tokenyard.errors import ConfigError
from tokenyard.explain.compare.first_difference import (
    Alignment,
    FirstDifference,
    JobPair,
    MomentPair,
    StateDifference,
    align_jobs,
    align_moments,
    first_difference,
)
from tokenyard.explain.figures import percentile
from tokenyard.explain.report.report import Header, Report
from tokenyard.explain.report.summary import summarize
from tokenyard.explain.slo import SLO, Goodput
from tokenyard.explain.table import Printable, RowTable, table_from
from tokenyard.trace.reader import TraceReader, find_ranks
from tokenyard.trace.schema import TraceStart
from tokenyard.trace.start import settings_of

# ---------------------------------------------------------------------------------------------------------------------
# Every number of two reports, side by side.

_NOT_COMPARED = frozenset(("report_version", "header", "reading", "advice", "arrivals", "disagreements", "progress"))
_FIRST = (
    "duration_s",
    "throughput",
    "goodput",
    "e2e_ms",
    "ttft_ms",
    "tpot_ms",
    "itl_ms",
    "queue_ms",
    "preemptions",
    "recomputed_tokens",
)
_LAST = ("buckets", "reasons")
_ONE_STEP = ("worst", "assumed")
"""Numbers of a single step, or that were assumed, which say nothing beside those of another."""
_LESS_IS_BETTER = (
    "queue_ms",
    "ttft_ms",
    "tpot_ms",
    "itl_ms",
    "e2e_ms",
    "preemptions",
    "recomputed_tokens",
    "recorded_reasons",
    "unseen_s",
)
_MORE_IS_BETTER = ("prefix_hit_rate", "throughput", "goodput")


class Figure(msgspec.Struct, frozen=True):
    """One number of both reports; None where a trace does not have it."""

    name: str
    """Where it stands in the report's JSON: ``ttft_ms.p99``."""
    a: float | None
    b: float | None
    less_is_better: bool | None
    """None if neither more nor less is."""
    censored: tuple[bool, bool] = (False, False)
    """Whether the number of A, and that of B, is a lower bound."""

    @property
    def differs(self) -> bool:
        return self.a != self.b


def figures(a: Report, b: Report) -> list[Figure]:
    """Every number that either report has, those that users feel first."""
    in_a, in_b = dict(_numbers(msgspec.to_builtins(a))), dict(_numbers(msgspec.to_builtins(b)))
    names = sorted([*in_a, *(name for name in in_b if name not in in_a)], key=_rank)
    lower_a, lower_b = set(a.censored), set(b.censored)
    return [
        Figure(name, in_a.get(name), in_b.get(name), _direction(name), (name in lower_a, name in lower_b))
        for name in names
        if in_a.get(name) is not None or in_b.get(name) is not None
    ]


def _numbers(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float | None]]:
    for name, value in fields.items():
        if name in (_ONE_STEP if prefix else _NOT_COMPARED):
            continue
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _numbers(value, path + ".")
        elif value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            yield path, value


def _rank(name: str) -> int:
    """What users feel, then the rest in the order of the report, then the classifier's guesses."""
    top = name.partition(".")[0]
    if top in _FIRST:
        return _FIRST.index(top)
    return len(_FIRST) + (top in _LAST)


def _direction(name: str) -> bool | None:
    top = name.partition(".")[0]
    return True if top in _LESS_IS_BETTER else False if top in _MORE_IS_BETTER else None


# ---------------------------------------------------------------------------------------------------------------------
# The settings in which two traces differ: what was turned between two runs.


class SettingDifference(msgspec.Struct, frozen=True):
    """One setting of both traces; None where a trace does not name it."""

    name: str
    a: Any
    b: Any


def differing_settings(a: Path | str, b: Path | str) -> list[SettingDifference] | None:
    """Every setting whose values differ; None if a trace does not record its settings.

    Of several engines, those of the first one that scheduled anything.
    """
    start_a, start_b = _start(a), _start(b)
    if start_a is None or start_b is None:
        return None
    in_a, in_b = settings_of(start_a), settings_of(start_b)
    differing = [
        SettingDifference(name, in_a.get(name), in_b.get(name))
        for name in in_a | in_b
        if in_a.get(name) != in_b.get(name) and not _is_text(in_a.get(name)) and not _is_text(in_b.get(name))
    ]
    sections = {each.name.rpartition(".")[2] for each in differing if "." in each.name}
    return [each for each in differing if each.name not in sections]


def _is_text(value: Any) -> bool:
    """What a deployment says in sentences: assumptions, flags without effect. Its values stand elsewhere."""
    return isinstance(value, list) and any(isinstance(each, dict | str) for each in value)


def _start(path: Path | str) -> TraceStart | None:
    trace = next(each for each in find_ranks(path) if not each.is_idle)
    reader = TraceReader(trace.files, requests=False)
    next(reader.steps())
    return reader.start


# ---------------------------------------------------------------------------------------------------------------------
# The comparison of two traces: one object, whose JSON ``tokenyard compare A B --json`` prints.

COMPARISON_VERSION = 2


class TraceComparison(Printable, msgspec.Struct, frozen=True, kw_only=True):
    """Two traces side by side."""

    printer = "tokenyard.explain.render.comparison:print_comparison"

    comparison_version: int = COMPARISON_VERSION
    a: Header
    b: Header
    workloads: list[WorkloadDifference] = []
    """In what the workloads of the two differ: figures then say little of the settings. Nothing: they are one."""
    parting: FirstDifference | None
    """The first step in which they decide differently; None if they never do."""
    states: list[StateDifference]
    """Where their queues, and their free blocks, first differ, up to the step in which they part."""
    settings: list[SettingDifference] | None
    """Every setting whose values differ; None if a trace does not record its settings."""
    figures: list[Figure]
    """Every number of the two reports."""
    goodput: tuple[Goodput, Goodput] | None = None
    """Goodput of A and of B, where bounds are given."""
    align: Alignment
    rows: list[MomentPair]
    """Both at a dozen places, aligned by step or by time; empty if they are aligned by job."""
    jobs: list[JobPair]
    """The jobs that differ most, if they are aligned by job."""

    def summary(self) -> str:
        differ = sum(each.differs for each in self.figures)
        first = "decide alike" if self.parting is None else "decide differently"
        codes = ", ".join(each.code for each in self.workloads)
        first = f"other workloads ({codes}); {first}" if codes else first
        return f"{first}; {differ:,} of {len(self.figures):,} figures differ"

    def as_table(self) -> RowTable:
        """One row per figure of the two reports: ``figure``, ``a``, ``b``."""
        return table_from("figures", [{"figure": each.name, "a": each.a, "b": each.b} for each in self.figures])


def compare_traces(
    a: Path | str, b: Path | str, align: Alignment = "step", *, slos: Sequence[SLO] = ()
) -> TraceComparison:
    """Compare two traces; ``slos`` are what goodput is counted by. Raises TraceError if either cannot be read."""
    if align not in get_args(Alignment):
        raise ConfigError("align", align, f"use one of: {', '.join(get_args(Alignment))}")
    first, second = summarize(a, slos=slos), summarize(b, slos=slos)
    headers = first.header, second.header
    parting = first_difference(a, b)
    return TraceComparison(
        a=headers[0],
        b=headers[1],
        workloads=workload_differences(a, b),
        parting=parting.decision,
        states=parting.states,
        settings=differing_settings(a, b),
        figures=figures(first, second),
        goodput=None if first.goodput is None or second.goodput is None else (first.goodput, second.goodput),
        align=align,
        rows=[] if align == "job" else align_moments(a, b, headers, align),
        jobs=align_jobs(a, b) if align == "job" else [],
    )


# ---------------------------------------------------------------------------------------------------------------------
# Whether two traces are of the same workload: requests, prompts and arrivals beside each other.
#
# Only of the same workload do figures beside each other say what the settings did. Lengths and moments are compared as
# distributions, since a host names its requests anew in every run, and sampled answers make the next prompts.

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
