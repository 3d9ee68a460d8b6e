"""vLLM's scheduler and KV-cache manager as a library: the same decisions, cheaper, each with its reason.

This module is the front door: ``from tokenyard import Scheduler, SchedulerConfig``. Users may rely on the names in its
``__all__``, on those that the packages in ``NAMESPACES`` offer (``from tokenyard.connectors import Match``), and on
what ``docs/api.md`` says of them; everything else is private by convention, whatever its name, and may change without
notice. A name has one public place. ``import tokenyard`` loads none of them: a name is loaded when it is first asked
for, so that reading a trace costs no scheduler and asking for the version costs nothing.
"""

from __future__ import annotations

from tokenyard.lazy import lazy_names

TYPE_CHECKING = False  # typing's own costs more to import than this whole module

__all__ = [
    "CacheConfig",
    "ConfigError",
    "DecisionProfile",
    "Deployment",
    "DraftTokens",
    "EngineCore",
    "EngineOutputs",
    "Executor",
    "FinishReason",
    "KVCacheGroup",
    "KVConnector",
    "KVTransferConfig",
    "KeyedPolicy",
    "ModelOutput",
    "Policy",
    "Reason",
    "Report",
    "ReportBuilder",
    "Request",
    "RequestError",
    "RequestOutput",
    "ResolvedDeployment",
    "RunResult",
    "SamplingParams",
    "Scheduler",
    "SchedulerConfig",
    "SchedulerOutput",
    "SpeculativeConfig",
    "StepObserver",
    "StepOutcomes",
    "TokenyardError",
    "TraceConfig",
    "TraceReader",
    "TraceRecorder",
    "TraceWriter",
    "Why",
    "Workload",
    "WorkloadBuilder",
    "WorkloadRequest",
    "__version__",
    "compare",
    "compare_traces",
    "decision_profile",
    "describe_run",
    "load_latency",
    "load_workload",
    "make_policy",
    "plan",
    "policy_maker",
    "print_report",
    "replay",
    "replay_split",
    "run",
    "summarize",
    "sweep",
    "whatif",
    "why",
]

OFFERED: dict[str, dict[str, tuple[str, ...]]] = {
    "Deployments": {
        "tokenyard.deploy.deployment": ("Deployment",),
        "tokenyard.deploy.spec": ("ResolvedDeployment",),
    },
    "Questions": {
        "tokenyard.questions.run": ("run", "RunResult"),
        "tokenyard.questions.whatif": ("whatif",),
        "tokenyard.questions.plan": ("plan",),
        "tokenyard.questions.sweep": ("sweep",),
    },
    "Scheduling": {
        "tokenyard.sched.scheduler": ("Scheduler",),
        "tokenyard.config": ("SchedulerConfig", "CacheConfig", "KVCacheGroup", "SpeculativeConfig"),
        "tokenyard.profiles": ("DecisionProfile", "decision_profile"),
        "tokenyard.request": ("Request", "SamplingParams", "FinishReason"),
    },
    "What a step decided, and what came of it": {
        "tokenyard.sched.steps.scheduler_output": ("SchedulerOutput",),
        "tokenyard.sched.steps.model_output": ("ModelOutput", "DraftTokens"),
        "tokenyard.sched.steps.engine_outputs": ("EngineOutputs", "RequestOutput"),
    },
    "A step loop": {
        "tokenyard.engine.core": ("EngineCore",),
        "tokenyard.engine.executor": ("Executor",),
    },
    "Why somebody waited": {
        "tokenyard.sched.observer": ("StepObserver",),
        "tokenyard.sched.steps.outcomes": ("StepOutcomes", "Reason"),
    },
    "Policies": {
        "tokenyard.sched.policy": ("Policy", "make_policy"),
        "tokenyard.policies.named": ("policy_maker",),
        "tokenyard.policies.keyed": ("KeyedPolicy",),
    },
    "KV kept elsewhere": {
        "tokenyard.sched.connector": ("KVConnector",),
        "tokenyard.connectors.config": ("KVTransferConfig",),
    },
    "Workloads": {
        "tokenyard.sim.workload.load": ("load_workload",),
        "tokenyard.sim.workload.builder": ("WorkloadBuilder",),
        "tokenyard.sim.workload.record": ("Workload", "WorkloadRequest"),
    },
    "Replays": {
        "tokenyard.sim.latency.load": ("load_latency",),
        "tokenyard.sim.replay": ("replay",),
        "tokenyard.sim.split": ("replay_split",),
        "tokenyard.sim.compare.comparison": ("compare",),
    },
    "Traces": {
        "tokenyard.trace.format.config": ("TraceConfig",),
        "tokenyard.trace.format.start": ("describe_run",),
        "tokenyard.trace.emit.writer": ("TraceWriter",),
        "tokenyard.trace.emit.recorder": ("TraceRecorder",),
        "tokenyard.trace.read.reader": ("TraceReader",),
    },
    "Answers from traces": {
        "tokenyard.explain.report.builder": ("ReportBuilder",),
        "tokenyard.explain.report.summary": ("summarize",),
        "tokenyard.explain.report.report": ("Report",),
        "tokenyard.explain.render.report": ("print_report",),
        "tokenyard.explain.why.why": ("why", "Why"),
        "tokenyard.explain.compare.comparison": ("compare_traces",),
    },
    "Errors": {
        "tokenyard.errors": ("TokenyardError", "ConfigError", "RequestError"),
    },
    "Version": {
        "tokenyard.version": ("__version__",),
    },
}
"""Purpose -> module -> names, in the order of ``docs/api.md``."""

