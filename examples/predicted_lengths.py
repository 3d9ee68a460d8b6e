"""How good has a prediction of the answer's length to be? Shortest first, with predictions that are off by a factor."""

from __future__ import annotations

import sys

import numpy as np

import tokenyard as ty
from tokenyard.sim import ConstantLatency


class ShortestPredicted(ty.KeyedPolicy):
    """The shortest predicted answer first."""

    reads_tokens = False

    def key(self, request: ty.Request) -> tuple[float, ...]:
        predicted = request.predicted_output_tokens
        return (request.max_tokens if predicted is None else predicted,)


def requests(num_requests: int, sigma: float) -> ty.Workload:
    """Answers whose lengths are predicted with a lognormal error."""
    w = ty.WorkloadBuilder("predicted", seed=0)
    for at in w.poisson(rate=20.0, n=num_requests):
        output = w.lognormal(4, 1)
        error = float(np.exp(sigma * w.rng.standard_normal()))
        w.request(at=at, prompt=w.lognormal(5, 1), output=output, predicted_output_tokens=output * error)
    return w.build()


def main(num_requests: int = 300) -> None:
    """Print mean and 99th percentile of the time to the first token."""
    config = ty.SchedulerConfig(max_num_seqs=16, max_model_len=8192)
    cache, latency = ty.CacheConfig(num_gpu_blocks=4000), ConstantLatency(seconds=0.02)
    for name, policy, sigma in (
        ("fcfs", "fcfs", 0.0),
        ("shortest, exact", ShortestPredicted, 0.0),
        ("shortest, off by e", ShortestPredicted, 1.0),
        ("shortest, off by e^2", ShortestPredicted, 2.0),
    ):
        rows = ty.replay(requests(num_requests, sigma), config, cache, latency, policy=policy, rows=True).rows
        assert rows is not None
        ttft = rows.requests["ttft_ms"] / 1e3
        print(f"{name:22} TTFT mean {ttft.mean():6.2f} s, p99 {np.percentile(ttft, 99):6.2f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
