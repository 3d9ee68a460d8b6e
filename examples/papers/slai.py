"""SLAI (SIGMETRICS 2026): a decode waits until the last moment at which its next token is in time; prompts go first.

Time between tokens has a bound, and tokens that come long before it are of no use to anybody: prefills take the place.
"""

from __future__ import annotations

import tokenyard as ty
from tokenyard.core.sched.queues import WaitingQueues
from tokenyard.policies import StepBounds

ENGINE = ty.Deployment(model="Qwen/Qwen3-8B", gpu="l40s", max_num_seqs=24, max_model_len=16_384)
BOUND, MARGIN = 0.3, 0.12
"""Seconds between two tokens that readers bear, and what the longest step takes."""


class Slai(ty.Policy):
    """Holds decodes whose next token is not due, while a prompt is there to be computed."""

    reads_tokens = False

    def __init__(self) -> None:
        self.seen: dict[str, tuple[int, float]] = {}
        """Request -> tokens that it had, and since when."""

    def step_begins(self, now: float, queues: WaitingQueues) -> StepBounds | None:
        running = self.context.state.running
        for each in running:
            if self.seen.get(each.request_id, (-1, 0.0))[0] != each.num_output_tokens:
                self.seen[each.request_id] = each.num_output_tokens, now
        in_prompt = [each for each in running if each.num_computed_tokens < each.num_prompt_tokens]
        if not in_prompt and not len(queues):
            return None
        early = {
            each.request_id
            for each in running
            if each not in in_prompt and now - self.seen[each.request_id][1] < BOUND - MARGIN
        }
        return StepBounds(holds=early, detail="slai_early") if len(early) < len(running) or len(queues) else None


def documents(seed: int) -> ty.Workload:
    """Long prompts, in bursts."""
    w = ty.WorkloadBuilder("documents", seed=seed)
    for at in w.poisson(rate=2.6, n=80):
        w.request(at=at, prompt=int(w.lognormal(7.6, 0.5)) + 1, output=int(w.lognormal(4.6, 0.4)) + 1)
    return w.build()


def compare() -> dict[str, float]:
    """Mean milliseconds to the first token."""
    runs = {"fcfs": ty.run(documents(0), ENGINE), "slai": ty.run(documents(0), ENGINE, policy=Slai)}
    return {name: run.report.ttft_ms.mean or 0.0 for name, run in runs.items()}


if __name__ == "__main__":
    for name, mean in compare().items():
        print(f"{name:5} {mean:8.1f} ms to the first token")
