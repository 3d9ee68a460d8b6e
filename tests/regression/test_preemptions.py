"""Preemption storms: what users of vLLM reported, built here. The table is threads.tsv."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import pytest
from tests.support.toy_engine import ToyEngine


class Cost(NamedTuple):
    preemptions: int
    recomputed: int
    """Tokens thrown away."""
    worst: int
    """Most preemptions of one request."""


def serve(seed: int = 0, count: int = 24, **settings: Any) -> Cost:
    """Requests whose answers are several times as long as the room that is left for them."""
    toy = ToyEngine(num_gpu_blocks=40, max_model_len=128, enable_prefix_caching=False, **settings)
    random = Random(seed)
    for i in range(count):
        toy.add(f"r{i}", random.randint(8, 40), max_tokens=random.randint(20, 80), arrival_time=float(i))
    preemptions = recomputed = 0
    while toy.scheduler.requests:
        toy.step()
        preemptions += len(toy.outcomes.preemptions)
        recomputed += sum(each.num_computed_tokens for each in toy.outcomes.preemptions)
    assert toy.free == 39
    return Cost(preemptions, recomputed, max(request.num_preemptions for request in toy.requests.values()))


def test_37307_a_prompt_is_admitted_only_if_all_of_it_fits() -> None:
    """Four long prompts nearly fill the pool; a fifth must not begin what it cannot end."""

    def preemptions(*, gate: bool) -> int:
        toy = ToyEngine(
            num_gpu_blocks=71,
            max_model_len=128,
            max_num_batched_tokens=48,
            scheduler_reserve_full_isl=gate,
            enable_prefix_caching=False,
        )
        for i in range(4):
            toy.add(f"long{i}", 47, max_tokens=20)
        toy.add("fifth", 100, max_tokens=4)
        total = 0
        while toy.scheduler.requests:
            toy.step()
            total += len(toy.outcomes.preemptions)
        return total

    assert preemptions(gate=True) == 0
    assert preemptions(gate=False) > 0


@pytest.mark.slow
def test_44594_a_watermark_saves_preemptions() -> None:
    without, with_one = (serve(watermark=fraction) for fraction in (0.0, 0.15))
    assert without.preemptions > 20, "the situation is not one"
    assert with_one.preemptions < 0.75 * without.preemptions


@pytest.mark.slow
def test_54644_the_least_computed_victim_wastes_less() -> None:
    seeds = range(4)
    youngest = sum(serve(seed, scheduler_reserve_full_isl=False).recomputed for seed in seeds)
    least = sum(serve(seed, scheduler_reserve_full_isl=False, policy="least-computed").recomputed for seed in seeds)
    assert 0 < least < youngest


@pytest.mark.slow
def test_42827_nobody_is_preempted_for_ever() -> None:
    """The oldest running request always gets on, so a request loses its blocks at most once per older one's growth."""
    for policy in ("fcfs", "priority"):
        for seed in range(3):
            cost = serve(seed, count=12, policy=policy, scheduler_reserve_full_isl=False)
            assert cost.preemptions > 0
            assert cost.worst <= 12
