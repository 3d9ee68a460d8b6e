"""What a policy of one's own and rows cost a replay: CPU time with tokens made for the policy, and without.

python benchmarks/policy_fast_path.py
"""

from __future__ import annotations

import time

import tokenyard as ty
from tokenyard.sim import ConstantLatency

__all__ = ["main"]


class Unsaid(ty.Policy):
    """FCFS under another name: the replay cannot know that it looks at no token."""


class Blind(ty.Policy):
    """The same, and it says so."""

    reads_tokens = False


def _workload() -> ty.Workload:
    w = ty.WorkloadBuilder("sessions", seed=0)
    for at in w.poisson(rate=2.0, n=150):
        session = w.session(at=at)
        session.turn(user=8000, output=w.lognormal(5, 0.7))
        for _ in range(3):
            session.turn(user=w.lognormal(5.5, 1), output=w.lognormal(5, 0.7), think=w.exponential(5))
    return w.build()


def main() -> None:
    """Print the least CPU time of three replays of each."""
    workload = _workload()
    config, cache = ty.SchedulerConfig(max_model_len=32768), ty.CacheConfig(num_gpu_blocks=40_000)
    ways: dict[str, tuple[str | type[ty.Policy], bool]] = {
        "fcfs": ("fcfs", False),
        "fcfs, with rows": ("fcfs", True),
        "a class of one's own": (Unsaid, False),
        "... with reads_tokens = False": (Blind, False),
    }
    least = dict.fromkeys(ways, float("inf"))
    for _ in range(3):
        for name, (policy, rows) in ways.items():
            began = time.process_time()
            ty.replay(workload, config, cache, ConstantLatency(seconds=0.03), policy=policy, rows=rows)
            least[name] = min(least[name], time.process_time() - began)
    for name, seconds in least.items():
        print(f"{name:30} {seconds:.2f} s")


if __name__ == "__main__":
    main()
