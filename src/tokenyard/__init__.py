"""vLLM's scheduler and KV-cache manager as a library: the same decisions, cheaper, each with its reason.

This module is the front door: ``from tokenyard import Scheduler, SchedulerConfig``. The names in its ``__all__``, and
what ``docs/api.md`` says of them, are what users may rely on; every other module is private by convention, whatever
its name, and may change without notice. ``import tokenyard`` loads none of them: a name is loaded when it is first
asked for, so that reading a trace costs no scheduler and asking for the version costs nothing.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # typing's own costs more to import than this whole module

__all__ = [
    "ArrayMemory",
    "BlockFiles",
    "CacheConfig",
    "ConfigError",
    "ConnectorContext",
    "DiskTier",
    "DoneStep",
    "DraftTokens",
    "EngineCore",
    "EngineOutputs",
    "Executor",
    "FinishReason",
    "KVCacheGroup",
    "KVConnector",
    "KVLink",
    "KVTransferConfig",
    "KeyedPolicy",
    "LatencyModel",
    "ModelOutput",
    "Outcome",
    "Policy",
    "PolicyContext",
    "Preemption",
    "Reason",
    "ReplayResult",
    "ReplaySettings",
    "Report",
    "ReportBuilder",
    "Request",
    "RequestError",
    "RequestOutput",
    "SamplingParams",
    "Scheduler",
    "SchedulerConfig",
    "SchedulerOutput",
    "SchedulerState",
    "SpeculativeConfig",
    "StepObserver",
    "StepOutcomes",
    "StepShape",
    "TierWorker",
    "TieredConnector",
    "TokenyardError",
    "ToolReader",
    "TraceConfig",
    "TraceError",
    "TraceReader",
    "TraceRecorder",
    "TraceWriter",
    "Why",
    "Workload",
    "WorkloadError",
    "WorkloadRequest",
    "__version__",
    "compare",
    "compare_traces",
    "continuum_fixed",
    "continuum_share",
    "continuum_ttl",
    "describe_run",
    "known_policies",
    "load_latency",
    "load_workload",
    "make_policy",
    "policy_maker",
    "print_report",
    "replay",
    "replay_split",
    "summarize",
    "why",
]

OFFERED: dict[str, dict[str, tuple[str, ...]]] = {
    "Scheduling": {
        "tokenyard.sched.scheduler": ("Scheduler",),
        "tokenyard.config": ("SchedulerConfig", "CacheConfig", "KVCacheGroup", "SpeculativeConfig"),
        "tokenyard.request": ("Request", "SamplingParams", "FinishReason"),
    },
    "What a step decided, and what came of it": {
        "tokenyard.sched.steps.scheduler_output": ("SchedulerOutput",),
        "tokenyard.sched.steps.model_output": ("ModelOutput", "DraftTokens"),
        "tokenyard.sched.steps.engine_outputs": ("EngineOutputs", "RequestOutput"),
    },
    "A step loop": {
        "tokenyard.engine.core": ("EngineCore",),
        "tokenyard.engine.executor": ("Executor", "DoneStep"),
    },
    "Why somebody waited": {
        "tokenyard.sched.observer": ("StepObserver", "SchedulerState"),
        "tokenyard.sched.steps.outcomes": ("StepOutcomes", "Outcome", "Preemption", "Reason"),
    },
    "Policies": {
        "tokenyard.sched.policy": ("Policy", "PolicyContext", "make_policy", "known_policies"),
        "tokenyard.policies.named": ("policy_maker",),
        "tokenyard.policies.keyed": ("KeyedPolicy",),
        "tokenyard.policies.continuum.policy": ("continuum_fixed", "continuum_ttl", "continuum_share"),
        "tokenyard.policies.continuum.tools": ("ToolReader",),
    },
    "KV kept elsewhere": {
        "tokenyard.sched.connector": ("KVConnector", "ConnectorContext"),
        "tokenyard.connectors.config": ("KVTransferConfig",),
        "tokenyard.connectors.tiered": ("TieredConnector",),
        "tokenyard.connectors.disk_tier": ("DiskTier",),
        "tokenyard.connectors.block_files": ("BlockFiles",),
        "tokenyard.connectors.tier_worker": ("TierWorker",),
        "tokenyard.connectors.memory": ("ArrayMemory",),
    },
    "Workloads": {
        "tokenyard.sim.workload.load": ("load_workload",),
        "tokenyard.sim.workload.record": ("Workload", "WorkloadRequest"),
    },
    "Replays": {
        "tokenyard.sim.latency.load": ("load_latency",),
        "tokenyard.sim.latency.model": ("LatencyModel", "StepShape"),
        "tokenyard.sim.replay": ("replay", "ReplayResult"),
        "tokenyard.sim.split": ("replay_split", "KVLink"),
        "tokenyard.sim.compare.comparison": ("compare", "ReplaySettings"),
    },
    "Traces": {
        "tokenyard.trace.format.config": ("TraceConfig",),
        "tokenyard.trace.format.start": ("describe_run",),
        "tokenyard.trace.emit.writer": ("TraceWriter",),
        "tokenyard.trace.emit.recorder": ("TraceRecorder",),
        "tokenyard.trace.read.reader": ("TraceReader",),
    },
    "Answers from traces": {
        "tokenyard.explain.report.builder": ("summarize", "ReportBuilder"),
        "tokenyard.explain.report.report": ("Report",),
        "tokenyard.explain.render.report": ("print_report",),
        "tokenyard.explain.why.why": ("why", "Why"),
        "tokenyard.explain.compare.comparison": ("compare_traces",),
    },
    "Errors": {
        "tokenyard.errors": ("TokenyardError", "ConfigError", "RequestError", "WorkloadError", "TraceError"),
    },
    "Version": {"tokenyard.version": ("__version__",)},
}
"""Purpose -> module -> names, in the order of ``docs/api.md``."""

if TYPE_CHECKING:
    from tokenyard.config import CacheConfig, KVCacheGroup, SchedulerConfig, SpeculativeConfig
    from tokenyard.connectors.block_files import BlockFiles
    from tokenyard.connectors.config import KVTransferConfig
    from tokenyard.connectors.disk_tier import DiskTier
    from tokenyard.connectors.memory import ArrayMemory
    from tokenyard.connectors.tier_worker import TierWorker
    from tokenyard.connectors.tiered import TieredConnector
    from tokenyard.engine.core import EngineCore
    from tokenyard.engine.executor import DoneStep, Executor
    from tokenyard.errors import ConfigError, RequestError, TokenyardError, TraceError, WorkloadError
    from tokenyard.explain.compare.comparison import compare_traces
    from tokenyard.explain.render.report import print_report
    from tokenyard.explain.report.builder import ReportBuilder, summarize
    from tokenyard.explain.report.report import Report
    from tokenyard.explain.why.why import Why, why
    from tokenyard.policies.continuum.policy import continuum_fixed, continuum_share, continuum_ttl
    from tokenyard.policies.continuum.tools import ToolReader
    from tokenyard.policies.keyed import KeyedPolicy
    from tokenyard.policies.named import policy_maker
    from tokenyard.request import FinishReason, Request, SamplingParams
    from tokenyard.sched.connector import ConnectorContext, KVConnector
    from tokenyard.sched.observer import SchedulerState, StepObserver
    from tokenyard.sched.policy import Policy, PolicyContext, known_policies, make_policy
    from tokenyard.sched.scheduler import Scheduler
    from tokenyard.sched.steps.engine_outputs import EngineOutputs, RequestOutput
    from tokenyard.sched.steps.model_output import DraftTokens, ModelOutput
    from tokenyard.sched.steps.outcomes import Outcome, Preemption, Reason, StepOutcomes
    from tokenyard.sched.steps.scheduler_output import SchedulerOutput
    from tokenyard.sim.compare.comparison import ReplaySettings, compare
    from tokenyard.sim.latency.load import load_latency
    from tokenyard.sim.latency.model import LatencyModel, StepShape
    from tokenyard.sim.replay import ReplayResult, replay
    from tokenyard.sim.split import KVLink, replay_split
    from tokenyard.sim.workload.load import load_workload
    from tokenyard.sim.workload.record import Workload, WorkloadRequest
    from tokenyard.trace.emit.recorder import TraceRecorder
    from tokenyard.trace.emit.writer import TraceWriter
    from tokenyard.trace.format.config import TraceConfig
    from tokenyard.trace.format.start import describe_run
    from tokenyard.trace.read.reader import TraceReader
    from tokenyard.version import __version__
else:
    _MODULE_OF = {name: module for modules in OFFERED.values() for module, names in modules.items() for name in names}

    def __getattr__(name: str) -> object:
        """Load an offered name when it is first asked for (PEP 562)."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'tokenyard' has no attribute {name!r}")
        value = getattr(import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """The offered names, loaded or not."""
        return sorted({*globals(), *__all__})
