"""When recorded sessions start, for traces that only know the time since a session's own beginning."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokenyard.sim.workload.readers.lines import ReadOptions

__all__ = ["session_starts"]

_SESSION_RATE = 0.05
"""Per second, unless told otherwise."""


def session_starts(options: ReadOptions) -> Iterator[float]:
    """Arrival times in seconds of a seeded Poisson process; the first session starts at 0."""
    rate = _SESSION_RATE if options.session_rate is None else options.session_rate
    rng = np.random.default_rng(options.seed)
    now = 0.0
    while True:
        yield now
        now += float(rng.exponential(1.0 / rate))
