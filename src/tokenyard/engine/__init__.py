"""The step loop over a scheduler and an executor, for every host but vLLM.

What this package offers beyond ``EngineCore`` and ``Executor``, which are names of ``import tokenyard``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenyard.lazy import lazy_names

__all__ = [
    "DoneStep",
    "Filling",
    "GrammarOutput",
    "LoadedModel",
    "PauseMode",
    "StepFuture",
    "TorchEngineCore",
    "load_engine",
]

OFFERED = {
    "tokenyard.engine.core": ("PauseMode", "Filling"),
    "tokenyard.engine.executor": ("StepFuture", "DoneStep"),
    "tokenyard.sched.features.grammars": ("GrammarOutput",),
    "tokenyard.engine.torch.load": ("load_engine",),
    "tokenyard.engine.torch.request_checks": ("TorchEngineCore",),
    "tokenyard.engine.torch.checkpoint": ("LoadedModel",),
}

if TYPE_CHECKING:
    from tokenyard.engine.core import Filling, PauseMode
    from tokenyard.engine.executor import DoneStep, StepFuture
    from tokenyard.engine.torch.checkpoint import LoadedModel
    from tokenyard.engine.torch.load import load_engine
    from tokenyard.engine.torch.request_checks import TorchEngineCore
    from tokenyard.sched.features.grammars import GrammarOutput
else:
    __getattr__, __dir__ = lazy_names(__name__, OFFERED)
