"""The step loop over a scheduler and an executor, for every host but vLLM, and generation of text above it.

What this package offers beyond ``EngineCore`` and ``Executor``, which are names of ``import tokenyard``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenyard.lazy import lazy_names

__all__ = [
    "LLM",
    "AsyncLLM",
    "CompletionOutput",
    "DoneStep",
    "EmbeddingOutput",
    "Filling",
    "GenerationOutput",
    "GenerationParams",
    "Grammar",
    "GrammarCompiler",
    "GrammarOutput",
    "LoadedModel",
    "Logprob",
    "OutputKind",
    "PauseMode",
    "ServedModel",
    "StepFuture",
    "StructuredOutputsParams",
    "TextTokenizer",
    "TorchEngineCore",
    "Turn",
    "load_engine",
]

OFFERED = {
    "tokenyard.core.engine": (
        "PauseMode",
        "Filling",
        "StepFuture",
        "DoneStep",
    ),
    "tokenyard.core.sched.features.grammars": ("GrammarOutput",),
    "tokenyard.serve.grammars": (
        "Grammar",
        "GrammarCompiler",
    ),
    "tokenyard.serve.torch.load": ("load_engine",),
    "tokenyard.serve.torch.executor": ("TorchEngineCore",),
    "tokenyard.serve.torch.checkpoint": ("LoadedModel",),
    "tokenyard.serve.llm": ("LLM",),
    "tokenyard.serve.async_llm": ("AsyncLLM",),
    "tokenyard.serve.generation": (
        "GenerationParams",
        "OutputKind",
        "StructuredOutputsParams",
        "Turn",
        "GenerationOutput",
        "CompletionOutput",
        "EmbeddingOutput",
        "Logprob",
    ),
    "tokenyard.serve.served_model": ("ServedModel",),
    "tokenyard.serve.text": ("TextTokenizer",),
}

if TYPE_CHECKING:
    from tokenyard.core.engine import DoneStep, Filling, PauseMode, StepFuture
    from tokenyard.core.sched.features.grammars import GrammarOutput
    from tokenyard.serve.async_llm import AsyncLLM
    from tokenyard.serve.generation import (
        CompletionOutput,
        EmbeddingOutput,
        GenerationOutput,
        GenerationParams,
        Logprob,
        OutputKind,
        StructuredOutputsParams,
        Turn,
    )
    from tokenyard.serve.grammars import Grammar, GrammarCompiler
    from tokenyard.serve.llm import LLM
    from tokenyard.serve.served_model import ServedModel
    from tokenyard.serve.text import TextTokenizer
    from tokenyard.serve.torch.checkpoint import LoadedModel
    from tokenyard.serve.torch.executor import TorchEngineCore
    from tokenyard.serve.torch.load import load_engine
else:
    __getattr__, __dir__ = lazy_names(__name__, OFFERED)
