"""The comparison of two traces: one object, whose JSON ``tokenyard compare A B --json`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tokenyard.explain.compare.alignment import Alignment, JobPair, MomentPair, align_jobs, align_moments
from tokenyard.explain.compare.differing_settings import SettingDifference, differing_settings
from tokenyard.explain.compare.figures import Figure, figures
from tokenyard.explain.compare.first_difference import FirstDifference, StateDifference, first_difference
from tokenyard.explain.report.header import Header
from tokenyard.explain.report.slo import SLO, Goodput
from tokenyard.explain.report.summary import summarize

__all__ = ["COMPARISON_VERSION", "TraceComparison", "compare_traces"]

COMPARISON_VERSION = 2


class TraceComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two traces side by side."""

    comparison_version: int = COMPARISON_VERSION
    a: Header
    b: Header
    parting: FirstDifference | None
    """The first step in which they decide differently; None if they never do."""
    states: list[StateDifference]
    """Where their queues, and their free blocks, first differ, up to the step in which they part."""
    settings: list[SettingDifference] | None
    """Every setting whose values differ; None if a trace does not tell its settings."""
    figures: list[Figure]
    """Every number of the two reports."""
    goodput: tuple[Goodput, Goodput] | None = None
    """Of A and of B, where bounds are given."""
    align: Alignment
    rows: list[MomentPair]
    """Both at a dozen places, aligned by step or by time; empty if they are aligned by job."""
    jobs: list[JobPair]
    """The jobs that differ most, if they are aligned by job."""


def compare_traces(
    a: Path | str, b: Path | str, align: Alignment = "step", *, slos: Sequence[SLO] = ()
) -> TraceComparison:
    """Compare two traces; ``slos`` are what goodput is counted by. Raises TraceError if either cannot be read."""
    first, second = summarize(a, slos=slos), summarize(b, slos=slos)
    headers = first.header, second.header
    parting = first_difference(a, b)
    return TraceComparison(
        a=headers[0],
        b=headers[1],
        parting=parting.decision,
        states=parting.states,
        settings=differing_settings(a, b),
        figures=figures(first, second),
        goodput=None if first.goodput is None or second.goodput is None else (first.goodput, second.goodput),
        align=align,
        rows=[] if align == "job" else align_moments(a, b, headers, align),
        jobs=align_jobs(a, b) if align == "job" else [],
    )
