"""Tokenyard inside a running vLLM: scheduler classes for ``vllm serve --scheduler-cls``.

``--scheduler-cls tokenyard.vllm.TracingScheduler`` names one, ``--distributed-executor-backend
tokenyard.vllm.EmulatedExecutor`` an executor that needs no GPU; nothing of vLLM is imported before a name is asked for,
and then only what that class needs. Each class has a twin for asynchronous scheduling; whichever of the two is named,
the engine gets the one that it runs with (see ``twins.py``).
"""

from __future__ import annotations

from tokenyard.lazy import lazy_names

TYPE_CHECKING = False  # typing's own costs more to import than this whole module

__all__ = [
    "AsyncContinuumScheduler",
    "AsyncFastScheduler",
    "AsyncTracingScheduler",
    "ContinuumScheduler",
    "EmulatedExecutor",
    "FastScheduler",
    "TracingScheduler",
]

if TYPE_CHECKING:
    from tokenyard.vllm.emulated.executor import EmulatedExecutor
    from tokenyard.vllm.fast.scheduler import AsyncFastScheduler, FastScheduler
    from tokenyard.vllm.policies.schedulers import AsyncContinuumScheduler, ContinuumScheduler
    from tokenyard.vllm.tracing.schedulers import AsyncTracingScheduler, TracingScheduler

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "tokenyard.vllm.emulated.executor": ("EmulatedExecutor",),
        "tokenyard.vllm.fast": ("FastScheduler", "AsyncFastScheduler"),
        "tokenyard.vllm.policies.schedulers": ("ContinuumScheduler", "AsyncContinuumScheduler"),
        "tokenyard.vllm.tracing.schedulers": ("TracingScheduler", "AsyncTracingScheduler"),
    },
)
