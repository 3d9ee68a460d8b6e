"""Llumnix (OSDI 2024): requests migrate, with their KV, from engines that lack memory to those that have it."""

from __future__ import annotations

from collections.abc import Sequence

import tokenyard as ty
from tokenyard.sim import EngineView

FLEET = ty.Deployment(
    model="Qwen/Qwen3-8B",
    gpu="l40s",
    max_num_seqs=32,
    num_gpu_blocks_override=500,
    max_model_len=6000,
    replicas=4,
    router="round-robin",
)


def freeness(engine: EngineView) -> float:
    """Free blocks that each request of an engine could still have; negative where some wait."""
    if engine.num_waiting:
        return -float(engine.num_waiting)
    return engine.num_free_blocks / max(engine.num_running, 1)


class Llumnix(ty.FleetPolicy):
    """From the least free engine to the freest, the request that holds least."""

    sync = 0.2

    def rebalance(self, now: float, engines: Sequence[EngineView]) -> list[ty.Move]:
        tight, free = min(engines, key=freeness), max(engines, key=freeness)
        if freeness(tight) > 4 or freeness(free) < 30:
            return []
        if tight.waiting:
            return [ty.Move(tight.waiting[0].request_id, to=free.rank)]
        smallest = min(tight.running, key=lambda each: each.num_tokens)
        return [ty.Move(smallest.request_id, to=free.rank)]


def answers(seed: int) -> ty.Workload:
    """Answers of unknown lengths: some engines fill up by chance."""
    w = ty.WorkloadBuilder("answers", seed=seed)
    for at in w.poisson(rate=7.0, n=160):
        length = min(3000, int(w.lognormal(5.3, 1.0)) + 1)
        w.request(at=at, prompt=int(w.lognormal(5.5, 0.7)) + 1, output=length)
    return w.build()


def compare() -> dict[str, float]:
    """The slowest percent's milliseconds to the first token."""
    runs = {"round robin": ty.run(answers(0), FLEET), "llumnix": ty.run(answers(0), FLEET, fleet=Llumnix)}
    return {name: run.report.ttft_ms.p99 or 0.0 for name, run in runs.items()}


if __name__ == "__main__":
    for name, tail in compare().items():
        print(f"{name:12} TTFT p99 {tail:8.1f} ms")
