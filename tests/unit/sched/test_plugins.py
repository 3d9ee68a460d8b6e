"""What a plug-in may bound, ask, be told, keep and evict, one question each; docs/tasks/mechanisms.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tests.support.toy_engine import ToyEngine

import tokenyard as ty
from tokenyard.connectors import ConnectorOutput
from tokenyard.connectors.tiered import TieredConnector
from tokenyard.connectors.tiers import LRU, CPUTier
from tokenyard.core.request import BlockHash, Request
from tokenyard.core.sched.outcomes import Reason
from tokenyard.errors import ConfigError, ConnectorError, PolicyError
from tokenyard.policies import Candidate, FeatureHook, Refused, StepBounds, StepBudget, WaitingQueues


class Bounded(ty.Policy):
    """Bounds each step as it is told."""

    def __init__(self, limits: Any = None) -> None:
        self.bounds = limits

    def step_begins(self, now: float, queues: WaitingQueues) -> StepBounds | None:
        answer: StepBounds | None = self.bounds
        return answer


def toy(policy: ty.Policy, prompts: Sequence[int] = (), **settings: Any) -> ToyEngine:
    made = ToyEngine(policy_object=policy, **settings)
    for i, length in enumerate(prompts):
        made.add(f"r{i}", length)
    return made


def test_a_step_may_have_fewer_tokens() -> None:
    policy = Bounded(StepBounds(tokens=6))
    engine = toy(policy, [4, 4])
    assert engine.step().num_scheduled_tokens == {"r0": 4, "r1": 2}
    policy.bounds = None
    assert engine.step().num_scheduled_tokens == {"r0": 1, "r1": 2}


def test_a_limit_may_count_in_numbers_of_numpy() -> None:
    class Sevens:
        def ask(self, candidate: Candidate, budget: StepBudget, queues: WaitingQueues) -> None:
            candidate.num_new_tokens = np.int64(7)  # type: ignore[assignment]  # what it may be all the same

    policy = Bounded()
    policy.limits = (Sevens(),)
    tokens = toy(policy, [9, 9]).step().num_scheduled_tokens
    assert tokens == {"r0": 7, "r1": 7}
    assert {type(count) for count in tokens.values()} == {int}, "JSON knows no other"


def test_a_step_may_have_fewer_seats() -> None:
    policy = Bounded(StepBounds(seats=1, detail="one_seat"))
    engine = toy(policy, [4, 4])
    assert engine.step().req_ids == ("r0",)
    assert (engine.admission.reason, engine.admission.detail) == (Reason.POLICY_REFUSED, "one_seat")
    policy.bounds = StepBounds(seats=2)
    assert engine.step().req_ids == ("r0", "r1")


def test_the_chunk_of_a_request_may_be_shorter() -> None:
    engine = toy(Bounded(StepBounds(longest_prefill=5)), [12, 3])
    assert engine.step().num_scheduled_tokens == {"r0": 5, "r1": 3}
    assert engine.step().num_scheduled_tokens == {"r0": 5, "r1": 1}


def test_prompts_share_what_a_step_leaves_them() -> None:
    policy = Bounded()
    engine = toy(policy, [4])
    engine.step()
    for name in ("long", "next"):
        engine.add(name, 20)
    policy.bounds = StepBounds(prefill_tokens=8, detail="share")
    assert engine.step().num_scheduled_tokens == {"r0": 1, "long": 8}
    assert (engine.admission.reason, engine.admission.detail) == (Reason.POLICY_REFUSED, "share")
    assert engine.step().num_scheduled_tokens == {"r0": 1, "long": 8}
    assert engine.step().num_scheduled_tokens == {"r0": 1, "long": 4, "next": 4}
    policy.bounds = StepBounds(prefill_tokens=0, detail="share")
    assert engine.step().num_scheduled_tokens == {"r0": 1, "long": 1}
    assert [(each.reason, each.detail) for each in engine.outcomes.not_scheduled] == [(Reason.POLICY_REFUSED, "share")]


def test_whole_prompts_are_not_cut_to_a_share() -> None:
    engine = toy(Bounded(StepBounds(prefill_tokens=6)), [4, 4], enable_chunked_prefill=False)
    assert engine.step().num_scheduled_tokens == {"r0": 4}


def test_running_requests_may_be_held_and_keep_their_blocks() -> None:
    policy = Bounded()
    engine = toy(policy, [6, 6])
    engine.step()
    held = engine.blocks("r0")
    policy.bounds = StepBounds(holds={"r0"}, detail="held")
    assert engine.step().req_ids == ("r1",)
    assert engine.blocks("r0") == held
    assert [each.detail for each in engine.outcomes.not_scheduled] == ["held"]
    policy.bounds = None
    assert engine.step().req_ids == ("r0", "r1")


def _holding(held: Any) -> StepBounds:
    return StepBounds(holds=held)


@pytest.mark.parametrize(
    "limits",
    [
        *(
            7,
            StepBounds(tokens=0),
            StepBounds(seats=0),
            StepBounds(longest_prefill=True),
            StepBounds(prefill_tokens=-1),
        ),
        *map(_holding, ("r0", 7, [7], iter(["r0"]), np.array(["r0"]), None)),
    ],
)
def test_limits_that_cannot_be_are_the_policys_mistake(limits: object) -> None:
    with pytest.raises(PolicyError, match="step_begins returned"):
        toy(Bounded(limits), [4]).step()


def test_a_policy_sees_who_runs_and_what_is_free() -> None:
    seen = []

    class Looks(ty.Policy):
        def step_begins(self, now: float, queues: WaitingQueues) -> None:
            assert self.context is not None
            assert self.context.state is not None
            seen.append((len(self.context.state.running), self.context.state.num_free_blocks))

    engine = toy(Looks(), [4])
    engine.step()
    engine.step()
    assert seen == [(0, 100), (1, 99)]


class Limit:
    """Does with a candidate as it is told."""

    def __init__(self, does: Callable[[Candidate], Any]) -> None:
        self.does = does

    def ask(self, candidate: Candidate, budget: StepBudget, queues: WaitingQueues) -> Any:
        return self.does(candidate)


class Limited(ty.Policy):
    def __init__(self, does: Callable[[Candidate], Any]) -> None:
        self.limits = (Limit(does),)


def test_a_limit_of_ones_own_refuses_with_its_word() -> None:
    engine = toy(
        Limited(lambda each: Refused("not_r0", tries_others=True) if each.request.request_id == "r0" else None), [4, 4]
    )
    assert engine.step().req_ids == ("r1",)
    assert [(each.reason, each.detail) for each in engine.outcomes.skipped] == [(Reason.POLICY_REFUSED, "not_r0")]


@pytest.mark.parametrize("most", [3, 1])
def test_a_limit_of_ones_own_cuts_a_prompt(most: int) -> None:
    def cut(candidate: Candidate) -> None:
        candidate.num_new_tokens = min(candidate.num_new_tokens, most)

    assert toy(Limited(cut), [4, 2]).step().num_scheduled_tokens == {"r0": most, "r1": min(most, 2)}


def test_what_a_limit_may_not_do() -> None:
    def raises(candidate: Candidate) -> None:
        raise KeyError("no")

    def more(candidate: Candidate) -> None:
        candidate.num_new_tokens += 1

    def none(candidate: Candidate) -> None:
        candidate.num_new_tokens = 0

    for does, said in (
        (raises, "Limit.ask raised KeyError"),
        (more, "Limit.ask left 5 of 4 tokens"),
        (none, "Limit.ask left 0 of 4 tokens"),
        (lambda each: False, "Limit.ask returned False"),
        (lambda each: Refused(""), "Limit.ask returned"),
    ):
        with pytest.raises(PolicyError, match=said):
            toy(Limited(does), [4]).step()
    with pytest.raises(ConfigError, match="limits"):
        ty.Scheduler(ty.SchedulerConfig(), ty.CacheConfig(num_gpu_blocks=9), limits=[object()])  # type: ignore[list-item]


def test_hooks_are_told_and_see_every_step() -> None:
    told: list[str] = []

    class Hook(FeatureHook):
        def request_added(self, now: float, request: Request) -> None:
            told.append(f"added {request.request_id}")

        def request_admitted(self, now: float, candidate: Candidate) -> None:
            told.append(f"admitted {candidate.request.request_id} {candidate.num_new_tokens}")

        def step_planned(self, step: Any) -> None:
            told.append(f"step {step.plan.step}")

    class Hooked(ty.Policy):
        def __init__(self) -> None:
            self.hooks = (Hook(),)

    engine = toy(Hooked(), [4])
    engine.step()
    engine.step()
    assert told == ["added r0", "admitted r0 4", "step 0", "step 1"]
    told.clear()
    w = ty.WorkloadBuilder("one")
    w.request(at=0.0, prompt=20, output=50)
    deployment = ty.Deployment(model="Qwen/Qwen3-8B", gpu="l40s")
    run = ty.run(w.build(), deployment, policy=Hooked, rows=False)
    assert sum(each.startswith("step") for each in told) == run.result.steps, "no step is leapt over"
    with pytest.raises(ConfigError, match="hooks"):
        ty.Scheduler(ty.SchedulerConfig(), ty.CacheConfig(num_gpu_blocks=9), hooks=[object()])  # type: ignore[list-item]


class KeepsHalf(ty.Policy):
    def keeps_tokens(self, request: Request) -> int:
        return request.num_computed_tokens // 2


def short_of_memory(policy: ty.Policy, **settings: Any) -> ToyEngine:
    """Two requests of four blocks each in a pool of nine; the second is preempted by the first."""
    engine = toy(policy, [16, 16], num_gpu_blocks=10, **settings)
    engine.until(lambda: bool(engine.outcomes.preemptions))
    assert engine.running == ["r0"]
    return engine


def test_a_preempted_request_keeps_a_part() -> None:
    plain, half = short_of_memory(ty.Policy()), short_of_memory(KeepsHalf())
    assert half.free == plain.free - 2, "two of its blocks are not freed"
    assert list(half.scheduler.kv.kept_blocks) == ["r1"]
    half.drain()
    assert not half.scheduler.kv.kept_blocks
    assert half.free == 9


def test_what_is_kept_is_given_up_before_another_is_preempted() -> None:
    """The one that runs needs an eighth block of nine, two of which are kept."""
    engine = toy(KeepsHalf(), num_gpu_blocks=10)
    engine.add("r0", 16, max_tokens=16)
    engine.add("r1", 16)
    engine.until(lambda: bool(engine.scheduler.kv.kept_blocks))
    engine.until(lambda: not engine.scheduler.kv.kept_blocks)
    assert engine.running == ["r0"], "the other is not back, whose lookup would have taken them over"
    assert len(engine.blocks("r0")) == 8
    assert engine.outcomes.preemptions == []
    engine.drain()
    assert engine.free == 9


def test_what_is_kept_is_not_given_up_for_its_own_request() -> None:
    engine = short_of_memory(KeepsHalf())
    kv, free = engine.scheduler.kv, engine.free
    assert not kv.free_kept(engine.requests["r1"])
    assert list(kv.kept_blocks) == ["r1"]
    assert kv.free_kept(engine.requests["r0"])
    assert (kv.kept_blocks, engine.free) == ({}, free + 2)


def test_what_is_kept_ends_with_its_request_and_with_a_reset() -> None:
    engine = short_of_memory(KeepsHalf())
    engine.abort("r1")
    assert not engine.scheduler.kv.kept_blocks
    engine = short_of_memory(KeepsHalf())
    assert engine.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert not engine.scheduler.kv.kept_blocks
    engine.drain()


@pytest.mark.parametrize("answer", [-1, None, 1.5, True])
def test_parts_that_cannot_be_kept(answer: object) -> None:
    class Wrong(ty.Policy):
        def keeps_tokens(self, request: Request) -> int:
            return answer  # type: ignore[return-value]

    with pytest.raises(PolicyError, match="keeps_tokens returned"):
        short_of_memory(Wrong())


def test_a_policy_says_what_is_evicted_first() -> None:
    class NewestFirst(ty.Policy):
        def evicts_first(self, blocks: Sequence[int], contents: Sequence[BlockHash | None]) -> Sequence[bool]:
            return [True] * len(blocks)

    for policy, hits in ((ty.Policy(), 8), (NewestFirst(), 0)):
        engine = toy(policy, [12], num_gpu_blocks=20)
        engine.drain()
        engine.add("other", 16)
        engine.drain()
        again = engine.add("again", engine.requests["r0"].all_token_ids[:12])
        assert engine.scheduler.kv.num_cached_tokens(again) == hits, type(policy)


@pytest.mark.parametrize("answer", [lambda n: (True for _ in range(n)), lambda n: [True] * (n + 1), lambda n: None])
def test_what_says_nothing_of_some_blocks_is_an_error_in_the_policys_name(answer: Callable[[int], Any]) -> None:
    class Wrong(ty.Policy):
        def evicts_first(self, blocks: Sequence[int], contents: Sequence[BlockHash | None]) -> Sequence[bool]:
            row: Sequence[bool] = answer(len(blocks))
            return row

    engine = toy(Wrong(), [12])
    with pytest.raises(PolicyError, match=r"Wrong\.evicts_first returned .*: return \d answers, one for each block"):
        engine.drain()


def test_a_request_is_swapped_out_when_it_is_preempted_and_comes_back() -> None:
    cache = ty.CacheConfig(num_gpu_blocks=10, block_size=4)
    tier = CPUTier(20)
    connector = TieredConnector(cache, tier, store_on="preemption")
    engine = short_of_memory(ty.Policy(), kv_connector=connector)
    assert len(connector.being_written) == 4, "the full blocks of r1, and no other's"
    connector.update_connector_output(ConnectorOutput(completed_jobs=frozenset(connector.being_written)))
    found = connector.get_num_new_matched_tokens(engine.requests["r1"], 0)
    assert found.num_tokens == 16


def test_a_tier_takes_an_order_of_ones_own() -> None:
    class Newest(LRU):
        def __init__(self, num_blocks: int) -> None:
            super().__init__()

    CPUTier(4, Newest)
    with pytest.raises(ConfigError, match="eviction_policy"):
        CPUTier(4, lambda num_blocks: None)  # type: ignore[arg-type, return-value]


def test_a_replay_takes_a_scheduler_of_ones_own() -> None:
    made: list[ty.Scheduler] = []

    def make(*args: Any, **options: Any) -> ty.Scheduler:
        made.append(ty.Scheduler(*args, limits=[Limit(lambda each: None)], **options))
        return made[-1]

    w = ty.WorkloadBuilder("one")
    w.request(at=0.0, prompt=20, output=5)
    how: Any = (w.build(), ty.SchedulerConfig(), ty.CacheConfig(num_gpu_blocks=100), ty.load_latency("constant:0.01"))
    assert ty.replay(*how, make_scheduler=make).num_finished == 1
    assert len(made) == 1
    with pytest.raises(ConfigError, match="make_scheduler"):
        ty.replay(*how, make_scheduler=lambda *args, **options: None)  # type: ignore[arg-type]


def test_what_a_scheduler_brings_is_not_there_before_it() -> None:
    class Early(ty.Policy):
        def __init__(self) -> None:
            self.num_pins = len(self.pins)

    with pytest.raises(PolicyError, match=r"Early\.context is there once a scheduler is made"):
        Early()
    connector = TieredConnector(ty.CacheConfig(num_gpu_blocks=9), CPUTier(5))
    request = ty.Request("a", [1, 2, 3], ty.SamplingParams(max_tokens=2))
    with pytest.raises(ConnectorError, match=r"TieredConnector\.context is there once a scheduler is made"):
        connector.request_finished(request, ([1],))
