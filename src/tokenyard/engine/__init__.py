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
    "tokenyard.engine.core": ("PauseMode", "Filling"),
    "tokenyard.engine.executor": ("StepFuture", "DoneStep"),
    "tokenyard.sched.features.grammars": ("GrammarOutput",),
    "tokenyard.engine.grammars": ("Grammar", "GrammarCompiler"),
    "tokenyard.engine.torch.load": ("load_engine",),
    "tokenyard.engine.torch.request_checks": ("TorchEngineCore",),
    "tokenyard.engine.torch.checkpoint": ("LoadedModel",),
    "tokenyard.engine.llm": ("LLM",),
    "tokenyard.engine.async_llm": ("AsyncLLM",),
    "tokenyard.engine.generation": ("GenerationParams", "OutputKind", "StructuredOutputsParams", "Turn"),
    "tokenyard.engine.outputs": ("GenerationOutput", "CompletionOutput", "EmbeddingOutput", "Logprob"),
    "tokenyard.engine.served_model": ("ServedModel",),
    "tokenyard.engine.text.tokenizer": ("TextTokenizer",),
}

if TYPE_CHECKING:
    from tokenyard.engine.async_llm import AsyncLLM
    from tokenyard.engine.core import Filling, PauseMode
    from tokenyard.engine.executor import DoneStep, StepFuture
    from tokenyard.engine.generation import GenerationParams, OutputKind, StructuredOutputsParams, Turn
    from tokenyard.engine.grammars import Grammar, GrammarCompiler
    from tokenyard.engine.llm import LLM
    from tokenyard.engine.outputs import CompletionOutput, EmbeddingOutput, GenerationOutput, Logprob
    from tokenyard.engine.served_model import ServedModel
    from tokenyard.engine.text.tokenizer import TextTokenizer
    from tokenyard.engine.torch.checkpoint import LoadedModel
    from tokenyard.engine.torch.load import load_engine
    from tokenyard.engine.torch.request_checks import TorchEngineCore
    from tokenyard.sched.features.grammars import GrammarOutput
else:
    __getattr__, __dir__ = lazy_names(__name__, OFFERED)
