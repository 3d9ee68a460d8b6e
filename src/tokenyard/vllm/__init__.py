"""Tokenyard inside a running vLLM: scheduler classes for ``vllm serve --scheduler-cls``.

``--scheduler-cls tokenyard.vllm.TracingScheduler`` names one, ``--distributed-executor-backend
tokenyard.vllm.EmulatedExecutor`` an executor that needs no GPU; nothing of vLLM is imported before a name is used,
and then only what that class needs. Each class has a twin for asynchronous scheduling; whichever of the two is named,
the engine gets the one that it runs with (see ``twins.py``).
"""

from __future__ import annotations

from tokenyard.lazy import lazy_names

OFFERED, __all__, __getattr__, __dir__ = lazy_names(__name__)
