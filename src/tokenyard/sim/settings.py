"""What replays of one deployment have in common, and how they are run on one engine or several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.sched.observer import StepObserver
from tokenyard.core.sched.policy import Policy
from tokenyard.sim.choices import ConnectorChoice, RouterChoice, router_of
from tokenyard.sim.executor import SimulatedSpeculation
from tokenyard.sim.parallel import ParallelResult, replay_parallel
from tokenyard.sim.replay import ReplayResult, replay
from tokenyard.sim.replicas import Autoscaling
from tokenyard.sim.routers import Fleet, VLLMBalancing
from tokenyard.sim.traffic import OnProgress
from tokenyard.steptime.model import LatencyModel
from tokenyard.workload.record import Workload

__all__ = ["ReplaySettings", "replay_engines"]


class ReplaySettings(NamedTuple):
    """Everything but workload and policy."""

    scheduler: SchedulerConfig
    """Limits and order; its policy is overridden where one is given."""
    cache: CacheConfig
    """The paged KV cache of one engine."""
    latency: LatencyModel
    """How long a step takes."""
    skip_refused: bool = False
    """Go on without requests that can never be served."""
    kv_transfer: ConnectorChoice | None = None
    """KV kept elsewhere too; None: nowhere."""
    speculation: SimulatedSpeculation | None = None
    """Drafts, and how many of them are right; None: no drafts."""
    fleet: Fleet = Fleet(1)
    """The engines."""
    router: RouterChoice = VLLMBalancing
    """Who gets which request, if they are several: a name, a class, or a function that makes one; an object serves one
    replay."""
    autoscaling: Autoscaling | None = None
    """How many of the engines there are; None: all."""

    def seeded(self, seed: int) -> ReplaySettings:
        """The same with the dice of this seed."""
        speculation = self.speculation
        return self if speculation is None else self._replace(speculation=replace(speculation, seed=seed))


def replay_engines(
    workload: Workload,
    settings: ReplaySettings,
    *,
    observers: Sequence[StepObserver | None],
    policies: Sequence[Policy | None],
    on_progress: OnProgress | None = None,
    warmup: float = 0.0,
    until: float | None = None,
) -> ReplayResult | ParallelResult:
    """Run the workload on the engines of ``settings.fleet``; an observer and a policy for each.

    Arguments and errors are those of :func:`~tokenyard.sim.replay.replay` for one engine, and of
    :func:`~tokenyard.sim.parallel.replay_parallel` for several.
    """
    scheduler, cache, latency, skip_refused, kv_transfer, speculation, fleet, router, autoscaling = settings
    if fleet.num_engines == 1 and autoscaling is None:
        return replay(
            workload,
            scheduler,
            cache,
            latency,
            observer=observers[0],
            policy=policies[0],
            kv_transfer=kv_transfer,
            speculation=speculation,
            skip_refused=skip_refused,
            on_progress=on_progress,
            warmup=warmup,
            until=until,
        )
    return replay_parallel(
        workload,
        scheduler,
        cache,
        latency,
        router_of(router, fleet),
        data_parallel_size=fleet.num_engines,
        steps_together=fleet.steps_together,
        observers=observers,
        policies=policies,
        kv_transfer=kv_transfer,
        speculation=speculation,
        autoscaling=autoscaling,
        skip_refused=skip_refused,
        on_progress=on_progress,
        warmup=warmup,
        until=until,
    )
