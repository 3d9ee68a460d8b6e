"""SAGA (2605.00528, HPDC 2026), its other half: agents stay where their KV is, and idle engines steal what waits."""

from __future__ import annotations

from collections.abc import Sequence

import tokenyard as ty
from tokenyard.core.request import Request
from tokenyard.sim import EngineView

FLEET = ty.Deployment(model="Qwen/Qwen3-8B", gpu="l40s", max_num_seqs=6, max_model_len=16_384, replicas=3)


class Affinity(ty.FleetPolicy):
    """Every turn of an agent goes where its first one went."""

    def __init__(self) -> None:
        self.home: dict[str, int] = {}

    def route(self, now: float, request: Request, engines: Sequence[EngineView]) -> int:
        agent = request.job_id or request.request_id
        return self.home.setdefault(agent, len(self.home) % len(engines)) % len(engines)


class Stealing(Affinity):
    """The same; an engine on which no request waits takes over the last that waits on the fullest."""

    sync = 0.25

    def rebalance(self, now: float, engines: Sequence[EngineView]) -> list[ty.Move]:
        full = max(engines, key=lambda each: each.num_waiting)
        idle = min(engines, key=lambda each: (each.num_waiting, each.num_running))
        if not full.waiting or idle.num_waiting or idle.num_running >= 5:
            return []
        stolen = full.waiting[-1]
        self.home[stolen.job_id or stolen.request_id] = idle.rank
        return [ty.Move(stolen.request_id, to=idle.rank)]


def agents(seed: int) -> ty.Workload:
    """Agents of unlike lengths, so that homes fill unevenly."""
    w = ty.WorkloadBuilder("agents", seed=seed)
    for i, at in enumerate(w.poisson(rate=2.0, n=36)):
        agent = w.session(at=at, prefix=w.text(500))
        for _ in range(8 if i % 3 == 0 else 2):
            agent.turn(user=int(w.lognormal(5.5, 0.5)) + 1, output=120, think=0.5)
    return w.build()


def seconds(run: ty.RunResult) -> float:
    """Mean seconds from an agent's first arrival to its last end."""
    begun: dict[str, float] = {}
    ended: dict[str, float] = {}
    for row in run.requests:
        begun[row["job_id"]] = min(row["arrival_s"], begun.get(row["job_id"], row["arrival_s"]))
        ended[row["job_id"]] = max(row["finished_s"], ended.get(row["job_id"], 0.0))
    return sum(ended[job] - begun[job] for job in begun) / len(begun)


def compare() -> dict[str, float]:
    """Mean completion time of agents, in seconds."""
    return {each.__name__: seconds(ty.run(agents(0), FLEET, fleet=each)) for each in (Affinity, Stealing)}


if __name__ == "__main__":
    for name, mean in compare().items():
        print(f"{name:8} {mean:6.2f} s an agent")
