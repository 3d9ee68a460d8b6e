"""SAGA (2605.00528, HPDC 2026): KV of agents is kept by their workflow, not by when it was last used.

Blocks of agents that are done go first, then those whose next call is farthest away, as the agents' graphs say.
"""

from __future__ import annotations

import tokenyard as ty
from tokenyard.policies import CachedBlock

SMALL = ty.Deployment(model="Qwen/Qwen3-8B", gpu="l40s", num_gpu_blocks_override=1400, max_model_len=16_384)


class Saga(ty.EvictionOrder):
    """The block that no agent comes back for goes first, or the one that is needed last."""

    changes_by_itself = False

    def rank(self, block: CachedBlock, now: float) -> tuple[float, ...]:
        is_wanted = bool(block.jobs)
        return is_wanted, -block.next_use if is_wanted else 0.0, block.last_used


def agents(seed: int) -> ty.Workload:
    """Agents of one to eight calls; each knows how long its tool will take."""
    w = ty.WorkloadBuilder("agents", seed=seed)
    tools = w.text(600)
    for at in w.poisson(rate=0.8, n=30):
        agent = w.session(at=at, prefix=tools)
        for _ in range(1 + min(7, int(w.rng.geometric(0.3)))):
            think = w.exponential(8)
            agent.turn(user=int(w.lognormal(5.5, 0.6)) + 1, output=40, think=think, meta={"next_use_s": think})
    return w.build()


def hits(run: ty.RunResult) -> float:
    """Prompt tokens found in the cache, in percent."""
    return 100 * float(run.requests["cached_tokens"].sum() / run.requests["prompt_tokens"].sum())


def compare(seeds: range = range(2)) -> dict[str, float]:
    """Percent of prompt tokens that need no computing."""
    orders = {"lru": None, "saga": Saga, "belady": "belady"}
    return {
        name: sum(hits(ty.run(agents(seed), SMALL, eviction=order)) for seed in seeds) / len(seeds)
        for name, order in orders.items()
    }


if __name__ == "__main__":
    for name, share in compare().items():
        print(f"{name:8} {share:5.1f} % of prompt tokens found")
