"""Our core as vLLM's scheduler: ``--scheduler-cls tokenyard.vllm.FastScheduler``.

    vLLM's engine ── SchedulerInterface ──► FastScheduler ──► tokenyard.Scheduler
      VllmConfig, KVCacheConfig             settings.py         SchedulerConfig, CacheConfig
      Request                               requests.py         Request (blocks hashed by vLLM: hashing.py)
      SchedulerOutput                       plans.py            SchedulerOutput
      ModelRunnerOutput                     answers.py          ModelOutput
      EngineCoreOutputs, statistics         outputs.py          EngineOutputs

Nothing is decided here. What cannot be translated is refused when the engine starts, with the option named.
"""

from __future__ import annotations

from tokenyard.lazy import lazy_names

TYPE_CHECKING = False  # typing's own costs more to import than this whole module

__all__ = ["AsyncFastScheduler", "FastScheduler"]

if TYPE_CHECKING:
    from tokenyard.vllm.fast.scheduler import AsyncFastScheduler, FastScheduler

__getattr__, __dir__ = lazy_names(__name__, {"tokenyard.vllm.fast.scheduler": ("AsyncFastScheduler", "FastScheduler")})
