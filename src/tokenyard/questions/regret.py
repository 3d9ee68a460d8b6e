"""How much better a routing could have been: single choices replayed otherwise, all others as they were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import msgspec

from tokenyard.core.config import require_int
from tokenyard.core.request import Request
from tokenyard.deploy.deployment import Deployment
from tokenyard.errors import ConfigError
from tokenyard.explain.table import Printable, RowTable, table_from
from tokenyard.questions.run import RunResult, run
from tokenyard.questions.scenario import WorkloadChoice, deployment_settings, takes_arrivals
from tokenyard.sim.choices import RouterChoice, router_of
from tokenyard.sim.routers import EngineState, Fleet, Router

_MEASURES = ("ttft_ms", "e2e_ms", "tpot_ms", "queue_ms")


class _Noting(Router):
    """Chooses as another router does, and notes it; ``instead``: other choices for some."""

    def __init__(self, router: Router, notes: dict[str, int], instead: Mapping[str, int]) -> None:
        self._router, self._notes, self._instead = router, notes, instead

    def choose(self, now: float, request: Request, engines: Sequence[EngineState]) -> int:
        wanted = self._instead.get(request.request_id)
        place = next((i for i, each in enumerate(engines) if each.rank == wanted), None)
        chosen = self._router.choose(now, request, engines) if place is None else place
        self._notes[request.request_id] = engines[chosen].rank
        return chosen

    def engine_reported(self, now: float, report: Any) -> None:
        self._router.engine_reported(now, report)

    def request_ended(self, now: float, request_id: str, rank: int) -> None:
        if request_id not in self._instead:
            self._router.request_ended(now, request_id, rank)


class RouteRegret(msgspec.Struct, frozen=True, kw_only=True):
    """One choice of a router, beside the best other one."""

    request_id: str
    chosen: int
    best: int
    """The engine that would have been best for everybody together."""
    own: float
    """How much later the request was than on the engine best for it, in milliseconds; 0: it was on that."""
    everybody: float
    """How much less the mean over all requests would have been, in milliseconds; 0: no engine was better."""


class Regret(Printable, msgspec.Struct, frozen=True, kw_only=True):
    """Choices of a router, drawn at random, each replayed on every other engine."""

    printer = "tokenyard.questions.printing.policies:print_regret"

    measure: str
    num_engines: int
    rows: list[RouteRegret]

    @property
    def mean(self) -> float:
        """Mean of what a choice cost everybody, in milliseconds."""
        return sum(each.everybody for each in self.rows) / len(self.rows)

    @property
    def share_best(self) -> float:
        """Share of the choices than which none was better."""
        return sum(each.everybody == 0 for each in self.rows) / len(self.rows)

    def summary(self) -> str:
        return f"{self.share_best:.0%} of {len(self.rows)} choices among {self.num_engines} engines were the best"

    def as_table(self) -> RowTable:
        """One row per choice: ``request_id``, ``chosen``, ``best``, ``own`` and ``everybody`` in milliseconds."""
        return table_from("choices", [msgspec.structs.asdict(each) for each in self.rows], numbers=("own", "everybody"))


@takes_arrivals
def counterfactual(
    workload: WorkloadChoice,
    deployment: Deployment,
    *,
    router: RouterChoice | None = None,
    measure: str = "e2e_ms",
    sample: int = 20,
    seed: int = 0,
    **arrivals: Any,
) -> Regret:
    """Replay a workload once, then ``sample`` of its routings once on every engine that was not chosen.

    What the router decides for the others is as it was. ``measure``: ``e2e_ms``, ``ttft_ms``, ``tpot_ms`` or
    ``queue_ms``, summed over requests. ``router``: None is the deployment's. Costs ``sample`` times the number of
    engines replays. Raises TokenyardError.
    """
    require_int("sample", sample, 1)
    if measure not in _MEASURES:
        raise ConfigError("measure", measure, f"use one of: {', '.join(_MEASURES)}")
    if isinstance(router, Router):
        raise ConfigError("router", router, "an object serves one replay: give the class, a function, or a name")
    settings = deployment_settings(deployment)
    choice = router or settings.launch.objects.get("router") or settings.parallel.router
    replay = partial(_replayed, workload, deployment, choice, {**arrivals, "seed": seed})
    usual, chosen = replay({})
    num_engines = len(usual.result.ranks)
    if num_engines < 2:
        raise ConfigError("replicas", num_engines, "a single engine leaves no choice: give replicas=2 or more")
    was, rows = _values(usual, measure), []
    for request_id in Random(seed).sample(sorted(chosen), min(sample, len(chosen))):
        others = [rank for rank in range(num_engines) if rank != chosen[request_id]]
        found = {rank: _values(replay({**chosen, request_id: rank})[0], measure) for rank in others}
        own = min(each.get(request_id, was[request_id]) for each in found.values())
        total = {rank: sum(each.values()) for rank, each in found.items()} | {chosen[request_id]: sum(was.values())}
        best = min(total, key=lambda rank: (total[rank], rank != chosen[request_id]))
        rows.append(
            RouteRegret(
                request_id=request_id,
                chosen=chosen[request_id],
                best=best,
                own=max(was[request_id] - own, 0.0),
                everybody=(sum(was.values()) - total[best]) / len(was),
            )
        )
    return Regret(measure=measure, num_engines=num_engines, rows=rows)


def _replayed(
    workload: WorkloadChoice,
    deployment: Deployment,
    router: RouterChoice,
    arrivals: Mapping[str, Any],
    instead: Mapping[str, int],
) -> tuple[RunResult, dict[str, int]]:
    notes: dict[str, int] = {}

    def noting(fleet: Fleet) -> Router:
        return _Noting(router_of(router, fleet), notes, instead)

    return run(workload, deployment, router=noting, **arrivals), notes


def _values(found: RunResult, measure: str) -> dict[str, float]:
    """Request -> its value, of those that have one."""
    return {row["request_id"]: row[measure] for row in found.requests if row[measure] == row[measure]}
