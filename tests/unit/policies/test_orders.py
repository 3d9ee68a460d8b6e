"""Least computed, shortest remaining, attained service: who goes first, who loses, and that no request starves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.toy_engine import ToyEngine

from tokenyard.core.request import Request
from tokenyard.errors import ConfigError
from tokenyard.policies.fair import AttainedService, ProgramQueue
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


def test_a_program_with_many_calls_at_once_lets_a_new_one_in() -> None:
    """Its calls wait together, and each that is served makes the others less urgent."""
    toy = ToyEngine(policy_object=AttainedService(), max_num_seqs=1)
    for number in range(4):
        toy.add(f"many.{number}", 40, max_tokens=1, job_id="many")
    toy.add("new.0", 40, max_tokens=1, job_id="new")
    toy.add("alone", 8, max_tokens=1)
    served = list[str]()
    while before := toy.waiting:
        toy.step()
        served += [each for each in before if each not in toy.waiting]
    assert served[:3] == ["many.0", "new.0", "alone"]
    assert served[3:] == ["many.1", "many.2", "many.3"]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 9)), max_size=60))
def test_the_least_key_goes_first_whatever_rises_meanwhile(actions: list[tuple[int, int, int]]) -> None:
    """Against a queue that sorts anew each time; within a program it is first come, first served."""
    service = dict.fromkeys("abcd", 0)
    queue = ProgramQueue(lambda request: (service.get(request.job_id or "", 0) + request.arrival_time,))
    lines: dict[str | None, list[Request]] = {}
    for number, (kind, job, amount) in enumerate(actions):
        line = "abcd"[job] if amount else None
        if kind <= 2 or not len(queue):
            request = Request(f"r{number}", [1], job_id=line, arrival_time=float(number))
            queue.add(request)
            lines.setdefault(line, []).append(request)
        elif kind == 3:
            service["abcd"[job]] += amount
        else:
            heads = [waiting[0] for waiting in lines.values() if waiting]
            least = min(heads, key=lambda head: service.get(head.job_id or "", 0) + head.arrival_time)
            found = queue.pop() if kind == 4 else queue.peek()
            assert service.get(found.job_id or "", 0) + found.arrival_time == (
                service.get(least.job_id or "", 0) + least.arrival_time
            )
            if kind == 4:
                assert lines[found.job_id].pop(0) is found
                if amount % 2:
                    queue.prepend(found)
                    lines[found.job_id].insert(0, found)
        assert len(queue) == sum(map(len, lines.values()))
    assert sorted(each.request_id for each in queue) == sorted(r.request_id for line in lines.values() for r in line)


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
