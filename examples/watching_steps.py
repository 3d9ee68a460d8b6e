"""An observer of one's own beside the rows, a replay that ends early, and why the slowest request waited."""

from __future__ import annotations

import sys

import numpy as np

import tokenyard as ty
from tokenyard.sim import ConstantLatency, Progress


class Preempted(ty.StepObserver):
    """Counts requests that were preempted, as they end."""

    reads_tokens = False

    def __init__(self) -> None:
        self.count = 0

    def request_finished(self, ts: float, request: ty.Request) -> None:
        self.count += request.num_preemptions > 0


def main(num_requests: int = 200) -> None:
    """Stop when half of the requests are done, and look at what there is."""
    w = ty.WorkloadBuilder("burst", seed=0)
    for at in w.poisson(rate=40.0, n=num_requests):
        w.request(at=at, prompt=w.lognormal(6, 1), output=w.lognormal(4, 1))
    preempted = Preempted()

    def half(progress: Progress) -> str | None:
        return "stop" if progress.num_done >= num_requests // 2 else None

    config = ty.SchedulerConfig(max_num_seqs=64, max_model_len=32768)
    result = ty.replay(
        w.build(),
        config,
        ty.CacheConfig(num_gpu_blocks=3000),
        ConstantLatency(seconds=0.02),
        observer=preempted,
        rows=True,
        on_progress=half,
    )
    rows = result.rows
    assert rows is not None
    print(f"{result.num_finished} finished, {preempted.count} of them preempted, {len(result.unfinished)} under way")
    print(f"blocks free: at least {rows.steps['free_blocks'].min():,}; most waiting: {rows.steps['waiting'].max():,}")
    slowest = int(np.nanargmax(rows.requests["queue_ms"]))
    why = rows.why(rows.requests["request_id"][slowest])
    for share in why.reasons:
        print(f"{why.request_id} waited {share.us / 1e6:.2f} s for {share.reason} ({share.place})")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
