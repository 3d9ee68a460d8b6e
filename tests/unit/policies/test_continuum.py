"""CONTINUUM in a scheduler: pins are made, preferred, consumed, expire and give way; three faults of a fork avoided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.yard import Yard, make_request, prompt_of

from tokenyard.policies.continuum.policy import Continuum, continuum_fixed, continuum_share, continuum_ttl
from tokenyard.policies.continuum.ttl import FinishedTurn, Observations, PrefillReload
from tokenyard.sched.features.pins import PinBoard
from tokenyard.sched.policy import PolicyContext


class Always:
    """Keeps every turn for so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def ttl(self, known: Observations, turn: FinishedTurn) -> float:
        return self.seconds


class Agents(Yard):
    """A yard in which jobs take turns. Blocks of 4 tokens."""

    def __init__(self, policy: Continuum | None = None, **settings: Any) -> None:
        super().__init__(policy_object=policy or continuum_fixed(), **settings)

    @property
    def pinned(self) -> list[str]:
        """Pinned turns, the one pinned first in front."""
        return [request.request_id for request in self.scheduler.pins]

    def turn(self, request_id: str, prompt: int | Sequence[int], **options: Any) -> None:
        """Add a turn (of the job that its id names before the dot) that calls ``ls``."""
        usual = {"job_id": request_id.split(".", maxsplit=1)[0], "this_func_call": "ls", "arrival_time": self.now}
        self.add(request_id, prompt, **usual | options)

    def ended(self, request_id: str, prompt: int | Sequence[int], **options: Any) -> None:
        """Add a turn and let it run to its end."""
        self.turn(request_id, prompt, **options)
        self.until(lambda: request_id not in self.scheduler.requests)

    def follow_up(self, previous: str, new: int = 4) -> list[int]:
        """The next prompt: everything of the previous turn, and something new."""
        return self.requests[previous].all_token_ids + prompt_of(f"after {previous}", new)


def test_blocks_of_a_finished_turn_are_kept() -> None:
    yard = Agents()
    free = yard.free
    yard.ended("a.1", 10, max_tokens=2)
    assert (yard.pinned, yard.free) == (["a.1"], free - 3)


def test_a_turn_that_calls_no_tool_leaves_nothing() -> None:
    yard = Agents()
    free = yard.free
    yard.ended("a.1", 10, max_tokens=2, this_func_call=None)
    yard.add("alone", 8, this_func_call="ls")
    yard.drain()
    assert (yard.pinned, yard.free) == ([], free)


def test_the_last_turn_leaves_nothing() -> None:
    yard = Agents()
    free = yard.free
    yard.ended("a.1", 10, max_tokens=2)
    yard.ended("a.2", yard.follow_up("a.1"), max_tokens=2, is_last_step=True)
    assert (yard.pinned, yard.free) == ([], free)


def test_a_job_has_one_pin_at_most() -> None:
    yard = Agents(max_num_seqs=2)
    yard.turn("a.1", 10, max_tokens=2)
    yard.turn("a.2", 10, max_tokens=4)
    yard.drain()
    assert yard.pinned == ["a.2"]


def test_an_aborted_turn_leaves_nothing() -> None:
    yard = Agents()
    yard.turn("a.1", 10)
    yard.step()
    yard.abort("a.1")
    assert yard.pinned == []


def test_a_pin_expires() -> None:
    yard = Agents()
    free = yard.free
    yard.ended("a.1", 10, max_tokens=2)
    yard.now = 1.9
    yard.step()
    assert yard.pinned == ["a.1"]
    yard.now = 2.0
    yard.step()
    assert (yard.pinned, yard.free) == ([], free)


def test_a_pin_never_expires_under_a_turn_that_waits() -> None:
    """First fault: a pin that expires although its turn waits is a hit lost at the last moment."""
    yard = Agents(max_num_seqs=1)
    yard.ended("a.1", 10, max_tokens=2)
    yard.turn("b.1", 4, max_tokens=20)
    yard.step()
    yard.now = 1.0
    yard.turn("a.2", yard.follow_up("a.1"))
    yard.now = 50.0
    yard.steps(3)
    assert (yard.running, yard.waiting, yard.pinned) == (["b.1"], ["a.2"], ["a.1"])


