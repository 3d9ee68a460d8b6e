"""After the model: tokens are appended, requests stop, finish and are freed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.toy_engine import ToyEngine, prompt_of, snapshot

from tokenyard.core.request import FinishReason, RequestStatus
from tokenyard.core.sched.outputs import ModelOutput, RequestOutput

EOS, STOP, OTHER = 2, 7, 9


def _row(toy: ToyEngine, *tokens: int) -> RequestOutput:
    """What the one request's next step says when the model samples ``tokens``."""
    output = toy.schedule()
    (row,) = toy.update(output, {"a": tokens})
    return row


# ---- stops


def test_tokens_are_appended_and_told() -> None:
    toy = ToyEngine()
    request = toy.add("a", [1, 2, 3])
    assert _row(toy, 50) == RequestOutput("a", [50], None, None)
    assert _row(toy, 51) == RequestOutput("a", [51], None, None)
    assert (request.all_token_ids, request.output_token_ids) == ([1, 2, 3, 50, 51], [50, 51])
    assert (request.prompt_token_ids, request.num_output_tokens) == ([1, 2, 3], 2)


def test_the_end_of_sequence_token_stops() -> None:
    toy = ToyEngine()
    request = toy.add("a", eos_token_id=EOS)
    assert _row(toy, OTHER).finish_reason is None
    assert _row(toy, EOS) == RequestOutput("a", [EOS], FinishReason.STOP, None)
    assert (request.status, request.stop_reason) == (RequestStatus.FINISHED_STOPPED, None)
    assert (toy.running, toy.free, toy.scheduler.requests) == ([], 100, {})


def test_the_end_of_sequence_token_may_be_ignored() -> None:
    toy = ToyEngine()
    toy.add("a", eos_token_id=EOS, ignore_eos=True)
    assert _row(toy, EOS).finish_reason is None


def test_another_requests_end_of_sequence_token_does_not_stop() -> None:
    toy = ToyEngine()
    toy.add("a")
    toy.add("b", eos_token_id=EOS)
    output = toy.schedule()
    rows = list(toy.update(output, {"a": [EOS], "b": [EOS]}))
    assert [row.finish_reason for row in rows] == [None, FinishReason.STOP]


def test_a_stop_token_stops_and_is_the_reason() -> None:
    toy = ToyEngine()
    request = toy.add("a", stop_token_ids=(STOP, 8))
    assert _row(toy, OTHER).finish_reason is None
    assert _row(toy, 8) == RequestOutput("a", [8], FinishReason.STOP, 8)
    assert request.stop_reason == 8


@pytest.mark.parametrize("count", [1, 9, 40])
def test_each_of_many_stop_tokens_stops(count: int) -> None:
    last = 60 + count - 1
    toy = ToyEngine()
    for name in ("a", "b"):
        toy.add(name, eos_token_id=EOS, stop_token_ids=tuple(range(60, last + 1)), max_tokens=50)
    rows = list(toy.update(toy.schedule(), {"a": [last + 1], "b": [last]}))
    assert [(row.finish_reason, row.stop_reason) for row in rows] == [(None, None), (FinishReason.STOP, last)]


def test_a_slot_forgets_the_stop_tokens_of_the_one_before() -> None:
    toy = ToyEngine()
    toy.add("a", stop_token_ids=(STOP, 8, 9), max_tokens=1)
    toy.step()
    for name, stops in (("b", (STOP,)), ("c", ())):
        toy.add(name, stop_token_ids=stops, max_tokens=9)
        rows = list(toy.update(toy.schedule(), {name: [8]}))
        assert [row.finish_reason for row in rows] == [None]
        toy.abort(name)


def test_ignoring_the_end_of_sequence_leaves_stop_tokens_alone() -> None:
    toy = ToyEngine()
    toy.add("a", eos_token_id=EOS, ignore_eos=True, stop_token_ids=(EOS,))
    assert _row(toy, EOS) == RequestOutput("a", [EOS], FinishReason.STOP, EOS)


def test_the_end_of_sequence_is_asked_about_before_stop_tokens() -> None:
    toy = ToyEngine()
    toy.add("a", eos_token_id=EOS, stop_token_ids=(EOS,))
    assert _row(toy, EOS) == RequestOutput("a", [EOS], FinishReason.STOP, None)


def test_a_stop_counts_before_the_length() -> None:
    toy = ToyEngine()
    toy.add("a", max_tokens=1, stop_token_ids=(STOP,))
    assert _row(toy, STOP).finish_reason is FinishReason.STOP


@pytest.mark.parametrize("params", [{"eos_token_id": EOS}, {"stop_token_ids": (EOS,)}])
def test_nothing_stops_before_min_tokens(params: dict[str, Any]) -> None:
    toy = ToyEngine()
    toy.add("a", min_tokens=3, **params)
    reasons = [_row(toy, EOS).finish_reason for _ in range(3)]
    assert reasons == [None, None, FinishReason.STOP]


