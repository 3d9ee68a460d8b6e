"""Questions to traces alone: how a run went, in all and class by class, how two runs differ."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from math import nan
from os import PathLike
from pathlib import Path

import numpy as np

from tokenyard.arguments import given_path, suggests_keywords
from tokenyard.errors import ConfigError
from tokenyard.explain.answer.answer import Answer
from tokenyard.explain.compare.comparison import TraceComparison, compare_traces
from tokenyard.explain.compare.first_difference import Alignment
from tokenyard.explain.report.classes import USER, Classes, ClassSLOs, bounded_classes, classes_of, slos_by_class
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.summary import advised, summarize, summarized
from tokenyard.explain.rows import (
    STEP_COLUMNS,
    RequestEntry,
    WaitEntry,
    requests_table,
    steps_table,
    waits_table,
)
from tokenyard.explain.slo import SLOs, read_slos, slo_texts
from tokenyard.explain.table import RowTable
from tokenyard.explain.why.cause_log import CauseLog, WaitPiece
from tokenyard.explain.why.timeline import TimelineReader
from tokenyard.trace.facts import CLASSIFIER_BLOCK_SIZE, RequestTimeline, Wait, micros
from tokenyard.trace.held_back import Cause, HeldBack
from tokenyard.trace.reader import RankTrace, find_ranks
from tokenyard.trace.schema import AdmissionOutcome, RequestArrived
from tokenyard.trace.steps import Step, facts_of
from tokenyard.vocabulary import WaitState


@suggests_keywords()
def report(trace: str | PathLike[str], *, slo: SLOs = None) -> Report:
    """How a recorded run went: a file of its trace, the directory that holds it, or that of the engines of one run.

    ``slo``: bounds that goodput is counted by, ``{"ttft_p90": "500ms"}``. Raises TraceError if there is no trace, no
    step in it, or traces of different runs.
    """
    return summarize(given_path("trace", trace), slos=read_slos(slo_texts(slo)))


@suggests_keywords()
def answer(
    trace: str | PathLike[str], *, first_step: int | None = None, last_step: int | None = None, slo: SLOs = None
) -> Answer:
    """What is wrong with a recorded run, since when, whose requests it is, what would help, and how sure that is: over
    all its engines, about everybody who was there.

    ``first_step`` and ``last_step``: the steps that are looked at. Raises TraceError as :func:`report` does, also where
    there is no step between them.
    """
    between = (first_step, last_step)
    return summarize(given_path("trace", trace), slos=read_slos(slo_texts(slo)), between=between).answer


def report_by(trace: str | PathLike[str], column: str, *, slo: SLOs = None) -> tuple[Report, Classes]:
    """How a recorded run went, and the same class by class: by ``priority``, ``lora_name``, ``tenant`` (the hash of the
    cache salt), ``prompt_tokens`` (in ranges), ``job_id`` or ``engine``.

    ``slo``: bounds, of one class as ``0:ttft_p95=1s``, or of all; the report's advice is about those of classes, too.
    Raises TraceError if there is no trace, ConfigError for a column, or a bound's class, that there is not.
    """
    slos = slos_by_class(slo_texts(slo))
    found, builders = summarized(Path(trace))
    classes = classes_of_trace(Path(trace), column, slos=slos, seconds=found.duration_s)
    return advised(found, builders, bounded_classes(classes, slos)), classes


@suggests_keywords()
def compare_recordings(
    a: str | PathLike[str], b: str | PathLike[str], *, align: Alignment = "step", slo: SLOs = None
) -> TraceComparison:
    """Two recorded runs side by side: settings, every figure, and the first step in which they decide differently.

    ``align``: what is set side by side, moments by ``"step"`` or ``"time"``, or jobs (``"job"``). Raises TraceError if
    either cannot be read.
    """
    return compare_traces(given_path("a", a), given_path("b", b), align, slos=read_slos(slo_texts(slo)))


# ---------------------------------------------------------------------------------------------------------------------
# A trace, row by row: its requests, its steps, and what requests waited for.


class RecordedRows:
    """Tables of a trace: ``requests``, ``steps``, ``waits``, as a replay has them."""

    def __init__(self, path: Path | str) -> None:
        """Read it. Raises TraceError if there is no trace, or traces of different runs."""
        traces = [trace for trace in find_ranks(path) if not trace.is_idle]
        engines = [(trace.rank or 0, _RowsOfEngine(trace)) for trace in traces]
        self._requests = [(rank, *each) for rank, engine in engines for each in engine.requests]
        self._requests.sort(key=lambda each: each[2].arrived_us or 0)
        self._engines = [(rank, engine.steps) for rank, engine in engines]

    @cached_property
    def requests(self) -> RowTable:
        """One row per request, by arrival: see :attr:`tokenyard.RunResult.requests`.

        ``tenant`` is the hash of its cache salt. What a trace does not hold is missing: ``predicted_output_tokens``.
        """
        return requests_table([_entry(engine, arrival, end) for engine, arrival, end, _ in self._requests])

    @cached_property
    def steps(self) -> RowTable:
        """One row per recorded step, by engine: see :attr:`tokenyard.RunResult.steps`."""
        return steps_table(self._engines)

    @cached_property
    def waits(self) -> RowTable:
        """One row per stretch of waiting, with its reason: see :attr:`tokenyard.RunResult.waits`."""
        return waits_table(
            WaitEntry(end.request_id, engine, wait.state, pieces)
            for engine, _, end, several in self._requests
            for wait, pieces in zip(end.waits, several, strict=True)
        )


class _RowsOfEngine:
    """What the tables are made of, of one engine; a ``CauseWatcher`` while its trace is read."""

    def __init__(self, trace: RankTrace) -> None:
        self.requests: list[tuple[RequestArrived | None, RequestTimeline, list[list[WaitPiece]]]] = []
        """Arrival, timeline and pieces of the waits of each request, as they end."""
        self._causes, self._stalls = CauseLog(), CauseLog()
        """What keeps requests in the queues, and running ones from their tokens."""
        self._ways: dict[str, list[WaitPiece]] = {}
        numbers = array("d")
        arrived: dict[str, RequestArrived] = {}
        reader = TimelineReader(trace.files, causes=self)
        for step, ended in reader.with_timelines():
            numbers.extend(nan if value is None else value for value in _numbers(step))
            for each in (*step.arrived, *step.arrived_after):
                if each.req_id is not None:
                    arrived[each.req_id] = each
            for end in ended:
                way = self._ways.pop(end.request_id, [])
                pieces = [self._pieces(end.request_id, wait, way) for wait in end.waits]
                arrival = arrived.pop(end.request_id, None)
                if not reader.warmup or (end.arrived_us or 0) >= micros(reader.warmup):
                    self.requests.append((arrival, end, pieces))
        columns = np.array(numbers).reshape(-1, len(STEP_COLUMNS)).T
        if reader.warmup:
            columns = columns[:, columns[STEP_COLUMNS.index("start_s")] >= reader.warmup]
        self.steps = dict(zip(STEP_COLUMNS, columns, strict=True))

    def decided(self, now_us: int, held: HeldBack, outcome: AdmissionOutcome | None) -> None:
        self._causes.decided(now_us, held, outcome)
        stalls = HeldBack()
        stalls.named = held.stalled
        self._stalls.decided(now_us, stalls, None)

    def came(self, request_id: str, way: list[tuple[Cause, int, int]]) -> None:
        self._ways[request_id] = [WaitPiece(cause, begin, end) for cause, begin, end in way if end > begin]

    def _pieces(self, request_id: str, wait: Wait, way: Sequence[WaitPiece]) -> list[WaitPiece]:
        """A wait in order of time; where a damaged trace shows its end too late or its beginning never, one a part."""
        if wait.state is WaitState.STALLED:
            found = self._stalls.pieces(request_id, wait.start_us, wait.end_us)
        else:
            found = list(way) if wait.state is WaitState.QUEUED else []
            seen = found[-1].end_us if found else wait.start_us
            found += self._causes.pieces(request_id, seen, wait.end_us)
        spent: dict[Cause, int] = {}
        for piece in found:
            spent[piece.cause] = spent.get(piece.cause, 0) + piece.end_us - piece.start_us
        if spent == {Cause(part.reason, part.place): part.us for part in wait.parts}:
            return found
        ends = list(accumulate((part.us for part in wait.parts), initial=wait.start_us))
        return [
            WaitPiece(Cause(part.reason, part.place), begin, end)
            for part, begin, end in zip(wait.parts, ends, ends[1:], strict=False)
        ]


def _numbers(step: Step) -> tuple[float | None, ...]:
    """:data:`STEP_COLUMNS` of a step; None where the trace does not record it."""
    facts, completed, scheduled = facts_of(step, CLASSIFIER_BLOCK_SIZE), step.completed, None
    if (decision := step.decision) is not None:
        ids = (decision.scheduled_new_req_ids, decision.scheduled_resumed_req_ids, decision.scheduled_running_req_ids)
        omitted = (
            decision.scheduled_new_req_ids_omitted,
            decision.scheduled_resumed_req_ids_omitted,
            decision.scheduled_running_req_ids_omitted,
        )
        scheduled = sum(len(each or ()) for each in ids) + sum(each or 0 for each in omitted)
    return (
        *(step.number, step.ts, None if completed is None else completed.step_seconds),
        *(facts.token_sum, scheduled, None if completed is None else completed.num_sampled_tokens),
        *(facts.num_running, facts.num_waiting, facts.free_blocks),
        *(facts.num_new, facts.num_resumed, facts.num_preempted),
    )


def _entry(engine: int, arrived: RequestArrived | None, end: RequestTimeline) -> RequestEntry:
    local, external = end.local_hit_tokens or 0, end.external_hit_tokens or 0
    return RequestEntry(
        request_id=end.request_id,
        job_id=end.job_id,
        engine=engine,
        arrival_s=_seconds(end.arrived_us),
        first_scheduled_s=_seconds(end.first_scheduled_us),
        first_token_s=_seconds(end.first_token_us),
        finished_s=_seconds(end.finished_us),
        until_s=_seconds(end.until_us),
        prompt_tokens=end.num_prompt_tokens or 0,
        cached_tokens=local + external,
        external_tokens=external,
        output_tokens=end.num_output_tokens or 0,
        max_tokens=0 if arrived is None else arrived.max_tokens or 0,
        preemptions=len(end.preemptions),
        finish_reason=end.finish_reason,
        priority=0 if arrived is None else arrived.priority or 0,
        lora_name=None if arrived is None else arrived.lora_name,
        predicted_output_tokens=None,
        more={"tenant": None if arrived is None else arrived.cache_salt_hash},
    )


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / 1e6


# ---------------------------------------------------------------------------------------------------------------------
# A trace, class by class.

_CLASSES = ("priority", USER, "lora_name", "tenant", "job_id", "prompt_tokens", "engine")
"""What a trace can be divided by; ``user`` begins a job's id, ``tenant`` is the hash of the cache salt."""


def classes_of_trace(path: Path | str, by: str, *, slos: ClassSLOs | None = None, seconds: float | None) -> Classes:
    """The requests of a trace, class by class. ``seconds``: of the run, for goodput per second.

    Raises TraceError if there is no trace, ConfigError for a column, or a bound's class, that there is not.
    """
    if by not in _CLASSES:
        known = f"a trace has: {', '.join(_CLASSES)}; `tokenyard run --by` has a log's columns, too"
        raise ConfigError("by", by, known)
    rows = RecordedRows(path)
    return classes_of(rows.requests, rows.waits, by, slos=slos, seconds=seconds)
