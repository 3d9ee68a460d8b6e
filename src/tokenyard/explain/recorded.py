"""What is asked of traces alone: how a run went, how two runs differ."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from tokenyard.explain.compare.comparison import TraceComparison, compare_traces
from tokenyard.explain.compare.first_difference import Alignment
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.slo import SLOs, read_slos, slo_texts
from tokenyard.explain.report.summary import summarize


def report(trace: str | PathLike[str], *, slo: SLOs = None) -> Report:
    """How a recorded run went: a file of its trace, the directory that holds it, or that of the engines of one run.

    ``slo``: bounds that goodput is counted by, ``{"ttft_p90": "500ms"}``. Raises TraceError if there is no trace, no
    step in it, or traces of different runs.
    """
    return summarize(Path(trace), slos=read_slos(slo_texts(slo)))


def compare_recordings(
    a: str | PathLike[str], b: str | PathLike[str], *, align: Alignment = "step", slo: SLOs = None
) -> TraceComparison:
    """Two recorded runs side by side: settings, every figure, and the first step in which they decide differently.

    ``align``: what is set side by side, moments by ``"step"`` or ``"time"``, or jobs (``"job"``). Raises TraceError if
    either cannot be read.
    """
    return compare_traces(Path(a), Path(b), align, slos=read_slos(slo_texts(slo)))
