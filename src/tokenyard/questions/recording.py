"""Questions to a run that left a trace: its report, why requests waited, how it differs from another one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from os import PathLike, fspath

from tokenyard.arguments import given_path, suggests_keywords
from tokenyard.deploy.deployment import Deployment
from tokenyard.explain.compare.comparison import TraceComparison
from tokenyard.explain.compare.first_difference import Alignment
from tokenyard.explain.recorded import RecordedRows, compare_recordings, report
from tokenyard.explain.report.report import Report
from tokenyard.explain.slo import SLOs
from tokenyard.explain.table import RowTable
from tokenyard.explain.why.prefix import PrefixMisses, prefix_misses
from tokenyard.explain.why.stuck import Standstills, standstills
from tokenyard.explain.why.why import Waiting, Why, waiting, why
from tokenyard.questions.recorded.answer import WhatIf
from tokenyard.questions.scenario import OnProgress
from tokenyard.questions.whatif import Changes, whatif
from tokenyard.trace.reader import find_ranks


class Recording:
    """A run that left a trace, of ``vllm serve``, of ``tokenyard serve`` or of a replay, to ask about.

    ``Recording("traces/monday").whatif({"kv": {"num_gpu_blocks_override": 20_000}})``. ``print`` shows its report.
    """

    @suggests_keywords()
    def __init__(self, trace: str | PathLike[str], *, recorded: Deployment | None = None) -> None:
        """``trace``: a directory, or a file of a trace. ``recorded``: what it was recorded on, if it does not say.

        Raises TraceError where there is none.
        """
        self.path = given_path("trace", trace)
        """Where its trace is."""
        self.recorded = recorded
        """What it was recorded on, where the user gave that."""
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

    @cached_property
    def _rows(self) -> RecordedRows:
        return RecordedRows(self.path)

    @property
    def requests(self) -> RowTable:
        """One row per request that came: see :attr:`RunResult.requests`. The trace is read for the tables once."""
        return self._rows.requests

    @property
    def steps(self) -> RowTable:
        """One row per recorded step of each engine: see :attr:`RunResult.steps`."""
        return self._rows.steps

    @property
    def waits(self) -> RowTable:
        """One row per stretch of waiting, with its reason: see :attr:`RunResult.waits`."""
        return self._rows.waits

    @suggests_keywords()
    def report(self, *, slo: SLOs = None) -> Report:
        """How it went: see :func:`tokenyard.report`."""
        return self._report if slo is None else report(self.path, slo=slo)

    @suggests_keywords()
    def why(self, request_id: str) -> Why:
        """Why one request waited: see :func:`tokenyard.why`."""
        return why(self.path, request_id)

    @suggests_keywords()
    def waiting(self, job_id: str | None = None) -> Waiting:
        """The requests that waited longest, and for what, of all or of one job: see :func:`tokenyard.waiting`."""
        return waiting(self.path, job_id)

    def standstills(self) -> Standstills:
        """Where it did not move although requests waited."""
        return standstills(self.path)

    @suggests_keywords()
    def prefix_misses(self, request_id: str | None = None) -> PrefixMisses:
        """Explain what prompts, or that of one request, did not find in the prefix cache."""
        return prefix_misses(self.path, request_id)

    @suggests_keywords()
    def compare(self, other: str | PathLike[str], *, align: Alignment = "step", slo: SLOs = None) -> TraceComparison:
        """This run beside another one: see :func:`tokenyard.compare_recordings`."""
        return compare_recordings(self.path, other, align=align, slo=slo)

    @suggests_keywords()
    def whatif(self, changes: Changes | Sequence[Changes] = (), *, progress: OnProgress | bool | None = None) -> WhatIf:
        """What other settings would have done to it: see :func:`tokenyard.whatif`."""
        return whatif(self.path, changes, recorded=self.recorded, progress=progress)
