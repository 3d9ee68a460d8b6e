"""The executor of a replay: steps take the time that a latency model says, on a virtual clock.

    one step in flight       | host | device .... | host | device .... |
    several                  | host | device .... | device .... | device ...
                                    | host |      | host |               the host works ahead, the device never waits

The host prepares steps one after the other, and so does the device compute them; a step's device time begins when its
own preparation and the step before are over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Protocol

import numpy as np

from tokenyard.columns import ONE, constant
from tokenyard.connectors.plan import TransferPlan
from tokenyard.engine.executor import Repeated, StepFuture
from tokenyard.sched.features.grammars import GrammarOutput
from tokenyard.sched.steps.model_output import ConnectorOutput, DraftTokens, ModelOutput
from tokenyard.sched.steps.scheduler_output import SchedulerOutput
from tokenyard.sim.clock import VirtualClock
from tokenyard.sim.drafts import SimulatedSpeculation
from tokenyard.sim.latency.model import LatencyModel, StepShape
from tokenyard.sim.latency.pricing import decode_seconds, host_seconds, step_seconds
from tokenyard.sim.model import SilentModel, SimulatedModel

__all__ = ["SimulatedExecutor", "SimulatedStep", "StepEnd", "WorkerTransfers"]

EMPTY_STEPS = 3
"""Steps in a row that may schedule nothing: one reports the finished, one follows a request that preempted itself."""
UNKNOWN_DRAFT = -1
"""A draft of which only the count is told: what it is decides nothing in a replay."""


class WorkerTransfers(Protocol):
    """The worker half of a KV connector, on a virtual clock."""

    def begin(self, plan: TransferPlan | None) -> float:
        """Begin a step's transfers; returns the seconds that its computation has to wait for them."""

    def report(self) -> ConnectorOutput | None:
        """What has ended by now, since the last call."""

    @property
    def next_moment(self) -> float | None:
        """When the next transfer ends; None if none does by itself."""


class StepEnd:
    """When a step is over; infinite as long as that depends on something that has yet to begin."""

    __slots__ = ("moment",)

    def __init__(self, moment: float = inf) -> None:
        self.moment = moment


class SimulatedStep:
    """A step that runs until its end."""

    __slots__ = ("_clock", "_end", "_output", "_transfers")

    def __init__(
        self, clock: VirtualClock, output: ModelOutput, transfers: WorkerTransfers | None, end: StepEnd
    ) -> None:
        self._clock = clock
        self._output = output
        self._transfers = transfers
        self._end = end

    @property
    def brings_news(self) -> bool:
        """Whether the next decision can be another one for it: it had requests, or workers have reported."""
        return len(self._output.num_sampled) > 0 or self._output.connector is not None

    @property
    def ends_at(self) -> float:
        """Virtual seconds."""
        return self._end.moment

    def done(self) -> bool:
        """Whether its end has come."""
        return self._clock.now() >= self.ends_at

    def result(self) -> ModelOutput:
        """Its tokens, once the clock has reached its end, and what the workers report at that moment."""
        self._clock.advance_to(self.ends_at)
        if self._transfers is not None:
            self._output.connector = self._transfers.report()
        return self._output


