"""One request that has not finished: whether it waits, since when, and what its wait is made of so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tokenyard.explain.held_back.held_back import NOT_RECORDED, Cause
from tokenyard.trace.format.request_timeline import RequestTimeline, Wait, WaitPart, micros
from tokenyard.trace.format.schema import RequestArrived, RequestFinished
from tokenyard.vocabulary.waits import WaitState

__all__ = ["Account", "OpenWait"]

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
        """It is in a waiting queue, and has been seen there."""
        return not self.unseen and self.state in (WaitState.QUEUED, WaitState.PREEMPTED)

    @property
    def is_running(self) -> bool:
        """It is in the running list, with tokens or without."""
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
        """The wait was over at ``moment``, earlier than now: nobody recorded it when it happened."""
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
