"""Fleets: moves, events, own scaling, admission, unlike engines; no request is lost, whatever happens."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenyard as ty
from tokenyard.core.request import Request
from tokenyard.errors import StuckError
from tokenyard.policies import Rejected
from tokenyard.sim import ConstantLatency, EngineState, EngineView, Router

ONE = ty.Deployment(
    model="Qwen/Qwen3-8B",
    gpu="l40s",
    max_num_seqs=4,
    max_model_len=2000,
    num_gpu_blocks_override=200,
    latency=ConstantLatency(seconds=0.05),
)


def load(seed: int = 0, n: int = 40, rate: float = 8.0) -> ty.Workload:
    w = ty.WorkloadBuilder("load", seed=seed)
    for at in w.poisson(rate=rate, n=n):
        w.request(at=at, prompt=min(900, int(w.lognormal(5, 0.7)) + 1), output=min(60, int(w.lognormal(3, 0.6)) + 1))
    return w.build()


class First(Router):
    def choose(self, now: float, request: Request, engines: Sequence[EngineState]) -> int:
        return 0


class Level(ty.FleetPolicy):
    """The last request of the fullest engine goes to the emptiest."""

    sync = 0.2

    def rebalance(self, now: float, engines: Sequence[EngineView]) -> list[ty.Move]:
        hot = max(engines, key=lambda each: each.num_waiting + each.num_running)
        cold = min(engines, key=lambda each: each.num_waiting + each.num_running)
        if hot.num_waiting + hot.num_running - cold.num_waiting - cold.num_running < 2:
            return []
        last = (hot.waiting or hot.running)[-1]
        return [ty.Move(last.request_id, to=cold.rank)]


class MoveRunning(ty.FleetPolicy):
    """The first that runs on the first engine goes to engine 1, once in a while."""

    sync = 0.5

    def rebalance(self, now: float, engines: Sequence[EngineView]) -> list[ty.Move]:
        running = [each for each in engines[0].running if each.num_output_tokens > 3]
        return [ty.Move(running[0].request_id, to=1)] if running else []


def everybody(run: ty.RunResult, number: int = 40) -> ty.RunResult:
    result, people = run.result, run.report.outcomes
    assert people is not None
    assert people.arrived == number
    assert len(result.refused) == people.refused
    assert result.num_finished == people.served
    assert people.served + people.refused + people.cancelled + people.unfinished == number
    assert sorted(run.requests["request_id"]) == sorted(each.request_id for each in run.workload)
    served = {each.request_id: each.max_tokens for each in run.workload}
    assert all(
        row["output_tokens"] == served[row["request_id"]] for row in run.requests if row["finish_reason"] == "length"
    )
    return run


def test_moves_level_a_fleet_and_lose_nobody() -> None:
    two = ONE.with_(replicas=2, router=First)
    alone, level = ty.run(load(), two), everybody(ty.run(load(), two, fleet=Level))
    assert alone.report.e2e_ms.mean is not None
    assert level.report.e2e_ms.mean is not None
    assert level.report.e2e_ms.mean < 0.8 * alone.report.e2e_ms.mean
    assert all(each.num_finished for each in level.result.ranks)


def test_what_moves_brings_its_tokens_and_its_kv() -> None:
    two = ONE.with_(replicas=2, router=First)
    moved = everybody(ty.run(load(n=8), two, fleet=MoveRunning), 8)
    at_other = [row for row in moved.requests if row["engine"] == 1]
    assert at_other
    assert all(row["cached_tokens"] >= 0 for row in at_other)
    prompts = {each.request_id: each.num_prompt_tokens for each in moved.workload}
    first = {row["request_id"]: row["first_token_s"] for row in ty.run(load(n=8), two).requests}
    assert any(row["first_token_s"] == first[row["request_id"]] for row in at_other)
    assert all(row["prompt_tokens"] == prompts[row["request_id"]] for row in at_other)


def test_a_crash_is_sent_again_or_lost_and_a_drained_engine_ends_what_it_has() -> None:
    two = ONE.with_(replicas=2, router="round-robin")
    usual = everybody(ty.run(load(), two))
    again = everybody(ty.run(load(), two, events=[ty.Crash(rank=1, at=2, until=4)]))
    assert again.result.num_finished == 40
    assert again.report.e2e_ms.p99 is not None
    assert usual.report.e2e_ms.p99 is not None
    assert again.report.e2e_ms.p99 > usual.report.e2e_ms.p99
    lost = everybody(ty.run(load(), two, events=[ty.Crash(rank=1, at=2, until=4, resend=False)]))
    assert lost.result.refused
    assert all("lost it with its engine" in each.problem for each in lost.result.refused)
    drained = everybody(ty.run(load(), two, events=[ty.Drain(rank=1, at=1)]))
    assert drained.result.ranks[1].num_requests < drained.result.ranks[0].num_requests
    assert drained.result.num_finished == 40


def test_without_any_engine_requests_wait_for_one_or_are_refused() -> None:
    back = everybody(ty.run(load(n=5), ONE, events=[ty.Crash(rank=0, at=0, until=3)]), 5)
    assert back.result.num_finished == 5
    assert min(back.requests["first_token_s"]) >= 3
    gone = everybody(ty.run(load(n=5), ONE, events=[ty.Crash(rank=0, at=0)]), 5)
    assert len(gone.result.refused) == 5


def test_slow_engines_and_small_pools() -> None:
    usual = ty.run(load(), ONE)
    slow = everybody(ty.run(load(), ONE, events=[ty.Slow(rank=0, at=0, factor=3.0)]))
    assert slow.result.seconds > 2 * usual.result.seconds
    small = everybody(ty.run(load(), ONE, events=[ty.PoolShrinks(rank=0, at=0.5, blocks=150, until=20)]))
    assert small.result.num_finished == 40


def test_own_rules_for_admission_routes_and_scaling() -> None:
    class Own(ty.FleetPolicy):
        sync = 0.5

        def admit(self, now: float, request: Request, engines: Sequence[EngineView]) -> bool | Rejected:
            return all(each.num_waiting < 6 for each in engines) or Rejected("full")

        def route(self, now: float, request: Request, engines: Sequence[EngineView]) -> int:
            return len(engines) - 1

        def scale(self, now: float, engines: Sequence[EngineView]) -> int:
            return 3 if any(each.num_waiting for each in engines) else 1

    found = everybody(ty.run(load(rate=20), ONE.with_(autoscale="1..3", startup="1s"), fleet=Own))
    assert found.result.replicas is not None
    assert max(each.ready for each in found.result.replicas.changes) == 3
    assert found.result.refused
    assert all("full" in each.problem for each in found.result.refused)


def test_a_stale_view_is_as_old_as_it_says() -> None:
    ages: list[float] = []

    class Stale(ty.FleetPolicy):
        stale = 0.7

        def route(self, now: float, request: Request, engines: Sequence[EngineView]) -> None:
            ages.extend(now - each.seen_at for each in engines)

    ty.run(load(), ONE.with_(replicas=2), fleet=Stale)
    assert 0.3 < max(ages) < 0.7


def test_engines_of_different_deployments() -> None:
    found = everybody(
        ty.run(load(), ONE, beside=[ONE.with_(latency=ConstantLatency(seconds=0.2))], router="round-robin")
    )
    fast, slow = found.result.ranks
    assert fast.num_finished == slow.num_finished == 20
    assert slow.busy_seconds > 2 * fast.busy_seconds


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"events": [ty.Crash(rank=2, at=1)]}, "rank: give the number of an engine, from 0 to 1"),
        ({"events": [ty.Crash(rank=0, at=2, until=1)]}, "until behind it"),
        ({"fleet": 3}, "class derived from tokenyard.FleetPolicy"),
        ({"kv_link_gb_per_s": 0, "fleet": Level}, "kv_link_gb_per_s"),
    ],
)
def test_what_cannot_be_is_refused_by_name(change: dict[str, object], said: str) -> None:
    with pytest.raises(ty.ConfigError, match=said):
        ty.run(load(n=2), ONE.with_(replicas=2), **change)  # type: ignore[arg-type]
    with pytest.raises(ty.ConfigError, match="did you mean rebalance"):
        type("Slip", (ty.FleetPolicy,), {"rebalence": Level.rebalance})


EVENTS = st.lists(
    st.builds(
        lambda kind, rank, at, lasts: kind(rank, at, None if lasts is None else at + lasts),
        st.sampled_from(
            [
                lambda rank, at, until: ty.Crash(rank=rank, at=at, until=until),
                lambda rank, at, until: ty.Crash(rank=rank, at=at, until=until, resend=False),
                lambda rank, at, until: ty.Drain(rank=rank, at=at, until=until),
                lambda rank, at, until: ty.Slow(rank=rank, at=at, until=until, factor=3.0),
                lambda rank, at, until: ty.PoolShrinks(rank=rank, at=at, until=until, blocks=60),
            ]
        ),
        st.integers(0, 2),
        st.floats(0, 6),
        st.one_of(st.none(), st.floats(0.1, 4)),
    ),
    max_size=6,
)


@settings(max_examples=15, deadline=None)
@given(events=EVENTS, fleet=st.sampled_from([None, Level, MoveRunning]), seed=st.integers(0, 3))
def test_nobody_is_lost_whatever_happens(
    events: list[ty.Crash | ty.Slow | ty.Drain | ty.PoolShrinks], fleet: type[ty.FleetPolicy] | None, seed: int
) -> None:
    try:
        run = ty.run(load(seed, n=25), ONE.with_(replicas=3), events=events, fleet=fleet)
    except StuckError:  # a pool that shrank for good
        return
    everybody(run, 25)


def test_what_a_routing_could_have_saved() -> None:
    two = ONE.with_(replicas=2)
    blind = ty.counterfactual(load(n=16, rate=20), two, router=First, sample=4)
    assert blind.share_best < 1
    assert blind.mean > 0
    assert all(each.best == 1 for each in blind.rows if each.everybody > 0)
    assert "choices among 2 engines" in str(blind)
    assert len(blind.as_table()) == 4
    with pytest.raises(ty.ConfigError, match="leaves no choice"):
        ty.counterfactual(load(n=2), ONE)


def test_a_sweep_has_seeds() -> None:
    found = ty.sweep("chat", ONE, {"max_num_seqs": [2, 4]}, seeds=range(2), limit=3, jobs=1)
    assert sorted((row.settings["max_num_seqs"], row.settings["seed"]) for row in found.rows) == [
        (2, 0),
        (2, 1),
        (4, 0),
        (4, 1),
    ]
