"""Who runs and how many tokens: queues, policies, the two passes, outputs, update.

What this package offers are the values that a scheduler takes and tells, beyond those of ``import tokenyard``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenyard.compiled import prefer_compiled
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
    "tokenyard.core.config": (
        "GroupKind",
        "HashAlgo",
        "MambaCacheMode",
        "SpeculativeMethod",
        "PauseState",
    ),
    "tokenyard.core.request": (
        "RequestStatus",
        "RequestTimes",
    ),
    "tokenyard.core.params": (
        "MultiModalItem",
        "PoolingParams",
        "PoolingType",
        "RepetitionDetectionParams",
        "StructuredOutput",
        "MaskedOutput",
    ),
    "tokenyard.core.sched.observer": (
        "SchedulerState",
        "Counts",
        "Gauges",
        "QueueView",
        "RepeatedSteps",
        "Observers",
        "ObserverWarning",
    ),
    "tokenyard.core.sched.outcomes": (
        "Outcome",
        "OutcomeKind",
        "Preemption",
        "SchedulerStats",
        "SpecDecodingStats",
    ),
    "tokenyard.core.kv.allocation": (
        "KVShortage",
        "KVLimit",
        "BlockDeltas",
        "PrefixCacheStats",
    ),
    "tokenyard.core.sched.scheduler_output": (
        "NewRequest",
        "ScheduledDrafts",
        "NewRequestData",
        "CachedRequestData",
        "StepInFlight",
    ),
    "tokenyard.core.sched.outputs": (
        "ModelAuxOutput",
        "RequestAuxOutput",
        "TokenLogprobs",
        "RequestEvent",
        "EventType",
    ),
    "tokenyard.core.kv.hashing": ("RequestHasher",),
    "tokenyard.core.kv.events": (
        "KVEventBatch",
        "BlockStored",
        "BlockRemoved",
        "AllBlocksCleared",
    ),
}

prefer_compiled("core", __path__)

if TYPE_CHECKING:
    from tokenyard.core.config import GroupKind, HashAlgo, MambaCacheMode, PauseState, SpeculativeMethod
    from tokenyard.core.kv.allocation import BlockDeltas, KVLimit, KVShortage, PrefixCacheStats
    from tokenyard.core.kv.events import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch
    from tokenyard.core.kv.hashing import RequestHasher
    from tokenyard.core.params import (
        MaskedOutput,
        MultiModalItem,
        PoolingParams,
        PoolingType,
        RepetitionDetectionParams,
        StructuredOutput,
    )
    from tokenyard.core.request import RequestStatus, RequestTimes
    from tokenyard.core.sched.observer import (
        Counts,
        Gauges,
        Observers,
        ObserverWarning,
        QueueView,
        RepeatedSteps,
        SchedulerState,
    )
    from tokenyard.core.sched.outcomes import Outcome, OutcomeKind, Preemption, SchedulerStats, SpecDecodingStats
    from tokenyard.core.sched.outputs import EventType, ModelAuxOutput, RequestAuxOutput, RequestEvent, TokenLogprobs
    from tokenyard.core.sched.scheduler_output import (
        CachedRequestData,
        NewRequest,
        NewRequestData,
        ScheduledDrafts,
        StepInFlight,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, OFFERED)
