"""What a replay was, row by row: made when asked for, of what the recorders have kept."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.arguments import suggests_keywords
from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.sched.observer import Observers, StepObserver
from tokenyard.core.sched.policy import Policy
from tokenyard.errors import ConfigError, near_names
from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.summary import AfterWarmup
from tokenyard.explain.rows import (
    STEP_COLUMNS,
    RequestEntry,
    WaitEntry,
    requests_table,
    steps_table,
    waits_table,
)
from tokenyard.explain.table import RowTable
from tokenyard.explain.why.cause_log import WaitPiece
from tokenyard.explain.why.why import Span, Why, named_request, why_of
from tokenyard.policies.named import policy_maker
from tokenyard.record.recorder import TraceRecorder
from tokenyard.sim.rows.recorder import RequestRow, RowRecorder, WaitRow
from tokenyard.trace.facts import RequestTimeline, Wait, WaitPart, micros
from tokenyard.trace.start import describe_run
from tokenyard.vocabulary import WaitState


class RowsOfEngine:
    """What watches one engine of a replay with rows: the rows, and the report."""

    def __init__(self, config: SchedulerConfig, cache: CacheConfig, *, warmup: float, policy: Policy) -> None:
        self.recorder = RowRecorder()
        self.builder = ReportBuilder()
        start = describe_run(config, cache, host="replay", policy=_word_for(policy, config))
        sink = AfterWarmup(self.builder, warmup) if warmup else self.builder
        self.observer: StepObserver = Observers(self.recorder, TraceRecorder(None, sink, start=start))
        """Both, as one observer."""

    @classmethod
    def with_report(cls, builder: ReportBuilder, fills: StepObserver) -> RowsOfEngine:
        """The rows beside a report that is made already: by ``builder``, which ``fills`` fills."""
        made = cls.__new__(cls)
        made.recorder, made.builder = RowRecorder(), builder
        made.observer = Observers(made.recorder, fills)
        return made

    def beside(self, other: StepObserver | None) -> StepObserver:
        """The same, with an observer that the user has given."""
        return self.observer if other is None else Observers(self.observer, other)


class _Seen(msgspec.Struct, frozen=True):
    """What is left of an engine when its replay is over, without what has watched it and writes its trace."""

    recorder: RowRecorder
    builder: ReportBuilder


class ReplayRows:
    """Tables of a replay: ``requests``, ``steps``, ``waits``; gaps between tokens; the report; why one request waited.

    Requests that arrive, and steps that begin, before ``warmup`` seconds are left out of tables, gaps and report.
    """

    def __init__(
        self,
        engines: Sequence[RowsOfEngine],
        *,
        warmup: float = 0.0,
        leave_out: int = 0,
        ended_at: float | None = None,
    ) -> None:
        """``leave_out``: of so many engines from the first on requests do not count with which others go on.

        ``ended_at``: when a replay ended that did not come to the end of its workload.
        """
        self._ended_at = 0.0 if ended_at is None else ended_at
        self._engines = [_Seen(each.recorder, each.builder) for each in engines]
        self._warmup = warmup
        self._leave_out = leave_out
        for each in engines:
            each.recorder.close()
            if ended_at is not None:
                each.builder.run_ended(ended_at)
        self._steps = [each.recorder.steps for each in engines]

    def __repr__(self) -> str:
        return f"<ReplayRows: {len(self.requests):,} requests, {len(self.steps):,} steps>"

    def __len__(self) -> int:
        return len(self.requests)

    def __getitem__(self, which: slice) -> RowTable:
        """Return rows of ``requests``."""
        return self.requests[which]

    def _repr_html_(self) -> str:
        return self.report._repr_html_()

    @cached_property
    def report(self) -> Report:
        """The report of these requests and steps, as ``tokenyard run`` prints it; print it with ``print_report``."""
        builders = [each.builder for each in self._engines[self._leave_out :]]
        return (builders[0] if len(builders) == 1 else ReportBuilder.joined(builders)).report()

    @cached_property
    def _rows(self) -> list[tuple[int, RequestRow]]:
        """Requests that count, with their engines, by arrival."""
        return [each for each in self._all_rows if each[1].request.arrival_time >= self._warmup]

    @cached_property
    def _all_rows(self) -> list[tuple[int, RequestRow]]:
        """All rows, those before the warm-up has ended included."""
        gone_on = {row.request.request_id for each in self._engines[self._leave_out :] for row in each.recorder.rows}
        rows = [
            (engine, row)
            for engine, each in enumerate(self._engines)
            for row in each.recorder.rows
            if engine >= self._leave_out or row.request.request_id not in gone_on
        ]
        return sorted(rows, key=lambda item: item[1].request.arrival_time)

    @cached_property
    def _by_id(self) -> dict[str, tuple[int, RequestRow]]:
        """Every request by its id; the first of several engines that had it."""
        found: dict[str, tuple[int, RequestRow]] = {}
        for engine, row in self._all_rows:
            found.setdefault(row.request.request_id, (engine, row))
        return found

    # ---- tables

    @cached_property
    def requests(self) -> RowTable:
        """One row per request that came, by arrival. Moments in seconds, latencies in milliseconds.

        ``request_id``, ``job_id``, ``engine``; ``arrival_s``, ``first_scheduled_s``, ``first_token_s``,
        ``finished_s``, ``until_s`` (its end; of an unfinished one the end of the replay); ``prompt_tokens``,
        ``cached_tokens`` (of them, found in the cache at its first admission), ``external_tokens`` (of these, brought
        by a connector), ``output_tokens``, ``max_tokens``, ``preemptions``; ``queue_ms``, ``ttft_ms``, ``tpot_ms``,
        ``e2e_ms``; ``finish_reason`` (None: unfinished; ``refused``), ``priority``, ``lora_name``,
        ``predicted_output_tokens``; and a column for each name in the requests' ``meta`` (``meta.`` before it where a
        column is called so already).
        """
        until = [self._until_us(engine) / 1e6 for engine in range(len(self._engines))]
        return requests_table([_entry(engine, row, until[engine]) for engine, row in self._rows])

    @suggests_keywords()
    def with_requests(self, requests: RowTable) -> ReplayRows:
        """Return the same rows with another table of requests."""
        other = copy(self)
        other.__dict__["requests"] = requests
        return other

    @cached_property
    def steps(self) -> RowTable:
        """One row per step, by engine and number.

        ``engine``, ``step``; ``start_s``, ``seconds`` (of the model, as far as it did not overlap the step before; NaN:
        it was not over when the replay ended); ``scheduled_tokens``, ``scheduled_requests``, ``sampled_tokens``;
        before the step ``running``, ``waiting`` and ``free_blocks``; in it ``admitted`` (new), ``resumed``,
        ``preempted``.
        """
        counted = [steps["start_s"] >= self._warmup for steps in self._steps]
        return steps_table(
            [
                (i, {name: steps[name][rows] for name in STEP_COLUMNS})
                for i, (steps, rows) in enumerate(zip(self._steps, counted, strict=True))
            ]
        )

    @cached_property
    def waits(self) -> RowTable:
        """One row per stretch of time in which a request got no tokens for one reason.

        ``request_id``, ``engine``; ``state`` (queued, preempted, stalled), ``reason`` (``docs/reasons.md``), ``place``
        (own, behind the head of the queue, all, outside the scheduler); ``from_s``, ``to_s``, ``seconds``. The seconds
        of a request's rows are its waiting time.
        """
        return waits_table(
            WaitEntry(row.request.request_id, engine, wait.state, self._pieces(engine, row, wait))
            for engine, row in self._rows
            for wait in row.waits
        )

    @suggests_keywords()
    def token_gaps(self, request_id: str | None = None) -> npt.NDArray[np.float64]:
        """Milliseconds between two deliveries of tokens to an answer, of all answers one after the other, or of one.

        Every gap of every answer, as in the report's ``itl_ms``: also of those that paused (preempted, held back), that
        were cancelled or have not ended; several tokens at once are one delivery. ConfigError for an id that no request
        has.
        """
        if request_id is not None:
            self._row_of(request_id)
        found = [
            np.diff(self._deliveries(engine, row))
            for engine, row in self._rows
            if request_id in (None, row.request.request_id)
        ]
        return np.concatenate(found) * 1e3 if found else np.zeros(0)

    def _deliveries(self, engine: int, row: RequestRow) -> npt.NDArray[np.float64]:
        """When an answer got tokens."""
        moments = self._sampled_at[engine]
        runs = [*row.runs, len(moments)] if len(row.runs) % 2 else row.runs
        return np.concatenate(
            [np.empty(0), *(moments[begin:end] for begin, end in zip(runs[::2], runs[1::2], strict=True))]
        )

    @cached_property
    def _sampled_at(self) -> list[npt.NDArray[np.float64]]:
        """Return, for each engine, when steps ended that sampled tokens."""
        return [steps["end_s"][steps["sampled_tokens"] > 0] for steps in self._steps]

    # ---- one request

    @suggests_keywords()
    def why(self, request_id: str) -> Why:
        """Why one request waited, as ``tokenyard.why`` tells it of a trace; one of the warm-up, too.

        ConfigError for an id that no request has which the scheduler got.
        """
        return self._why(*self._row_of(request_id))

    def _row_of(self, request_id: str) -> tuple[int, RequestRow]:
        """The engine of a request, and what is known of it. Raises ConfigError."""
        found = self._by_id.get(named_request(request_id))
        if found is not None:
            return found
        known = list(self._by_id)
        near = near_names(request_id, known, 3, 0.5) or known[:3]
        raise ConfigError("request_id", request_id, f"no request that came is called so; there is {', '.join(near)}")

    def _why(self, engine: int, row: RequestRow) -> Why:
        request, steps = row.request, self._steps[engine]
        starts = np.floor(steps["start_s"] * 1e6 + 0.5)
        until = micros(row.finished) if row.finish_reason is not None else self._until_us(engine)
        token, scheduled = request.times.first_token, request.times.first_scheduled
        timeline = RequestTimeline(
            request_id=request.request_id,
            job_id=request.job_id,
            arrived_us=micros(request.arrival_time),
            first_scheduled_us=None if scheduled is None else micros(scheduled),
            first_scheduled_step=row.waits[0].last_step,
            first_token_us=None if token is None else micros(token),
            finished_us=until if row.finish_reason is not None else None,
            until_us=until,
            finish_reason=row.finish_reason,
            num_prompt_tokens=request.num_prompt_tokens,
            num_output_tokens=row.num_output,
            local_hit_tokens=row.num_cached - row.num_external,
            external_hit_tokens=row.num_external,
            preemptions=row.preemptions,
        )
        spans: list[Span] = []
        for wait in row.waits:
            pieces = self._pieces(engine, row, wait)
            if pieces:
                timeline.waits.append(_wait_of(wait, pieces))
                spans += [_span(wait.state, piece, starts, steps["step"]) for piece in pieces]
        rank = engine if len(self._engines) > 1 else None
        return why_of(timeline, spans, reconstructed=False, rank=rank, partial=None)

    def _pieces(self, engine: int, row: RequestRow, wait: WaitRow) -> list[WaitPiece]:
        return self._engines[engine].recorder.pieces_of(row, wait, self._until_us(engine), self._steps[engine])

    def _until_us(self, engine: int) -> int:
        """The last moment that is known of an engine."""
        steps = self._steps[engine]
        known = [float(np.nanmax(each)) for each in (steps["start_s"], steps["end_s"]) if not np.isnan(each).all()]
        return micros(max([*known, self._ended_at]))


def _word_for(policy: Policy, config: SchedulerConfig) -> str:
    """What the report calls the policy: the configuration's name for it, or the name of its class."""
    return config.policy if type(policy) is type(policy_maker(config.policy)()) else type(policy).__name__


