"""Steps in flight: what taking in a step's output needs of live requests, which its plan does not hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tokenyard.request import Request
from tokenyard.sched.steps.scheduler_output import SchedulerOutput

__all__ = ["StepInFlight", "StepsInFlight"]


class StepInFlight(msgspec.Struct, eq=False):
    """A step that was decided and whose output has not been taken in."""

    plan: SchedulerOutput
    requests: Sequence[Request]
    """Row by row, as ``plan.req_ids``; other steps may share it."""
    table_version: int
    """The request table's version when the step was made: ``plan.slots`` holds while it has not changed."""


class StepsInFlight:
    """The steps whose outputs are expected, oldest first."""

    __slots__ = ("_by_number", "_last_taken")

    def __init__(self) -> None:
        self._by_number: dict[int, StepInFlight] = {}
        self._last_taken: StepInFlight | None = None

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[StepInFlight]:
        """Oldest first."""
        return iter(self._by_number.values())

    def add(self, step: StepInFlight) -> None:
        """A step was decided."""
        self._by_number[step.plan.step] = step

    def of(self, plan: SchedulerOutput) -> StepInFlight:
        """The step of ``plan``, or of a copy of it; ValueError if it is none of ours."""
        step = self._by_number.get(plan.step)
        if step is None:
            expected = next(iter(self._by_number), None)
            due = "no step is in flight" if expected is None else f"the next is step {expected}"
            raise ValueError(f"output of step {plan.step}: it was taken in already, or never scheduled here; {due}")
        if step.plan.req_ids != plan.req_ids:
            raise ValueError(f"output of step {plan.step}: it is another scheduler's, which scheduled other requests")
        return step

    def oldest(self, plan: SchedulerOutput) -> StepInFlight:
        """The step of ``plan``, which has to be the oldest one; else ValueError."""
        for expected in self._by_number.values():
            if expected.plan is plan:
                return expected
            break
        step = self.of(plan)
        first = next(iter(self._by_number))
        if plan.step != first:
            raise ValueError(f"output of step {plan.step}: take in that of step {first} first")
        return step

    def remove(self, step: StepInFlight) -> None:
        """Its output has been taken in."""
        del self._by_number[step.plan.step]
        self._last_taken = step

    def last_taken(self, plan: SchedulerOutput) -> StepInFlight:
        """The step of ``plan``, if its output is the last that was taken in; else ValueError."""
        step = self._last_taken
        if step is None or step.plan.step != plan.step or step.plan.req_ids != plan.req_ids:
            raise ValueError(f"drafts of step {plan.step}: give them right after its output is taken in")
        return step
