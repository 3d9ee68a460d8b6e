"""Traits of requests and workloads that several scenarios use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recorder.workloads import independent, sharing

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

__all__ = ["SHARED_STORM", "STORM", "between", "mostly_rising", "one_of"]


def between(low: int, high: int) -> Callable[[Random, int], int]:
    """A whole number, both ends possible."""
    return lambda rng, _: rng.randint(low, high)


def one_of(*values: Any) -> Callable[[Random, int], Any]:
    """One of the values; repeat one to make it likelier."""
    return lambda rng, _: rng.choice(values)


def mostly_rising(rng: Random, index: int) -> int:
    """Later requests are mostly more urgent: they preempt earlier ones that were already scheduled in the step."""
    return -index if rng.random() < 0.8 else rng.randint(-index, 5)


STORM = independent(26, prompt=(18, 70), output=(35, 110), gap=(0, 2))
"""More tokens than the small pools below hold."""
SHARED_STORM = sharing(28, prefixes=3, prefix=(35, 75), tail=(3, 30), output=(30, 80), gap=(0, 2))
"""The same, with prefixes to share and to evict."""
