# What the package offers, in the order of the API page; the module beside it loads these names when they are asked for.
# isort: skip_file

from tokenyard.core.engine import (
    PauseMode as PauseMode,
    Filling as Filling,
    StepFuture as StepFuture,
    DoneStep as DoneStep,
)
from tokenyard.core.sched.features.grammars import GrammarOutput as GrammarOutput
from tokenyard.serve.grammars import Grammar as Grammar, GrammarCompiler as GrammarCompiler
from tokenyard.serve.torch.load import load_engine as load_engine
from tokenyard.serve.torch.executor import TorchEngineCore as TorchEngineCore
from tokenyard.serve.torch.checkpoint import LoadedModel as LoadedModel
from tokenyard.serve.llm import LLM as LLM
from tokenyard.serve.async_llm import AsyncLLM as AsyncLLM
from tokenyard.serve.generation import (
    GenerationParams as GenerationParams,
    OutputKind as OutputKind,
    StructuredOutputsParams as StructuredOutputsParams,
    Turn as Turn,
    GenerationOutput as GenerationOutput,
    CompletionOutput as CompletionOutput,
    EmbeddingOutput as EmbeddingOutput,
    Logprob as Logprob,
)
from tokenyard.serve.served_model import ServedModel as ServedModel
from tokenyard.serve.text import TextTokenizer as TextTokenizer
from tokenyard.serve.metrics import MetricsObserver as MetricsObserver
