"""Pipeline parallelism in a replay: a step passes through stages, each of which computes one step at a time.

    no async scheduling     stage 0  | 0 | 1 | 2 | 3 |        a request is in one step at a time, so that the running
                            stage 1      | 0 | 1 | 2 | 3 |    ones part into as many batches as there are stages
    async scheduling        stage 0  | 0 |   | 1 |   | 2 |    every step has all of them, and its first stage waits for
                            stage 1      | 0 |   | 1 |        the tokens of the step before

Facts of vLLM 0.22: as many steps are in flight as there are stages, and with async scheduling the last stage broadcasts
what it sampled to the others, unless the step had nothing but chunks of prompts.
"""

from __future__ import annotations

from tokenyard.sched.steps.scheduler_output import SchedulerOutput
from tokenyard.sim.clock import VirtualClock
from tokenyard.sim.drafts import SimulatedSpeculation
from tokenyard.sim.executor import SimulatedExecutor, StepEnd, WorkerTransfers
from tokenyard.sim.latency.model import LatencyModel, StepShape

__all__ = ["PipelinedExecutor", "depth_of", "executor_for"]


class PipelinedExecutor(SimulatedExecutor):
    """An executor of several stages; a step takes the same share of its time in each."""

    def __init__(
        self,
        clock: VirtualClock,
        latency: LatencyModel,
        num_stages: int,
        *,
        waits_for_tokens: bool,
        transfers: WorkerTransfers | None = None,
        speculation: SimulatedSpeculation | None = None,
    ) -> None:
        """``waits_for_tokens``: async scheduling, whose steps begin when the one before has sampled."""
        super().__init__(clock, latency, transfers=transfers, speculation=speculation)
        self._waits_for_tokens = waits_for_tokens
        self._stages_free_at = [0.0] * num_stages
        self._tokens_at = 0.0
        """When the tokens are there that the next step begins with."""

    def _compute(self, plan: SchedulerOutput, waits: float) -> StepEnd:
        now, host, stages = self._clock.now(), self._latency.host_seconds, self._stages_free_at
        shape = StepShape.of(plan)
        seconds = max(self._latency.step_seconds(shape) - host, 0.0) / len(stages)
        self._host_free_at = max(now, self._host_free_at) + host
        moment = max(self._host_free_at, self._tokens_at, stages[0]) + waits
        for stage, free_at in enumerate(stages):
            moment = stages[stage] = max(moment, free_at) + seconds
        if self._waits_for_tokens and shape.num_sampled:
            self._tokens_at = moment
        self.busy_seconds += moment - max(now, self._end.moment)
        return StepEnd(moment)


def executor_for(
    clock: VirtualClock,
    latency: LatencyModel,
    *,
    pipeline_parallel_size: int,
    async_scheduling: bool,
    transfers: WorkerTransfers | None = None,
    speculation: SimulatedSpeculation | None = None,
) -> SimulatedExecutor:
    """The executor of one engine with so many stages."""
    if pipeline_parallel_size == 1:
        return SimulatedExecutor(clock, latency, transfers=transfers, speculation=speculation)
    return PipelinedExecutor(
        clock,
        latency,
        pipeline_parallel_size,
        waits_for_tokens=async_scheduling,
        transfers=transfers,
        speculation=speculation,
    )


def depth_of(pipeline_parallel_size: int) -> int | None:
    """Steps in flight; None leaves it to async scheduling."""
    return pipeline_parallel_size if pipeline_parallel_size > 1 else None