class SimulatedExecutor:
    """An ``Executor`` on ``clock``; with ``transfers`` its workers move KV, too."""

    def __init__(
        self,
        clock: VirtualClock,
        latency: LatencyModel,
        *,
        transfers: WorkerTransfers | None = None,
        speculation: SimulatedSpeculation | None = None,
        silent: bool = False,
    ) -> None:
        """``silent``: nobody looks at tokens (without speculation)."""
        self._clock = clock
        self._latency = latency
        self._transfers = transfers
        self._model = SilentModel() if silent else SimulatedModel(speculation)
        self._num_drafts = speculation.config.num_speculative_tokens if speculation is not None else 0
        self._host_free_at = self._device_free_at = 0.0
        self._end = StepEnd(0.0)
        """Of the step that was begun last."""
        self._num_rows = 0
        """Its requests."""
        self.busy_seconds = 0.0
        """Time in which a step was being prepared or computed."""
        self.runs_until = -inf
        """The first moment at which something happens beside steps: no step that ends then is run ahead of."""
        self.num_empty_steps = 0
        """Steps without tokens since the last one with some."""
        self._most_empty = EMPTY_STEPS

    def busy_before(self, moment: float) -> float:
        """Of ``busy_seconds``, those before ``moment``, which is now: steps in flight may go on after it."""
        ends_at = self._end.moment
        return self.busy_seconds - max(ends_at - moment, 0.0) if ends_at < inf else self.busy_seconds

    @property
    def is_idle(self) -> bool:
        """Whether further steps would be without tokens as well, until something happens."""
        return self.num_empty_steps >= self._most_empty

    def taken_in(self, step: StepFuture | None, depth: int) -> None:
        """``step``, of up to ``depth`` in flight, was taken in because nothing could be scheduled.

        If it has brought anything, further steps are tried: one that sees it, and with several stages those that
        follow a request that preempted itself.
        """
        if isinstance(step, SimulatedStep) and step.brings_news:
            self.num_empty_steps = max(self.num_empty_steps - max(depth - 1, 1), 0)

    def execute_model(self, plan: SchedulerOutput) -> None:
        """Begin a step: its moments are known from now on."""
        waits = self._begin_transfers(plan)
        self._num_rows = len(plan.req_ids)
        if plan.total_num_scheduled_tokens:
            self.num_empty_steps = 0
            self._end = self._compute(plan, waits)
        else:
            self.num_empty_steps += 1
            self._end = self._pass_over(waits)

    def _begin_transfers(self, plan: SchedulerOutput) -> float:
        if self._transfers is None:
            return 0.0
        transfer_plan = plan.kv_connector_metadata
        assert transfer_plan is None or isinstance(transfer_plan, TransferPlan)
        return self._transfers.begin(transfer_plan)

    def _pass_over(self, waits: float) -> StepEnd:
        """A step without tokens."""
        self.busy_seconds += waits
        return StepEnd(max(self._clock.now(), self._end.moment) + waits)

    def _compute(self, plan: SchedulerOutput, waits: float) -> StepEnd:
        """A step with tokens, which begins ``waits`` seconds later than it could."""
        return StepEnd(self._lasting(step_seconds(self._latency, StepShape.of(plan), plan.step), waits))

    def _lasting(self, seconds: float, waits: float) -> float:
        """When a step of so many seconds ends that is begun now."""
        now = self._clock.now()
        if self._device_free_at <= now:  # and so is the host, which works ahead of it
            self._host_free_at = now + host_seconds(self._latency)
            ends_at = now + (seconds + waits)
            self.busy_seconds += seconds + waits
        else:
            host = min(host_seconds(self._latency), seconds)
            self._host_free_at = max(now, self._host_free_at) + host
            began = max(self._host_free_at, self._device_free_at)
            ends_at = began + (seconds - host + waits)
            self.busy_seconds += ends_at - self._device_free_at
        self._device_free_at = ends_at
        return ends_at

    def run_ahead(self, futures: Sequence[StepFuture], newest: SchedulerOutput, most: int) -> Repeated | None:
        """Let the oldest of ``futures`` end and begin a step like ``newest``, up to ``most`` times, but not beyond
        ``runs_until``; None: not once.
        """
        ends = deque([each.ends_at for each in futures if isinstance(each, SimulatedStep)])
        if len(ends) < len(futures) or ends[0] >= self.runs_until or self._transfers is not None:
            return None
        clock, lasting, until = self._clock, self._lasting, self.runs_until
        moments: list[float] = []
        seconds = decode_seconds(self._latency, newest.num_computed + ONE, most, newest.step + 1)
        while len(moments) < most and ends[0] < until:
            clock.advance_to(ends.popleft())
            moments.append(clock.now())
            ends.append(lasting(next(seconds), 0.0))
        self._end = StepEnd(ends[-1])
        first = newest.num_computed + constant(2 - len(futures))
        outputs = self._model.decode(newest.slots, first, len(moments) + len(futures))
        steps = len(moments)
        later = [
            SimulatedStep(clock, self._model.one_each(outputs[:, steps + i]), None, StepEnd(end))
            for i, end in enumerate(ends)
        ]
        return Repeated(outputs[:, :steps], moments, later)

    def sample_tokens(self, plan: SchedulerOutput, grammar: GrammarOutput | None) -> SimulatedStep:
        """The step that was begun last, with its tokens."""
        return SimulatedStep(self._clock, self._model.execute(plan), self._transfers, self._end)

    def take_draft_token_ids(self) -> DraftTokens | None:
        """As many drafts for every request as speculation proposes."""
        if not self._num_drafts:
            return None
        tokens = np.full((self._num_rows, self._num_drafts), UNKNOWN_DRAFT, np.int64)
        return DraftTokens(tokens, np.full(self._num_rows, self._num_drafts))

    def shutdown(self) -> None:
        """Nothing is held."""
