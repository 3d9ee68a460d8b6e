"""What is asked of traces alone: how a run went, in all and class by class, how two runs differ."""

from __future__ import annotations

from math import nan
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tokenyard.errors import ConfigError
from tokenyard.explain.compare.comparison import TraceComparison, compare_traces
from tokenyard.explain.compare.first_difference import Alignment
from tokenyard.explain.render.table import Column, RowTable, column_of
from tokenyard.explain.report.classes import USER, Classes, ClassSLOs, classes_of, latency_columns, slos_by_class
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.slo import SLOs, read_slos, slo_texts
from tokenyard.explain.report.summary import summarize
from tokenyard.explain.why.timeline import timeline_readers
from tokenyard.trace.facts import RequestTimeline
from tokenyard.trace.schema import RequestArrived


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


# ---------------------------------------------------------------------------------------------------------------------
# A trace, class by class: the rows of its requests and of what they waited for.

_CLASSES = ("priority", USER, "lora_name", "tenant", "job_id", "prompt_tokens", "engine")
"""What a trace can be divided by; ``user`` begins a job's id, ``tenant`` is the hash of the cache salt."""
_Row = tuple[int, RequestArrived | None, RequestTimeline]


def classes_of_trace(path: Path | str, by: str, *, slos: ClassSLOs | None = None, seconds: float | None) -> Classes:
    """The requests of a trace, class by class. ``seconds``: of the run, for goodput per second.

    Raises TraceError if there is no trace, ConfigError for a column, or a bound's class, that there is not.
    """
    if by not in _CLASSES:
        known = f"a trace has: {', '.join(_CLASSES)}; `tokenyard run --by` has a log's columns, too"
        raise ConfigError("by", by, known)
    rows = _rows(path)
    return classes_of(_requests(rows), _waits(rows), by, slos=slos, seconds=seconds)


def _rows(path: Path | str) -> list[_Row]:
    """Engine, arrival and timeline of every request, as they end."""
    rows: list[_Row] = []
    for rank, reader in timeline_readers(path):
        arrived: dict[str, RequestArrived] = {}
        for step, ended in reader.with_timelines():
            for each in (*step.arrived, *step.arrived_after):
                if each.req_id is not None:
                    arrived[each.req_id] = each
            rows += [(rank or 0, arrived.pop(each.request_id, None), each) for each in ended]
    return rows


def _requests(rows: list[_Row]) -> RowTable:
    arrived, scheduled, token, finished = (
        np.array([_seconds(getattr(each, f"{name}_us")) for *_, each in rows], np.float64)
        for name in ("arrived", "first_scheduled", "first_token", "finished")
    )
    output = np.array([each.num_output_tokens or 0 for *_, each in rows], np.int64)
    reasons = [each.finish_reason for *_, each in rows]
    columns: dict[str, Column] = {
        "request_id": column_of([each.request_id for *_, each in rows]),
        "job_id": column_of([each.job_id for *_, each in rows]),
        "engine": np.array([engine for engine, *_ in rows], np.int64),
        "prompt_tokens": _counts([each.num_prompt_tokens for *_, each in rows]),
        "cached_tokens": _counts([(each.local_hit_tokens or 0) + (each.external_hit_tokens or 0) for *_, each in rows]),
        "output_tokens": output,
        "preemptions": _counts([len(each.preemptions) for *_, each in rows]),
        **latency_columns(arrived, scheduled, token, finished, output=output, reasons=reasons),
        "finish_reason": column_of(reasons),
        "priority": _counts([None if arrival is None else arrival.priority for _, arrival, _ in rows]),
        "lora_name": column_of([None if arrival is None else arrival.lora_name for _, arrival, _ in rows]),
        "tenant": column_of([None if arrival is None else arrival.cache_salt_hash for _, arrival, _ in rows]),
    }
    return RowTable("requests", columns)


def _waits(rows: list[_Row]) -> RowTable:
    parts = [(each.request_id, part) for *_, each in rows for wait in each.waits for part in wait.parts]
    columns: dict[str, Column] = {
        "request_id": column_of([request_id for request_id, _ in parts]),
        "reason": column_of([str(part.reason) for _, part in parts]),
        "seconds": np.array([part.us for _, part in parts], np.float64) / 1e6,
    }
    return RowTable("waits", columns)


def _seconds(micros: int | None) -> float:
    return nan if micros is None else micros / 1e6


def _counts(values: list[Any]) -> Column:
    return np.array([value or 0 for value in values], np.int64)
