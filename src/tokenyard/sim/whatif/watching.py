"""Who watches the replays of a what-if: when every request ended, and whether the steps are those of the trace."""

from __future__ import annotations

from collections.abc import Iterator

from tokenyard.request import Request
from tokenyard.sched.observer import SchedulerState, StepObserver
from tokenyard.sched.steps.outcomes import StepOutcomes
from tokenyard.sched.steps.scheduler_output import SchedulerOutput
from tokenyard.trace.read.reader import TraceReader

__all__ = ["EndTimes", "StepsAlike"]


class EndTimes(StepObserver):
    """Seconds from each request's arrival to its end."""

    reads_tokens = False

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def request_finished(self, ts: float, request: Request) -> None:
        self.seconds[request.request_id] = ts - request.arrival_time


class StepsAlike(StepObserver):
    """Counts leading steps that schedule what the trace's do; steps that schedule nothing are passed over.

    A step of the trace whose list of ids is cut short is compared by its number of tokens.
    """

    reads_tokens = False

    def __init__(self, reader: TraceReader) -> None:
        self._steps = _scheduling_steps(reader)
        self.equal = 0
        """Steps before the first that differs."""
        self.parting: str | None = None

    def step_decided(self, ts: float, output: SchedulerOutput, outcomes: StepOutcomes, state: SchedulerState) -> None:
        if self.parting is not None or not output.total_num_scheduled_tokens:
            return
        recorded = next(self._steps, None)
        if recorded is None:
            self.parting = "the replay goes on after the last step of the trace"
            return
        number, tokens, total = recorded
        if total != output.total_num_scheduled_tokens or (tokens is not None and tokens != output.num_scheduled_tokens):
            theirs = output.total_num_scheduled_tokens
            self.parting = f"step {number} of the trace: {total} tokens there, {theirs} in the replay"
            if total == theirs:
                self.parting = f"step {number} of the trace: the same number of tokens, of other requests"
        else:
            self.equal += 1

    def finish(self) -> int:
        """The replay has ended; how many steps of the trace schedule anything."""
        rest = sum(1 for _ in self._steps)
        if rest and self.parting is None:
            self.parting = "the trace goes on after the last step of the replay"
            return self.equal + rest
        return self.equal + rest + (self.parting is not None)


def _scheduling_steps(reader: TraceReader) -> Iterator[tuple[int, dict[str, int] | None, int]]:
    """Number, tokens by request (None where some are left out) and tokens in all of the steps with any."""
    for step in reader.steps():
        decision = step.decision
        if decision is None or not decision.num_scheduled_tokens:
            continue
        listed = sum(decision.num_scheduled_tokens.values())
        total = decision.total_scheduled_tokens if decision.total_scheduled_tokens is not None else listed
        if total:
            yield step.number, decision.num_scheduled_tokens if total == listed else None, total