def _entry(engine: int, row: RequestRow, until: float) -> RequestEntry:
    request = row.request
    return RequestEntry(
        request_id=request.request_id,
        job_id=request.job_id,
        engine=engine,
        arrival_s=request.arrival_time,
        first_scheduled_s=request.times.first_scheduled,
        first_token_s=request.times.first_token,
        finished_s=row.finished,
        until_s=until if row.finish_reason is None else row.finished,
        prompt_tokens=request.num_prompt_tokens,
        cached_tokens=row.num_cached,
        external_tokens=row.num_external,
        output_tokens=row.num_output,
        max_tokens=request.max_tokens,
        preemptions=row.num_preemptions,
        finish_reason=row.finish_reason,
        priority=request.priority,
        lora_name=request.lora_name,
        predicted_output_tokens=request.predicted_output_tokens,
        more=request.meta,
    )


def _wait_of(wait: WaitRow, pieces: list[WaitPiece]) -> Wait:
    spent: dict[tuple[str, Any], int] = {}
    for piece in pieces:
        spent[piece.cause] = spent.get(piece.cause, 0) + piece.end_us - piece.start_us
    parts = [WaitPart(reason, place, us) for (reason, place), us in spent.items()]
    return Wait(
        state=wait.state,
        start_us=pieces[0].start_us,
        end_us=pieces[-1].end_us,
        first_step=wait.first_step,
        last_step=wait.last_step,
        parts=sorted(parts, key=lambda part: (-part.us, part.reason, part.place)),
    )


def _span(
    state: WaitState, piece: WaitPiece, starts: npt.NDArray[np.float64], numbers: npt.NDArray[np.float64]
) -> Span:
    """A piece with the steps that decided it."""
    first = int(np.searchsorted(starts, piece.start_us))
    last = max(int(np.searchsorted(starts, piece.end_us)) - 1, first)
    number = [int(numbers[min(i, len(numbers) - 1)]) if len(numbers) else 0 for i in (first, last)]
    return Span(
        state=state,
        reason=piece.cause.reason,
        place=piece.cause.place,
        head=piece.head,
        first_step=number[0],
        last_step=number[1],
        steps=number[1] - number[0] + 1,
        start_us=piece.start_us,
        end_us=piece.end_us,
        kv=piece.kv,
        smallest_need=piece.smallest_need,
        detail=piece.detail,
    )
