"""Mooncake (FAST 2025, 2407.00079): under overload a request that would come too late is turned away at once."""

from __future__ import annotations

from collections.abc import Sequence

import tokenyard as ty
from tokenyard.core.request import Request
from tokenyard.policies import Rejected
from tokenyard.sim import EngineView

FLEET = ty.Deployment(model="Qwen/Qwen3-8B", gpu="l40s", max_num_seqs=8, max_model_len=8000, replicas=2)
ALLOWED = 6.0
"""Seconds to the first token."""


class EarlyRejection(ty.FleetPolicy):
    """Predicts the wait from those that wait: a seat becomes free so often."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def request_ended(self, now: float, request_id: str, rank: int) -> None:
        self.ends = [*self.ends[-19:], now]

    def admit(self, now: float, request: Request, engines: Sequence[EngineView]) -> bool | Rejected:
        if len(self.ends) < 5:
            return True
        seconds_a_seat = (self.ends[-1] - self.ends[0]) / (len(self.ends) - 1)
        wait = sum(each.num_waiting for each in engines) * seconds_a_seat
        return wait <= ALLOWED or Rejected("too_late")


def overload(seed: int) -> ty.Workload:
    """Half as much again as the fleet can serve."""
    w = ty.WorkloadBuilder("overload", seed=seed)
    for at in w.poisson(rate=6.0, n=250):
        w.request(at=at, prompt=int(w.lognormal(6, 0.5)) + 1, output=int(w.lognormal(5, 0.4)) + 1)
    return w.build()


def late(run: ty.RunResult) -> float:
    """Share of all who came, in percent, that got no first token in time: refused ones are among them."""
    in_time: int = sum(row["ttft_ms"] <= 1e3 * ALLOWED for row in run.requests if row["finish_reason"] != "refused")
    return 100 * (1 - in_time / len(run.workload))


def compare() -> dict[str, float]:
    """Percent of everybody who got no answer in time."""
    slo = {"ttft": "6s"}
    runs = {
        "serve all": ty.run(overload(0), FLEET, slo=slo),
        "early rejection": ty.run(overload(0), FLEET, slo=slo, fleet=EarlyRejection),
    }
    return {name: late(run) for name, run in runs.items()}


if __name__ == "__main__":
    for name, share in compare().items():
        print(f"{name:16} {share:5.1f} % of all who came are late or turned away")
