"""ThunderAgent (2602.13692): programs are paused at tool boundaries when memory is short, and resumed as it frees.

A paused program's next turn waits, and its KV goes first; those that go on keep theirs.
"""

from __future__ import annotations

import tokenyard as ty
from tokenyard.core.request import Request
from tokenyard.core.sched.queues import WaitingQueues
from tokenyard.policies import AdmissionView, CachedBlock, Refused, StepBounds

SMALL = ty.Deployment(model="Qwen/Qwen3-8B", gpu="l40s", num_gpu_blocks_override=1800, max_model_len=16_384)
BLOCK = 16


class PausedFirst(ty.EvictionOrder):
    """KV of paused programs goes first."""

    def __init__(self, policy: ThunderAgent) -> None:
        self.policy = policy

    def rank(self, block: CachedBlock, now: float) -> tuple[float, ...]:
        return any(job.job_id not in self.policy.paused for job in block.jobs), block.last_used


class ThunderAgent(ty.Policy):
    """The programs that began last are paused while all that go on do not fit together."""

    def __init__(self) -> None:
        self.size: dict[str, int] = {}
        self.paused: set[str] = set()
        self.eviction = PausedFirst(self)

    def step_begins(self, now: float, queues: WaitingQueues) -> StepBounds | None:
        room = 0.9 * self.context.kv_tokens
        running = {each.job_id for each in self.context.state.running}
        self.paused = set()
        for program, tokens in self.size.items():  # in the order in which they began
            room -= tokens
            if room < 0 and program not in running:
                self.paused.add(program)
        return None

    def admits(self, request: Request, view: AdmissionView) -> bool | Refused:
        program = request.job_id or request.request_id
        self.size.setdefault(program, request.num_prompt_tokens)
        if program in self.paused and view.running:
            return Refused("paused", tries_others=True)
        return True

    def request_finished(self, now: float, request: Request) -> None:
        program = request.job_id or request.request_id
        self.size[program] = request.num_tokens
        if request.is_last_step:
            self.size.pop(program, None)


def programs(seed: int) -> ty.Workload:
    """More programs than memory holds, with tools of a second or so between turns."""
    w = ty.WorkloadBuilder("programs", seed=seed)
    for at in w.poisson(rate=2.0, n=12):
        program = w.session(at=at, prefix=w.text(2500))
        for _ in range(5):
            program.turn(user=int(w.lognormal(6.6, 0.3)) + 1, output=40, think=w.exponential(1.0))
    return w.build()


def compare() -> dict[str, float]:
    """Seconds until all programs are done."""
    return {
        "fcfs": ty.run(programs(0), SMALL).result.seconds,
        "thunderagent": ty.run(programs(0), SMALL, policy=ThunderAgent).result.seconds,
    }


if __name__ == "__main__":
    for name, seconds in compare().items():
        print(f"{name:13} {seconds:6.1f} s for all programs")
