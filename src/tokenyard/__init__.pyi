# What the package offers, in the order of the API page; the module beside it loads these names when they are asked for.
# isort: skip_file

# Deployments
from tokenyard.questions.deployment import Deployment as Deployment
from tokenyard.deploy.spec import ResolvedDeployment as ResolvedDeployment

# Questions
from tokenyard.questions.doctor.diagnosis import doctor as doctor
from tokenyard.questions.scenario import load_workload as load_workload
from tokenyard.questions.run import run as run, RunResult as RunResult
from tokenyard.questions.whatif import whatif as whatif
from tokenyard.questions.upgrade import upgrade as upgrade
from tokenyard.questions.plan import plan as plan
from tokenyard.questions.sweep import sweep as sweep
from tokenyard.questions.study import study as study
from tokenyard.questions.compare import compare as compare
from tokenyard.questions.agents import agents as agents
from tokenyard.questions.split import split as split
from tokenyard.questions.headroom import headroom as headroom
from tokenyard.questions.accuracy.ask import accuracy as accuracy

# Scheduling
from tokenyard.core.sched.scheduler import Scheduler as Scheduler
from tokenyard.core.config import (
    SchedulerConfig as SchedulerConfig,
    CacheConfig as CacheConfig,
    KVCacheGroup as KVCacheGroup,
    SpeculativeConfig as SpeculativeConfig,
)
from tokenyard.core.profiles import DecisionProfile as DecisionProfile, decision_profile as decision_profile
from tokenyard.core.request import Request as Request, SamplingParams as SamplingParams, FinishReason as FinishReason

# What a step decided, and what came of it
from tokenyard.core.sched.scheduler_output import SchedulerOutput as SchedulerOutput
from tokenyard.core.sched.outputs import (
    ModelOutput as ModelOutput,
    DraftTokens as DraftTokens,
    EngineOutputs as EngineOutputs,
    RequestOutput as RequestOutput,
)

# A step loop
from tokenyard.core.engine import EngineCore as EngineCore, Executor as Executor

# Why a request waited
from tokenyard.core.sched.observer import StepObserver as StepObserver
from tokenyard.core.sched.outcomes import StepOutcomes as StepOutcomes, Reason as Reason, EndedPin as EndedPin

# Policies
from tokenyard.core.sched.policy import Policy as Policy, make_policy as make_policy
from tokenyard.policies.named import policy_maker as policy_maker
from tokenyard.policies.simple import KeyedPolicy as KeyedPolicy
from tokenyard.core.sched.eviction import EvictionOrder as EvictionOrder
from tokenyard.questions.regret import counterfactual as counterfactual
from tokenyard.sim.fleet import (
    FleetPolicy as FleetPolicy,
    Move as Move,
    Crash as Crash,
    Slow as Slow,
    Drain as Drain,
    PoolShrinks as PoolShrinks,
)

# KV kept elsewhere
from tokenyard.core.sched.connector import KVConnector as KVConnector
from tokenyard.connectors.config import KVTransferConfig as KVTransferConfig

# Workloads
from tokenyard.workload.builder import WorkloadBuilder as WorkloadBuilder
from tokenyard.workload.record import Workload as Workload, WorkloadRequest as WorkloadRequest

# Models
from tokenyard.models.asking import image_tokens as image_tokens, video_tokens as video_tokens

# Replays
from tokenyard.steptime.load import load_latency as load_latency
from tokenyard.sim.replay import replay as replay, replay_split as replay_split

# Traces
from tokenyard.trace.config import TraceConfig as TraceConfig
from tokenyard.trace.start import describe_run as describe_run
from tokenyard.record.writer import TraceWriter as TraceWriter
from tokenyard.record.recorder import TraceRecorder as TraceRecorder
from tokenyard.trace.reader import TraceReader as TraceReader

# Answers from traces
from tokenyard.questions.recording import Recording as Recording
from tokenyard.explain.recorded import answer as answer, report as report, compare_recordings as compare_recordings
from tokenyard.explain.answer.answer import Answer as Answer
from tokenyard.explain.report.builder import ReportBuilder as ReportBuilder
from tokenyard.explain.report.report import Report as Report
from tokenyard.explain.render.report import print_report as print_report
from tokenyard.explain.why.why import why as why, Why as Why, waiting as waiting, Waiting as Waiting
from tokenyard.explain.why.prefix import prefix_misses as prefix_misses, PrefixMisses as PrefixMisses
from tokenyard.explain.why.stuck import standstills as standstills, Standstills as Standstills
from tokenyard.explain.compare.comparison import TraceComparison as TraceComparison

# Errors
from tokenyard.errors import TokenyardError as TokenyardError, ConfigError as ConfigError, RequestError as RequestError

# Version
from tokenyard.version import __version__ as __version__
from tokenyard.compiled import core_is_compiled as core_is_compiled

OFFERED: dict[str, dict[str, tuple[str, ...]]]
NAMESPACES: dict[str, str]
__all__: list[str]
