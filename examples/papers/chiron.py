"""Chiron (2501.08090): engines are scaled by back pressure, the wait that is expected as a share of the one allowed."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import tokenyard as ty
from tokenyard.sim import EngineView

FLEET = ty.Deployment(
    model="Qwen/Qwen3-8B", gpu="l40s", max_num_seqs=8, max_model_len=16_000, autoscale="1..6", startup="10s"
)
ALLOWED, SECONDS_EACH = 5.0, 0.5
"""Seconds to a first token, and those that one engine takes for a request."""


class Chiron(ty.FleetPolicy):
    """Keeps the expected wait at half of what is allowed."""

    sync = 2.0

    def scale(self, now: float, engines: Sequence[EngineView]) -> int:
        waiting = sum(each.num_waiting for each in engines)
        pressure = waiting * SECONDS_EACH / max(len(engines), 1) / ALLOWED
        if pressure > 0.5:
            return ceil(len(engines) * pressure / 0.5)
        is_idle = sum(each.num_running for each in engines) < 4 * (len(engines) - 1)
        return len(engines) - 1 if is_idle and not waiting else len(engines)


def ramp(seed: int) -> ty.Workload:
    """A minute of rush hour."""
    w = ty.WorkloadBuilder("rush hour", seed=seed)
    at = 0.0
    for _ in range(300):
        at += w.rng.exponential(1 / (0.5 + (5.0 if 30 < at < 90 else 0.0)))
        w.request(at=at, prompt=int(w.lognormal(6, 0.6)) + 1, output=int(w.lognormal(5, 0.5)) + 1)
    return w.build()


def compare() -> dict[str, float]:
    """The slowest tenth's milliseconds to the first token."""
    runs = {"waiting requests": ty.run(ramp(0), FLEET), "back pressure": ty.run(ramp(0), FLEET, fleet=Chiron)}
    return {name: run.report.ttft_ms.p90 or 0.0 for name, run in runs.items()}


if __name__ == "__main__":
    for name, tail in compare().items():
        print(f"{name:17} TTFT p90 {tail:8.1f} ms")
