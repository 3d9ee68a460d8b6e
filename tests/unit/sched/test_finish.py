"""Requests may end at any moment and in any state; whatever they held is free afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.toy_engine import ToyEngine, snapshot

from tokenyard.core.request import FinishReason, Request, RequestStatus
from tokenyard.core.sched.policy import Policy
from tokenyard.errors import ConfigError, RequestError


@pytest.fixture
def toy() -> ToyEngine:
    """b decodes, a is in the middle of its prompt, c was preempted for it, d and e have never been scheduled."""
    toy = ToyEngine(
        num_gpu_blocks=9,
        max_num_seqs=3,
        max_num_batched_tokens=12,
        long_prefill_token_threshold=6,
        scheduler_reserve_full_isl=False,
    )
    toy.add("b", 4, max_tokens=12)
    toy.step()
    toy.add("a", 30, max_tokens=2)
    toy.add("c", 8)
    for name in "de":
        toy.add(name, 4)
    toy.until(lambda: bool(toy.outcomes.preemptions))
    return toy


def test_the_yard_is_as_described(toy: ToyEngine) -> None:
    assert (toy.running, toy.waiting) == (["b", "a"], ["c", "d", "e"])
    assert [toy.requests[name].status.name for name in "abcde"] == [
        "RUNNING",
        "RUNNING",
        "PREEMPTED",
        "WAITING",
        "WAITING",
    ]
    assert (toy.requests["a"].is_prefill_chunk, toy.requests["b"].is_prefill_chunk) == (True, False)


@pytest.mark.parametrize("name", list("abcde"))
def test_a_request_can_be_aborted_in_every_state(toy: ToyEngine, name: str) -> None:
    request = toy.requests[name]
    assert toy.abort(name) == [name]
    assert (request.status, request.slot) == (RequestStatus.FINISHED_ABORTED, -1)
    assert name not in [*toy.running, *toy.waiting, *toy.skipped]
    assert name not in toy.scheduler.requests
    assert name in toy.step().finished_req_ids
    toy.drain()
    assert toy.free == 8


@pytest.mark.parametrize("name", list("abcde"))
def test_a_request_can_be_aborted_between_schedule_and_update(toy: ToyEngine, name: str) -> None:
    output = toy.schedule()
    length = toy.requests[name].num_tokens
    toy.abort(name)
    assert name not in [row.request_id for row in toy.update(output)]
    assert toy.requests[name].num_tokens == length
    toy.drain()
    assert toy.free == 8


def test_a_skipped_request_can_be_aborted() -> None:
    toy = ToyEngine(max_loras=1)
    toy.add("a", lora_name="x")
    toy.add("b", lora_name="y")
    toy.step()
    assert toy.skipped == ["b"]
    assert toy.abort("b") == ["b"]
    assert toy.skipped == []


def test_all_can_be_ended_at_once(toy: ToyEngine) -> None:
    ended = toy.scheduler.finish_requests(None)
    assert {request.request_id for request in ended} == set("abcde")
    assert (toy.free, toy.scheduler.requests) == (8, {})
    assert toy.step().finished_req_ids == set("abcde")
    assert toy.scheduler.has_requests() is False


def test_several_are_ended_once_each(toy: ToyEngine) -> None:
    assert toy.abort("d", "a", "d") == ["d", "a"]


def test_any_finished_status_may_be_given(toy: ToyEngine) -> None:
    toy.scheduler.finish_requests("a", RequestStatus.FINISHED_ERROR)
    assert toy.requests["a"].status is RequestStatus.FINISHED_ERROR
    assert FinishReason.of(toy.requests["a"].status) is FinishReason.ERROR


@pytest.mark.parametrize(
    ("status", "kept"), [(RequestStatus.FINISHED_STOPPED, True), (RequestStatus.FINISHED_ERROR, False)]
)
def test_a_policy_keeps_blocks_of_turns_that_have_ended_by_themselves(status: RequestStatus, *, kept: bool) -> None:
    class Keeping(Policy):
        def keeps_blocks(self, now: float, request: Request) -> bool:
            return True

    toy = ToyEngine(policy_object=Keeping())
    free = toy.scheduler.kv.num_free_blocks
    toy.add("a", 8, job_id="j")
    toy.step()
    toy.scheduler.finish_requests("a", status)
    assert (toy.scheduler.kv.num_free_blocks < free) is kept


@pytest.mark.parametrize(
    "status", [*(each for each in RequestStatus if not each.is_finished), None, "FINISHED_ABORTED", 7]
)
def test_a_status_that_ends_nothing_is_our_callers_mistake(toy: ToyEngine, status: Any) -> None:
    before = snapshot(toy.scheduler)
    with pytest.raises(ConfigError, match=r"status = .*: give one of RequestStatus.FINISHED_"):
        toy.scheduler.finish_requests("a", status)
    assert snapshot(toy.scheduler) == before


@pytest.mark.parametrize("ids", ["nobody", ["a", "nobody"], ["nobody", "a"]])
def test_an_unknown_id_ends_nobody(toy: ToyEngine, ids: str | list[str]) -> None:
    before = snapshot(toy.scheduler)
    with pytest.raises(
        RequestError, match="no unfinished request has this id: leave it out, or say missing_ok=True"
    ) as refusal:
        toy.scheduler.finish_requests(ids)
    assert (refusal.value.request_id, refusal.value.field, refusal.value.value) == ("nobody", "request_id", "nobody")
    assert snapshot(toy.scheduler) == before


def test_a_finished_id_is_unknown_again() -> None:
    toy = ToyEngine()
    toy.add("a", max_tokens=1)
    toy.step()
    with pytest.raises(RequestError, match="no unfinished request"):
        toy.abort("a")


def test_a_host_whose_aborts_race_with_finishes_may_ask_leniently(toy: ToyEngine) -> None:
    ended = toy.scheduler.finish_requests(["nobody", "d"], missing_ok=True)
    assert [request.request_id for request in ended] == ["d"]


def test_nobody_is_ended_by_an_empty_list(toy: ToyEngine) -> None:
    assert toy.scheduler.finish_requests([]) == []


def test_an_ended_id_can_be_used_again(toy: ToyEngine) -> None:
    toy.abort("a")
    again = toy.add("a", 4)
    toy.drain()
    assert again.status is RequestStatus.FINISHED_LENGTH_CAPPED


# ---- resets


def test_a_reset_is_refused_while_blocks_are_in_use(toy: ToyEngine) -> None:
    before = snapshot(toy.scheduler)
    assert toy.scheduler.reset_prefix_cache() is False
    assert snapshot(toy.scheduler) == before


def test_a_reset_may_preempt_what_runs(toy: ToyEngine) -> None:
    order = toy.running
    assert toy.scheduler.reset_prefix_cache(reset_running_requests=True) is True
    toy.scheduler.check_invariants()
    assert (toy.running, toy.free, toy.scheduler.num_cached_blocks) == ([], 8, 0)
    assert toy.waiting[: len(order)] == order, "they return in front, in the order in which they ran"
    toy.drain()
    assert {request.status for request in toy.requests.values()} == {RequestStatus.FINISHED_LENGTH_CAPPED}


def test_an_idle_cache_is_reset() -> None:
    toy = ToyEngine()
    toy.add("a", 8)
    toy.drain()
    assert toy.scheduler.num_cached_blocks == 3
    assert toy.scheduler.reset_prefix_cache() is True
    assert toy.scheduler.num_cached_blocks == 0
