"""Rows of a replay as they are made: requests, steps, and waits with their causes."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from math import inf, nan

import numpy as np
import numpy.typing as npt

from tokenyard.core.request import FinishReason, Request
from tokenyard.core.sched.observer import Counts, RepeatedSteps, SchedulerState, StepObserver
from tokenyard.core.sched.outcomes import StepOutcomes
from tokenyard.core.sched.outputs import EngineOutputs
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.explain.population import SERVED, outcomes_of
from tokenyard.explain.why.cause_log import CauseLog, WaitPiece
from tokenyard.explain.why.waits import until_seen
from tokenyard.record.facts import outcome_record
from tokenyard.record.recorder import TokenStreams
from tokenyard.trace.facts import PreemptionMoment, micros
from tokenyard.trace.held_back import Cause, HeldBack
from tokenyard.trace.reader import Ingress, ingress_of
from tokenyard.trace.schema import REFUSED
from tokenyard.vocabulary import WaitState

# ---------------------------------------------------------------------------------------------------------------------
# The observer behind a replay's rows: a few numbers of every step, and of every request when it ends.
#
# It keeps 104 bytes a step and about a kilobyte a request (without its ``meta``), and no token. Steps that are taken in
# one stroke stay in one stroke, so that a replay with rows is nearly as fast as one without.

Floats = npt.NDArray[np.float64]

_NOTED = (
    *("step", "start_s", "scheduled_tokens", "scheduled_requests", "running", "waiting", "free_blocks"),
    *("admitted", "resumed", "preempted"),
)
"""What is noted when a step is decided; counts of the queues and of blocks are those before it."""
_ENDS = ("end_s", "seconds", "sampled_tokens")
"""What is noted when it is over."""


class WaitRow:
    """A wait of a request: from a moment to another one, in microseconds, or still going on."""

    __slots__ = ("cause", "end_us", "first_step", "last_step", "start_us", "state")

    def __init__(self, state: WaitState, start_us: int, first_step: int, cause: Cause | None = None) -> None:
        self.state, self.start_us, self.first_step, self.cause = state, start_us, first_step, cause
        self.end_us: int | None = None
        self.last_step: int | None = None


class RequestFacts:
    """What rows say of a request that has ended, or whose replay is over: no token, no hash, nothing of the engine."""

    def __init__(self, request: Request) -> None:
        self.request_id = request.request_id
        self.job_id, self.lora_name, self.meta = request.job_id, request.lora_name, request.meta
        self.arrival_time, self.times = request.arrival_time, request.times
        self.num_prompt_tokens, self.priority = request.num_prompt_tokens, request.priority
        self.max_tokens = request.max_tokens
        self.predicted_output_tokens = request.predicted_output_tokens


class RequestRow:
    """One request, from its arrival on."""

    def __init__(self, request: Request, added: float, seen_by: int) -> None:
        self.request: Request | RequestFacts = request
        """The request itself until it ends, or the replay does; then what rows say of it."""
        self.added_us = micros(added)
        """When the scheduler got it."""
        self.seen_by = seen_by
        """Which step, counted from 0, is the first that could see it."""
        self.finished = self.first_scheduled = nan
        self.finish_reason: str | None = None
        self.num_output = self.num_cached = self.num_external = self.num_preemptions = 0
        self.waits = [WaitRow(WaitState.QUEUED, micros(request.arrival_time), seen_by)]
        self.preemptions: list[PreemptionMoment] = []
        self.runs: list[int] = []
        """Runs of sampling steps in each of which it got tokens: first one, the one after the last, next run ..."""

    def note(self) -> None:
        """Take over the counters of the request as they are now, and let go of it."""
        request = self.request
        if isinstance(request, RequestFacts):
            return
        self.request = RequestFacts(request)
        self.num_output = request.num_output_tokens
        self.num_cached = max(request.num_cached_tokens, 0)
        self.num_external = request.num_external_computed_tokens
        self.num_preemptions = request.num_preemptions

    def end_wait(self, now_us: int, step: int | None) -> None:
        """If it waits, it does so no longer."""
        wait = self.waits[-1] if self.waits else None
        if wait is not None and wait.end_us is None:
            wait.end_us, wait.last_step = now_us, step


class RowRecorder(StepObserver):
    """Watches one engine. What it has seen is made into tables by ``ReplayRows``."""

    reads_tokens = False

    def __init__(self) -> None:
        self.rows: list[RequestRow] = []
        """The rows in the order in which the scheduler got the requests."""
        self._live: dict[str, RequestRow] = {}
        self._decided = array("d")
        self._ended = array("d")
        self._num_steps = 0
        self._in_flight: deque[float] = deque()
        """When the steps in flight began."""
        self._last_end = -inf
        self._before = Counts(0, 0, 0, None)
        self._causes = CauseLog()
        self._holds = False
        """The last step held a request back."""
        self._stalled: dict[str, Cause] = {}
        self._streams = TokenStreams()
        self._num_sampling = 0
        """Steps that have ended and sampled tokens."""
        self._ending: dict[str, RequestRow] = {}
        """Requests that have ended with a token of the step that is being taken in."""

    # ---- what the scheduler notifies it of

    def request_arrived(self, ts: float, request: Request) -> None:
        row = RequestRow(request, ts, self._num_steps)
        self.rows.append(row)
        self._live[request.request_id] = row
        self._streams.request_arrived(request.request_id)

    def step_started(self, ts: float, step: int, state: SchedulerState) -> None:
        self._in_flight.append(float(ts))
        self._before = state.counts()

    def step_decided(self, ts: float, output: SchedulerOutput, outcomes: StepOutcomes, state: SchedulerState) -> None:
        free, running, waiting, _ = self._before
        num_scheduled, resumed = len(output.req_ids), len(output.admitted_resumed)
        now = self._in_flight[-1]
        numbers = (output.step, now, output.total_num_scheduled_tokens, num_scheduled, running, waiting, free)
        admitted = num_scheduled - output.num_running - resumed
        self._decided.extend((*numbers, admitted, resumed, len(output.preempted_req_ids)))
        self._num_steps += 1
        if num_scheduled > output.num_running:
            now_us = micros(now)
            for request_id in output.req_ids[output.num_running :]:
                self._live[request_id].end_wait(now_us, output.step)
        ended = outcomes.admission
        holds = bool(
            (ended is not None and ended.num_requests)
            or (outcomes.skipped or outcomes.not_scheduled or outcomes.preemptions or output.preempted_req_ids)
        )
        if holds or self._holds:
            self._hold(micros(now), output, outcomes)
        self._holds = holds

    def _hold(self, now_us: int, output: SchedulerOutput, outcomes: StepOutcomes) -> None:
        """The step held a request back, or the one before did."""
        record = outcome_record(output.step, now_us / 1e6, None, outcomes, None)
        held = HeldBack() if record is None else HeldBack.of(record)
        held.preempt(output.preempted_req_ids, record)
        self._causes.decided(now_us, held, record)
        self._stall(now_us, output.step, held)
        numbers = {each.request_id: each for each in outcomes.preemptions}
        for request_id in output.preempted_req_ids:
            row, victim = self._live.get(request_id), numbers.get(request_id)
            if row is not None:
                row.waits.append(WaitRow(WaitState.PREEMPTED, now_us, output.step))
                row.preemptions.append(
                    PreemptionMoment(
                        step=output.step,
                        us=now_us,
                        for_request_id=None if victim is None else victim.for_request_id,
                        lost_tokens=None if victim is None else victim.num_computed_tokens,
                    )
                )

    def _stall(self, now_us: int, step: int, held: HeldBack) -> None:
        """Running requests without tokens begin to wait, those with tokens go on."""
        for request_id in self._stalled:
            row = self._live.get(request_id)
            if row is not None and held.stalled.get(request_id) != self._stalled[request_id]:
                row.end_wait(now_us, step)
        for request_id, cause in held.stalled.items():
            row = self._live.get(request_id)
            if row is not None and self._stalled.get(request_id) != cause:
                row.waits.append(WaitRow(WaitState.STALLED, now_us, step, cause))
        self._stalled = held.stalled

    def steps_repeated(self, steps: RepeatedSteps) -> None:
        count, moments = len(steps.moments), np.array(steps.moments, np.float64)
        like = np.array(self._decided[-len(_NOTED) :])
        rows = np.tile(like, (count, 1))
        rows[:, _NOTED.index("step")] = np.arange(steps.first, steps.first + count)
        rows[:, _NOTED.index("start_s")] = moments
        rows[:, _NOTED.index("free_blocks")] = steps.free_blocks
        self._decided.frombytes(rows.tobytes())
        self._num_steps += count
        self._in_flight.extend(moments.tolist())
        sampled = len(steps.like.req_ids)
        self._follow(steps.like.req_ids)
        self._num_sampling += count - 1
        for moment in moments.tolist():
            self._end(moment, sampled)

    def step_completed(self, ts: float, output: SchedulerOutput, outputs: EngineOutputs) -> None:
        self._follow(outputs.streamed_req_ids)
        self._end(float(ts), outputs.num_sampled)

    def _follow(self, req_ids: Sequence[str]) -> None:
        """A step gave tokens to these requests."""
        streams, at = self._streams.step_completed(req_ids), self._num_sampling
        for request_id in (*streams.began, *streams.paused, *streams.resumed):
            row = self._live.get(request_id) or self._ending.get(request_id)
            if row is not None:
                row.runs.append(at)
        if req_ids:
            self._num_sampling += 1
            for row in self._ending.values():
                if len(row.runs) % 2:
                    row.runs.append(at + 1)
            self._ending.clear()

    def _end(self, ts: float, sampled: int) -> None:
        """The oldest step in flight is over."""
        self._ended.extend((ts, ts - max(self._in_flight.popleft(), self._last_end), sampled))
        self._last_end = ts

    def request_finished(self, ts: float, request: Request) -> None:
        row = self._live.pop(request.request_id, None)
        if row is None:
            return
        reason = FinishReason.of(request.status)
        if reason is FinishReason.MOVED:  # it is the other engine's
            self._streams.request_ended(request.request_id)
            self.rows.remove(row)
            return
        row.finished = float(ts) if request.times.finished is None else request.times.finished
        row.finish_reason = None if reason is None else reason.value
        self._streams.request_ended(request.request_id)
        if outcomes_of([row.finish_reason])[0] == SERVED:
            self._ending[request.request_id] = row
        elif len(row.runs) % 2:
            row.runs.append(self._num_sampling)
        row.note()
        row.end_wait(micros(row.finished), None)

    def request_refused(self, ts: float, request: Request) -> None:
        self.request_arrived(ts, request)
        row = self._live.pop(request.request_id)
        row.finished, row.finish_reason = float(ts), REFUSED
        row.note()
        row.end_wait(micros(row.finished), None)

    # ---- what it has seen

    @property
    def steps(self) -> dict[str, Floats]:
        """Columns of the steps so far; NaN where a step has not ended."""
        decided = np.array(self._decided).reshape(-1, len(_NOTED))
        ends = np.full((len(decided), len(_ENDS)), nan)
        told = np.array(self._ended).reshape(-1, len(_ENDS))
        ends[: len(told)] = told
        return dict(zip((*_NOTED, *_ENDS), np.hstack((decided, ends)).T, strict=True))

    def close(self) -> None:
        """Nothing more will happen: take over what unfinished requests are like now."""
        for row in self._live.values():
            row.note()

    def pieces_of(self, row: RequestRow, wait: WaitRow, until_us: int, steps: dict[str, Floats]) -> list[WaitPiece]:
        """What a wait is made of, in order of time; one that still goes on, until ``until_us``."""
        end_us = until_us if wait.end_us is None else wait.end_us
        start_us, request_id = wait.start_us, row.request.request_id
        if wait.cause is not None:
            return [WaitPiece(wait.cause, start_us, end_us)] if end_us > start_us else []
        found: list[WaitPiece] = []
        if wait.state is WaitState.QUEUED:
            for cause, begin, end in until_seen(self._way_in(row, start_us, end_us, steps)):
                if end > begin:
                    found.append(WaitPiece(cause, begin, end))
                start_us = max(start_us, end)
        return found + self._causes.pieces(request_id, start_us, end_us)

    def _way_in(self, row: RequestRow, sent: int, end_us: int, steps: dict[str, Floats]) -> Ingress:
        """The way of a request to the first step that saw it, or to its end."""
        at, starts = row.seen_by, steps["start_s"]
        was_seen = at < len(starts) and micros(starts[at]) <= end_us
        before = None if at == 0 else micros(starts[at - 1])
        over: int | None = sent
        if at > 0:
            end = steps["end_s"][at - 1]
            over = None if np.isnan(end) else micros(end)
        taken_in = row.added_us if was_seen and not steps["running"][at] else None
        seen = micros(starts[at]) if was_seen else end_us
        return ingress_of(sent, seen, before=before, over=over, taken_in=taken_in)
