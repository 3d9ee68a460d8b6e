"""When recorded sessions start, for traces that only know the time since a session's own beginning."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokenyard.sim.workload.readers.lines import ReadOptions

__all__ = ["session_starts"]


def session_starts(options: ReadOptions) -> Iterator[float]:
    """Arrival times in seconds of a seeded Poisson process; the first session starts at 0."""
    rng = np.random.default_rng(options.seed)
    now = 0.0
    while True:
        yield now
        now += float(rng.exponential(1.0 / options.session_rate))
