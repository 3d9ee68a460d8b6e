# What the package offers, in the order of the API page; the module beside it loads these names when they are asked for.
# isort: skip_file

from tokenyard.core.sched.policy_context import PolicyContext as PolicyContext
from tokenyard.core.sched.policy import AdmissionView as AdmissionView
from tokenyard.core.sched.candidate import (
    Refused as Refused,
    Rejected as Rejected,
    StepBounds as StepBounds,
    StepBudget as StepBudget,
    Candidate as Candidate,
    AdmissionLimit as AdmissionLimit,
    FeatureHook as FeatureHook,
)
from tokenyard.core.sched.eviction import CachedBlock as CachedBlock, Job as Job
from tokenyard.policies.eviction import (
    LRU as LRU,
    LFU as LFU,
    LRUK as LRUK,
    CostAware as CostAware,
    WorkflowAware as WorkflowAware,
    Belady as Belady,
)
from tokenyard.vocabulary import known_policies as known_policies
from tokenyard.core.sched.queues import (
    WaitingQueues as WaitingQueues,
    RequestQueue as RequestQueue,
    FCFSQueue as FCFSQueue,
    PriorityQueue as PriorityQueue,
)
from tokenyard.core.sched.features.sessions import PinBoard as PinBoard
from tokenyard.policies.continuum.policy import (
    Continuum as Continuum,
    continuum_by_program as continuum_by_program,
    continuum_fixed as continuum_fixed,
    continuum_ttl as continuum_ttl,
    continuum_share as continuum_share,
)
from tokenyard.policies.continuum.ttl import (
    TtlRule as TtlRule,
    FinishedTurn as FinishedTurn,
    Observations as Observations,
    TierRecall as TierRecall,
    PrefillReload as PrefillReload,
)
from tokenyard.policies.continuum.tools import ToolReader as ToolReader
from tokenyard.policies.programs import (
    ProgramFCFS as ProgramFCFS,
    ProgramAdmission as ProgramAdmission,
)
from tokenyard.policies.baselines import (
    Orca as Orca,
    PrefillFirst as PrefillFirst,
    Sarathi as Sarathi,
    FastServe as FastServe,
    NoisySJF as NoisySJF,
    VTC as VTC,
)
