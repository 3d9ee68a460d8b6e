"""What a step hands to the workers: new requests in full, continuing ones as deltas, resumed ones whole."""

from __future__ import annotations

import pickle
import tracemalloc
from collections import deque

import numpy as np
import pytest
from tests.support.toy_engine import ToyEngine, make_request, prompt_of

from tokenyard.core.sched.outputs import ModelOutput
from tokenyard.core.sched.scheduler_output import SchedulerOutput


def test_a_new_request_is_sent_in_full() -> None:
    toy = ToyEngine()
    request = toy.add("a", 6, lora_name="adapter")
    output = toy.step()
    (new,) = output.scheduled_new_reqs
    assert new.req_id == "a"
    assert new.prompt_token_ids == prompt_of("a", 6)
    assert new.sampling_params is request.sampling_params
    assert new.block_ids == ([1, 2],)
    assert new.num_computed_tokens == 0
    assert new.lora_name == "adapter"
    assert output.scheduled_cached_reqs.req_ids == []


def test_a_new_request_tells_its_hits() -> None:
    toy = ToyEngine()
    text = prompt_of("text", 12)
    toy.add("a", text)
    toy.step()
    toy.add("b", text[:10])
    output = toy.step()
    (new,) = output.scheduled_new_reqs
    assert (new.num_computed_tokens, new.block_ids[0][:2]) == (8, toy.blocks("a")[:2])
    assert output.num_scheduled_tokens == {"a": 1, "b": 2}
    assert new.prompt_token_ids == text[:10]


def test_a_continuing_request_is_sent_as_a_delta() -> None:
    toy = ToyEngine()
    toy.add("a", 7)
    toy.step()
    first, second = toy.step().scheduled_cached_reqs, toy.step().scheduled_cached_reqs
    assert (first.req_ids, second.req_ids) == (["a"], ["a"])
    assert (first.num_computed_tokens, second.num_computed_tokens) == ([7], [8]), "before the step"
    assert (first.num_output_tokens, second.num_output_tokens) == ([1], [2])
    assert (first.new_block_ids, second.new_block_ids) == ([None], [([3],)]), "only what is new, None if nothing"
    assert (first.resumed_req_ids, first.all_token_ids) == (frozenset(), {})


def test_a_prompt_in_chunks_is_new_once() -> None:
    toy = ToyEngine(max_num_batched_tokens=4)
    toy.add("a", 10)
    outputs = [toy.step() for _ in range(3)]
    assert [len(each.scheduled_new_reqs) for each in outputs] == [1, 0, 0]
    assert [each.scheduled_cached_reqs.num_computed_tokens for each in outputs] == [[], [4], [8]]
    assert [each.scheduled_cached_reqs.num_output_tokens for each in outputs] == [[], [0], [0]]


def test_a_resumed_request_is_sent_whole() -> None:
    toy = ToyEngine(num_gpu_blocks=6, enable_prefix_caching=False)
    for name in "ab":
        toy.add(name, 8)
    toy.steps(2)
    known = toy.requests["b"].all_token_ids
    output = toy.until(lambda: "b" in toy.running)
    cached = output.scheduled_cached_reqs
    assert output.scheduled_new_reqs == []
    assert cached.resumed_req_ids == {"b"}
    assert cached.all_token_ids == {"b": known}
    at = cached.req_ids.index("b")
    assert (cached.num_computed_tokens[at], cached.num_output_tokens[at]) == (0, 1)
    assert cached.new_block_ids[at] == (toy.blocks("b"),)
    assert toy.step().scheduled_cached_reqs.resumed_req_ids == frozenset(), "once"


def test_resumed_and_new_requests_stand_in_admission_order() -> None:
    """Columns are in scheduling order: running first, then admitted ones, new and resumed mixed."""
    toy = ToyEngine(num_gpu_blocks=6, policy="priority")
    toy.add("old", 8, priority=5, max_tokens=3)
    toy.step()
    toy.add("best", 8, priority=0, max_tokens=2)
    toy.steps(2)
    assert toy.waiting == ["old"]
    toy.add("new", 4, priority=9, max_tokens=2)
    output = toy.step()
    assert list(output.req_ids) == ["old", "new"]
    assert (output.admitted, output.admitted_resumed, output.admitted_new) == ([0, 1], (0,), [1])
    assert output.scheduled_cached_reqs.req_ids == ["old"]
    assert [new.req_id for new in output.scheduled_new_reqs] == ["new"]


def test_a_request_the_workers_forgot_is_sent_with_its_tokens() -> None:
    """Two steps in a row without one request: the workers keep only what the previous step scheduled."""
    toy = ToyEngine()
    toy.add("a", 4)
    first = toy.schedule()
    second = toy.schedule()
    toy.update(first)
    toy.update(second)
    output = toy.step()
    assert output.not_scheduled_before == (0,)
    assert output.scheduled_cached_reqs.all_token_ids == {"a": toy.requests["a"].all_token_ids[:5]}
    assert toy.step().scheduled_cached_reqs.all_token_ids == {}


