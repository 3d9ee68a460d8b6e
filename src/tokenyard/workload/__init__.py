"""Workloads: what arrives when, from built-in generators or recorded traces."""

from __future__ import annotations

from tokenyard.workload.generators import (
    AgenticOptions,
    ChatOptions,
    CompletionOptions,
    RagOptions,
    agentic,
    chat,
    completion,
    rag,
)
from tokenyard.workload.load import GENERATORS, load_workload
from tokenyard.workload.readers.formats import FORMATS
from tokenyard.workload.record import (
    HashedTokens,
    ListedTokens,
    Segment,
    StreamTokens,
    TokenSource,
    Workload,
    WorkloadRequest,
    output_tokens,
)

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
