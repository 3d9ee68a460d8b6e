"""The step loop over a scheduler and an executor, for every host but vLLM, and generation of text above it.

What this package offers beyond ``EngineCore`` and ``Executor``, which are names of ``import tokenyard``.
"""

from __future__ import annotations

from tokenyard.lazy import lazy_names

OFFERED, __all__, __getattr__, __dir__ = lazy_names(__name__)
