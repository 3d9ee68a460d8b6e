"""Workloads: what arrives when, from built-in generators or recorded traces."""

from __future__ import annotations

from tokenyard.sim.workload.generators.agentic import AgenticOptions, agentic
from tokenyard.sim.workload.generators.chat import ChatOptions, chat
from tokenyard.sim.workload.generators.completion import CompletionOptions, completion
from tokenyard.sim.workload.generators.rag import RagOptions, rag
from tokenyard.sim.workload.load import GENERATORS, load_workload
from tokenyard.sim.workload.readers.formats import FORMATS
from tokenyard.sim.workload.record import Workload, WorkloadRequest
from tokenyard.sim.workload.tokens import HashedTokens, ListedTokens, Segment, StreamTokens, TokenSource, output_tokens

__all__ = [
    "FORMATS",
    "GENERATORS",
    "AgenticOptions",
    "ChatOptions",
    "CompletionOptions",
    "HashedTokens",
    "ListedTokens",
    "RagOptions",
    "Segment",
    "StreamTokens",
    "TokenSource",
    "Workload",
    "WorkloadRequest",
    "agentic",
    "chat",
    "completion",
    "load_workload",
    "output_tokens",
    "rag",
]
