"""What is asked of traces alone: how a run went, how two runs differ."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from tokenyard.explain.compare.comparison import TraceComparison, compare_traces
from tokenyard.explain.compare.first_difference import Alignment
from tokenyard.explain.report.classes import Classes, slos_by_class
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.slo import SLOs, read_slos, slo_texts
from tokenyard.explain.report.summary import summarize
from tokenyard.explain.report.trace_classes import classes_of_trace


def report(trace: str | PathLike[str], *, slo: SLOs = None) -> Report:
    """How a recorded run went: a file of its trace, the directory that holds it, or that of the engines of one run.

    ``slo``: bounds that goodput is counted by, ``{"ttft_p90": "500ms"}``. Raises TraceError if there is no trace, no
    step in it, or traces of different runs.
    """
    return summarize(Path(trace), slos=read_slos(slo_texts(slo)))


def report_by(trace: str | PathLike[str], column: str, *, slo: SLOs = None, seconds: float | None = None) -> Classes:
    """A recorded run class by class: by ``priority``, ``lora_name``, ``tenant`` (the hash of the cache salt),
    ``prompt_tokens`` (in ranges), ``job_id`` or ``engine``.

    ``slo``: bounds, of one class as ``0:ttft_p95=1s``, or of all. ``seconds``: of the run, for goodput per second, or
    None. Raises TraceError if there is no trace, ConfigError for a column, or a bound's class, that there is not.
    """
    return classes_of_trace(Path(trace), column, slos=slos_by_class(slo_texts(slo)), seconds=seconds)


def compare_recordings(
    a: str | PathLike[str], b: str | PathLike[str], *, align: Alignment = "step", slo: SLOs = None
) -> TraceComparison:
    """Two recorded runs side by side: settings, every figure, and the first step in which they decide differently.

    ``align``: what is set side by side, moments by ``"step"`` or ``"time"``, or jobs (``"job"``). Raises TraceError if
    either cannot be read.
    """
    return compare_traces(Path(a), Path(b), align, slos=read_slos(slo_texts(slo)))
