# What the package offers, in the order of the API page; the module beside it loads these names when they are asked for.
# isort: skip_file

from tokenyard.core.config import (
    GroupKind as GroupKind,
    HashAlgo as HashAlgo,
    MambaCacheMode as MambaCacheMode,
    SpeculativeMethod as SpeculativeMethod,
    PauseState as PauseState,
)
from tokenyard.core.request import RequestStatus as RequestStatus, RequestTimes as RequestTimes
from tokenyard.core.params import (
    MultiModalItem as MultiModalItem,
    PoolingParams as PoolingParams,
    PoolingType as PoolingType,
    RepetitionDetectionParams as RepetitionDetectionParams,
    StructuredOutput as StructuredOutput,
    MaskedOutput as MaskedOutput,
)
from tokenyard.core.sched.observer import (
    SchedulerState as SchedulerState,
    Counts as Counts,
    Gauges as Gauges,
    QueueView as QueueView,
    RepeatedSteps as RepeatedSteps,
    Observers as Observers,
    ObserverWarning as ObserverWarning,
)
from tokenyard.core.sched.outcomes import (
    Outcome as Outcome,
    OutcomeKind as OutcomeKind,
    Preemption as Preemption,
    SchedulerStats as SchedulerStats,
    SpecDecodingStats as SpecDecodingStats,
)
from tokenyard.core.kv.allocation import (
    KVShortage as KVShortage,
    KVLimit as KVLimit,
    BlockDeltas as BlockDeltas,
    PrefixCacheStats as PrefixCacheStats,
)
from tokenyard.core.sched.scheduler_output import (
    NewRequest as NewRequest,
    ScheduledDrafts as ScheduledDrafts,
    NewRequestData as NewRequestData,
    CachedRequestData as CachedRequestData,
)
from tokenyard.core.sched.in_flight import StepInFlight as StepInFlight
from tokenyard.core.sched.outputs import (
    ModelAuxOutput as ModelAuxOutput,
    RequestAuxOutput as RequestAuxOutput,
    TokenLogprobs as TokenLogprobs,
    RequestEvent as RequestEvent,
    EventType as EventType,
)
from tokenyard.core.kv.hashing import RequestHasher as RequestHasher
from tokenyard.core.kv.events import (
    KVEventBatch as KVEventBatch,
    BlockStored as BlockStored,
    BlockRemoved as BlockRemoved,
    AllBlocksCleared as AllBlocksCleared,
)
