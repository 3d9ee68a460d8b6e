"""CONTINUUM in a scheduler: pins are made, preferred, consumed, expire and give way; three faults of a fork avoided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.support.toy_engine import ToyEngine, make_request, prompt_of

from tokenyard.core.config import GroupKind, KVCacheGroup
from tokenyard.core.sched.observer import StepObserver
from tokenyard.core.sched.outcomes import EndedPin
from tokenyard.core.sched.policy_context import PolicyContext
from tokenyard.policies.continuum.policy import Continuum, continuum_fixed, continuum_share, continuum_ttl
from tokenyard.policies.continuum.ttl import FinishedTurn, MemoryShare, Observations, PrefillReload
from tokenyard.vocabulary import PIN_ENDS


class Always:
    """Keeps every turn for so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def ttl(self, known: Observations, turn: FinishedTurn) -> float:
        return self.seconds


class Agents(ToyEngine):
    """A toy in which jobs take turns. Blocks of 4 tokens."""

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
    toy = Agents()
    free = toy.free
    toy.ended("a.1", 10, max_tokens=2)
    assert (toy.pinned, toy.free) == (["a.1"], free - 3)


def test_a_turn_that_calls_no_tool_leaves_nothing() -> None:
    toy = Agents()
    free = toy.free
    toy.ended("a.1", 10, max_tokens=2, this_func_call="")
    toy.add("alone", 8, this_func_call="ls")
    toy.drain()
    assert (toy.pinned, toy.free) == ([], free)


def test_the_last_turn_leaves_nothing() -> None:
    toy = Agents()
    free = toy.free
    toy.ended("a.1", 10, max_tokens=2)
    toy.ended("a.2", toy.follow_up("a.1"), max_tokens=2, is_last_step=True)
    assert (toy.pinned, toy.free) == ([], free)


def test_a_job_has_one_pin_at_most() -> None:
    toy = Agents(max_num_seqs=2)
    toy.turn("a.1", 10, max_tokens=2)
    toy.turn("a.2", 10, max_tokens=4)
    toy.drain()
    assert toy.pinned == ["a.2"]


def test_an_aborted_turn_leaves_nothing() -> None:
    toy = Agents()
    toy.turn("a.1", 10)
    toy.step()
    toy.abort("a.1")
    assert toy.pinned == []


def test_a_pin_expires() -> None:
    toy = Agents()
    free = toy.free
    toy.ended("a.1", 10, max_tokens=2)
    toy.now = 1.9
    toy.step()
    assert toy.pinned == ["a.1"]
    toy.now = 2.0
    toy.step()
    assert (toy.pinned, toy.free) == ([], free)


def test_a_pin_never_expires_under_a_turn_that_waits() -> None:
    """First fault: a pin that expires although its turn waits is a hit lost at the last moment."""
    toy = Agents(max_num_seqs=1)
    toy.ended("a.1", 10, max_tokens=2)
    toy.turn("b.1", 4, max_tokens=20)
    toy.step()
    toy.now = 1.0
    toy.turn("a.2", toy.follow_up("a.1"))
    toy.now = 50.0
    toy.steps(3)
    assert (toy.running, toy.waiting, toy.pinned) == (["b.1"], ["a.2"], ["a.1"])


def test_a_pin_expires_once_the_turn_that_waited_is_aborted() -> None:
    toy = Agents(max_num_seqs=1)
    toy.ended("a.1", 10, max_tokens=2)
    toy.turn("b.1", 4, max_tokens=20)
    toy.step()
    toy.turn("a.2", toy.follow_up("a.1"))
    toy.now = 50.0
    toy.step()
    toy.abort("a.2")
    toy.step()
    assert toy.pinned == []


def test_the_next_turn_finds_its_prefix_and_consumes_the_pin() -> None:
    """Second fault: a pin that outlives its use holds blocks for no request."""
    toy = Agents()
    toy.ended("a.1", 10, max_tokens=4)
    held = toy.blocks("a.1")
    toy.turn("a.2", toy.follow_up("a.1"))
    toy.step()
    assert toy.pinned == []
    assert toy.requests["a.2"].num_cached_tokens == 12
    assert toy.blocks("a.2")[:3] == held[:3]
    assert toy.scheduler.num_blocks_of(toy.requests["a.1"]) == 0


