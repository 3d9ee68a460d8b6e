"""What may be asked of a run that left a trace: its report, why requests waited, how it differs from another one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path

from tokenyard.deploy.deployment import Deployment
from tokenyard.explain.compare.comparison import TraceComparison, compare_traces
from tokenyard.explain.compare.first_difference import Alignment
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.slo import read_slos
from tokenyard.explain.report.summary import summarize
from tokenyard.explain.why.longest_waits import Waiting, waiting
from tokenyard.explain.why.stuck import Standstills, standstills
from tokenyard.explain.why.why import JobNamedError, Why
from tokenyard.explain.why.why import why as why_of_request
from tokenyard.questions.recorded.answer import WhatIf
from tokenyard.questions.scenario import OnProgress, SLOs, slo_texts
from tokenyard.questions.whatif import Changes, whatif
from tokenyard.trace.reader import find_ranks

__all__ = ["Recording", "compare_recordings", "report", "why"]


def report(trace: str | PathLike[str], *, slo: SLOs = None) -> Report:
    """How a recorded run went: a file of its trace, the directory that holds it, or that of the engines of one run.

    ``slo``: bounds that goodput is counted by, ``{"ttft_p90": "500ms"}``. Raises TraceError if there is no trace, no
    step in it, or traces of different runs.
    """
    return summarize(Path(trace), slos=read_slos(slo_texts(slo)))


def why(trace: str | PathLike[str], request_id: str | None = None) -> Why | Waiting:
    """Why one request of a trace waited; of a job, or of all where none is named, who waited longest, and for what.

    Raises TraceError for an id that the trace does not have.
    """
    if request_id is None:
        return waiting(Path(trace))
    try:
        return why_of_request(Path(trace), request_id)
    except JobNamedError:
        return waiting(Path(trace), request_id)


def compare_recordings(
    a: str | PathLike[str], b: str | PathLike[str], *, align: Alignment = "step", slo: SLOs = None
) -> TraceComparison:
    """Two recorded runs side by side: settings, every figure, and the first step in which they decide differently.

    ``align``: what is set side by side, moments by ``"step"`` or ``"time"``, or jobs (``"job"``). Raises TraceError if
    either cannot be read.
    """
    return compare_traces(Path(a), Path(b), align, slos=read_slos(slo_texts(slo)))


class Recording:
    """A run that left a trace, of ``vllm serve``, of ``tokenyard serve`` or of a replay, to ask about.

    ``Recording("traces/monday").whatif({"kv": {"num_gpu_blocks_override": 20_000}})``. ``print`` shows its report.
    """

    def __init__(self, trace: str | PathLike[str], *, recorded: Deployment | None = None) -> None:
        """``trace``: a directory, or a file of a trace. ``recorded``: what it was recorded on, if it does not say.

        Raises TraceError where there is none.
        """
        self.path = Path(trace)
        """Where its trace is."""
        self.recorded = recorded
        """What it was recorded on, where somebody has said."""
        find_ranks(self.path)

    def __fspath__(self) -> str:
        return fspath(self.path)

    def __repr__(self) -> str:
        return f"Recording({str(self.path)!r})"

    def __str__(self) -> str:
        return str(self._report)

    def _repr_html_(self) -> str:
        return self._report._repr_html_()

    @cached_property
    def _report(self) -> Report:
        return report(self.path)

    def report(self, *, slo: SLOs = None) -> Report:
        """How it went: see :func:`tokenyard.report`."""
        return self._report if slo is None else report(self.path, slo=slo)

    def why(self, request_id: str | None = None) -> Why | Waiting:
        """Why one request waited, or who waited longest: see :func:`tokenyard.why`."""
        return why(self.path, request_id)

    def standstills(self) -> Standstills:
        """Where it did not move although requests waited."""
        return standstills(self.path)

    def compare(self, other: str | PathLike[str], *, align: Alignment = "step", slo: SLOs = None) -> TraceComparison:
        """This run beside another one: see :func:`tokenyard.compare_recordings`."""
        return compare_recordings(self.path, other, align=align, slo=slo)

    def whatif(self, changes: Changes | Sequence[Changes] = (), *, progress: OnProgress | bool | None = None) -> WhatIf:
        """What other settings would have done to it: see :func:`tokenyard.whatif`."""
        return whatif(self.path, changes, recorded=self.recorded, progress=progress)
