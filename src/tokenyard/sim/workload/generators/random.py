"""Random lengths, as ``vllm bench serve --dataset-name random`` sends them: no prompt like another but for a prefix.

Lengths are uniform within ``len * (1 - range_ratio) .. len * (1 + range_ratio)``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tokenyard.errors import ConfigError
from tokenyard.sim.workload.generators.distributions import require_counts
from tokenyard.sim.workload.record import Workload, WorkloadRequest
from tokenyard.sim.workload.tokens import Segment, StreamTokens, seed_of

__all__ = ["RandomOptions", "random"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomOptions:
    """Names and defaults are those of ``vllm bench serve``; lengths in tokens."""

    num_prompts: int = 1000
    input_len: int = 1024
    """Of what is not shared."""
    output_len: int = 128
    prefix_len: int = 0
    """In front of every prompt, the same for all."""
    range_ratio: float = 0.0
    """Lengths vary by so much up and down; 0 to below 1."""
    seed: int = 0

    def __post_init__(self) -> None:
        require_counts(self, num_prompts=1, input_len=1, output_len=1, prefix_len=0, seed=0)
        ratio = self.range_ratio
        if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 <= ratio < 1:
            raise ConfigError("random_range_ratio", ratio, "give a number from 0 to below 1")


def random(options: RandomOptions | None = None) -> Workload:
    """All requests at once, at 0: a rate or a concurrency says when they are sent."""
    return Workload("random", _requests(options or RandomOptions()))


def _requests(options: RandomOptions) -> Iterator[WorkloadRequest]:
    rng = np.random.default_rng(options.seed)
    inputs, outputs = (_lengths(rng, mean, options) for mean in (options.input_len, options.output_len))
    prefix = seed_of("random", options.seed, "prefix")
    for i, (num_input, num_output) in enumerate(zip(inputs, outputs, strict=True)):
        own = seed_of("random", options.seed, i)
        shared = [Segment(prefix, 0, options.prefix_len)] if options.prefix_len else []
        yield WorkloadRequest(
            request_id=f"random_{i:06d}",
            prompt=StreamTokens(*shared, Segment(own, 0, num_input)),
            max_tokens=num_output,
            output_seed=own,
        )


def _lengths(rng: np.random.Generator, mean: int, options: RandomOptions) -> list[int]:
    low, high = math.floor(mean * (1 - options.range_ratio)), math.ceil(mean * (1 + options.range_ratio))
    return [int(value) for value in rng.integers(max(1, low), high, options.num_prompts, endpoint=True)]