NAMESPACES = {
    "tokenyard.deploy": "Settings of deployments",
    "tokenyard.questions": "Answers of questions",
    "tokenyard.sched": "Steps in full: settings, state, refusals and records",
    "tokenyard.engine": "Pieces of a step loop",
    "tokenyard.policies": "For policies of your own, and CONTINUUM",
    "tokenyard.connectors": "The connectors, and for those of your own",
    "tokenyard.sim": "Settings and results of replays, latency models",
    "tokenyard.errors": "Errors that are seldom caught one by one",
}
"""Packages with names of their own that programs may rely on -> what for."""

if TYPE_CHECKING:
    from tokenyard.config import CacheConfig, KVCacheGroup, SchedulerConfig, SpeculativeConfig
    from tokenyard.connectors.config import KVTransferConfig
    from tokenyard.deploy.deployment import Deployment
    from tokenyard.deploy.spec import ResolvedDeployment
    from tokenyard.engine.core import EngineCore
    from tokenyard.engine.executor import Executor
    from tokenyard.errors import ConfigError, RequestError, TokenyardError
    from tokenyard.explain.compare.comparison import compare_traces
    from tokenyard.explain.render.report import print_report
    from tokenyard.explain.report.builder import ReportBuilder
    from tokenyard.explain.report.report import Report
    from tokenyard.explain.report.summary import summarize
    from tokenyard.explain.why.why import Why, why
    from tokenyard.policies.keyed import KeyedPolicy
    from tokenyard.policies.named import policy_maker
    from tokenyard.profiles import DecisionProfile, decision_profile
    from tokenyard.questions.plan import plan
    from tokenyard.questions.run import RunResult, run
    from tokenyard.questions.sweep import sweep
    from tokenyard.questions.whatif import whatif
    from tokenyard.request import FinishReason, Request, SamplingParams
    from tokenyard.sched.connector import KVConnector
    from tokenyard.sched.observer import StepObserver
    from tokenyard.sched.policy import Policy, make_policy
    from tokenyard.sched.scheduler import Scheduler
    from tokenyard.sched.steps.engine_outputs import EngineOutputs, RequestOutput
    from tokenyard.sched.steps.model_output import DraftTokens, ModelOutput
    from tokenyard.sched.steps.outcomes import Reason, StepOutcomes
    from tokenyard.sched.steps.scheduler_output import SchedulerOutput
    from tokenyard.sim.compare.comparison import compare
    from tokenyard.sim.latency.load import load_latency
    from tokenyard.sim.replay import replay
    from tokenyard.sim.split import replay_split
    from tokenyard.sim.workload.builder import WorkloadBuilder
    from tokenyard.sim.workload.load import load_workload
    from tokenyard.sim.workload.record import Workload, WorkloadRequest
    from tokenyard.trace.emit.recorder import TraceRecorder
    from tokenyard.trace.emit.writer import TraceWriter
    from tokenyard.trace.format.config import TraceConfig
    from tokenyard.trace.format.start import describe_run
    from tokenyard.trace.read.reader import TraceReader
    from tokenyard.version import __version__
else:
    _BY_MODULE = dict(entry for modules in OFFERED.values() for entry in modules.items())
    __getattr__, __dir__ = lazy_names(__name__, _BY_MODULE, submodules=NAMESPACES)
