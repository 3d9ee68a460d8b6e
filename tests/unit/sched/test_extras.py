"""What passes through a step beside tokens: pooling, routed experts, NaNs, events, finish reasons."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.toy_engine import ToyEngine

from tokenyard.core.config import GroupKind, KVCacheGroup, SpeculativeConfig
from tokenyard.core.params import PoolingParams, RepetitionDetectionParams, SamplingParams
from tokenyard.core.profiles import decision_profile
from tokenyard.core.request import FinishReason, Request, RequestStatus
from tokenyard.core.sched.outputs import (
    DraftTokens,
    EngineOutputs,
    EventType,
    ModelAuxOutput,
    ModelOutput,
    TokenLogprobs,
)
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import ConfigError, RequestError

EMBED = PoolingParams(task="embed")


def answer(toy: ToyEngine, output: SchedulerOutput, tokens: list[list[int]], **extras: Any) -> EngineOutputs:
    result = toy.scheduler.update_from_output(output, ModelOutput.from_lists(tokens, extras=ModelAuxOutput(**extras)))
    toy.scheduler.check_invariants()
    return result


def add_pooling(toy: ToyEngine, name: str, length: int, params: PoolingParams = EMBED) -> Request:
    request = Request(name, list(range(length)), pooling_params=params)
    toy.scheduler.add_request(request)
    return request


# ---- log-probabilities


def _logprobs(positions: int) -> TokenLogprobs:
    column = np.arange(positions)
    return TokenLogprobs(np.stack([column, column + 1], 1), -np.ones((positions, 2)), column + 1)


def test_logprobs_come_with_their_tokens_and_the_prompts_once() -> None:
    toy = ToyEngine()
    toy.add("a", 4)
    toy.add("b", 4)
    step = toy.schedule()
    a, b = answer(toy, step, [[5], [6]], logprobs={1: _logprobs(1)}, prompt_logprobs={0: _logprobs(3)})
    assert (a.extras.logprobs, b.extras.prompt_logprobs) == (None, None)
    assert b.extras.logprobs is not None
    assert b.extras.logprobs.token_ids.tolist() == [[0, 1]]
    assert a.extras.prompt_logprobs is not None
    assert a.extras.prompt_logprobs.ranks.tolist() == [1, 2, 3]


def test_a_stop_among_several_tokens_cuts_their_logprobs() -> None:
    toy = ToyEngine(speculative=SpeculativeConfig(num_speculative_tokens=3))
    toy.add("a", 4, max_tokens=9, stop_token_ids=(8,))
    first = toy.schedule()
    answer(toy, first, [[5]])
    toy.scheduler.update_draft_token_ids(first, DraftTokens.from_lists([[7, 8, 9]]))
    (news,) = answer(toy, toy.schedule(), [[7, 8, 9, 10]], logprobs={0: _logprobs(4)})
    assert news.new_token_ids == [7, 8]
    assert news.extras.logprobs is not None
    assert [len(column) for column in news.extras.logprobs] == [2, 2, 2]


def test_logprobs_belong_to_a_row_of_the_step() -> None:
    toy = ToyEngine()
    toy.add("a", 4)
    step = toy.schedule()
    with pytest.raises(ValueError, match="logprobs names row 1: step 0 has 1 requests"):
        answer(toy, step, [[5]], logprobs={1: _logprobs(1)})


# ---- pooling


def test_a_pooling_request_ends_with_its_result() -> None:
    toy = ToyEngine(max_num_batched_tokens=8)
    request = add_pooling(toy, "a", 12)
    first = toy.schedule()
    assert list(answer(toy, first, [[]], pooler_output=[None])) == []
    second = toy.schedule()
    (news,) = answer(toy, second, [[]], pooler_output=["vector"])
    assert (news.new_token_ids, news.finish_reason, news.extras.pooling_output) == ([], FinishReason.STOP, "vector")
    assert request.status is RequestStatus.FINISHED_STOPPED
    assert toy.free == 100


def test_pooling_and_generating_requests_may_share_a_step() -> None:
    toy = ToyEngine()
    toy.add("text", 4)
    add_pooling(toy, "vector", 4)
    toy.add("more", 4)
    output = toy.schedule()
    news = list(answer(toy, output, [[5], [], [6]], pooler_output=[None, "v", None]))
    assert [each.request_id for each in news] == ["text", "vector", "more"]
    assert [each.new_token_ids for each in news] == [[5], [], [6]]
    assert [each.extras.pooling_output for each in news] == [None, "v", None]
    assert toy.running == ["text", "more"]


@pytest.mark.parametrize("is_async", [False, True])
def test_tokens_are_counted_where_some_requests_bring_none(is_async: bool) -> None:
    """A pooling request has news without a token, and so has one that the workers have lost."""
    toy = ToyEngine(async_scheduling=is_async)
    add_pooling(toy, "vector", 4)
    for name in "abc":
        toy.add(name, 4, max_tokens=1 if name == "a" else 5)
    news = answer(toy, toy.schedule(), [[], [7], [8], []], pooler_output=["v", *[None] * 3], failed=frozenset("c"))
    assert (len(news), news.num_sampled) == (4, 2)
    assert answer(toy, toy.schedule(), [[9]]).num_sampled == 1


def test_a_pooling_request_needs_room_for_its_prompt_alone() -> None:
    toy = ToyEngine(num_gpu_blocks=4, max_model_len=64)
    add_pooling(toy, "fits", 12)
    with pytest.raises(RequestError):
        add_pooling(toy, "too long", 13)


@pytest.mark.parametrize(("version", "ends"), [("0.26", True), ("0.27", False)])
def test_what_a_pooler_made_before_a_reset_counts_until_vllm_0_27(version: str, *, ends: bool) -> None:
    toy = ToyEngine(async_scheduling=True, profile=decision_profile(version))
    request = add_pooling(toy, "a", 4)
    step = toy.schedule()
    assert toy.scheduler.reset_prefix_cache(reset_running_requests=True)
    told = list(answer(toy, step, [[]], pooler_output=["old"]))
    assert [each.extras.pooling_output for each in told] == (["old"] if ends else [])
    assert request.status.is_finished is ends


def test_a_pooler_may_need_every_position() -> None:
    toy = ToyEngine()
    toy.add("a", 8)
    toy.step()
    whole = PoolingParams(task="token_embed", skip_reading_prefix_cache=True)
    prompt = toy.requests["a"].prompt_token_ids
    toy.scheduler.add_request(Request("hits", prompt, pooling_params=EMBED))
    toy.scheduler.add_request(Request("computes", prompt, pooling_params=whole))
    output = toy.schedule()
    assert output.num_scheduled_tokens == {"a": 1, "hits": 4, "computes": 8}


def test_a_pooling_request_samples_nothing() -> None:
    with pytest.raises(RequestError, match="samples nothing"):
        Request("a", [1], SamplingParams(), pooling_params=EMBED)
    with pytest.raises(RequestError, match="task"):
        Request("a", [1], pooling_params=PoolingParams(task=""))


def test_a_result_that_a_reset_made_stale_is_not_told() -> None:
    toy = ToyEngine(async_scheduling=True, profile=decision_profile("0.33"))
    add_pooling(toy, "a", 4)
    stale = toy.schedule()
    assert toy.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert list(answer(toy, stale, [[]], pooler_output=["old"])) == []
    (news,) = answer(toy, toy.schedule(), [[]], pooler_output=["new"])
    assert news.extras.pooling_output == "new"


@pytest.mark.parametrize("resumes", [False, True])
def test_vllm_0_22_tells_the_result_of_a_request_that_a_reset_preempted(*, resumes: bool) -> None:
    """Its count of stale outputs is asked only where tokens come."""
    toy = ToyEngine(async_scheduling=True, profile=decision_profile("0.22"))
    request = add_pooling(toy, "a", 4)
    stale = toy.schedule()
    assert toy.scheduler.reset_prefix_cache(reset_running_requests=True)
    again = toy.schedule() if resumes else None
    (news,) = answer(toy, stale, [[]], pooler_output=["old"])
    assert (news.extras.pooling_output, request.status) == ("old", RequestStatus.FINISHED_STOPPED)
    if again is not None:
        assert again.num_scheduled_tokens == {"a": 4}
        assert list(answer(toy, again, [[]], pooler_output=["new"])) == []
    assert not toy.scheduler.has_unfinished_requests()


def test_a_pooling_request_in_flight_gets_no_second_step() -> None:
    toy = ToyEngine(async_scheduling=True)
    add_pooling(toy, "a", 4)
    first, second = toy.schedule(), toy.schedule()
    assert (first.total_num_scheduled_tokens, second.total_num_scheduled_tokens) == (4, 0)
    assert len(answer(toy, first, [[]], pooler_output=["v"])) == 1
    assert not toy.scheduler.requests


def test_an_aborted_pooling_request_tells_nothing() -> None:
    toy = ToyEngine()
    add_pooling(toy, "a", 4)
    output = toy.schedule()
    toy.abort("a")
    assert list(answer(toy, output, [[]], pooler_output=["v"])) == []


# ---- repetition

CIRCLES = RepetitionDetectionParams(max_pattern_size=2, min_count=3)


def ends(tokens: list[int], params: RepetitionDetectionParams, **options: Any) -> tuple[int, FinishReason | None]:
    """After how many of ``tokens`` a request ended, and why."""
    toy = ToyEngine()
    toy.add("a", [7, 7, 7, 7], max_tokens=30, repetition_detection=params, **options)
    for number, token in enumerate(tokens, 1):
        output = toy.schedule()
        (news,) = toy.update(output, {"a": [token]})
        if news.finish_reason is not None:
            assert news.stop_reason == ("repetition_detected" if news.finish_reason == "repetition" else None)
            return number, news.finish_reason
    return len(tokens), None


@pytest.mark.parametrize(
    ("tokens", "end"),
    [
        ([7, 7, 7, 7], 3),  # the prompt does not count
        ([1, 2, 1, 2, 1, 2], 6),
        ([9, 1, 2, 1, 2, 1, 2], 7),
        ([1, 2, 3, 1, 2, 3, 1, 2, 3], None),  # longer than the longest pattern
        ([1, 2, 1, 2, 1, 3], None),
    ],
)
def test_output_that_goes_round_in_circles_ends(tokens: list[int], end: int | None) -> None:
    expected = (end, FinishReason.REPETITION) if end else (len(tokens), None)
    assert ends(tokens, CIRCLES) == expected


def test_short_patterns_may_be_allowed() -> None:
    params = RepetitionDetectionParams(max_pattern_size=3, min_pattern_size=2, min_count=2)
    assert ends([5, 5, 5], params) == (3, None)
    assert ends([5, 5, 5, 5], params) == (4, FinishReason.REPETITION)


def test_no_pattern_is_looked_for_where_none_may_be_of_any_length() -> None:
    assert ends([5] * 6, RepetitionDetectionParams()) == (6, None)


def test_no_pattern_is_looked_for_before_min_tokens_and_length_is_asked_first() -> None:
    assert ends([1] * 6, CIRCLES, min_tokens=5) == (5, FinishReason.REPETITION)
    toy = ToyEngine()
    toy.add("a", max_tokens=3, repetition_detection=CIRCLES)
    output = toy.schedule()
    (news,) = toy.update(output, {"a": [1]})
    for _ in range(2):
        (news,) = toy.update(toy.schedule(), {"a": [1]})
    assert news.finish_reason is FinishReason.LENGTH


def test_a_pattern_may_reach_over_blocks_and_a_preemption() -> None:
    toy = ToyEngine(block_size=2)
    toy.add("a", 2, max_tokens=30, repetition_detection=RepetitionDetectionParams(max_pattern_size=3, min_count=2))
    for token in (1, 2, 3, 1):
        toy.update(toy.schedule(), {"a": [token]})
    toy.scheduler.reset_prefix_cache(reset_running_requests=True)
    toy.update(toy.schedule(), {"a": [2]})
    (news,) = toy.update(toy.schedule(), {"a": [3]})
    assert news.finish_reason is FinishReason.REPETITION


@pytest.mark.parametrize(
    "params",
    [
        RepetitionDetectionParams(max_pattern_size=-1),
        RepetitionDetectionParams(max_pattern_size=1, min_pattern_size=2, min_count=2),
        RepetitionDetectionParams(max_pattern_size=2, min_count=1),
    ],
)
def test_limits_of_repetition_that_cannot_work_are_refused(params: RepetitionDetectionParams) -> None:
    with pytest.raises(RequestError, match="repetition_detection"):
        Request("a", [1], SamplingParams(repetition_detection=params))


# ---- other ends


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (RequestStatus.FINISHED_ABORTED, FinishReason.ABORT),
        (RequestStatus.FINISHED_IGNORED, FinishReason.LENGTH),
        (RequestStatus.FINISHED_ERROR, FinishReason.ERROR),
        (RequestStatus.FINISHED_REPETITION, FinishReason.REPETITION),
    ],
)
def test_a_host_may_end_a_request_for_any_reason(status: RequestStatus, reason: FinishReason) -> None:
    toy = ToyEngine()
    request = toy.add("a")
    toy.step()
    assert toy.scheduler.finish_requests("a", status) == [request]
    assert FinishReason.of(request.status) is reason
    assert toy.free == 100
    assert toy.schedule().finished_req_ids == {"a"}


def test_outputs_can_be_told_apart_by_client() -> None:
    toy = ToyEngine()
    toy.add("a", client_index=1)
    toy.add("b")
    toy.add("c", client_index=1)
    result = toy.update(toy.schedule())
    assert {client: [news.request_id for news in each] for client, each in result.by_client().items()} == {
        0: ["b"],
        1: ["a", "c"],
    }


def test_not_a_number_is_told() -> None:
    toy = ToyEngine()
    toy.add("a")
    toy.add("b")
    news = list(answer(toy, toy.schedule(), [[5], [6]], num_nans_in_logits={"b": 3}))
    assert [each.extras.num_nans_in_logits for each in news] == [0, 3]
    more = {"num_nans_in_logits": {"b": 1}, "logprobs": {0: _logprobs(1)}}
    news = list(answer(toy, toy.schedule(), [[7], [8]], **more))
    assert [each.extras.num_nans_in_logits for each in news] == [0, 1], "none, beside something else that is told"


def test_outputs_are_columns_that_nobody_changes_afterwards() -> None:
    toy = ToyEngine()
    toy.add("a")
    sampled = ModelOutput.from_lists([[5]])
    result = toy.scheduler.update_from_output(toy.schedule(), sampled)
    assert not result.tokens.flags.writeable
    assert not result.num_tokens.flags.writeable
    assert not np.shares_memory(result.tokens, sampled.sampled), "an executor may use its buffer again"


# ---- events


def events(result: EngineOutputs) -> dict[str, list[tuple[EventType, float]]]:
    return {news.request_id: [(event.type, event.timestamp) for event in news.extras.events] for news in result}


def test_events_come_with_the_next_output() -> None:
    toy = ToyEngine(log_stats=True, max_num_batched_tokens=4)
    toy.add("a", 6)
    toy.now = 1.0
    toy.step()  # a chunk: no output yet
    toy.now = 2.0
    assert events(toy.update(toy.schedule())) == {"a": [(EventType.QUEUED, 0.0), (EventType.SCHEDULED, 1.0)]}
    assert events(toy.update(toy.schedule())) == {"a": []}


def test_a_preemption_and_the_way_back_are_events() -> None:
    toy = ToyEngine(log_stats=True, num_gpu_blocks=4, scheduler_reserve_full_isl=False)
    toy.add("a", 4, max_tokens=8)
    toy.add("b", 4, max_tokens=8)
    toy.update(toy.schedule())
    toy.now = 3.0
    toy.until(lambda: bool(toy.outcomes.preemptions))
    toy.now = 4.0
    told: list[tuple[EventType, float]] = []
    while toy.scheduler.has_requests():
        told += events(toy.update(toy.schedule())).get("b", [])
    assert told == [(EventType.PREEMPTED, 3.0), (EventType.SCHEDULED, 4.0)]


def test_events_are_off_by_default_and_leave_nothing_behind() -> None:
    toy = ToyEngine()
    toy.add("a")
    assert events(toy.update(toy.schedule())) == {"a": []}
    log = ToyEngine(log_stats=True)
    log.add("a", max_tokens=1)
    log.add("b")
    log.step()
    log.abort("b")
    for name in "ab":
        log.add(name)
    for told in events(log.update(log.schedule())).values():
        assert [kind for kind, _ in told] == [EventType.QUEUED, EventType.SCHEDULED], "and nothing of those before"


# ---- routed experts


def experts_of(tokens: list[int]) -> Any:
    """One layer, one expert per token: a number that tells the token."""
    return np.array(tokens, np.uint16).reshape(-1, 1, 1)


def flat(experts: Any) -> list[int]:
    return [] if experts is None else experts.ravel().tolist()


def test_the_first_output_brings_the_experts_of_the_whole_prompt() -> None:
    toy = ToyEngine(max_num_batched_tokens=4, enable_return_routed_experts=True)
    toy.add("a", 6)
    assert list(answer(toy, toy.schedule(), [[]], routed_experts=experts_of([1, 2, 3, 4]))) == []
    (news,) = answer(toy, toy.schedule(), [[9]], routed_experts=experts_of([5, 6]))
    assert flat(news.extras.routed_experts) == [1, 2, 3, 4, 5, 6]
    (news,) = answer(toy, toy.schedule(), [[9]], routed_experts=experts_of([7]))
    assert flat(news.extras.routed_experts) == [7]


def test_experts_of_a_shared_prefix_are_those_of_whoever_computed_it() -> None:
    toy = ToyEngine(enable_return_routed_experts=True)
    toy.add("a", list(range(8)))
    answer(toy, toy.schedule(), [[9]], routed_experts=experts_of(list(range(10, 18))))
    toy.add("b", [*range(8), 50], routed_experts_prompt_start=3)
    output = toy.schedule()
    assert output.num_scheduled_tokens == {"a": 1, "b": 1}
    _, news = answer(toy, output, [[9], [9]], routed_experts=experts_of([40, 41]))
    assert flat(news.extras.routed_experts) == [13, 14, 15, 16, 17, 41]


def test_experts_of_a_preempted_request_are_kept_until_its_output_arrives() -> None:
    toy = ToyEngine(async_scheduling=True, enable_return_routed_experts=True)
    toy.add("a", 4, max_tokens=4)
    first, second = toy.schedule(), toy.schedule()
    (news,) = answer(toy, first, [[8]], routed_experts=experts_of([1, 2, 3, 4]))
    assert flat(news.extras.routed_experts) == [1, 2, 3, 4]
    (news,) = answer(toy, second, [[9]], routed_experts=experts_of([5]))
    assert flat(news.extras.routed_experts) == [5]


def test_experts_of_rejected_drafts_are_not_told() -> None:
    toy = ToyEngine(speculative=SpeculativeConfig(num_speculative_tokens=2), enable_return_routed_experts=True)
    toy.add("a", 4, max_tokens=20)
    output = toy.schedule()
    answer(toy, output, [[8]], routed_experts=experts_of([1, 2, 3, 4]))
    toy.scheduler.update_draft_token_ids(output, DraftTokens.from_lists([[6, 7]]))
    (news,) = answer(toy, toy.schedule(), [[6, 5]], routed_experts=experts_of([10, 11, 12]))
    assert flat(news.extras.routed_experts) == [10, 11]


def test_experts_need_a_group_that_keeps_its_blocks() -> None:
    window = KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=8)
    toy = ToyEngine(groups=(window, KVCacheGroup()), enable_return_routed_experts=True)
    toy.add("a", 4)
    (news,) = answer(toy, toy.schedule(), [[8]], routed_experts=experts_of([1, 2, 3, 4]))
    assert flat(news.extras.routed_experts) == [1, 2, 3, 4]
    with pytest.raises(ConfigError, match="full attention"):
        ToyEngine(groups=(window,), enable_return_routed_experts=True)
