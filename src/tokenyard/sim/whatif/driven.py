"""A recorded run, driven step by step: requests join the steps that they joined, and steps end when they ended.

Nothing of time is left to a model, so whatever the scheduler decides otherwise is its own doing.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import NamedTuple

from tokenyard.engine.core import EngineCore
from tokenyard.engine.executor import DoneStep
from tokenyard.policies.named import policy_maker
from tokenyard.sched.features.grammars import GrammarOutput
from tokenyard.sched.scheduler import Scheduler
from tokenyard.sched.steps.model_output import DraftTokens
from tokenyard.sched.steps.scheduler_output import SchedulerOutput
from tokenyard.sim.model import SimulatedModel
from tokenyard.sim.whatif.recorded_run import RecordedRun
from tokenyard.sim.whatif.watching import StepsAlike
from tokenyard.trace.read.reader import TraceReader
from tokenyard.trace.read.step_joiner import Step

__all__ = ["Driven", "drive"]


class _Executor:
    """Steps are over when they are taken in."""

    def __init__(self) -> None:
        self._model = SimulatedModel()

    def execute_model(self, plan: SchedulerOutput) -> None:
        pass

    def sample_tokens(self, plan: SchedulerOutput, grammar: GrammarOutput | None) -> DoneStep:
        return DoneStep(self._model.execute(plan))

    def take_draft_token_ids(self) -> DraftTokens | None:
        return None

    def shutdown(self) -> None:
        pass


class Driven(NamedTuple):
    """How far the decisions are those of the trace."""

    equal: int
    """Steps that schedule the same tokens of the same requests, before the first that does not."""
    steps: int
    """Steps of the trace that schedule anything."""
    parting: str | None
    """In which step, and how, they part; None if they never do."""


def drive(run: RecordedRun) -> Driven:
    """Decide every step of the run anew.

    Made for runs whose requests all end at their ``max_tokens``: what ends an answer earlier is not in a trace before
    it has. Aborts and drafts are not driven.
    """
    alike = StepsAlike(TraceReader(run.source, requests=False))
    moment = 0.0
    scheduler = Scheduler(
        run.scheduler,
        run.cache,
        clock=lambda: moment,
        observer=alike,
        policy=policy_maker(run.scheduler.policy, "scheduling_policy")(),
    )
    core = EngineCore(scheduler, _Executor())
    requests = {request.request_id: request for request in run.workload}
    in_flight: deque[Step] = deque()
    for step in TraceReader(run.source, requests=False).steps():
        moment = step.ts if step.ts is not None else moment
        while in_flight and _end_of(in_flight[0]) <= moment:
            in_flight.popleft()
            core.take_in()
        for arrived in step.arrived:
            request = requests.get(arrived.req_id or "")
            if request is not None:
                core.add_request(request.arrive(arrived.arrival_time or moment, run.scheduler.max_model_len))
        before = core.num_in_flight
        core.fill()
        if core.num_in_flight > before:
            in_flight.append(step)
    core.drain()
    steps = alike.finish()
    return Driven(alike.equal, steps, alike.parting)


def _end_of(step: Step) -> float:
    """When its tokens were taken in; never, as far as the trace tells."""
    completed = step.completed
    return inf if completed is None or completed.ts is None else completed.ts
