"""Steps in flight: what taking in a step's output needs of live requests, which its plan does not hold."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from tokenyard.core.request import Request
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.core.sched.step_rows import Rows
from tokenyard.errors import shown


class StepInFlight:
    """A step that was decided and whose output has not been taken in."""

    plan: SchedulerOutput
    requests: list[Request]
    """Row by row, as ``plan.req_ids``."""
    columns: Rows
    """What the plan says of each."""
    discarded: set[Request] | None
    """Requests that a reset has preempted since: what the step brings for them is dropped."""
    rows: dict[Request, int] | None
    """Row of each request, made when it is first asked for."""

    def __init__(self, plan: SchedulerOutput, columns: Rows) -> None:
        self.plan = plan
        self.requests = columns.requests
        self.columns = columns
        self.discarded = None
        self.rows = None

    def row_of(self, request: Request) -> int:
        """Return the row of the request; -1 if it has no part in the step."""
        if self.rows is None:
            self.rows = {each: row for row, each in enumerate(self.requests)}
        return self.rows.get(request, -1)

    def tokens_of(self, request: Request) -> int:
        """Return the tokens of the request that the step computes."""
        row = self.row_of(request)
        return 0 if row < 0 else int(self.plan.num_new_tokens[row])


class StepsInFlight:
    """The steps whose outputs are expected, oldest first."""

    def __init__(self) -> None:
        self._by_number: dict[int, StepInFlight] = {}
        self._last_taken: StepInFlight | None = None

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[StepInFlight]:
        """Oldest first."""
        return iter(self._by_number.values())

    def tokens_of(self, request: Request) -> int:
        """Tokens of the request that steps in flight compute."""
        return sum([step.tokens_of(request) for step in self._by_number.values()])

    def add(self, step: StepInFlight) -> None:
        """A step was decided."""
        self._by_number[step.plan.step] = step

    def replace(self, steps: list[StepInFlight]) -> None:
        """These steps are in flight instead, the oldest first; as many as before."""
        self._by_number = {step.plan.step: step for step in steps}

    def of(self, plan: SchedulerOutput) -> StepInFlight:
        """The step of ``plan``, or of a copy of it; ValueError if it is none of ours."""
        _check_plan(plan)
        step = self._by_number.get(plan.step)
        if step is None:
            expected = next(iter(self._by_number), None)
            due = "no step is in flight" if expected is None else f"the next is step {expected}"
            raise ValueError(f"output of step {plan.step}: it was taken in already, or never scheduled here; {due}")
        if not _same(step.plan, plan):
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
        _check_plan(plan)
        step = self._last_taken
        if step is None or not _same(step.plan, plan):
            raise ValueError(f"drafts of step {plan.step}: give them right after its output is taken in")
        return step


def _check_plan(plan: SchedulerOutput) -> None:
    if not isinstance(plan, SchedulerOutput):
        raise ValueError(f"output of {shown(plan)}: give the SchedulerOutput that schedule() returned")


def _same(ours: SchedulerOutput, given: SchedulerOutput) -> bool:
    """Whether ``given`` is a copy of ``ours``, which may know further drafts."""
    if ours is given:
        return True
    columns = ((getattr(ours, name), getattr(given, name)) for name in _DECIDED)
    return (ours.step, ours.req_ids) == (given.step, given.req_ids) and all(itertools.starmap(np.array_equal, columns))


_DECIDED = ("slots", "num_new_tokens", "num_computed", "num_known", "num_prompt")
"""Columns that distinguish another scheduler's plan from a copy of ours."""
