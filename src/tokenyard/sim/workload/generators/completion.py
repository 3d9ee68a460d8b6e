"""Code completion: editors that ask at every pause while somebody types. Short answers, bursts, one file per burst.

Within a burst the prompts are the same file up to a cursor that moves on, so each shares all but its end with the one
before. Requests do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tokenyard.sim.workload.generators.distributions import (
    Lognormal,
    draw_count,
    poisson_arrivals,
    require_counts,
    require_positive,
    require_shapes,
)
from tokenyard.sim.workload.record import Workload, WorkloadRequest
from tokenyard.sim.workload.tokens import StreamTokens, seed_of

__all__ = ["CompletionOptions", "completion"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionOptions:
    """Editors. Lengths in tokens, times in seconds."""

    num_requests: int = 3000
    rate: float = 10.0
    """Requests per second, on average."""
    seed: int = 0
    mean_burst: float = 12.0
    """Requests of a burst are geometric."""
    spacing: float = 0.12
    """Mean time between the requests of a burst."""
    file: Lognormal = (1400.0, 1.0)
    """Tokens before the cursor when a burst begins."""
    typed: Lognormal = (6.0, 0.8)
    """Tokens that the cursor moves on between requests."""
    output: Lognormal = (16.0, 0.8)
    max_context: int = 8000

    def __post_init__(self) -> None:
        require_counts(self, num_requests=1, seed=0, max_context=2)
        require_positive(self, "rate", "mean_burst", "spacing")
        require_shapes(self, "file", "typed", "output")


def completion(options: CompletionOptions | None = None) -> Workload:
    """A workload of independent requests, one job per burst, in order of arrival."""
    options = options or CompletionOptions()
    requests = sorted(_requests(options), key=lambda request: request.arrival_time)
    return Workload("completion", requests)


def _requests(options: CompletionOptions) -> Iterator[WorkloadRequest]:
    rng = np.random.default_rng(options.seed)
    mean_burst = max(1.0, options.mean_burst)
    starts = poisson_arrivals(rng, options.num_requests, options.rate / mean_burst).tolist()
    left = options.num_requests
    for i, start in enumerate(starts):
        size = min(left, int(rng.geometric(1.0 / mean_burst)))
        yield from _burst(rng, options, f"edit_{i:04d}", start, size)
        left -= size
        if not left:
            return


def _burst(
    rng: np.random.Generator, options: CompletionOptions, job: str, start: float, size: int
) -> Iterator[WorkloadRequest]:
    file_seed = seed_of("completion", options.seed, job)
    cursor = draw_count(rng, options.file, 16, options.max_context // 2)
    now = start
    for turn in range(size):
        output = draw_count(rng, options.output, 1, options.max_context // 4)
        cursor = min(cursor, options.max_context - output)
        yield WorkloadRequest(
            request_id=f"{job}_t{turn}",
            prompt=StreamTokens.unique(file_seed, max(1, cursor)),
            max_tokens=output,
            arrival_time=now,
            job_id=job,
            is_last_step=turn == size - 1,
            output_seed=seed_of(file_seed, turn),
        )
        now += float(rng.exponential(options.spacing))
        cursor += draw_count(rng, options.typed, 1, 100)
