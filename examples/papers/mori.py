"""MORI (2606.00866): programs are ranked by how idle they are; the idlest give up their place on the GPU first.

Idleness is the share of its recent time that a program spent in tools. KV that goes is in CPU memory already.
"""

from __future__ import annotations

import json

import tokenyard as ty
from tokenyard.core.request import Request
from tokenyard.policies import CachedBlock

EXTRA = {"cpu_bytes_to_use": 2e9}
OFFLOADS = json.dumps({"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": EXTRA})
SMALL = ty.Deployment(
    model="Qwen/Qwen3-8B",
    gpu="l40s",
    num_gpu_blocks_override=1200,
    max_model_len=16_384,
    kv_transfer_config=OFFLOADS,
)


class Idleness(ty.EvictionOrder):
    """Blocks of the idlest program first, of equals the least recently used."""

    def __init__(self, policy: Mori) -> None:
        self.policy = policy

    def rank(self, block: CachedBlock, now: float) -> tuple[float, ...]:
        return -min((self.policy.idleness(job.job_id, now) for job in block.jobs), default=1.0), block.last_used


class Mori(ty.Policy):
    """Keeps time of every program: with the model, and in tools."""

    def __init__(self) -> None:
        self.busy: dict[str, float] = {}
        self.idle: dict[str, float] = {}
        self.since: dict[str, float] = {}
        self.eviction = Idleness(self)

    def idleness(self, program: str, now: float) -> float:
        """From 0, always busy, to 1."""
        idle = self.idle.get(program, 0.0) + now - self.since.get(program, now)
        busy = self.busy.get(program, 0.0)
        return idle / (idle + busy) if idle + busy else 0.0

    def request_arrived(self, now: float, request: Request) -> None:
        program = request.job_id or request.request_id
        self.idle[program] = self.idle.get(program, 0.0) / 2 + now - self.since.pop(program, now)

    def request_finished(self, now: float, request: Request) -> None:
        program = request.job_id or request.request_id
        self.busy[program] = self.busy.get(program, 0.0) / 2 + now - request.arrival_time
        self.since[program] = now


def programs(seed: int) -> ty.Workload:
    """Half of the programs are in a busy phase (short tools), half in an idle one."""
    w = ty.WorkloadBuilder("coding agents", seed=seed)
    for i, at in enumerate(w.poisson(rate=2.0, n=24)):
        program = w.session(at=at, prefix=w.text(800))
        for _ in range(8):
            program.turn(user=int(w.lognormal(5.4, 0.4)) + 1, output=40, think=w.exponential(0.5 if i % 2 else 12.0))
    return w.build()


def compare() -> dict[str, float]:
    """Mean milliseconds to the first token."""
    runs = {"lru": ty.run(programs(0), SMALL), "mori": ty.run(programs(0), SMALL, policy=Mori)}
    return {name: run.report.ttft_ms.mean or 0.0 for name, run in runs.items()}


if __name__ == "__main__":
    for name, mean in compare().items():
        print(f"{name:5} {mean:7.1f} ms to the first token")
