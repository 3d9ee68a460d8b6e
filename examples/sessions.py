"""Conversations with a shared system prompt: which turns find their history in the cache, and what it is worth."""

from __future__ import annotations

import sys

import numpy as np

import tokenyard as ty
from tokenyard.sim import ConstantLatency


def conversations(num_sessions: int) -> ty.Workload:
    """Four turns each; people who think five seconds."""
    w = ty.WorkloadBuilder("conversations", seed=0)
    system = w.text(512)
    for at in w.poisson(rate=2.0, n=num_sessions):
        session = w.session(at=at, prefix=system)
        for k in range(4):
            user, output = w.lognormal(5, 1), w.lognormal(4.5, 0.7)
            session.turn(user=user, output=output, think=w.exponential(5), meta={"turn": k})
    return w.build()


def main(num_sessions: int = 60) -> None:
    """Print hits and times to the first token, by turn, for caches of three sizes."""
    workload = conversations(num_sessions)
    print(workload)
    config = ty.SchedulerConfig(max_num_seqs=64, max_model_len=32768)
    print(f"{'blocks':>7} {'turn':>5} {'hits':>6} {'TTFT p50':>9} {'TTFT p99':>9}")
    for blocks in (1000, 2000, 8000):
        cache = ty.CacheConfig(num_gpu_blocks=blocks)
        rows = ty.replay(workload, config, cache, ConstantLatency(seconds=0.02), rows=True).rows
        assert rows is not None
        requests = rows.requests
        for turn in range(4):
            of_turn = requests["turn"] == turn
            hits = requests["cached_tokens"][of_turn].sum() / requests["prompt_tokens"][of_turn].sum()
            p50, p99 = np.percentile(requests["ttft_ms"][of_turn], (50, 99))
            print(f"{blocks:7,} {turn:5} {100 * hits:5.1f}% {p50:6.0f} ms {p99:6.0f} ms")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
