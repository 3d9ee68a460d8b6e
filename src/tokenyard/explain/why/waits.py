"""The waits of every request of a trace, each divided among the reasons that held it back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from tokenyard.explain.classifier import classify
from tokenyard.trace.facts import CLASSIFIER_BLOCK_SIZE, PreemptionMoment, RequestTimeline, Wait, WaitPart, micros
from tokenyard.trace.held_back import BETWEEN_STEPS, FRONT_END, NOT_RECORDED, STEP_IN_PROGRESS, Cause, HeldBack
from tokenyard.trace.reader import Ingress, ingress_of, taken_in_at_once
from tokenyard.trace.schema import (
    AdmissionOutcome,
    PrefixCacheLookup,
    RequestArrived,
    RequestFinished,
    StepDecision,
    StepSnapshot,
)
from tokenyard.trace.steps import Step, facts_of
from tokenyard.vocabulary import Place, WaitState

# ---------------------------------------------------------------------------------------------------------------------
# What a request waits for before the first step that sees it: its way to the scheduler, a step that runs, or none.


def until_seen(way: Ingress) -> list[tuple[Cause, int, int]]:
    """The time from its arrival to the first step that sees it, in microseconds, in pieces; some may be empty.

    Each piece has one cause. While a step ran, it waited for that step, whether it was on its way or there.
    """
    return [
        (FRONT_END, way.sent, way.step_began),
        (STEP_IN_PROGRESS, way.step_began, way.step_ended),
        (FRONT_END, way.step_ended, way.received),
        (BETWEEN_STEPS, way.received, way.seen),
    ]


# ---------------------------------------------------------------------------------------------------------------------
# One request that has not finished: whether it waits, since when, and what its wait is made of so far.

Account = Mapping[Cause, int]
"""Cause -> microseconds so far that belong to it, for every waiting request that is not named."""


class OpenWait:
    """A request between its arrival and its end, and the wait it is in, if it waits.

    ``own[cause]`` corrects the common account for the times in which the request had a cause of its own.
    """

    __slots__ = ("arrived", "first_step", "mark", "own", "start_us", "state", "timeline", "unseen")

    def __init__(self, timeline: RequestTimeline, arrived: RequestArrived | None = None) -> None:
        self.timeline = timeline
        self.arrived = arrived
        """The record of its arrival; None if there is none."""
        self.state: WaitState | None = WaitState.QUEUED
        """None while it runs and gets tokens."""
        self.unseen = True
        """No snapshot has shown it yet."""
        self.start_us = timeline.arrived_us or 0
        self.first_step: int | None = None
        self.mark: Account = {}
        """The common account when this wait began."""
        self.own: Counter[Cause] = Counter()

    @property
    def arrived_step(self) -> int | None:
        """The step before which the scheduler got it, if its arrival is recorded."""
        return None if self.arrived is None else self.arrived.step

    @property
    def is_queued(self) -> bool:
        """Whether the request is in a waiting queue, and a snapshot has shown it there."""
        return not self.unseen and self.state in (WaitState.QUEUED, WaitState.PREEMPTED)

    @property
    def is_running(self) -> bool:
        """Whether the request is in the running list, with tokens or without."""
        return self.state in (None, WaitState.STALLED)

    def begin(self, state: WaitState, step: int, moment: int, account: Account) -> None:
        """A wait begins."""
        self.state, self.first_step, self.start_us, self.mark = state, step, moment, dict(account)

    def end(self, moment: int, step: int | None, account: Account) -> None:
        """The wait is over; ``step`` scheduled it."""
        if self.is_queued:
            for cause, so_far in account.items():
                self.own[cause] += so_far - self.mark.get(cause, 0)
        self._close(moment, step)

    def end_unrecorded(self, moment: int) -> None:
        """The wait was over at ``moment``, earlier than now: it was not recorded when it happened."""
        self.own = Counter({NOT_RECORDED: moment - self.start_us})
        self._close(moment, None)

    def _close(self, moment: int, step: int | None) -> None:
        assert self.state is not None
        parts = [WaitPart(cause.reason, cause.place, us) for cause, us in self.own.items() if us]
        wait = Wait(
            state=self.state,
            start_us=self.start_us,
            end_us=moment,
            first_step=self.first_step,
            last_step=step,
            parts=sorted(parts, key=lambda part: (-part.us, part.reason, part.place)),
        )
        if wait.us:
            self.timeline.waits.append(wait)
        self.state, self.own, self.mark = None, Counter(), {}

    def finish(self, record: RequestFinished, moment: int | None) -> None:
        """Take over what the record of its end says; ``moment`` is its end."""
        timeline = self.timeline
        timeline.finished_us = moment
        timeline.finish_reason = record.finish_reason
        timeline.num_output_tokens = record.num_output_tokens
        if timeline.num_prompt_tokens is None:
            timeline.num_prompt_tokens = record.num_prompt_tokens
        if record.first_token_time is not None:
            timeline.first_token_us = micros(record.first_token_time)
        if timeline.first_scheduled_us is None and record.first_scheduled_time is not None:
            timeline.first_scheduled_us = micros(record.first_scheduled_time)
            if self.state is WaitState.QUEUED:
                self.end_unrecorded(max(timeline.first_scheduled_us, self.start_us))


# ---------------------------------------------------------------------------------------------------------------------
# The waits of every request of a trace, each divided among the reasons that held it back.
#
# The time from one step's snapshot to the next belongs, for every waiting request that the step did not schedule, to
# one cause (``trace/held_back.py``). Nearly all who wait share it, so it is added once to a common
# account:
#
#     account[cause]      time so far that belongs to a cause, for those that are not named
#     parts of a wait     the account now - the account when the wait began + corrections where the request was named
#
# That costs a few additions a step however long the queue is, and needs no list of who waits: a bound on ids leaves
# the sums exact. Memory holds the requests that have not finished.


class WaitWatcher(Protocol):
    """Is called, while a trace is read, with what the waiting time of one request is made of."""

    request_id: str

    def decided(self, step: Step, wait: OpenWait) -> None:
        """A step was decided between the arrival and the end of the request."""

    def passed(self, state: WaitState, cause: Cause, step: int, start_us: int, end_us: int) -> None:
        """It waited from ``start_us`` to ``end_us`` for ``cause``, which ``step`` decided."""


class CauseWatcher(Protocol):
    """Is called, while a trace is read, with what all requests wait for."""

    def decided(self, now_us: int, held: HeldBack, outcome: AdmissionOutcome | None) -> None:
        """A step was decided; ``outcome`` is its record."""

    def came(self, request_id: str, way: list[tuple[Cause, int, int]]) -> None:
        """A request came, and waited ``way`` until a step could see it: causes, each from and to a moment."""


class WaitTracker:
    """Takes whole steps in order and returns the timelines of requests as they end. See the module."""

    def __init__(
        self,
        on_timeline: Callable[[RequestTimeline], None],
        *,
        block_size: int = CLASSIFIER_BLOCK_SIZE,
        watcher: WaitWatcher | None = None,
        causes: CauseWatcher | None = None,
    ) -> None:
        self._on_timeline = on_timeline
        self._watched_causes = causes
        self._block_size = block_size
        self._watcher = watcher
        self._open: dict[str, OpenWait] = {}
        self._unseen: list[OpenWait] = []
        self._account: dict[Cause, int] = {}
        self._held = HeldBack()
        """The causes of the time that passes now."""
        self._stalled: dict[str, OpenWait] = {}
        self._gone: set[str] = set()
        """Ended before the next step could see them: their arrivals come with that step."""
        self._step = -1
        self._began: int | None = None
        """When the step began."""
        self._before: int | None = None
        """When the step before it began."""
        self._now = 0
        self._started = False
        self._completed: int | None = None
        """When the step before was over; None if the trace does not record it."""
        self._last_moment = 0
        self._num_running = 0
        """Requests that run, as far as it is known here."""

    # ---- the course of a trace

    def step(self, step: Step) -> None:
        """Take the next step. One without a time is ignored."""
        for arrived in step.arrived:
            self._arrive(arrived)
        self._gone.clear()
        if step.ts is None:
            return
        for lookup in step.lookups:
            if lookup.step < step.number and lookup.ts is not None:  # of a step that was sampled away
                self._advance(min(micros(lookup.ts), micros(step.ts)))
                self._looked_up(lookup, lookup.step)
        self._advance(micros(step.ts))
        self._before, self._began = self._began, self._now
        self._show(step)
        for lookup in step.lookups:
            if lookup.step >= step.number:
                self._looked_up(lookup, step.number)
        self._decide(step)
        self._note_completion(step)
        for finished in step.finished:
            self._finish(finished)
        for arrived in step.arrived_after:
            self._arrive(arrived)

    def end(self, ended_us: int = 0) -> None:
        """The trace is over: hand out the timelines of the requests that it does not end.

        ``ended_us``: when its run was ended, if it says so.
        """
        self._advance(max(self._last_moment, ended_us))
        for wait in list(self._open.values()):
            self._close(wait)

    def _advance(self, moment: int) -> None:
        """Time passes until ``moment``: all that wait have waited so much longer."""
        if not self._started:
            self._started, self._now = True, moment
        began, self._now = self._now, max(self._now, moment)
        self._last_moment = max(self._last_moment, self._now)
        passed, held = self._now - began, self._held
        if not passed:
            return
        self._account[held.shared] = self._account.get(held.shared, 0) + passed
        for request_id, cause in held.named.items():
            wait = self._open.get(request_id)
            if wait is not None and wait.is_queued:
                wait.own[cause] += passed
                wait.own[held.shared] -= passed
        for request_id, wait in self._stalled.items():
            wait.own[held.stalled[request_id]] += passed
        if self._watcher is not None:
            self._inform(self._watcher, began)

    def _inform(self, watcher: WaitWatcher, began: int) -> None:
        request_id = watcher.request_id
        wait = self._open.get(request_id)
        if wait is not None and wait.state is not None and not wait.unseen:
            stalls = wait.state is WaitState.STALLED
            cause = self._held.stalled[request_id] if stalls else self._held.cause_of(request_id)
            watcher.passed(wait.state, cause, self._step, began, self._now)

    def _note_completion(self, step: Step) -> None:
        self._step = step.number
        self._completed = None
        if step.completed is not None and step.completed.ts is not None:
            self._completed = micros(step.completed.ts)
            self._last_moment = max(self._last_moment, self._completed)
            for wait in self._known(step.completed.first_token_req_ids):
                wait.timeline.first_token_us = self._completed

    # ---- arrivals

    def _arrive(self, record: RequestArrived) -> None:
        if record.req_id is None or record.req_id in self._open or record.req_id in self._gone:
            return
        moment = record.arrival_time if record.arrival_time is not None else record.ts
        timeline = RequestTimeline(
            request_id=record.req_id,
            job_id=record.job_id,
            arrived_us=None if moment is None else micros(moment),
            num_prompt_tokens=record.num_prompt_tokens,
        )
        wait = self._open[record.req_id] = OpenWait(timeline, record)
        self._unseen.append(wait)

    def _show(self, step: Step) -> None:
        """A step begins: it is the first that can see those that have arrived since the one before."""
        running = None if step.snapshot is None else step.snapshot.num_running
        for wait in self._unseen:
            if wait.unseen:
                self._wait_until_seen(wait, step.number, self._before, step.snapshot)
        self._unseen.clear()
        steps_missing = 0 <= self._step < step.number - 1
        if running is not None and (steps_missing or running != self._num_running):
            self._look_again(step)

    def _wait_until_seen(
        self, wait: OpenWait, number: int, before: int | None, snapshot: StepSnapshot | None = None
    ) -> None:
        """Account for the time before the first snapshot that could show it, if there is one.

        ``before`` is when the step began that did not see it yet.
        """
        timeline, now = wait.timeline, self._now
        start = timeline.arrived_us = now if timeline.arrived_us is None else min(timeline.arrived_us, now)
        if wait.arrived_step is not None and wait.arrived_step < number:
            pieces = [(NOT_RECORDED, start, now)]
        else:
            over = start if self._step < 0 else self._completed
            taken_in = None if wait.arrived is None else taken_in_at_once(wait.arrived, snapshot)
            pieces = until_seen(ingress_of(start, now, before=before, over=over, taken_in=taken_in))
        wait.unseen = False
        if self._watched_causes is not None:
            self._watched_causes.came(timeline.request_id, pieces)
        wait.begin(WaitState.QUEUED, number, start, self._account)
        for cause, begin, end in pieces:
            if end > begin:
                wait.own[cause] += end - begin
                if self._watcher is not None and self._watcher.request_id == timeline.request_id:
                    self._watcher.passed(WaitState.QUEUED, cause, number, begin, end)

    def _look_again(self, step: Step) -> None:
        """Go by the snapshot: a host may have taken requests out of the running list, or records may be missing."""
        assert step.snapshot is not None
        for request_id in step.snapshot.waiting_req_ids or ():
            wait = self._open.get(request_id)
            if wait is not None and wait.is_running:
                self._put_back(wait, step.number)
        for request_id in step.snapshot.running_req_ids or ():
            wait = self._open.get(request_id)
            if wait is not None and wait.is_queued:
                self._run(wait, step.number)
        self._num_running = step.snapshot.num_running or 0

    # ---- decisions

    def _looked_up(self, record: PrefixCacheLookup, number: int) -> None:
        wait = self._open.get(record.req_id or "")
        if wait is None:
            return
        wait.timeline.local_hit_tokens = record.local_hit_tokens
        wait.timeline.external_hit_tokens = record.external_hit_tokens
        if wait.unseen:
            self._wait_until_seen(wait, number + 1, self._before)
        self._run(wait, number)

    def _decide(self, step: Step) -> None:
        """Note which requests begin to run, which lose their blocks, and why the others wait."""
        decision = step.decision or StepDecision(step=step.number)
        for ids in (decision.scheduled_new_req_ids, decision.scheduled_resumed_req_ids):
            for wait in self._known(ids):
                self._run(wait, step.number)
        self._held = self._causes(step)
        self._held.preempt(decision.preempted_req_ids or (), step.outcome)
        if self._watched_causes is not None:
            self._watched_causes.decided(self._now, self._held, step.outcome)
        numbers = {each.req_id: each for each in (step.outcome.preemptions if step.outcome else None) or ()}
        for wait in self._known(decision.preempted_req_ids):
            self._put_back(wait, step.number)
            victim = numbers.get(wait.timeline.request_id)
            wait.timeline.preemptions.append(
                PreemptionMoment(
                    step=step.number,
                    us=self._now,
                    for_request_id=victim.for_req_id if victim else None,
                    lost_tokens=victim.num_computed_tokens if victim else None,
                )
            )
        self._stall(step.number)
        if self._watcher is not None and self._watcher.request_id in self._open:
            self._watcher.decided(step, self._open[self._watcher.request_id])

    def _known(self, request_ids: Iterable[str] | None) -> Iterable[OpenWait]:
        return [self._open[request_id] for request_id in request_ids or () if request_id in self._open]

    def _causes(self, step: Step) -> HeldBack:
        if step.outcome is not None:
            return HeldBack.of(step.outcome)
        if self._num_running >= len(self._open):
            return HeldBack()  # no request waits
        reason = classify(facts_of(step, self._block_size)).reason
        return HeldBack() if reason is None else HeldBack(Cause(reason.value, Place.GUESS))

    def _stall(self, number: int) -> None:
        """Running requests without tokens in this step begin to stall, those with tokens go on."""
        stalled = {wait.timeline.request_id: wait for wait in self._known(self._held.stalled) if wait.is_running}
        for request_id, wait in self._stalled.items():
            if request_id not in stalled and wait.state is WaitState.STALLED:
                wait.end(self._now, number, self._account)
        for wait in stalled.values():
            if wait.state is None:
                wait.begin(WaitState.STALLED, number, self._now, {})
        self._stalled = stalled

    def _run(self, wait: OpenWait, number: int) -> None:
        """A request is scheduled: its wait is over, if it waited."""
        if wait.timeline.first_scheduled_us is None:
            wait.timeline.first_scheduled_us, wait.timeline.first_scheduled_step = self._now, number
        if wait.is_queued:
            wait.end(self._now, number, self._account)
            self._num_running += 1

    def _put_back(self, wait: OpenWait, number: int) -> None:
        """A request waits again from now on."""
        if wait.state is WaitState.STALLED:
            wait.end(self._now, None, self._account)
        if wait.state is None:
            self._num_running -= 1
            wait.begin(WaitState.PREEMPTED, number, self._now, self._account)

    # ---- ends

    def _finish(self, record: RequestFinished) -> None:
        moment = record.finished_time if record.finished_time is not None else record.ts
        if moment is not None:
            self._advance(micros(moment))
        wait = self._open.get(record.req_id or "")
        if wait is None and record.req_id is not None and record.arrival_time is not None:
            wait = self._late(record)
        if wait is not None:
            if wait.unseen:
                self._wait_until_seen(wait, self._step, self._began)
            self._num_running -= wait.is_running
            wait.finish(record, None if moment is None else micros(moment))
            self._close(wait)

    def _late(self, record: RequestFinished) -> OpenWait:
        """A request whose arrival was not recorded: it came and went between two steps, or before the trace began."""
        assert record.req_id is not None
        assert record.arrival_time is not None
        timeline = RequestTimeline(
            request_id=record.req_id, job_id=record.job_id, arrived_us=micros(record.arrival_time)
        )
        wait = OpenWait(timeline)
        self._gone.add(record.req_id)
        if record.first_scheduled_time is None and self._began is not None and wait.start_us < self._began:
            wait.unseen = False
            wait.mark = self._account.copy()
            wait.own[NOT_RECORDED] = self._now - wait.start_us
        return wait

    def _close(self, wait: OpenWait) -> None:
        """The request has ended, or the trace has."""
        request_id = wait.timeline.request_id
        if wait.unseen:
            self._wait_until_seen(wait, self._step, self._began)
        if wait.state is not None:
            wait.end(self._now, None, self._account)
        self._stalled.pop(request_id, None)
        self._open.pop(request_id, None)
        wait.timeline.until_us = self._now
        self._on_timeline(wait.timeline)
