"""Conditional disaggregation, after DistServe (OSDI 2024) and Splitwise (ISCA 2024): long prompts are computed apart.

A prompt above a length is computed by the engines for prefill and moves on, with its KV, once its first token is
there; short ones stay where they are decoded. The decider is a policy of the fleet.
"""

from __future__ import annotations

from collections.abc import Sequence

import tokenyard as ty
from tokenyard.core.request import Request
from tokenyard.sim import EngineView

FLEET = ty.Deployment(model="Qwen/Qwen3-8B", gpu="l40s", max_num_seqs=64, max_model_len=16_384, replicas=4)
PREFILL = 1
"""Engines for prompts, the first ones."""


class Decider(ty.FleetPolicy):
    """``LONG`` tokens and more are computed apart."""

    sync = 0.02
    LONG = 1500

    def route(self, now: float, request: Request, engines: Sequence[EngineView]) -> int:
        is_long = request.num_prompt_tokens >= self.LONG
        among = range(PREFILL) if is_long else range(PREFILL, len(engines))
        return min(among, key=lambda i: engines[i].num_waiting + engines[i].num_running)

    def rebalance(self, now: float, engines: Sequence[EngineView]) -> list[ty.Move]:
        decoding = engines[PREFILL:]
        done = [each for engine in engines[:PREFILL] for each in engine.running if each.num_output_tokens]
        return [
            ty.Move(each.request_id, to=decoding[(i + int(now * 50)) % len(decoding)].rank)
            for i, each in enumerate(done)
        ]


def mixed(seed: int) -> ty.Workload:
    """Chats, and documents between them."""
    w = ty.WorkloadBuilder("chats and documents", seed=seed)
    for i, at in enumerate(w.poisson(rate=8.0, n=160)):
        prompt = 5000 if i % 8 == 0 else int(w.lognormal(5, 0.5)) + 1
        w.request(at=at, prompt=prompt, output=int(w.lognormal(5, 0.4)) + 1)
    return w.build()


def compare() -> dict[str, float]:
    """The slowest percent of gaps between two tokens, in milliseconds."""
    runs = {"together": ty.run(mixed(0), FLEET), "decider": ty.run(mixed(0), FLEET, fleet=Decider)}
    return {name: run.report.itl_ms.p99 or 0.0 for name, run in runs.items()}


if __name__ == "__main__":
    for name, gap in compare().items():
        print(f"{name:9} ITL p99 {gap:7.1f} ms")
