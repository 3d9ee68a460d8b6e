"""Running requests that fill the encoder cache together, each in need of room for one item more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.toy_engine import ToyEngine, make_request

from tokenyard.core.config import SpeculativeConfig, SpeculativeMethod
from tokenyard.core.kv.encoder_cache import EncoderCache
from tokenyard.core.profiles import decision_profile
from tokenyard.core.request import MultiModalItem, RequestStatus
from tokenyard.core.sched.deadlocks import EncoderDeadlock
from tokenyard.core.sched.in_flight import StepsInFlight
from tokenyard.core.sched.queues import FCFSQueue, WaitingQueues


def overlapping(name: str) -> list[MultiModalItem]:
    """Four tokens, and a sound of as many that begins among them."""
    return [MultiModalItem(mm_hash=f"{name}{i}", offset=offset, length=4) for i, offset in enumerate((2, 4))]


def engine(version: str, *, async_scheduling: bool = False, room: int = 8) -> ToyEngine:
    """Room for two items; four prompt tokens a step, so that both requests are in the middle of one at once."""
    return ToyEngine(
        profile=decision_profile(version),
        async_scheduling=async_scheduling,
        max_num_encoder_input_tokens=room,
        long_prefill_token_threshold=4,
        max_num_batched_tokens=16,
    )


@pytest.mark.parametrize("version", ["0.22", "0.33"])
@pytest.mark.parametrize("is_async", [False, True])
def test_the_first_keeps_what_it_has_and_the_other_starts_over(version: str, *, is_async: bool) -> None:
    toy = engine(version, async_scheduling=is_async)
    for name in ("a", "b"):
        toy.add(name, 12, max_tokens=3, mm_features=overlapping(name))
    toy.step()
    stuck = toy.step()
    while stuck.num_scheduled_tokens:
        stuck = toy.step()
    assert [each.request_id for each in toy.outcomes.not_scheduled] == ["a", "b"]
    goes_on = toy.step()
    assert goes_on.preempted_req_ids == ("b",)
    assert "a" in goes_on.num_scheduled_tokens
    assert toy.drain() < 20
    assert [toy.requests[name].num_preemptions for name in ("a", "b")] == [0, 1]


def test_adjoining_items_under_an_eagle_head_wait_for_each_other_too() -> None:
    """The head reads a token ahead: the last token of one item needs the next item as well."""
    toy = ToyEngine(
        profile=decision_profile("0.22"),
        speculative=SpeculativeConfig(num_speculative_tokens=2, method=SpeculativeMethod.EAGLE),
        max_num_encoder_input_tokens=9,
        long_prefill_token_threshold=4,
        max_num_batched_tokens=16,
    )
    for name in ("a", "b"):
        items = [MultiModalItem(mm_hash=f"{name}{i}", offset=offset, length=4) for i, offset in enumerate((2, 6))]
        toy.add(name, 14, max_tokens=3, mm_features=items)
    for _ in range(8):
        toy.step()
    assert [toy.requests[name].num_preemptions for name in ("a", "b")] == [0, 1]
    assert toy.drain() < 30


def test_others_that_go_on_do_not_hide_it() -> None:
    toy = engine("0.22")
    for name in ("a", "b"):
        toy.add(name, 12, max_tokens=3, mm_features=overlapping(name))
    toy.add("text", 4, max_tokens=40, ignore_eos=True)
    for _ in range(8):
        toy.step()
    assert toy.requests["b"].num_preemptions == 1
    assert toy.requests["text"].num_output_tokens < 10


def test_a_request_that_goes_on_and_will_make_room_is_waited_for() -> None:
    """What is short in one step only, as vLLM has it: no request starts over."""
    toy = engine("0.22")
    first = [MultiModalItem(mm_hash="long", offset=0, length=7)]
    toy.add("first", 14, max_tokens=2, mm_features=first)
    toy.add("second", 12, max_tokens=2, mm_features=overlapping("b"))
    assert toy.drain() < 30
    assert [toy.requests[name].num_preemptions for name in ("first", "second")] == [0, 0]


@pytest.mark.parametrize("version", ["0.22", "0.33"])
def test_room_that_an_output_frees_after_the_refusal_is_used(version: str) -> None:
    """In the step that refuses both, a third request passes the image that they have no room beside."""
    toy = engine(version, room=12)
    for name in ("a", "b"):
        toy.add(name, 12, max_tokens=3, mm_features=overlapping(name))
    toy.add("passes", 12, max_tokens=3, mm_features=[MultiModalItem(mm_hash="long", offset=2, length=4)])
    assert len(toy.step().num_scheduled_tokens) == 3
    assert toy.step().num_scheduled_tokens == {"passes": 4}
    assert "a" in toy.step().num_scheduled_tokens
    assert toy.drain() < 20
    assert [toy.requests[name].num_preemptions for name in ("a", "b")] == [0, 0]


@pytest.mark.parametrize("order", ["abcdefgh", "hgfedcba", "dahbgcfe"])
def test_outputs_that_waiting_requests_let_go_are_evicted_in_the_order_of_the_queue(order: str) -> None:
    """Not in that of a set of their ids, which is another one in every process."""
    cache, queues = EncoderCache(9), WaitingQueues(lambda *_: FCFSQueue(), block_size=4)
    context: Any = SimpleNamespace(waiting_queues=queues, in_flight=StepsInFlight())
    encoder: Any = SimpleNamespace(cache=cache, budget=1, whole_items=False)
    budget: Any = SimpleNamespace(encoder=1, tokens_used=0)
    deadlock = EncoderDeadlock(context, encoder)
    for name in ("runs", *order):
        item = MultiModalItem(mm_hash=f"of {name}", offset=0, length=1)
        request = make_request(name, 4, mm_features=[item])
        assert cache.make_room(1)
        cache.allocate(request, item)
        if name == "runs":
            request.status = RequestStatus.RUNNING
            deadlock.refused(request, budget)
        else:
            queues.add(request)
    deadlock.step_ends(scheduled=False)
    assert deadlock.take_victims() == []
    assert cache.make_room(8)
    assert cache.take_evicted() == tuple(f"of {name}" for name in order)