@pytest.mark.parametrize("max_tokens", [1, 2, 5])
def test_max_tokens(max_tokens: int) -> None:
    toy = ToyEngine()
    request = toy.add("a", max_tokens=max_tokens)
    reasons = [_row(toy, OTHER).finish_reason for _ in range(max_tokens)]
    assert reasons == [None] * (max_tokens - 1) + [FinishReason.LENGTH]
    assert (request.status, request.num_output_tokens) == (RequestStatus.FINISHED_LENGTH_CAPPED, max_tokens)


def test_a_recorded_answer_ends_by_itself() -> None:
    """A replay knows where: the limit, which is all that a scheduler sees ahead, stays the client's."""
    toy = ToyEngine()
    request = toy.add("a", max_tokens=5, ends_after=2)
    assert [_row(toy, OTHER).finish_reason for _ in range(2)] == [None, FinishReason.STOP]
    assert (request.status, request.num_output_tokens) == (RequestStatus.FINISHED_STOPPED, 2)
    assert request.max_tokens == 5


def test_a_limit_below_a_recorded_end_counts() -> None:
    toy = ToyEngine()
    toy.add("a", max_tokens=2, ends_after=3)
    assert [_row(toy, OTHER).finish_reason for _ in range(2)] == [None, FinishReason.LENGTH]


def test_max_model_len() -> None:
    toy = ToyEngine(max_model_len=7)
    request = toy.add("a", 4, max_tokens=50)
    assert [_row(toy, OTHER).finish_reason for _ in range(3)] == [None, None, FinishReason.LENGTH]
    assert request.num_tokens == 7


@pytest.mark.parametrize(
    ("sampled", "kept", "reason"),
    [
        ([OTHER, OTHER, OTHER], [OTHER, OTHER, OTHER], None),
        ([OTHER, EOS, OTHER], [OTHER, EOS], FinishReason.STOP),
        ([EOS, EOS, EOS], [EOS], FinishReason.STOP),
        ([OTHER, OTHER, OTHER, OTHER, OTHER, OTHER], [OTHER] * 5, FinishReason.LENGTH),
    ],
)
def test_tokens_after_a_stop_are_dropped(sampled: list[int], kept: list[int], reason: FinishReason | None) -> None:
    """Several tokens may arrive at once (accepted drafts)."""
    toy = ToyEngine()
    request = toy.add("a", max_tokens=5, eos_token_id=EOS)
    row = _row(toy, *sampled)
    assert (row.new_token_ids, row.finish_reason) == (kept, reason)
    assert request.output_token_ids == kept


def test_rows_of_different_lengths_keep_to_their_requests() -> None:
    toy = ToyEngine(long_prefill_token_threshold=4)
    for name in "abcd":
        toy.add(name, 6 if name == "b" else 4, eos_token_id=EOS, max_tokens=6)
    output = toy.schedule()
    sampled = {"a": [10, 11, 12], "b": [], "c": [20, EOS, 21], "d": [30]}
    rows = {row.request_id: row for row in toy.update(output, sampled)}
    assert list(rows) == ["a", "c", "d"], "in scheduling order, only those with news"
    assert [rows[name].new_token_ids for name in "acd"] == [[10, 11, 12], [20, EOS], [30]]
    assert rows["c"].finish_reason is FinishReason.STOP
    assert [toy.requests[name].output_token_ids for name in "abcd"] == [[10, 11, 12], [], [20, EOS], [30]]
    assert toy.running == ["a", "b", "d"]


def test_several_tokens_fill_several_blocks() -> None:
    """Blocks of four: ten tokens at once seal two and begin a third; the prefix is found by the next turn."""
    toy = ToyEngine(max_num_seqs=2)
    request = toy.add("a", [1, 2, 3], max_tokens=30)
    _row(toy, *range(100, 110))
    assert request.all_token_ids == [1, 2, 3, *range(100, 110)]
    assert len(request.block_hashes) == 3
    assert toy.step().num_scheduled_tokens == {"a": 10}, "computed catches up with what is known"


def test_several_stops_in_one_step_free_everything() -> None:
    toy = ToyEngine()
    for name in "abcde":
        toy.add(name, max_tokens=1 if name in "bde" else 4)
    result = toy.update(toy.schedule())
    assert {result.requests[row].request_id for row in result.finish_reasons} == set("bde")
    assert toy.running == ["a", "c"]
    assert toy.free == 98


def test_blocks_return_in_the_order_in_which_requests_stop() -> None:
    toy = ToyEngine(enable_prefix_caching=False)
    for name in "abc":
        toy.add(name, 8, max_tokens=1)
    toy.step()
    assert toy.scheduler.kv.pool.free_blocks()[-6:] == [2, 1, 4, 3, 6, 5]


