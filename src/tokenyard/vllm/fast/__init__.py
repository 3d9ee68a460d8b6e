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

OFFERED, __all__, __getattr__, __dir__ = lazy_names(__name__)
