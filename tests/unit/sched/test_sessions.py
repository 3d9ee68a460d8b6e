"""Streaming-input sessions: one request, several pieces of input."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.support.profiles import VLLM_0_22, VLLM_0_33
from tests.support.toy_engine import ToyEngine, Watcher, snapshot

from tokenyard.core.config import (
    CacheConfig,
    GroupKind,
    KVCacheGroup,
    MambaCacheMode,
    SchedulerConfig,
    SpeculativeConfig,
    SpeculativeMethod,
)
from tokenyard.core.params import PoolingParams
from tokenyard.core.profiles import DecisionProfile
from tokenyard.core.request import FinishReason, Request, RequestStatus, SamplingParams
from tokenyard.core.sched.outcomes import Reason
from tokenyard.core.sched.outputs import DraftTokens, ModelOutput
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import RequestError


def make() -> Scheduler:
    return Scheduler(
        SchedulerConfig(profile=VLLM_0_22, max_num_seqs=4, max_num_batched_tokens=64, max_model_len=128),
        CacheConfig(num_gpu_blocks=40, block_size=4),
    )


def piece(tokens: list[int], *, resumable: bool = True, max_tokens: int = 3) -> Request:
    return Request("s", tokens, SamplingParams(max_tokens=max_tokens, ignore_eos=True), resumable=resumable)


def step(scheduler: Scheduler, token: int = 9) -> SchedulerOutput:
    output = scheduler.schedule()
    chunks = output.is_prefill_chunk
    lists = [[] if chunks is not None and chunks[i] else [token] for i in range(len(output.req_ids))]
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
    assert not scheduler.has_requests(), "no other request is there and the session waits for its user"
    computed, held = session.num_computed_tokens, scheduler.kv.get_block_ids(session)
    assert computed == 12, "ten of the prompt and two outputs: the last one was never computed"

    scheduler.add_request(piece([50, 51, 52]))
    assert session.all_token_ids == [*range(10), 9, 9, 50, 51, 52]
    output = step(scheduler)
    assert output.num_scheduled_tokens == {"s": 3}
    assert output.scheduled_new_reqs[0].num_computed_tokens == computed
    assert output.scheduled_new_reqs[0].block_ids[0][: len(held[0])] == held[0]


@pytest.mark.parametrize(("ends_after", "length"), [(2, 2), (None, 5)])
def test_every_answer_of_a_session_ends_where_its_own_piece_says(ends_after: int | None, length: int) -> None:
    params, scheduler = SamplingParams(max_tokens=5, ignore_eos=True), make()
    session = Request("s", [1, 2, 3, 4], params, resumable=True, ends_after=3)
    scheduler.add_request(session)
    for expected, more in ((3, [5, 6]), (length, [7, 8])):
        steps = 0
        while status_of(session) is not RequestStatus.WAITING_FOR_STREAMING_REQ:
            step(scheduler)
            steps += 1
        assert steps == expected
        scheduler.add_request(Request("s", more, params, resumable=True, ends_after=ends_after))


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


@pytest.mark.parametrize("profile", [VLLM_0_22, VLLM_0_33], ids=["0.22", "0.33"])
@pytest.mark.parametrize("late", ["a", "b"])
def test_a_session_is_as_late_as_its_last_piece(late: str, profile: DecisionProfile) -> None:
    """PRIORITY: of two that wait for input behind another, the one whose piece came first goes on first."""

    def of(name: str, arrival: float, priority: int = 0) -> Request:
        sampling = SamplingParams(max_tokens=1, ignore_eos=True)
        return Request(name, [1, 2, 3], sampling, resumable=True, arrival_time=arrival, priority=priority)

    config = SchedulerConfig(
        profile=profile, policy="priority", max_num_seqs=4, max_num_batched_tokens=64, max_model_len=128
    )
    scheduler = Scheduler(config, CacheConfig(num_gpu_blocks=40, block_size=4))
    for arrival, name in enumerate(("head", "a", "b")):
        scheduler.add_request(of(name, arrival, -(name == "head")))
    step(scheduler)
    assert not scheduler.running
    times = {late: 9.0, "a" if late == "b" else "b": 8.0}
    for name, moment in times.items():
        scheduler.add_request(of(name, moment))
    assert list(step(scheduler).req_ids) == sorted(times, key=times.__getitem__)


def test_a_piece_that_is_not_resumable_ends_a_waiting_session() -> None:
    scheduler, session = make(), piece(list(range(5)))
    scheduler.add_request(session)
    answer(scheduler)
    scheduler.add_request(piece([1], resumable=False))
    assert status_of(session) is RequestStatus.FINISHED_ABORTED
    assert scheduler.num_free_blocks == 39
    scheduler.check_invariants()


def test_input_behind_the_end_of_a_session_is_refused_and_changes_nothing() -> None:
    """It would never be computed: what was asked for before it ends the session first."""
    scheduler = make()
    scheduler.add_request(piece([1] * 20))
    step(scheduler)
    scheduler.add_request(piece([2] * 4))
    scheduler.add_request(piece([3], resumable=False))
    before = snapshot(scheduler)
    with pytest.raises(RequestError, match="has ended this session") as refused:
        scheduler.add_request(piece([4] * 4))
    assert (refused.value.field, refused.value.value) == ("request_id", "s")
    assert snapshot(scheduler) == before
    scheduler.add_request(piece([5], resumable=False))
    answer(scheduler, 6)
    assert not scheduler.requests


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


def test_input_for_which_drafts_leave_no_room_is_refused() -> None:
    """Its tokens would fit the pool, but not the slots that the drafts need beyond the last of them."""
    eagle = SpeculativeConfig(num_speculative_tokens=3, method=SpeculativeMethod.EAGLE)
    toy = ToyEngine(num_gpu_blocks=5, max_num_batched_tokens=64, max_model_len=60, speculative=eagle)
    session = toy.add("s", 4, max_tokens=2, resumable=True, ignore_eos=True)
    toy.until(lambda: toy.skipped == ["s"])
    with pytest.raises(RequestError, match="can reach 16 tokens and need 5 blocks, and the pool has 4"):
        toy.scheduler.add_request(more("s", *range(6), max_tokens=4))
    assert session.num_tokens == 6, "nothing has changed"
    toy.scheduler.add_request(more("s", *range(6), max_tokens=2))
    toy.until(lambda: toy.skipped == ["s"], limit=5)
    assert session.num_tokens == 13


def test_the_reason_of_a_waiting_session_is_recorded() -> None:
    scheduler, watcher = make(), Watcher()
    scheduler.attach_observer(watcher)
    scheduler.add_request(piece(list(range(5))))
    answer(scheduler)
    step(scheduler)
    assert [outcome.reason for outcome in watcher.outcomes.skipped] == [Reason.WAITING_STREAM_INPUT]


# ---- with drafts and with steps in flight


def more(name: str, *tokens: int, max_tokens: int = 8) -> Request:
    return Request(name, list(tokens), SamplingParams(max_tokens=max_tokens), resumable=True)


def test_a_stop_among_accepted_drafts_leaves_nothing_of_those_behind_it() -> None:
    toy = ToyEngine(speculative=SpeculativeConfig(num_speculative_tokens=3))
    session = toy.add("s", [1, 2, 3], stop_token_ids=(0,), resumable=True)
    output = toy.schedule()
    toy.update(output, {"s": [7]})
    toy.scheduler.update_draft_token_ids(output, DraftTokens.from_lists([[8, 0, 9]]))
    toy.update(toy.schedule(), {"s": [8, 0, 9, 5]})
    assert session.all_token_ids == [1, 2, 3, 7, 8, 0]
    toy.scheduler.add_request(more("s", 40, 41))
    assert session.all_token_ids == [1, 2, 3, 7, 8, 40, 41]
    output = toy.schedule()
    assert (output.num_computed.tolist(), output.num_new_tokens.tolist()) == ([5], [2])


def test_output_in_flight_when_an_answer_ends_does_not_reach_the_next_one() -> None:
    toy = ToyEngine(async_scheduling=True)
    session = toy.add("s", [1, 2, 3], stop_token_ids=(0,), resumable=True)
    toy.scheduler.add_request(more("s", 40, 41))
    first, second = toy.schedule(), toy.schedule()
    toy.update(first, {"s": [0]})
    assert session.all_token_ids == [1, 2, 3, 40, 41], "the last token is dropped, whether it is computed or not"
    third = toy.schedule()
    assert list(toy.update(second, {"s": [66]})) == []
    assert third.num_scheduled_tokens == {"s": 2}
    (news,) = toy.update(third, {"s": [5]})
    assert news.new_token_ids == [5]
    assert session.output_token_ids == [5]


def test_a_session_that_goes_on_discards_only_the_steps_after_the_one_taken_in() -> None:
    """The step whose output ends an answer is over: counted among those in flight, it cost the next answer a token.

    That came to light once a request left, which makes the next output look for tokens to discard.
    """
    toy = ToyEngine(async_scheduling=True)
    session = toy.add("s", [1, 2, 3], stop_token_ids=(0,), resumable=True)
    toy.add("other", 4)
    toy.scheduler.add_request(more("s", 40, 41))
    first, second = toy.schedule(), toy.schedule()
    toy.update(first, {"s": [0]})
    assert session.async_steps_to_discard == 1, "the second step is in flight, the first is not"
    third = toy.schedule()
    assert [news.request_id for news in toy.update(second, {"s": [66]})] == ["other"]
    assert session.async_steps_to_discard == 0
    toy.abort("other")
    (news,) = toy.update(third, {"s": [5]})
    assert (news.request_id, news.new_token_ids) == ("s", [5])
    assert session.all_token_ids == [1, 2, 3, 40, 41, 5]


def test_a_session_reset_before_its_answer_ends_keeps_what_was_said() -> None:
    toy = ToyEngine()
    session = toy.add("s", [1, 2, 3], stop_token_ids=(0,), resumable=True)
    toy.update(toy.schedule(), {"s": [7]})
    output = toy.schedule()
    toy.scheduler.reset_prefix_cache(reset_running_requests=True)
    toy.update(output, {"s": [0]})
    toy.scheduler.add_request(more("s", 40))
    assert session.all_token_ids == [1, 2, 3, 7, 40]
    assert toy.schedule().num_scheduled_tokens == {"s": 5}


def test_each_piece_counts_with_its_own_limit() -> None:
    toy = ToyEngine(max_model_len=40)
    toy.add("s", 10, max_tokens=2, resumable=True)
    with pytest.raises(RequestError, match="can reach 43 tokens"):
        toy.scheduler.add_request(more("s", 40, max_tokens=30))
    toy.scheduler.add_request(more("s", 40, max_tokens=20))
    with pytest.raises(RequestError):
        toy.scheduler.add_request(more("s", 41, max_tokens=20))


def test_a_forbidden_token_ends_the_session() -> None:
    class Grammar:
        is_ready = True

        def accept_tokens(self, tokens: Sequence[int]) -> bool:
            return 0 not in tokens

        def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
            return list(tokens)

    toy = ToyEngine()
    toy.add("s", structured_output=Grammar(), resumable=True)
    (news,) = toy.update(toy.schedule(), {"s": [0]})
    assert news.finish_reason is FinishReason.ERROR
    assert not toy.scheduler.requests


# ---- what cannot be served


@pytest.mark.parametrize("mode", [MambaCacheMode.ALL, MambaCacheMode.ALIGN])
def test_a_session_with_states_and_steps_ahead_is_refused(mode: MambaCacheMode) -> None:
    """The step in flight when an answer ends has moved the state past the token that the session drops."""
    groups = (KVCacheGroup(), KVCacheGroup(kind=GroupKind.MAMBA))
    toy = ToyEngine(async_scheduling=True, groups=groups, mamba_cache_mode=mode)
    before = snapshot(toy.scheduler)
    with pytest.raises(RequestError, match=r"resumable = True: .* turn async_scheduling off"):
        toy.add("s", [1, 2, 3], resumable=True)
    assert snapshot(toy.scheduler) == before
    toy.add("plain", [1, 2, 3], max_tokens=2)
    toy.drain()
    ToyEngine(groups=groups, mamba_cache_mode=mode).add("s", [1, 2, 3], resumable=True)
    ToyEngine(async_scheduling=True).add("s", [1, 2, 3], resumable=True)


def test_a_pooling_request_is_no_session() -> None:
    """vLLM keeps a prompt of another length than the tokens that it computes."""
    scheduler = make()
    with pytest.raises(RequestError, match=r"resumable.*ends with its prompt"):
        scheduler.add_request(Request("s", [1, 2], pooling_params=PoolingParams(task="embed"), resumable=True))
    assert not scheduler.has_requests()
