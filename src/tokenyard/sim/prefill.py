"""How long a prompt takes to compute, by a latency model: what policies that weigh recomputing want to know."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tokenyard.sim.latency.model import LatencyModel, StepShape
from tokenyard.sim.latency.pricing import step_seconds

__all__ = ["prefill_seconds"]


def prefill_seconds(latency: LatencyModel) -> Callable[[int], float]:
    """Seconds of one step that computes a prompt of so many tokens, alone and whole."""

    def seconds(num_tokens: int) -> float:
        return step_seconds(latency, StepShape(np.array([num_tokens]), np.array([0]), 1, num_tokens))

    return seconds
