"""Who runs and how many tokens: queues, policies, the two passes, outputs, update.

What this package offers are the values that a scheduler takes and tells, beyond those of ``import tokenyard``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenyard.lazy import lazy_names

__all__ = [
    "AllBlocksCleared",
    "BlockDeltas",
    "BlockRemoved",
    "BlockStored",
    "CachedRequestData",
    "Counts",
    "EventType",
    "Gauges",
    "GroupKind",
    "HashAlgo",
    "KVEventBatch",
    "KVLimit",
    "KVShortage",
    "MambaCacheMode",
    "MaskedOutput",
    "ModelAuxOutput",
    "MultiModalItem",
    "NewRequest",
    "NewRequestData",
    "ObserverWarning",
    "Observers",
    "Outcome",
    "OutcomeKind",
    "PauseState",
    "PoolingParams",
    "PoolingType",
    "Preemption",
    "PrefixCacheStats",
    "QueueView",
    "RepeatedSteps",
    "RepetitionDetectionParams",
    "RequestAuxOutput",
    "RequestEvent",
    "RequestHasher",
    "RequestStatus",
    "RequestTimes",
    "ScheduledDrafts",
    "SchedulerState",
    "SchedulerStats",
    "SpecDecodingStats",
    "SpeculativeMethod",
    "StepInFlight",
    "StructuredOutput",
    "TokenLogprobs",
]

OFFERED = {
    "tokenyard.config": ("GroupKind", "HashAlgo", "MambaCacheMode", "SpeculativeMethod", "PauseState"),
    "tokenyard.request": ("RequestStatus", "RequestTimes"),
    "tokenyard.params": ("MultiModalItem", "PoolingParams", "PoolingType", "RepetitionDetectionParams"),
    "tokenyard.structured": ("StructuredOutput", "MaskedOutput"),
    "tokenyard.sched.observer": (
        "SchedulerState",
        "Counts",
        "Gauges",
        "QueueView",
        "RepeatedSteps",
        "Observers",
        "ObserverWarning",
    ),
    "tokenyard.sched.steps.outcomes": ("Outcome", "OutcomeKind", "Preemption"),
    "tokenyard.kv.shortage": ("KVShortage", "KVLimit"),
    "tokenyard.sched.steps.scheduler_output": ("NewRequest", "ScheduledDrafts", "NewRequestData", "CachedRequestData"),
    "tokenyard.kv.new_blocks": ("BlockDeltas",),
    "tokenyard.sched.steps.aux_output": ("ModelAuxOutput", "RequestAuxOutput", "TokenLogprobs"),
    "tokenyard.sched.features.request_events": ("RequestEvent", "EventType"),
    "tokenyard.sched.steps.stats": ("SchedulerStats", "SpecDecodingStats"),
    "tokenyard.sched.steps.in_flight": ("StepInFlight",),
    "tokenyard.kv.hashing": ("RequestHasher",),
    "tokenyard.kv.stats": ("PrefixCacheStats",),
    "tokenyard.kv.events": ("KVEventBatch", "BlockStored", "BlockRemoved", "AllBlocksCleared"),
}

if TYPE_CHECKING:
    from tokenyard.config import GroupKind, HashAlgo, MambaCacheMode, PauseState, SpeculativeMethod
    from tokenyard.kv.events import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch
    from tokenyard.kv.hashing import RequestHasher
    from tokenyard.kv.new_blocks import BlockDeltas
    from tokenyard.kv.shortage import KVLimit, KVShortage
    from tokenyard.kv.stats import PrefixCacheStats
    from tokenyard.params import MultiModalItem, PoolingParams, PoolingType, RepetitionDetectionParams
    from tokenyard.request import RequestStatus, RequestTimes
    from tokenyard.sched.features.request_events import EventType, RequestEvent
    from tokenyard.sched.observer import (
        Counts,
        Gauges,
        Observers,
        ObserverWarning,
        QueueView,
        RepeatedSteps,
        SchedulerState,
    )
    from tokenyard.sched.steps.aux_output import ModelAuxOutput, RequestAuxOutput, TokenLogprobs
    from tokenyard.sched.steps.in_flight import StepInFlight
    from tokenyard.sched.steps.outcomes import Outcome, OutcomeKind, Preemption
    from tokenyard.sched.steps.scheduler_output import CachedRequestData, NewRequest, NewRequestData, ScheduledDrafts
    from tokenyard.sched.steps.stats import SchedulerStats, SpecDecodingStats
    from tokenyard.structured import MaskedOutput, StructuredOutput
else:
    __getattr__, __dir__ = lazy_names(__name__, OFFERED)
