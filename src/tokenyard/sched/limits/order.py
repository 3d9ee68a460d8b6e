"""Which limits a scheduler has, and in which order it asks them."""

from __future__ import annotations

from tokenyard.config import SchedulerConfig
from tokenyard.kv.manager import KVCacheManager
from tokenyard.sched.features.features import Features
from tokenyard.sched.features.pins import PinBoard
from tokenyard.sched.limits.candidate import Limit
from tokenyard.sched.limits.limits import (
    AlignmentLimit,
    ConnectorLookup,
    EncoderLimit,
    LoraLimit,
    PrefillLimit,
    PrefixLookup,
    ReadyLimit,
)
from tokenyard.sched.limits.memory import MemoryLimit
from tokenyard.sched.queues.running import RunningList

__all__ = ["limits_in_order"]


def limits_in_order(
    config: SchedulerConfig, kv: KVCacheManager, running: RunningList, features: Features, pins: PinBoard
) -> list[Limit]:
    """The limits of the configured features, in the order in which vLLM asks."""
    limits: list[Limit] = [ReadyLimit(features.transfers)]
    if config.max_loras:
        limits.append(LoraLimit(config.max_loras))
    limits.append(PrefixLookup(kv))
    if features.transfers is not None:
        limits.append(ConnectorLookup(features.transfers))
    limits.append(PrefillLimit(config))
    if features.encoder is not None:
        limits.append(EncoderLimit(features.encoder))
    if features.alignment is not None:
        limits.append(AlignmentLimit(features.alignment))
    limits.append(MemoryLimit(config, kv, running, features, pins))
    return limits