def test_a_pin_expires_once_the_turn_that_waited_is_aborted() -> None:
    yard = Agents(max_num_seqs=1)
    yard.ended("a.1", 10, max_tokens=2)
    yard.turn("b.1", 4, max_tokens=20)
    yard.step()
    yard.turn("a.2", yard.follow_up("a.1"))
    yard.now = 50.0
    yard.step()
    yard.abort("a.2")
    yard.step()
    assert yard.pinned == []


def test_the_next_turn_finds_its_prefix_and_consumes_the_pin() -> None:
    """Second fault: a pin that outlives its use holds blocks for nobody."""
    yard = Agents()
    yard.ended("a.1", 10, max_tokens=4)
    held = yard.blocks("a.1")
    yard.turn("a.2", yard.follow_up("a.1"))
    yard.step()
    assert yard.pinned == []
    assert yard.requests["a.2"].num_cached_tokens == 12
    assert yard.blocks("a.2")[:3] == held[:3]
    assert yard.scheduler.num_blocks_of(yard.requests["a.1"]) == 0


def test_pins_give_way_when_nothing_fits_beside_them() -> None:
    """Third fault: without this nothing would ever run again. The latest program's pin goes first."""
    yard = Agents(Continuum(Always(1e9)), num_gpu_blocks=17)
    for name in ("a.1", "b.1", "c.1"):
        yard.now += 0.1
        yard.ended(name, 15, max_tokens=1)
    assert (yard.pinned, yard.free) == (["a.1", "b.1", "c.1"], 4)
    yard.turn("d.1", 28, max_tokens=4)
    yard.step()
    assert (yard.running, yard.pinned) == (["d.1"], ["a.1", "b.1"])


def test_the_head_s_own_pin_goes_last() -> None:
    yard = Agents(Continuum(Always(1e9)), num_gpu_blocks=13)
    yard.ended("a.1", 15, max_tokens=1)
    yard.now = 1.0
    yard.ended("b.1", 15, max_tokens=1)
    yard.now = 2.0
    yard.turn("b.2", yard.follow_up("b.1", 16), max_tokens=4)
    yard.step()
    assert (yard.running, yard.pinned) == (["b.2"], [])
    assert yard.requests["b.2"].num_cached_tokens == 12


def test_no_pin_goes_while_something_runs() -> None:
    yard = Agents(Continuum(Always(1e9)), num_gpu_blocks=13)
    yard.ended("a.1", 15, max_tokens=1)
    yard.turn("b.1", 16, max_tokens=3)
    yard.step()
    yard.turn("c.1", 28, max_tokens=2)
    yard.step()
    assert (yard.running, yard.waiting, yard.pinned) == (["b.1"], ["c.1"], ["a.1"])
    yard.drain()


def test_a_request_that_runs_alone_is_not_preempted_for_a_pin() -> None:
    yard = Agents(Continuum(Always(1e9)), num_gpu_blocks=9, scheduler_reserve_full_isl=False)
    yard.ended("a.1", 19, max_tokens=1)
    yard.turn("b.1", 11, max_tokens=12, is_last_step=True)
    yard.drain(limit=20)
    assert yard.requests["b.1"].num_preemptions == 0


@pytest.mark.parametrize(("policy", "preemptions"), [(continuum_fixed(), 1), (continuum_share(), 0)])
def test_the_share_policy_drops_pins_before_it_preempts(policy: Continuum, preemptions: int) -> None:
    if preemptions == 0:
        policy = continuum_share(reload=PrefillReload(base=100.0))
    yard = Agents(policy, num_gpu_blocks=9)
    yard.ended("a.1", 11, max_tokens=1)
    assert yard.pinned == ["a.1"]
    yard.turn("b.1", 8, max_tokens=6)
    yard.turn("c.1", 8, max_tokens=6)
    yard.steps(2)
    assert sum(yard.requests[name].num_preemptions for name in ("b.1", "c.1")) == preemptions