def test_pins_give_way_when_nothing_fits_beside_them() -> None:
    """Third fault: without this nothing would ever run again. The latest program's pin goes first."""
    toy = Agents(Continuum(Always(1e9)), num_gpu_blocks=17)
    for name in ("a.1", "b.1", "c.1"):
        toy.now += 0.1
        toy.ended(name, 15, max_tokens=1)
    assert (toy.pinned, toy.free) == (["a.1", "b.1", "c.1"], 4)
    toy.turn("d.1", 28, max_tokens=4)
    toy.step()
    assert (toy.running, toy.pinned) == (["d.1"], ["a.1", "b.1"])


def test_the_head_s_own_pin_goes_last() -> None:
    toy = Agents(Continuum(Always(1e9)), num_gpu_blocks=13)
    toy.ended("a.1", 15, max_tokens=1)
    toy.now = 1.0
    toy.ended("b.1", 15, max_tokens=1)
    toy.now = 2.0
    toy.turn("b.2", toy.follow_up("b.1", 16), max_tokens=4)
    toy.step()
    assert (toy.running, toy.pinned) == (["b.2"], [])
    assert toy.requests["b.2"].num_cached_tokens == 12


def test_no_pin_goes_while_something_runs() -> None:
    toy = Agents(Continuum(Always(1e9)), num_gpu_blocks=13)
    toy.ended("a.1", 15, max_tokens=1)
    toy.turn("b.1", 16, max_tokens=3)
    toy.step()
    toy.turn("c.1", 28, max_tokens=2)
    toy.step()
    assert (toy.running, toy.waiting, toy.pinned) == (["b.1"], ["c.1"], ["a.1"])
    toy.drain()


WINDOW = KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=8)


@pytest.mark.parametrize(
    ("groups", "each", "prompt"), [((KVCacheGroup(),), 5, 60), ((KVCacheGroup(), WINDOW), 5 + 3, 36)]
)
def test_a_refusal_tells_the_blocks_that_pins_hold(groups: tuple[KVCacheGroup, ...], each: int, prompt: int) -> None:
    """Blocks that two pins share count for both, and what a window has left behind for none."""
    toy = Agents(Continuum(Always(1e9)), num_gpu_blocks=21, groups=groups)
    for name in ("a.1", "b.1"):
        toy.ended(name, prompt_of("both", 14), max_tokens=6)
    pins = toy.scheduler.pins
    assert pins.num_blocks == sum(map(toy.scheduler.num_blocks_of, pins)) == 2 * each
    toy.turn("c.1", 8, max_tokens=8)
    toy.step()
    toy.turn("d.1", prompt, max_tokens=2)
    toy.step()
    assert toy.admission.kv is not None
    assert toy.admission.kv.pinned == 2 * each
    pins.unpin("a")
    assert pins.num_blocks == each
    pins.clear()
    assert pins.num_blocks == 0


def test_a_request_that_runs_alone_is_not_preempted_for_a_pin() -> None:
    toy = Agents(Continuum(Always(1e9)), num_gpu_blocks=9, scheduler_reserve_full_isl=False)
    toy.ended("a.1", 19, max_tokens=1)
    toy.turn("b.1", 11, max_tokens=12, is_last_step=True)
    toy.drain(limit=20)
    assert toy.requests["b.1"].num_preemptions == 0


@pytest.mark.parametrize(("policy", "preemptions"), [(continuum_fixed(), 1), (continuum_share(), 0)])
def test_the_share_policy_drops_pins_before_it_preempts(policy: Continuum, preemptions: int) -> None:
    if preemptions == 0:
        policy = continuum_share(reload=PrefillReload(base=100.0))
    toy = Agents(policy, num_gpu_blocks=9)
    toy.ended("a.1", 11, max_tokens=1)
    assert toy.pinned == ["a.1"]
    toy.turn("b.1", 8, max_tokens=6)
    toy.turn("c.1", 8, max_tokens=6)
    toy.steps(2)
    assert sum(toy.requests[name].num_preemptions for name in ("b.1", "c.1")) == preemptions


