"""CONCUR (2601.22705): the number of active agents is controlled as a congestion window is, by what the cache says.

While hits are good one more agent is let in now and then; when they collapse (the middle phase) the window is cut.
"""

from __future__ import annotations

import tokenyard as ty
from tokenyard.core.request import Request
from tokenyard.policies import AdmissionView, Refused

SMALL = ty.Deployment(model="Qwen/Qwen3-8B", gpu="l40s", num_gpu_blocks_override=2500, max_model_len=32_768)


class Concur(ty.Policy):
    """Additive increase, multiplicative decrease of the agents that may have turns served."""

    def __init__(self) -> None:
        self.window = 4.0
        self.active: dict[str, float] = {}
        self.reuse, self.turns = 1.0, 0

    def admits(self, request: Request, view: AdmissionView) -> bool | Refused:
        agent = request.job_id or request.request_id
        if agent in self.active or len(self.active) < self.window or not view.running:
            return True
        return Refused("concur_window", tries_others=True)

    def request_admitted(self, now: float, request: Request) -> None:
        agent = request.job_id or request.request_id
        if agent in self.active:  # a later turn: how much of what the agent had is still there?
            known = max(self.active[agent], 1.0)
            self.turns += 1
            self.reuse = 0.7 * self.reuse + 0.3 * min(request.num_cached_tokens / known, 1.0)
            if self.reuse > 0.8:
                self.window += 1 / self.window
            elif self.turns > self.window:  # one cut a round
                self.window, self.turns = max(self.window / 2, 2.0), 0
        self.active[agent] = float(request.num_prompt_tokens)

    def request_finished(self, now: float, request: Request) -> None:
        if request.is_last_step:
            self.active.pop(request.job_id or request.request_id, None)


def batch(seed: int) -> ty.Workload:
    """A batch of agents that all begin at once, whose histories grow."""
    w = ty.WorkloadBuilder("batch of agents", seed=seed)
    for _ in range(20):
        agent = w.session(at=0.0, prefix=w.text(2500))
        for _ in range(6):
            agent.turn(user=int(w.lognormal(6.6, 0.3)) + 1, output=20, think=w.exponential(0.3))
    return w.build()


def compare() -> dict[str, float]:
    """Seconds until the whole batch is done."""
    return {
        "fcfs": ty.run(batch(0), SMALL).result.seconds,
        "concur": ty.run(batch(0), SMALL, policy=Concur).result.seconds,
    }


if __name__ == "__main__":
    for name, seconds in compare().items():
        print(f"{name:8} {seconds:6.1f} s for the batch")