def test_pinned_turns_go_first_then_by_the_program_s_arrival() -> None:
    yard = Agents(max_num_seqs=1)
    yard.ended("old.1", 8, max_tokens=1, arrival_time=0.0, this_func_call=None)
    yard.ended("warm.1", 8, max_tokens=1, arrival_time=1.0)
    yard.turn("busy.1", 4, arrival_time=2.0, max_tokens=20)
    yard.step()
    yard.turn("new.1", 8, arrival_time=3.0)
    yard.turn("old.2", 8, arrival_time=4.0)
    yard.turn("warm.2", yard.follow_up("warm.1"), arrival_time=5.0)
    yard.step()
    assert yard.waiting == ["warm.2", "old.2", "new.1"]


def test_the_share_policy_without_pins_is_first_come_first_served() -> None:
    orders = []
    for policy in (continuum_share(), None):
        yard = Yard(policy_object=policy, num_gpu_blocks=11, max_num_seqs=3)
        steps = []
        for i in range(12):
            yard.now = float(i)
            yard.add(f"r{i}", 5 + 7 * i % 17, max_tokens=6, job_id=f"j{i % 3}", arrival_time=yard.now)
            steps.append(list(yard.step().req_ids))
        while yard.scheduler.has_requests():
            steps.append(list(yard.step().req_ids))
        orders.append(steps)
    assert orders[0] == orders[1]
    assert sum(len(step) for step in orders[0]) >= 72


def test_a_share_is_taken_of_what_no_pin_holds() -> None:
    shares: list[float] = []

    class Noting(Always):
        def ttl(self, known: Observations, turn: FinishedTurn) -> float:
            shares.append(turn.share)
            return super().ttl(known, turn)

    yard = Agents(Continuum(Noting(9.0)), num_gpu_blocks=26)
    for name in ("a.1", "b.1"):
        yard.ended(name, 19, max_tokens=1)
    assert shares == [20 / 80, 20 / 60]


def test_preempted_turns_go_before_pinned_ones() -> None:
    yard = Agents(num_gpu_blocks=10)
    yard.ended("warm.1", 3, max_tokens=1, arrival_time=0.0)
    yard.turn("x.1", 15, max_tokens=8, arrival_time=1.0)
    yard.turn("y.1", 15, max_tokens=8, arrival_time=2.0)
    yard.step()
    yard.turn("warm.2", 24, arrival_time=3.0)
    yard.until(lambda: bool(yard.outcomes.preemptions))
    assert yard.waiting == ["y.1", "warm.2"]


def test_running_turns_of_pinned_jobs_are_the_last_victims() -> None:
    policy = continuum_ttl()
    policy.bind(PolicyContext(PinBoard(lambda request: None), 1000))
    policy.pins.pin(make_request("p", job_id="a"))
    a, b, c = (make_request(name, job_id=name) for name in "abc")
    assert policy.victim([b, c, a]) == 1
    assert policy.victim([a]) == 0


def test_tool_times_are_learnt_across_jobs() -> None:
    yard = Agents(policy := continuum_fixed())
    for job, seconds in (("a", 1.0), ("b", 5.0)):
        yard.ended(f"{job}.1", 8, max_tokens=1, this_func_call="make")
        yard.now += seconds
        yard.turn(f"{job}.2", 8, max_tokens=1, is_last_step=True)
        yard.drain()
    assert policy.known.tools.mean("make") == pytest.approx(3.0)
    yard.ended("c.1", 8, max_tokens=1, this_func_call="make")
    assert yard.pinned == []


def test_only_follow_ups_without_a_pin_count_as_delayed() -> None:
    yard = Agents(policy := continuum_fixed())
    yard.turn("a.1", 8, max_tokens=1)
    yard.now = 3.0
    yard.drain()
    assert policy.known.delay.mean == 0.0, "a first turn was never evicted"
    yard.now = 4.0
    yard.turn("a.2", yard.follow_up("a.1"), max_tokens=1)
    yard.now = 4.5
    yard.drain()
    assert policy.known.delay.mean == 0.0, "its blocks had been kept"
    yard.now = 20.0
    yard.step()
    yard.turn("a.3", 8, max_tokens=1)
    yard.now = 24.0
    yard.drain()
    assert policy.known.delay.mean == 4.0


def test_a_reset_of_the_cache_drops_pins() -> None:
    yard = Agents()
    yard.ended("a.1", 10, max_tokens=2)
    assert yard.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert yard.pinned == []
