"""Waiting times counted the slow way: at every step, everybody who waits is asked why, of the live scheduler."""

from __future__ import annotations

from collections import Counter, defaultdict

from tokenyard.core.request import Request
from tokenyard.core.sched.observer import SchedulerState, StepObserver
from tokenyard.core.sched.outcomes import StepOutcomes
from tokenyard.core.sched.outputs import EngineOutputs
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.trace.facts import micros

__all__ = ["CountedWaits"]

Cause = tuple[str, str]
"""Reason and place."""


class CountedWaits(StepObserver):
    """An observer that adds up, per request, what it waited for, in microseconds."""

    def __init__(self) -> None:
        self.waited: dict[str, Counter[Cause]] = defaultdict(Counter)
        """Request -> (reason, place) -> time."""
        self.stalled: Counter[str] = Counter()
        """Request -> how much of it passed while it was in the running list."""
        self._arrived: dict[str, int] = {}
        self._why: dict[str, Cause] = {}
        """Requests that got no tokens in the last step, each with its cause."""
        self._running: set[str] = set()
        self._since = 0

    def _pass(self, ts: float) -> None:
        for request_id, cause in self._why.items():
            self._count(request_id, cause, ts)
        self._since = micros(ts)

    def _count(self, request_id: str, cause: Cause, ts: float) -> None:
        self.waited[request_id][cause] += micros(ts) - self._since
        if request_id in self._running:
            self.stalled[request_id] += micros(ts) - self._since

    def request_arrived(self, ts: float, request: Request) -> None:
        self._arrived[request.request_id] = micros(request.arrival_time)

    def step_started(self, ts: float, step: int, state: SchedulerState) -> None:
        self._pass(ts)
        self._why.clear()
        for request_id, moment in self._arrived.items():  # steps follow each other without a pause here
            self.waited[request_id]["step_in_progress", "outside"] += micros(ts) - moment
        self._arrived.clear()

    def prefix_looked_up(self, ts: float, step: int, request: Request, local: int, external: int) -> None:
        """Nothing to count."""

    def step_decided(self, ts: float, output: SchedulerOutput, outcomes: StepOutcomes, state: SchedulerState) -> None:
        ended = outcomes.admission
        assert ended is not None
        why = self._why
        for request in (*state.waiting, *state.skipped_waiting):
            place = "all" if ended.request_id is None else "behind"
            why[request.request_id] = ended.reason.value, place
        if ended.request_id is not None and ended.num_requests:
            why[ended.request_id] = ended.reason.value, "own"
        for refused in outcomes.skipped:
            assert refused.request_id is not None
            why[refused.request_id] = refused.reason.value, "own"
        for victim in outcomes.preemptions:
            alone = victim.request_id == victim.for_request_id
            why[victim.request_id] = "self_preempted" if alone else "preempted_this_step", "own"
        self._running = {request.request_id for request in state.running}
        for refused in outcomes.not_scheduled:
            if refused.request_id in self._running:
                why[refused.request_id] = refused.reason.value, "own"

    def step_completed(self, ts: float, output: SchedulerOutput, outputs: EngineOutputs) -> None:
        """Nothing to count."""

    def request_finished(self, ts: float, request: Request) -> None:
        arrived = self._arrived.pop(request.request_id, None)
        if arrived is not None:
            self.waited[request.request_id]["step_in_progress", "outside"] += micros(ts) - arrived
        cause = self._why.pop(request.request_id, None)
        if cause is not None:
            self._count(request.request_id, cause, ts)
