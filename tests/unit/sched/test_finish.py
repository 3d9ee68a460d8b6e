"""Requests may end at any moment and in any state; whatever they held is free afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.yard import Yard, snapshot

from tokenyard.errors import ConfigError, RequestError
from tokenyard.request import FinishReason, RequestStatus


@pytest.fixture
def yard() -> Yard:
    """b decodes, a is in the middle of its prompt, c was preempted for it, d and e have never been scheduled."""
    yard = Yard(
        num_gpu_blocks=9,
        max_num_seqs=3,
        max_num_batched_tokens=12,
        long_prefill_token_threshold=6,
        scheduler_reserve_full_isl=False,
    )
    yard.add("b", 4, max_tokens=12)
    yard.step()
    yard.add("a", 30, max_tokens=2)
    yard.add("c", 8)
    for name in "de":
        yard.add(name, 4)
    yard.until(lambda: bool(yard.outcomes.preemptions))
    return yard


def test_the_yard_is_as_described(yard: Yard) -> None:
    assert (yard.running, yard.waiting) == (["b", "a"], ["c", "d", "e"])
    assert [yard.requests[name].status.name for name in "abcde"] == [
        "RUNNING",
        "RUNNING",
        "PREEMPTED",
        "WAITING",
        "WAITING",
    ]
    assert (yard.requests["a"].is_prefill_chunk, yard.requests["b"].is_prefill_chunk) == (True, False)


@pytest.mark.parametrize("name", list("abcde"))
def test_a_request_can_be_aborted_in_every_state(yard: Yard, name: str) -> None:
    request = yard.requests[name]
    assert yard.abort(name) == [name]
    assert (request.status, request.slot) == (RequestStatus.FINISHED_ABORTED, -1)
    assert name not in [*yard.running, *yard.waiting, *yard.skipped]
    assert name not in yard.scheduler.requests
    assert name in yard.step().finished_req_ids
    yard.drain()
    assert yard.free == 8


@pytest.mark.parametrize("name", list("abcde"))
def test_a_request_can_be_aborted_between_schedule_and_update(yard: Yard, name: str) -> None:
    output = yard.schedule()
    length = yard.requests[name].num_tokens
    yard.abort(name)
    assert name not in [row.request_id for row in yard.update(output)]
    assert yard.requests[name].num_tokens == length
    yard.drain()
    assert yard.free == 8


def test_a_skipped_request_can_be_aborted() -> None:
    yard = Yard(max_loras=1)
    yard.add("a", lora_name="x")
    yard.add("b", lora_name="y")
    yard.step()
    assert yard.skipped == ["b"]
    assert yard.abort("b") == ["b"]
    assert yard.skipped == []


def test_all_can_be_ended_at_once(yard: Yard) -> None:
    ended = yard.scheduler.finish_requests(None)
    assert {request.request_id for request in ended} == set("abcde")
    assert (yard.free, yard.scheduler.requests) == (8, {})
    assert yard.step().finished_req_ids == set("abcde")
    assert yard.scheduler.has_requests() is False


def test_several_are_ended_once_each(yard: Yard) -> None:
    assert yard.abort("d", "a", "d") == ["d", "a"]


def test_any_finished_status_may_be_given(yard: Yard) -> None:
    yard.scheduler.finish_requests("a", RequestStatus.FINISHED_ERROR)
    assert yard.requests["a"].status is RequestStatus.FINISHED_ERROR
    assert FinishReason.of(yard.requests["a"].status) is FinishReason.ERROR


@pytest.mark.parametrize(
    "status", [*(each for each in RequestStatus if not each.is_finished), None, "FINISHED_ABORTED", 7]
)
def test_a_status_that_ends_nothing_is_our_callers_mistake(yard: Yard, status: Any) -> None:
    before = snapshot(yard.scheduler)
    with pytest.raises(ConfigError, match=r"status = .*: give one of RequestStatus.FINISHED_"):
        yard.scheduler.finish_requests("a", status)
    assert snapshot(yard.scheduler) == before


@pytest.mark.parametrize("ids", ["nobody", ["a", "nobody"], ["nobody", "a"]])
def test_an_unknown_id_ends_nobody(yard: Yard, ids: str | list[str]) -> None:
    before = snapshot(yard.scheduler)
    with pytest.raises(
        RequestError, match="no unfinished request has this id: leave it out, or say missing_ok=True"
    ) as refusal:
        yard.scheduler.finish_requests(ids)
    assert (refusal.value.request_id, refusal.value.field, refusal.value.value) == ("nobody", "request_id", "nobody")
    assert snapshot(yard.scheduler) == before


def test_a_finished_id_is_unknown_again() -> None:
    yard = Yard()
    yard.add("a", max_tokens=1)
    yard.step()
    with pytest.raises(RequestError, match="no unfinished request"):
        yard.abort("a")


def test_a_host_whose_aborts_race_with_finishes_may_ask_leniently(yard: Yard) -> None:
    ended = yard.scheduler.finish_requests(["nobody", "d"], missing_ok=True)
    assert [request.request_id for request in ended] == ["d"]


def test_nobody_is_ended_by_an_empty_list(yard: Yard) -> None:
    assert yard.scheduler.finish_requests([]) == []


def test_an_ended_id_can_be_used_again(yard: Yard) -> None:
    yard.abort("a")
    again = yard.add("a", 4)
    yard.drain()
    assert again.status is RequestStatus.FINISHED_LENGTH_CAPPED


# ---- resets


def test_a_reset_is_refused_while_blocks_are_in_use(yard: Yard) -> None:
    before = snapshot(yard.scheduler)
    assert yard.scheduler.reset_prefix_cache() is False
    assert snapshot(yard.scheduler) == before


def test_a_reset_may_preempt_what_runs(yard: Yard) -> None:
    order = yard.running
    assert yard.scheduler.reset_prefix_cache(reset_running_requests=True) is True
    yard.scheduler.check_invariants()
    assert (yard.running, yard.free, yard.scheduler.num_cached_blocks) == ([], 8, 0)
    assert yard.waiting[: len(order)] == order, "they return in front, in the order in which they ran"
    yard.drain()
    assert {request.status for request in yard.requests.values()} == {RequestStatus.FINISHED_LENGTH_CAPPED}


def test_an_idle_cache_is_reset() -> None:
    yard = Yard()
    yard.add("a", 8)
    yard.drain()
    assert yard.scheduler.num_cached_blocks > 0
    assert yard.scheduler.reset_prefix_cache() is True
    assert yard.scheduler.num_cached_blocks == 0
