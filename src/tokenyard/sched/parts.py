"""The parts of one scheduler that several of its rooms need."""

from __future__ import annotations

from typing import NamedTuple

from tokenyard.config import CacheConfig, SchedulerConfig
from tokenyard.kv.manager import KVCacheManager
from tokenyard.sched.features.features import Features
from tokenyard.sched.features.grammars import GrammarGate
from tokenyard.sched.features.hooks import StepHooks
from tokenyard.sched.policy import Policy
from tokenyard.sched.queues.running import RunningList
from tokenyard.sched.queues.waiting import WaitingQueues
from tokenyard.sched.steps.in_flight import StepsInFlight
from tokenyard.table import RequestTable

__all__ = ["Parts"]


class Parts(NamedTuple):
    """Made once, when the scheduler is; none is replaced."""

    config: SchedulerConfig
    cache_config: CacheConfig
    kv: KVCacheManager
    table: RequestTable
    policy: Policy
    running: RunningList
    waiting_queues: WaitingQueues
    features: Features
    hooks: StepHooks
    in_flight: StepsInFlight
    grammars: GrammarGate