def test_tokens_that_are_sent_whole_stay_what_they_were() -> None:
    """Two steps in flight: each step leaves out whom the one before has. Blocks fill, a session goes on, others start
    over, and nothing is read before the end.
    """
    toy = ToyEngine(num_gpu_blocks=14, enable_prefix_caching=False)
    session = toy.add("session", 7, max_tokens=6, resumable=True)
    flight = deque([toy.schedule()])
    for name, prompt in (("a", 3), ("b", 4)):
        toy.add(name, prompt, max_tokens=18)
    flight.append(toy.schedule())
    sent: list[tuple[SchedulerOutput, dict[str, list[int]]]] = []
    for number in range(80):
        if number in (6, 18):
            toy.scheduler.add_request(make_request("session", prompt_of(f"piece {number}", 5), resumable=number < 9))
        toy.update(flight.popleft())
        flight.append(plan := toy.schedule())
        sent.append(
            (plan, {plan.req_ids[row]: toy.requests[plan.req_ids[row]].all_token_ids for row in plan.known_tokens})
        )
    assert (session.status.is_finished, toy.scheduler.get_request_counts()) == (True, (0, 0))
    assert sum(request.num_preemptions for request in toy.requests.values())
    assert {name for _, known in sent for name in known} == {"session", "a", "b"}
    for plan, known in sent:
        copy = pickle.loads(pickle.dumps(plan))
        assert plan.scheduled_cached_reqs.all_token_ids == copy.scheduled_cached_reqs.all_token_ids == known
        assert plan == copy
        assert all(not tokens.flags.writeable for tokens in plan.known_tokens.values())


def test_whole_token_streams_cost_nothing_where_they_are_not_read() -> None:
    """With two steps in flight every step says the tokens of all its rows."""
    toy = ToyEngine(max_model_len=1 << 16, max_num_batched_tokens=1 << 16, num_gpu_blocks=20_000)
    toy.add("a", 50_001)
    flight = deque([toy.schedule(), toy.schedule()])
    for _ in range(4):
        toy.update(flight.popleft())
        flight.append(toy.schedule())
    toy.update(flight.popleft())
    tracemalloc.start()
    plan = toy.scheduler.schedule()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000, "bytes; the tokens are four times as many"
    assert [len(tokens) for tokens in plan.known_tokens.values()] == [50_004]


def test_finished_and_preempted_ids_are_told_once() -> None:
    toy = ToyEngine(num_gpu_blocks=6)
    for name in "ab":
        toy.add(name, 8, max_tokens=2)
    toy.step()
    output = toy.step()
    assert (output.finished_req_ids, output.preempted_req_ids) == (frozenset(), ("b",))
    output = toy.step()
    assert (set(output.finished_req_ids), output.preempted_req_ids) == ({"a"}, ())
    toy.add("c", 4)
    toy.abort("c")
    assert toy.scheduler.has_finished_requests()
    assert toy.step().finished_req_ids == {"b", "c"}
    assert not toy.scheduler.has_requests()


def test_a_step_that_only_reports_is_still_asked_for() -> None:
    toy = ToyEngine()
    toy.add("a", 4, max_tokens=1)
    toy.step()
    assert (toy.scheduler.get_num_unfinished_requests(), toy.scheduler.has_requests()) == (0, True)
    toy.step()
    assert toy.scheduler.has_requests() is False


def test_columns_tell_the_same_as_records() -> None:
    toy = ToyEngine(max_num_batched_tokens=9)
    toy.add("a", 4)
    toy.step()
    toy.add("b", 20)
    output = toy.step()
    assert output.num_new_tokens.tolist() == list(output.num_scheduled_tokens.values()) == [1, 8]
    assert output.num_computed.tolist() == [4, 0]
    assert output.num_known.tolist() == [5, 20]
    assert output.slots.tolist() == [toy.requests[request_id].slot for request_id in output.req_ids]
    assert (output.num_running, output.admitted, output.total_num_scheduled_tokens) == (1, [1], 9)
    assert output.is_prefill_chunk is not None
    assert output.is_prefill_chunk.tolist() == [False, True]
    assert output.step == 1


def test_common_prefix_blocks_are_counted_over_all_holders() -> None:
    toy = ToyEngine(count_common_prefix_blocks=True)
    text = prompt_of("text", 16)
    toy.add("a", text)
    assert toy.step().num_common_prefix_blocks == (4,)
    toy.add("b", [*text[:8], *prompt_of("b", 4)])
    assert toy.schedule().num_common_prefix_blocks == (2,)
    assert ToyEngine(count_common_prefix_blocks=True).schedule().num_common_prefix_blocks == (0,)
    assert ToyEngine().schedule().num_common_prefix_blocks == (), "it was not asked for"


def test_model_output_pads_ragged_rows() -> None:
    model = ModelOutput.from_lists([[1, 2], [], [3]])
    assert model.num_sampled.tolist() == [2, 0, 1]
    assert model.sampled.tolist() == [[1, 2], [-1, -1], [3, -1]]
    assert ModelOutput.from_lists([]).num_sampled.tolist() == []
    assert ModelOutput.from_lists([[], []]).sampled.shape == (2, 1)


@pytest.mark.parametrize("shape", [(2,), (2, 1, 1), (3, 1)])
def test_model_output_must_be_a_table(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="do not belong together"):
        ModelOutput(np.zeros(shape, np.int64), np.zeros(2, np.int64))


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_a_matrix_is_a_table_as_well() -> None:
    toy = ToyEngine()
    toy.add("a")
    toy.add("b")
    for first in (1, 11):
        output = toy.schedule()
        sampled = np.asmatrix([[first], [first + 1]])
        told = toy.scheduler.update_from_output(output, ModelOutput(sampled, np.ones(2, np.int64)))
        assert [record.new_token_ids for record in told] == [[first], [first + 1]]
