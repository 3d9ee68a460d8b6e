"""Learning to rank (NeurIPS 2024, 2408.15792): only the order of answers' lengths has to be predicted, shortest first.

The predictor is the true length times a log-normal factor; who has waited for long is moved up.
"""

from __future__ import annotations

from math import exp
from random import Random

import tokenyard as ty
from tokenyard.core.request import Request

ENGINE = ty.Deployment(model="Qwen/Qwen3-8B", gpu="l40s", max_num_seqs=16, max_model_len=8000)


class LearnedOrder(ty.KeyedPolicy):
    """The shortest predicted answer first; ten seconds of waiting count as a hundred tokens less."""

    reads_tokens = False
    reads_max_tokens = True

    def key(self, request: Request) -> tuple[float, ...]:
        drawn = Random(request.request_id).gauss(0.0, 0.5)
        return (request.max_tokens * exp(drawn) + 10 * request.arrival_time,)


def chats(seed: int) -> ty.Workload:
    """Answers of very unlike lengths."""
    w = ty.WorkloadBuilder("chats", seed=seed)
    for at in w.poisson(rate=4.0, n=120):
        w.request(at=at, prompt=int(w.lognormal(5, 0.6)) + 1, output=min(1500, int(w.lognormal(4.8, 1.0)) + 1))
    return w.build()


def per_token(run: ty.RunResult) -> float:
    """Mean milliseconds per token of an answer, waiting included."""
    each = run.requests["e2e_ms"] / run.requests["output_tokens"]
    return float(each.mean())


def compare() -> dict[str, float]:
    """Mean normalised latency, in milliseconds a token."""
    runs = {"fcfs": ty.run(chats(0), ENGINE), "learned order": ty.run(chats(0), ENGINE, policy=LearnedOrder)}
    return {name: per_token(run) for name, run in runs.items()}


if __name__ == "__main__":
    for name, mean in compare().items():
        print(f"{name:14} {mean:7.1f} ms a token")
