"""Retrieval-augmented questions: a shared instruction, a few retrieved documents, a question; long prompts.

Documents are drawn from a corpus by a Zipf law and stand in order of popularity, so that popular ones share prefixes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tokenyard.config import require_int
from tokenyard.sim.workload.generators.distributions import (
    Lognormal,
    draw_count,
    poisson_arrivals,
    require_counts,
    require_positive,
    require_shapes,
)
from tokenyard.sim.workload.record import Workload, WorkloadRequest
from tokenyard.sim.workload.tokens import Segment, StreamTokens, seed_of

__all__ = ["RagOptions", "rag"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RagOptions:
    """Questions over a corpus. Lengths in tokens."""

    num_requests: int = 500
    rate: float = 1.0
    """Requests per second (a Poisson process)."""
    seed: int = 0
    system_tokens: int = 300
    corpus: int = 400
    """Documents."""
    documents: int = 4
    """Documents per question, at most (drawn with repetition, kept once)."""
    zipf: float = 1.1
    """Exponent of the documents' popularity."""
    document: Lognormal = (2400.0, 0.5)
    question: Lognormal = (60.0, 0.7)
    output: Lognormal = (160.0, 0.7)
    max_document: int = 8000

    def __post_init__(self) -> None:
        require_counts(self, num_requests=1, seed=0, system_tokens=1, corpus=1, max_document=1)
        require_int("documents", self.documents, 1, 1000)
        require_positive(self, "rate", "zipf")
        require_shapes(self, "document", "question", "output")


def rag(options: RagOptions | None = None) -> Workload:
    """A workload of independent requests."""
    options = options or RagOptions()
    return Workload("rag", _requests(options))


def _requests(options: RagOptions) -> Iterator[WorkloadRequest]:
    rng = np.random.default_rng(options.seed)
    system = Segment(seed_of("rag system", options.seed), 0, options.system_tokens)
    longest = options.max_document
    corpus = [
        Segment(seed_of("rag document", options.seed, i), 0, draw_count(rng, options.document, 16, longest))
        for i in range(options.corpus)
    ]
    weights = np.arange(1, options.corpus + 1, dtype=np.float64) ** -options.zipf
    chosen = rng.choice(options.corpus, (options.num_requests, options.documents), p=weights / weights.sum())
    for i, start in enumerate(poisson_arrivals(rng, options.num_requests, options.rate).tolist()):
        own = seed_of("rag", options.seed, i)
        question = Segment(own, 0, draw_count(rng, options.question, 1, 4000))
        documents = [corpus[each] for each in sorted(set(chosen[i].tolist()))]
        yield WorkloadRequest(
            request_id=f"rag_{i:05d}",
            prompt=StreamTokens(system, *documents, question),
            max_tokens=draw_count(rng, options.output, 1, 4000),
            arrival_time=start,
            output_seed=seed_of(own, "answer"),
        )
