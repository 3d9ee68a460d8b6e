"""A recorded run, driven step by step: requests join the steps that they joined, and steps end when they ended.

Nothing of time is left to a model, so whatever the scheduler decides otherwise is its own doing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf

import msgspec

from tokenyard.core.engine import DoneStep, EngineCore
from tokenyard.core.sched.features.grammars import GrammarOutput
from tokenyard.core.sched.observer import SchedulerState, StepObserver
from tokenyard.core.sched.outcomes import StepOutcomes
from tokenyard.core.sched.outputs import DraftTokens, ModelOutput
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import RequestError, StuckError
from tokenyard.policies.named import policy_maker
from tokenyard.questions.recorded.answer import DecisionCheck
from tokenyard.questions.recorded.recorded_run import RecordedRun
from tokenyard.sim.executor import SimulatedModel, SimulatedSpeculation
from tokenyard.trace.facts import attempt_before
from tokenyard.trace.reader import TraceReader
from tokenyard.trace.schema import RequestArrived
from tokenyard.trace.steps import Step
from tokenyard.vocabulary import Reason

MOST_STEPS = 5_000
"""Steps that are compared: a few seconds of work."""

# ---------------------------------------------------------------------------------------------------------------------
# What a step of a trace schedules.


class ScheduledStep(msgspec.Struct, frozen=True):
    """A step of a trace with any tokens."""

    number: int
    tokens: Mapping[str, int]
    """Request -> tokens, of those that the trace lists."""
    total: int
    """Tokens of all."""

    def difference(self, decided: Mapping[str, int]) -> str | None:
        """What is different in a step that schedules these; None: nothing. Where the trace has left out ids, the number
        of tokens is compared.
        """
        total = sum(decided.values())
        if total != self.total:
            return f"step {self.number} of the trace: {self.total} tokens there, {total} in the replay"
        is_whole = sum(self.tokens.values()) == total
        if is_whole and dict(self.tokens) != dict(decided):
            return f"step {self.number} of the trace: the same number of tokens, of other requests"
        return None


def scheduling_steps(reader: TraceReader) -> Iterator[ScheduledStep]:
    """The steps of a trace with any tokens."""
    for step in reader.steps():
        found = _scheduled(step)
        if found is not None:
            yield found


def _scheduled(step: Step) -> ScheduledStep | None:
    decision = step.decision
    if decision is None or not decision.num_scheduled_tokens:
        return None
    listed = decision.num_scheduled_tokens
    total = decision.total_scheduled_tokens
    total = sum(listed.values()) if total is None else total
    return ScheduledStep(step.number, listed, total) if total else None


# ---------------------------------------------------------------------------------------------------------------------
# Driving.


class _Executor:
    """Steps are over when they are taken in."""

    def __init__(self, speculation: SimulatedSpeculation | None) -> None:
        self._model = SimulatedModel(speculation)
        self._speculates = speculation is not None
        self._newest: tuple[SchedulerOutput, ModelOutput] | None = None

    def execute_model(self, plan: SchedulerOutput) -> None:
        pass

    def sample_tokens(self, plan: SchedulerOutput, grammar: GrammarOutput | None) -> DoneStep:
        output = self._model.execute(plan)
        self._newest = plan, output
        return DoneStep(output)

    def take_draft_token_ids(self) -> DraftTokens | None:
        return self._model.drafts(*self._newest) if self._speculates and self._newest is not None else None

    def shutdown(self) -> None:
        pass


class _Decided(StepObserver):
    """Keeps what the last step schedules."""

    reads_tokens = False

    def __init__(self) -> None:
        self._tokens: Mapping[str, int] = {}

    def step_decided(self, ts: float, output: SchedulerOutput, outcomes: StepOutcomes, state: SchedulerState) -> None:
        self._tokens = output.num_scheduled_tokens

    def taken(self) -> Mapping[str, int]:
        """The tokens of the step that was decided since the last call; none if none was."""
        found, self._tokens = self._tokens, {}
        return found


class _Drive:
    """The scheduler of a run, taken from step to step of its trace."""

    def __init__(self, run: RecordedRun) -> None:
        self._run = run
        self._moment = 0.0
        self._decided = _Decided()
        scheduler = Scheduler(
            run.scheduler,
            run.cache,
            speculative_config=None if run.speculation is None else run.speculation.config,
            clock=lambda: self._moment,
            observer=self._decided,
            policy=policy_maker(run.scheduler.policy, "scheduling_policy")(),
        )
        self._core = EngineCore(scheduler, _Executor(run.speculation))
        self.requests = {request.request_id: request for request in run.workload}
        """What each is; that a client sent again, once it has been looked for."""
        self._in_flight: deque[Step] = deque()
        self._leaving: deque[tuple[float, str]] = deque()
        """Requests whose clients went away, and when the scheduler heard of it."""
        self._compiling: list[RequestArrived] = []
        """Requests that have arrived and wait for their grammar."""
        self.unknown: set[str | None] = set()
        """Requests that wait and of which the trace has no whole record: those behind them may wait for them."""

    def knows(self, request_id: str) -> bool:
        """Whether the trace has a whole record of a request, or of an earlier attempt that it repeats."""
        before = attempt_before(request_id)
        if request_id not in self.requests and before is not None and self._run.workload.clients and self.knows(before):
            self.requests[request_id] = replace(self.requests[before], request_id=request_id)
        return request_id in self.requests

    def decide(self, step: Step) -> Mapping[str, int]:
        """What the scheduler schedules where the trace has ``step``."""
        self._moment = now = step.ts if step.ts is not None else self._moment
        self._catch_up(now)
        self._join(step, now)
        before = self._core.num_in_flight
        self._core.fill()
        if self._core.num_in_flight > before:
            self._in_flight.append(step)
        self._leaving.extend(
            (each.ts if each.ts is not None else now, each.req_id)
            for each in step.finished
            if each.finish_reason == "abort" and each.req_id is not None
        )
        return self._decided.taken()

    def _join(self, step: Step, now: float) -> None:
        """Requests come to the scheduler; one whose grammar is still compiled, once it no longer waits for that."""
        outcome = step.outcome
        skipped = outcome.skipped or () if outcome is not None else ()
        compiling = {each.req_id for each in skipped if each.reason == Reason.WAITING_GRAMMAR}
        self.unknown |= {each.req_id for each in step.arrived if not self.knows(each.req_id or "")}
        self.unknown -= {each.req_id for each in step.finished}
        coming, self._compiling = [*self._compiling, *step.arrived], []
        for arrived in coming:
            if arrived.req_id in compiling:
                self._compiling.append(arrived)
            elif arrived.req_id in self.requests:
                request = self.requests[arrived.req_id]
                moment = arrived.arrival_time if arrived.arrival_time is not None else now
                try:
                    self._core.add_request(request.arrive(moment, self._run.scheduler.max_model_len))
                except RequestError:
                    del self.requests[arrived.req_id]

    def _catch_up(self, now: float) -> None:
        """Take in what has ended, and end whose client went away, in the order of the trace."""
        while True:
            ends = _end_of(self._in_flight[0]) if self._in_flight else inf
            leaves = self._leaving[0][0] if self._leaving else inf
            if leaves < ends and leaves <= now:
                self._core.abort_requests(self._leaving.popleft()[1])
            elif ends <= now:
                self._in_flight.popleft()
                self._core.take_in()
            else:
                return


def _end_of(step: Step) -> float:
    """When its tokens were taken in; never, as far as the trace shows."""
    completed = step.completed
    return inf if completed is None or completed.ts is None else completed.ts


def drive(run: RecordedRun, most_steps: int = MOST_STEPS) -> DecisionCheck:
    """Decide every step of the run anew, ``most_steps`` at most, and compare.

    An answer that ended by itself ends where it did, which the scheduler does not know before; drafts are right where
    they were, as far as the trace shows it.
    """
    if run.speculation is not None and run.scheduler.async_scheduling:
        return DecisionCheck(equal=0, steps=0, stopped_by="drafts")
    driven = _Drive(run)
    equal = steps = 0
    first: tuple[int, str] | None = None
    stopped_by: str | None = None
    for step in TraceReader(run.source, requests=False).steps():
        recorded = _scheduled(step)
        if recorded is not None and steps == most_steps:
            stopped_by = "most_steps"
            break
        if recorded is not None and not all(map(driven.knows, recorded.tokens)):
            stopped_by = "request"
            break
        try:
            decided = driven.decide(step)
        except StuckError:
            stopped_by = "stuck"
            break
        difference = _difference(step.number, recorded, decided)
        if difference is not None and driven.unknown:
            stopped_by = "request"
            break
        steps += recorded is not None
        equal += recorded is not None and difference is None
        if difference is not None and first is None:
            first = step.number, difference
        if step.host_events and steps:
            stopped_by = "host"
            break
    number, difference = first or (None, None)
    return DecisionCheck(
        equal=equal, steps=steps, first_difference=number, difference=difference, stopped_by=stopped_by
    )


def _difference(number: int, recorded: ScheduledStep | None, decided: Mapping[str, int]) -> str | None:
    return (recorded or ScheduledStep(number, {}, 0)).difference(decided)
