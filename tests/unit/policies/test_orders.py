"""Least computed, shortest remaining, attained service: who goes first, who loses, and that no request starves."""

from __future__ import annotations

import pytest
from tests.support.toy_engine import ToyEngine

from tokenyard.core.request import Request
from tokenyard.errors import ConfigError
from tokenyard.policies.fair import AttainedService
from tokenyard.policies.simple import LeastComputed, ServiceMeter, ShortestRemaining, remaining_work


def test_least_computed_loses_least() -> None:
    toy = ToyEngine(policy_object=LeastComputed(), num_gpu_blocks=9)
    for name, length in (("small", 8), ("large", 20)):
        toy.add(name, length, max_tokens=8)
    toy.until(lambda: bool(toy.outcomes.preemptions))
    assert [each.request_id for each in toy.outcomes.preemptions] == ["small"]
    assert ToyEngine(policy_object=LeastComputed()).drain() == 0


def test_the_youngest_of_equals_is_the_victim() -> None:
    toy = ToyEngine()
    rows = [toy.add(name, 8) for name in "abc"]
    toy.step()
    assert LeastComputed().victim(rows) == 2


def test_the_shortest_goes_first() -> None:
    toy = ToyEngine(policy_object=ShortestRemaining(), max_num_seqs=1)
    toy.add("busy", 4, max_tokens=30)
    toy.step()
    for name, prompt, output in (("long", 20, 8), ("chatty", 4, 20), ("short", 8, 2)):
        toy.add(name, prompt, max_tokens=output)
    assert toy.waiting == ["short", "long", "chatty"]


def test_the_longest_loses() -> None:
    toy = ToyEngine()
    rows = [toy.add("a", 8, max_tokens=4), toy.add("b", 8, max_tokens=20), toy.add("c", 8, max_tokens=9)]
    toy.step()
    assert ShortestRemaining().victim(rows) == 1
    assert remaining_work(rows[1]) == 1 + 2 * 19


@pytest.mark.parametrize(("policy", "turn"), [(ShortestRemaining(ageing=10.0), 8), (AttainedService(ageing=10.0), 5)])
def test_waiting_wins_in_the_end(policy: ShortestRemaining | AttainedService, turn: int) -> None:
    """A long request against a stream of short ones, one step of a second each, one seat."""
    toy = ToyEngine(policy_object=policy, max_num_seqs=1)
    toy.add("warm", 40, max_tokens=1, job_id="old")
    toy.drain()
    toy.add("long", 40, max_tokens=20, job_id="old", arrival_time=0.0)
    for second in range(1, 20):
        toy.now = float(second)
        toy.add(f"short{second}", 4, max_tokens=1, arrival_time=toy.now, job_id=f"job{second}")
        toy.step()
        if toy.running == ["long"]:
            break
    assert toy.running == ["long"]
    assert second == turn


def test_programs_with_little_service_go_first() -> None:
    toy = ToyEngine(policy_object=AttainedService(), max_num_seqs=1)
    for name, prompt in (("much.1", 40), ("little.1", 4)):
        toy.add(name, prompt, max_tokens=1, job_id=name.partition(".")[0])
        toy.drain()
    toy.add("busy", 4, max_tokens=30)
    toy.step()
    for name in ("much.2", "little.2", "new.1"):
        toy.add(name, 4, job_id=name.partition(".")[0])
    assert toy.waiting == ["new.1", "little.2", "much.2"]


def test_service_counts_prompts_once_and_output_twice() -> None:
    charged: list[tuple[str, int]] = []
    meter = ServiceMeter(lambda request, tokens: charged.append((request.request_id, tokens)))
    request = Request("r", [1, 2, 3])
    meter.admitted(request)
    request.append_token(7)
    meter.charge_output()
    meter.charge_output()
    assert charged == [("r", 3), ("r", 2)]
    assert len(meter) == 1


@pytest.mark.parametrize("policy", [ShortestRemaining, AttainedService])
@pytest.mark.parametrize("ageing", [0.0, -1.0, float("inf")])
def test_without_ageing_somebody_would_starve(policy: type[ShortestRemaining], ageing: float) -> None:
    with pytest.raises(ConfigError, match="ageing"):
        policy(ageing)
