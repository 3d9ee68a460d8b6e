"""Streaming-input sessions: one request, several pieces of input."""

from __future__ import annotations

import pytest
from tests.support.yard import Watcher

from tokenyard.config import CacheConfig, SchedulerConfig
from tokenyard.errors import RequestError
from tokenyard.request import Request, RequestStatus, SamplingParams
from tokenyard.sched.output import ModelOutput, SchedulerOutput
from tokenyard.sched.reasons import Reason
from tokenyard.sched.scheduler import Scheduler


def make() -> Scheduler:
    return Scheduler(
        SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=64, max_model_len=128),
        CacheConfig(num_gpu_blocks=40, block_size=4),
    )


def piece(tokens: list[int], *, resumable: bool = True, max_tokens: int = 3) -> Request:
    return Request("s", tokens, SamplingParams(max_tokens=max_tokens, ignore_eos=True), resumable=resumable)


def step(scheduler: Scheduler, token: int = 9) -> SchedulerOutput:
    output = scheduler.schedule()
    chunks = output.is_prefill_chunk
    lists = [[] if chunks is not None and chunks[i] else [token] for i in range(len(output.requests))]
    scheduler.update_from_output(output, ModelOutput.from_lists(lists))
    scheduler.check_invariants()
    return output


def status_of(request: Request) -> RequestStatus:
    """It changes behind the type checker's back."""
    return request.status


def answer(scheduler: Scheduler, steps: int = 3) -> None:
    for _ in range(steps):
        step(scheduler)


def test_a_session_keeps_its_blocks_and_computes_only_what_is_new() -> None:
    scheduler, session = make(), piece(list(range(10)))
    scheduler.add_request(session)
    answer(scheduler)
    assert status_of(session) is RequestStatus.WAITING_FOR_STREAMING_REQ
    assert not scheduler.has_requests(), "nobody else is there and the session waits for its user"
    computed, held = session.num_computed_tokens, scheduler.kv.get_block_ids(session)
    assert computed == 12, "ten of the prompt and two outputs: the last one was never computed"

    scheduler.add_request(piece([50, 51, 52]))
    assert session.all_token_ids == [*range(10), 9, 9, 50, 51, 52]
    output = step(scheduler)
    assert output.num_scheduled_tokens == {"s": 3}
    assert output.scheduled_new_reqs[0].num_computed_tokens == computed
    assert output.scheduled_new_reqs[0].block_ids[0][: len(held[0])] == held[0]


def test_input_that_comes_early_waits_for_the_answer() -> None:
    scheduler, session = make(), piece(list(range(5)))
    scheduler.add_request(session)
    step(scheduler)
    scheduler.add_request(piece([70, 71]))
    scheduler.add_request(piece([80], resumable=False))
    answer(scheduler, 2)
    assert status_of(session) is RequestStatus.WAITING
    assert session.num_prompt_tokens == 5 + 2 + 2
    answer(scheduler, 3)
    assert status_of(session) is RequestStatus.FINISHED_LENGTH_CAPPED, "the end of the session had been announced"
    assert scheduler.num_free_blocks == 39


def test_a_session_waiting_for_input_is_skipped_and_does_not_hold_others_back() -> None:
    scheduler, session = make(), piece(list(range(5)))
    scheduler.add_request(session)
    answer(scheduler)
    scheduler.add_request(Request("other", [1, 2, 3], SamplingParams(max_tokens=2, ignore_eos=True)))
    assert step(scheduler).num_scheduled_tokens == {"other": 3}
    assert [request.request_id for request in scheduler.skipped_waiting] == ["s"]


def test_a_piece_that_is_not_resumable_ends_a_waiting_session() -> None:
    scheduler, session = make(), piece(list(range(5)))
    scheduler.add_request(session)
    answer(scheduler)
    scheduler.add_request(piece([1], resumable=False))
    assert status_of(session) is RequestStatus.FINISHED_ABORTED
    assert scheduler.num_free_blocks == 39
    scheduler.check_invariants()


@pytest.mark.parametrize("steps", [1, 3])
def test_a_session_can_be_aborted_in_any_state(steps: int) -> None:
    scheduler, session = make(), piece(list(range(5)))
    scheduler.add_request(session)
    answer(scheduler, steps)
    scheduler.finish_requests("s")
    scheduler.check_invariants()
    assert scheduler.num_free_blocks == 39
    assert scheduler.get_num_unfinished_requests() == 0


def test_the_dropped_token_leaves_no_hash_behind() -> None:
    scheduler, session = make(), piece(list(range(6)), max_tokens=2)
    scheduler.add_request(session)
    answer(scheduler, 2)
    assert len(session.block_hashes) == 2, "the last sampled token completed the second block"
    scheduler.add_request(piece([60, 61], max_tokens=2))
    assert len(session.block_hashes) == 1
    step(scheduler)
    fresh = Request("fresh", [*range(6), 9, 9, 1], SamplingParams(max_tokens=1))
    assert scheduler.kv.get_computed_blocks(fresh).num_tokens == 4, "only what was really computed is found"


def test_too_much_input_is_refused_and_changes_nothing() -> None:
    scheduler, session = make(), piece(list(range(5)))
    scheduler.add_request(session)
    answer(scheduler)
    before = session.all_token_ids
    with pytest.raises(RequestError, match="max_model_len"):
        scheduler.add_request(piece(list(range(120))))
    assert session.all_token_ids == before
    assert status_of(session) is RequestStatus.WAITING_FOR_STREAMING_REQ
    scheduler.check_invariants()


def test_the_reason_of_a_waiting_session_is_recorded() -> None:
    scheduler, watcher = make(), Watcher()
    scheduler.observer = watcher
    scheduler.add_request(piece(list(range(5))))
    answer(scheduler)
    step(scheduler)
    assert [outcome.reason for outcome in watcher.outcomes.skipped] == [Reason.WAITING_STREAM_INPUT]
