"""Pipeline parallelism in a replay: a step passes through stages, each of which computes one step at a time.

    no async scheduling     stage 0  | 0 | 1 | 2 | 3 |        a request is in one step at a time, so that the running
                            stage 1      | 0 | 1 | 2 | 3 |    ones part into as many batches as there are stages
    async scheduling, 0.33  the same, and a step more is decided ahead: a request decodes once in a round of the stages
    async scheduling, 0.22  stage 0  | 0 |   | 1 |   | 2 |    every step has all of them, and its first stage waits for
                            stage 1      | 0 |   | 1 |        the tokens of the step before

Facts of vLLM: with async scheduling the last stage broadcasts what it sampled to the others, unless the step had
nothing but chunks of prompts. In 0.22 as many steps are in flight as there are stages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tokenyard.config import SchedulerConfig
from tokenyard.engine.executor import StepFuture
from tokenyard.sched.steps.scheduler_output import SchedulerOutput
from tokenyard.sim.clock import VirtualClock
from tokenyard.sim.drafts import SimulatedSpeculation
from tokenyard.sim.executor import SimulatedExecutor, StepEnd, WorkerTransfers
from tokenyard.sim.latency.model import LatencyModel, StepShape
from tokenyard.sim.latency.pricing import host_seconds, step_seconds

__all__ = ["PipelinedExecutor", "executor_for"]


class PipelinedExecutor(SimulatedExecutor):
    """An executor of several stages; a step takes the same share of its time in each."""

    def __init__(
        self,
        clock: VirtualClock,
        latency: LatencyModel,
        num_stages: int,
        *,
        waits_for: int,
        transfers: WorkerTransfers | None = None,
        speculation: SimulatedSpeculation | None = None,
        silent: bool = False,
    ) -> None:
        """``waits_for``: a step begins when the one so many before has sampled (async scheduling); 0: it does not."""
        super().__init__(clock, latency, transfers=transfers, speculation=speculation, silent=silent)
        self._waits_for = waits_for
        self._most_empty += max(waits_for - 1, 0)
        self._stages_free_at = [0.0] * num_stages
        self._tokens_at = 0.0
        """When the tokens are there that the next step begins with."""
        self._sampling: deque[tuple[int, float]] = deque()
        """Of later steps: their numbers, and when they have sampled."""

    def run_ahead(self, futures: Sequence[StepFuture], newest: SchedulerOutput, most: int) -> None:
        """Steps go through the stages one by one."""

    def _compute(self, plan: SchedulerOutput, waits: float) -> StepEnd:
        now, host, stages = self._clock.now(), host_seconds(self._latency), self._stages_free_at
        shape = StepShape.of(plan)
        seconds = max(step_seconds(self._latency, shape, plan.step) - host, 0.0) / len(stages)
        self._host_free_at = max(now, self._host_free_at) + host
        while self._sampling and self._sampling[0][0] + self._waits_for <= plan.step:
            self._tokens_at = self._sampling.popleft()[1]
        moment = max(self._host_free_at, self._tokens_at, stages[0]) + waits
        for stage, free_at in enumerate(stages):
            moment = stages[stage] = max(moment, free_at) + seconds
        if self._waits_for and shape.num_sampled:
            self._sampling.append((plan.step, moment))
        self.busy_seconds += moment - max(now, self._end.moment)
        return StepEnd(moment)


def executor_for(
    clock: VirtualClock,
    latency: LatencyModel,
    config: SchedulerConfig,
    *,
    transfers: WorkerTransfers | None = None,
    speculation: SimulatedSpeculation | None = None,
    silent: bool = False,
) -> SimulatedExecutor:
    """The executor of one engine, with as many stages as it has."""
    if config.pipeline_parallel_size == 1:
        return SimulatedExecutor(clock, latency, transfers=transfers, speculation=speculation, silent=silent)
    return PipelinedExecutor(
        clock,
        latency,
        config.pipeline_parallel_size,
        waits_for=config.steps_per_decode if config.async_scheduling else 0,
        transfers=transfers,
        speculation=speculation,
        silent=silent,
    )