def test_pinned_turns_go_first_then_by_the_program_s_arrival() -> None:
    toy = Agents(max_num_seqs=1)
    toy.ended("old.1", 8, max_tokens=1, arrival_time=0.0, this_func_call="")
    toy.ended("warm.1", 8, max_tokens=1, arrival_time=1.0)
    toy.turn("busy.1", 4, arrival_time=2.0, max_tokens=20)
    toy.step()
    toy.turn("new.1", 8, arrival_time=3.0)
    toy.turn("old.2", 8, arrival_time=4.0)
    toy.turn("warm.2", toy.follow_up("warm.1"), arrival_time=5.0)
    toy.step()
    assert toy.waiting == ["warm.2", "old.2", "new.1"]


def test_the_share_policy_without_pins_is_first_come_first_served() -> None:
    orders = []
    for policy in (continuum_share(), None):
        toy = ToyEngine(policy_object=policy, num_gpu_blocks=11, max_num_seqs=3)
        steps = []
        for i in range(12):
            toy.now = float(i)
            toy.add(f"r{i}", 5 + 7 * i % 17, max_tokens=6, job_id=f"j{i % 3}", arrival_time=toy.now)
            steps.append(list(toy.step().req_ids))
        while toy.scheduler.has_requests():
            steps.append(list(toy.step().req_ids))
        orders.append(steps)
    assert orders[0] == orders[1]
    assert sum(len(step) for step in orders[0]) == 12 * 6


def test_a_share_is_taken_of_what_no_pin_holds() -> None:
    shares: list[float] = []

    class Noting(Always):
        def ttl(self, known: Observations, turn: FinishedTurn) -> float:
            shares.append(turn.share)
            return super().ttl(known, turn)

    toy = Agents(Continuum(Noting(9.0)), num_gpu_blocks=26)
    for name in ("a.1", "b.1"):
        toy.ended(name, 19, max_tokens=1)
    assert shares == [20 / 80, 20 / 60]


def test_preempted_turns_go_before_pinned_ones() -> None:
    toy = Agents(num_gpu_blocks=10)
    toy.ended("warm.1", 3, max_tokens=1, arrival_time=0.0)
    toy.turn("x.1", 15, max_tokens=8, arrival_time=1.0)
    toy.turn("y.1", 15, max_tokens=8, arrival_time=2.0)
    toy.step()
    toy.turn("warm.2", 24, arrival_time=3.0)
    toy.until(lambda: bool(toy.outcomes.preemptions))
    assert toy.waiting == ["y.1", "warm.2"]


def test_running_turns_of_pinned_jobs_are_the_last_victims() -> None:
    policy = continuum_ttl()
    ToyEngine(policy_object=policy)
    policy.pins.pin(make_request("p", job_id="a"))
    a, b, c = (make_request(name, job_id=name) for name in "abc")
    assert policy.victim([b, c, a]) == 1
    assert policy.victim([a]) == 0


def test_tool_times_are_learnt_across_jobs() -> None:
    toy = Agents(policy := continuum_fixed())
    for job, seconds in (("a", 1.0), ("b", 5.0)):
        toy.ended(f"{job}.1", 8, max_tokens=1, this_func_call="make")
        toy.now += seconds
        toy.turn(f"{job}.2", 8, max_tokens=1, is_last_step=True)
        toy.drain()
    assert policy.known.tools.mean("make") == pytest.approx(3.0)
    toy.ended("c.1", 8, max_tokens=1, this_func_call="make")
    assert toy.pinned == []


