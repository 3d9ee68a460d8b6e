"""An executor that runs Hugging Face checkpoints with PyTorch: real tensors behind every block id (extra ``torch``).

load_engine(folder, ...)  ->  EngineCore(Scheduler, TorchExecutor)

TorchExecutor   one thread that runs steps in order; what it needs of the request table it copies when a step begins
ModelRunner     a plan -> a flattened batch -> logits -> tokens
BlockBatch      which positions and blocks the step's rows read and write, per KV-cache group
KVTensors       the blocks themselves
RequestRows     tokens and sampling of every slot
Sampler         logits -> tokens; drafts that equal them are accepted
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenyard.lazy import lazy_names

__all__ = ["LoadedModel", "TorchExecutor", "load_engine"]

OFFERED = {
    "tokenyard.engine.torch.load": ("load_engine",),
    "tokenyard.engine.torch.executor": ("TorchExecutor",),
    "tokenyard.engine.torch.checkpoint": ("LoadedModel",),
}

if TYPE_CHECKING:
    from tokenyard.engine.torch.checkpoint import LoadedModel
    from tokenyard.engine.torch.executor import TorchExecutor
    from tokenyard.engine.torch.load import load_engine
else:
    __getattr__, __dir__ = lazy_names(__name__, OFFERED)