# ---- what is not the model's business


def test_a_model_output_of_another_size_is_refused() -> None:
    toy = ToyEngine()
    for name in "ab":
        toy.add(name)
    output = toy.schedule()
    with pytest.raises(ValueError, match="1 rows for 2 scheduled requests"):
        toy.scheduler.update_from_output(output, ModelOutput.from_lists([[5]]))
    toy.update(output)
    assert [request.num_output_tokens for request in toy.requests.values()] == [1, 1]


def test_an_output_is_taken_in_once_and_in_order() -> None:
    """Two steps in flight: the second time, tokens would be appended to requests that are elsewhere by now."""
    toy = ToyEngine(async_scheduling=True)
    for name in "ab":
        toy.add(name, max_tokens=5)
    first, second = toy.schedule(), toy.schedule()
    toy.update(first)
    third = toy.schedule()
    before = snapshot(toy.scheduler)
    with pytest.raises(ValueError, match="step 2: take in that of step 1 first"):
        toy.update(third)
    with pytest.raises(ValueError, match=r"step 0: it was taken in already.*; the next is step 1"):
        toy.update(first)
    assert snapshot(toy.scheduler) == before
    other = ToyEngine(async_scheduling=True)
    other.add("c", max_tokens=5)
    other.schedule()
    other.schedule()
    with pytest.raises(ValueError, match="step 1: it is another scheduler's, which scheduled other requests"):
        other.update(second)
    toy.update(second)
    toy.update(third)
    with pytest.raises(ValueError, match=r"step 0: it was taken in already.*; no step is in flight"):
        toy.update(first)
    toy.drain()
    assert [request.num_output_tokens for request in toy.requests.values()] == [5, 5]


@pytest.mark.parametrize("token", [-1, -5, 2**31, 2**40])
def test_what_cannot_be_a_token_id_is_refused(token: int) -> None:
    with pytest.raises(ValueError, match=f"row 1 holds token {token}: give ids from 0 to {2**31 - 1}"):
        ModelOutput.from_lists([[5, 6, 7], [5, token]])
    assert ModelOutput.from_lists([[0], [2**31 - 1, 1], []]).num_sampled.tolist() == [1, 2, 0]


def test_an_empty_step_may_be_updated() -> None:
    toy = ToyEngine()
    assert len(toy.update(toy.schedule())) == 0


def test_output_of_a_request_aborted_meanwhile_is_dropped() -> None:
    toy = ToyEngine()
    for name in "abc":
        toy.add(name)
    output = toy.schedule()
    toy.abort("b")
    result = toy.update(output)
    assert [row.request_id for row in result] == ["a", "c"]
    assert toy.requests["b"].num_output_tokens == 0


def test_a_new_tenant_of_the_slot_gets_nothing_of_the_old_one() -> None:
    """b is aborted between schedule and update, and a request of the same id takes its slot before the update."""
    toy = ToyEngine(max_num_seqs=2)
    toy.add("a")
    old = toy.add("b")
    first = toy.schedule()
    toy.abort("b")
    new = toy.add("b", prompt_of("other", 4))
    second = toy.schedule()
    assert new.slot == first.slots[1]
    assert [row.request_id for row in toy.update(first)] == ["a"]
    assert (old.num_output_tokens, new.num_output_tokens) == (0, 0)
    assert [row.request_id for row in toy.update(second)] == ["b"]
    assert new.num_output_tokens == 1


def test_a_request_reset_meanwhile_keeps_its_token() -> None:
    """Preempted by a reset between schedule and update: the token is known, and computed again later."""
    toy = ToyEngine()
    request = toy.add("a", 4, max_tokens=3)
    output = toy.schedule()
    assert toy.scheduler.reset_prefix_cache(reset_running_requests=True) is True
    toy.update(output, {"a": [55]})
    assert (request.status, request.output_token_ids) == (RequestStatus.PREEMPTED, [55])
    assert toy.step().num_scheduled_tokens == {"a": 5}
    toy.drain()
    assert request.num_output_tokens == 3


def test_a_request_reset_meanwhile_may_stop() -> None:
    toy = ToyEngine()
    for name in "ab":
        toy.add(name, 4, eos_token_id=EOS)
    output = toy.schedule()
    toy.scheduler.reset_prefix_cache(reset_running_requests=True)
    rows = list(toy.update(output, {"a": [OTHER, EOS, OTHER], "b": [OTHER, OTHER]}))
    assert rows == [
        RequestOutput("a", [OTHER, EOS], FinishReason.STOP, None),
        RequestOutput("b", [OTHER, OTHER], None, None),
    ]
    assert (toy.running, toy.waiting) == ([], ["b"])
    assert toy.requests["a"].output_token_ids == [OTHER, EOS]