def test_only_follow_ups_without_a_pin_count_as_delayed() -> None:
    toy = Agents(policy := continuum_fixed())
    toy.turn("a.1", 8, max_tokens=1)
    toy.now = 3.0
    toy.drain()
    assert policy.known.delay.mean == 0.0, "a first turn was never evicted"
    toy.now = 4.0
    toy.turn("a.2", toy.follow_up("a.1"), max_tokens=1)
    toy.now = 4.5
    toy.drain()
    assert policy.known.delay.mean == 0.0, "its blocks had been kept"
    toy.now = 20.0
    toy.step()
    toy.turn("a.3", 8, max_tokens=1)
    toy.now = 24.0
    toy.drain()
    assert policy.known.delay.mean == 4.0


def test_a_reset_of_the_cache_drops_pins() -> None:
    toy = Agents()
    toy.ended("a.1", 10, max_tokens=2)
    assert toy.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert toy.pinned == []


# ---- the ledger of pins


class Ledger(StepObserver):
    """Notes every pin that is over: its turn, why, for how long, and its blocks."""

    def __init__(self) -> None:
        self.ends: list[tuple[str, str, float, int]] = []

    def pin_ended(self, ts: float, pin: EndedPin) -> None:
        self.ends.append((pin.request.request_id, pin.why, ts - pin.since, pin.num_blocks))


def watched(**settings: Any) -> tuple[Agents, Ledger]:
    toy, ledger = Agents(**settings), Ledger()
    toy.scheduler.attach_observer(ledger)
    return toy, ledger


def test_the_ledger_has_every_end_of_a_pin() -> None:
    toy, ledger = watched()
    toy.ended("a.1", 10, max_tokens=2)
    toy.now = 1.0
    toy.ended("a.2", toy.follow_up("a.1"), max_tokens=2)
    toy.ended("b.1", 6, max_tokens=2)
    toy.now = 1.5
    toy.ended("b.2", 6, max_tokens=2, is_last_step=True)
    toy.now = 3.0
    toy.step()
    assert ledger.ends == [("a.1", "used", 1.0, 3), ("b.1", "used", 0.5, 2), ("a.2", "expired", 2.0, 5)]


def test_pins_of_a_cache_that_is_forgotten_end_by_it() -> None:
    toy, ledger = watched()
    toy.ended("a.1", 10, max_tokens=2)
    toy.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert [end[1] for end in ledger.ends] == ["reset"]


def test_every_why_is_in_the_vocabulary() -> None:
    toy, ledger = watched(max_num_seqs=2)
    toy.turn("a.1", 10, max_tokens=2)
    toy.turn("a.2", 10, max_tokens=4)
    toy.drain()
    toy.turn("a.3", 10, max_tokens=2)
    toy.turn("a.4", 10, max_tokens=4, is_last_step=True)
    toy.drain()
    assert [end[1] for end in ledger.ends] == ["replaced", "used", "last_turn"]
    assert {end[1] for end in ledger.ends} <= PIN_ENDS.keys()


# ---- a tier below the KV cache


def context(load_seconds: Callable[[int], float]) -> PolicyContext:
    """What a scheduler whose connector has a tier tells its policy."""
    scheduler = ToyEngine().scheduler
    return PolicyContext(scheduler.pins, 400, scheduler.state, load_seconds=load_seconds)


def test_a_prefix_that_a_tier_holds_costs_what_loading_it_costs() -> None:
    policy = Continuum(MemoryShare(), reload=PrefillReload(base=1.0, linear=0.0, quadratic=0.0))
    policy.bind(context(load_seconds=lambda num_tokens: 0.25))
    assert policy.seconds_to_restore(100) == 0.25
    policy.known.recall.add(loaded=25, lost=100)
    assert policy.seconds_to_restore(100) == pytest.approx(0.25 * 0.25 + 0.75)


def test_a_tier_that_is_slower_than_computing_changes_nothing() -> None:
    policy = Continuum(MemoryShare(), reload=PrefillReload(base=1.0, linear=0.0, quadratic=0.0))
    policy.bind(context(load_seconds=lambda num_tokens: 7.0))
    assert policy.seconds_to_restore(100) == 1.0
