"""What a step did to single requests: refusals, loads that began, tokens that must be computed again."""

from __future__ import annotations

from tokenyard.sched.steps.outcomes import Reason, StepOutcomes
from tokenyard.sched.steps.scheduler_output import SchedulerOutput
from tokenyard.trace.emit.admission_outcome import outcome_record
from tokenyard.trace.format.schema import AdmissionOutcome

__all__ = ["StepEffects"]


class StepEffects:
    """Looks into a step's outcomes once, for everybody who asks; remembers what concerns later steps."""

    def __init__(self, policy: str | None, limit: int | None) -> None:
        """``policy`` is named in the records; ``limit``: most requests named per list of one."""
        self._policy = policy
        self._limit = limit
        self._step: int | None = None
        self._found: tuple[int, AdmissionOutcome | None] = (0, None)
        self._lost: dict[str, int] = {}
        """Preempted request -> tokens it had computed."""
        self._recomputed: dict[str, int] = {}
        """Request -> tokens computed a second time."""
        self.min_need: int | None = None
        """Least blocks that admit one of those who waited before the step; None unless request records tell it."""
        self._loading: set[str] = set()
        """Requests whose external tokens were, or are being, loaded while they waited."""

    def of(self, ts: float, output: SchedulerOutput, outcomes: StepOutcomes) -> tuple[int, AdmissionOutcome | None]:
        """Tokens that the step computes a second time, and its refusals if there are any."""
        if output.step != self._step:
            self._step = output.step
            refused = outcome_record(output.step, float(ts), self._policy, outcomes, self._limit)
            self._found = self._count_recomputed(output, outcomes), refused
            for each in outcomes.skipped:
                if each.reason is Reason.ASYNC_KV_LOAD_STARTED and each.request_id is not None:
                    self._loading.add(each.request_id)
        return self._found

    def _count_recomputed(self, output: SchedulerOutput, outcomes: StepOutcomes) -> int:
        """Tokens that resumed requests lost in their preemption and did not find in the cache."""
        for victim in outcomes.preemptions:
            self._lost[victim.request_id] = self._lost.get(victim.request_id, 0) + victim.num_computed_tokens
        total = 0
        for i in output.admitted_resumed:
            request_id = output.req_ids[i]
            again = max(self._lost.pop(request_id, 0) - int(output.num_computed[i]), 0)
            self._recomputed[request_id] = self._recomputed.get(request_id, 0) + again
            total += again
        return total

    def is_loaded(self, request_id: str) -> bool:
        """External tokens of the request came, or come, while it waited."""
        return request_id in self._loading

    def forget(self, request_id: str) -> int:
        """The request is gone; returns the tokens it had to compute a second time."""
        self._lost.pop(request_id, None)
        self._loading.discard(request_id)
        return self._recomputed.pop(request_id, 0)
