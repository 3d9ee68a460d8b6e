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
    "Recording",
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
    "Standstills",
    "StepObserver",
    "StepOutcomes",
    "TokenyardError",
    "TraceComparison",
    "TraceConfig",
    "TraceReader",
    "TraceRecorder",
    "TraceWriter",
    "Waiting",
    "Why",
    "Workload",
    "WorkloadBuilder",
    "WorkloadRequest",
    "__version__",
    "accuracy",
    "compare",
    "compare_recordings",
    "core_is_compiled",
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
    "report",
    "run",
    "split",
    "standstills",
    "study",
    "sweep",
    "upgrade",
    "waiting",
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
        "tokenyard.questions.upgrade": ("upgrade",),
        "tokenyard.questions.plan": ("plan",),
        "tokenyard.questions.sweep": ("sweep",),
        "tokenyard.questions.study": ("study",),
        "tokenyard.questions.compare": ("compare",),
        "tokenyard.questions.split": ("split",),
        "tokenyard.questions.accuracy.ask": ("accuracy",),
    },
    "Scheduling": {
        "tokenyard.core.sched.scheduler": ("Scheduler",),
        "tokenyard.core.config": ("SchedulerConfig", "CacheConfig", "KVCacheGroup", "SpeculativeConfig"),
        "tokenyard.core.profiles": ("DecisionProfile", "decision_profile"),
        "tokenyard.core.request": ("Request", "SamplingParams", "FinishReason"),
    },
    "What a step decided, and what came of it": {
        "tokenyard.core.sched.scheduler_output": ("SchedulerOutput",),
        "tokenyard.core.sched.outputs": (
            "ModelOutput",
            "DraftTokens",
            "EngineOutputs",
            "RequestOutput",
        ),
    },
    "A step loop": {
        "tokenyard.core.engine": (
            "EngineCore",
            "Executor",
        ),
    },
    "Why a request waited": {
        "tokenyard.core.sched.observer": ("StepObserver",),
        "tokenyard.core.sched.outcomes": ("StepOutcomes", "Reason"),
    },
    "Policies": {
        "tokenyard.core.sched.policy": ("Policy", "make_policy"),
        "tokenyard.policies.named": ("policy_maker",),
        "tokenyard.policies.simple": ("KeyedPolicy",),
    },
    "KV kept elsewhere": {
        "tokenyard.core.sched.connector": ("KVConnector",),
        "tokenyard.connectors.config": ("KVTransferConfig",),
    },
    "Workloads": {
        "tokenyard.workload.load": ("load_workload",),
        "tokenyard.workload.builder": ("WorkloadBuilder",),
        "tokenyard.workload.record": ("Workload", "WorkloadRequest"),
    },
    "Replays": {
        "tokenyard.steptime.load": ("load_latency",),
        "tokenyard.sim.replay": ("replay", "replay_split"),
    },
    "Traces": {
        "tokenyard.trace.config": ("TraceConfig",),
        "tokenyard.trace.start": ("describe_run",),
        "tokenyard.record.writer": ("TraceWriter",),
        "tokenyard.record.recorder": ("TraceRecorder",),
        "tokenyard.trace.reader": ("TraceReader",),
    },
    "Answers from traces": {
        "tokenyard.questions.recording": ("Recording",),
        "tokenyard.explain.recorded": ("report", "compare_recordings"),
        "tokenyard.explain.report.builder": ("ReportBuilder",),
        "tokenyard.explain.report.report": ("Report",),
        "tokenyard.explain.render.report": ("print_report",),
        "tokenyard.explain.why.why": ("why", "Why"),
        "tokenyard.explain.why.longest_waits": ("waiting", "Waiting"),
        "tokenyard.explain.why.stuck": ("standstills", "Standstills"),
        "tokenyard.explain.compare.comparison": ("TraceComparison",),
    },
    "Errors": {
        "tokenyard.errors": ("TokenyardError", "ConfigError", "RequestError"),
    },
    "Version": {
        "tokenyard.version": ("__version__",),
        "tokenyard.compiled": ("core_is_compiled",),
    },
}
"""Purpose -> module -> names, in the order of ``docs/api.md``."""

NAMESPACES = {
    "tokenyard.deploy": "Settings of deployments",
    "tokenyard.questions": "Answers of questions",
    "tokenyard.core": "Steps in full: settings, state, refusals and records",
    "tokenyard.serve": "Pieces of a step loop",
    "tokenyard.policies": "For policies of your own, and CONTINUUM",
    "tokenyard.connectors": "The connectors, and for those of your own",
    "tokenyard.sim": "Settings and results of replays, latency models",
    "tokenyard.errors": "Errors that are seldom caught one by one",
}
"""Packages with names of their own that programs may rely on -> what for."""

if TYPE_CHECKING:
    from tokenyard.compiled import core_is_compiled
    from tokenyard.connectors.config import KVTransferConfig
    from tokenyard.core.config import CacheConfig, KVCacheGroup, SchedulerConfig, SpeculativeConfig
    from tokenyard.core.engine import EngineCore, Executor
    from tokenyard.core.profiles import DecisionProfile, decision_profile
    from tokenyard.core.request import FinishReason, Request, SamplingParams
    from tokenyard.core.sched.connector import KVConnector
    from tokenyard.core.sched.observer import StepObserver
    from tokenyard.core.sched.outcomes import Reason, StepOutcomes
    from tokenyard.core.sched.outputs import DraftTokens, EngineOutputs, ModelOutput, RequestOutput
    from tokenyard.core.sched.policy import Policy, make_policy
    from tokenyard.core.sched.scheduler import Scheduler
    from tokenyard.core.sched.scheduler_output import SchedulerOutput
    from tokenyard.deploy.deployment import Deployment
    from tokenyard.deploy.spec import ResolvedDeployment
    from tokenyard.errors import ConfigError, RequestError, TokenyardError
    from tokenyard.explain.compare.comparison import TraceComparison
    from tokenyard.explain.recorded import compare_recordings, report
    from tokenyard.explain.render.report import print_report
    from tokenyard.explain.report.builder import ReportBuilder
    from tokenyard.explain.report.report import Report
    from tokenyard.explain.why.longest_waits import Waiting, waiting
    from tokenyard.explain.why.stuck import Standstills, standstills
    from tokenyard.explain.why.why import Why, why
    from tokenyard.policies.named import policy_maker
    from tokenyard.policies.simple import KeyedPolicy
    from tokenyard.questions.accuracy.ask import accuracy
    from tokenyard.questions.compare import compare
    from tokenyard.questions.plan import plan
    from tokenyard.questions.recording import Recording
    from tokenyard.questions.run import RunResult, run
    from tokenyard.questions.split import split
    from tokenyard.questions.study import study
    from tokenyard.questions.sweep import sweep
    from tokenyard.questions.upgrade import upgrade
    from tokenyard.questions.whatif import whatif
    from tokenyard.record.recorder import TraceRecorder
    from tokenyard.record.writer import TraceWriter
    from tokenyard.sim.replay import replay, replay_split
    from tokenyard.steptime.load import load_latency
    from tokenyard.trace.config import TraceConfig
    from tokenyard.trace.reader import TraceReader
    from tokenyard.trace.start import describe_run
    from tokenyard.version import __version__
    from tokenyard.workload.builder import WorkloadBuilder
    from tokenyard.workload.load import load_workload
    from tokenyard.workload.record import Workload, WorkloadRequest
else:
    _BY_MODULE = dict(entry for modules in OFFERED.values() for entry in modules.items())
    __getattr__, __dir__ = lazy_names(__name__, _BY_MODULE, submodules=NAMESPACES)
