"""What passes through a step beside tokens: pooling, routed experts, NaNs, events, finish reasons."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.yard import Yard

from tokenyard.config import GroupKind, KVCacheGroup, SpeculativeConfig
from tokenyard.errors import ConfigError, RequestError
from tokenyard.params import PoolingParams, RepetitionDetectionParams, SamplingParams
from tokenyard.request import FinishReason, Request, RequestStatus
from tokenyard.sched.features.request_events import EventType
from tokenyard.sched.steps.aux_output import ModelAuxOutput
from tokenyard.sched.steps.engine_outputs import EngineOutputs
from tokenyard.sched.steps.model_output import DraftTokens, ModelOutput
from tokenyard.sched.steps.scheduler_output import SchedulerOutput

EMBED = PoolingParams(task="embed")


def answer(yard: Yard, output: SchedulerOutput, tokens: list[list[int]], **extras: Any) -> EngineOutputs:
    result = yard.scheduler.update_from_output(output, ModelOutput.from_lists(tokens, extras=ModelAuxOutput(**extras)))
    yard.scheduler.check_invariants()
    return result


def add_pooling(yard: Yard, name: str, length: int, params: PoolingParams = EMBED) -> Request:
    request = Request(name, list(range(length)), pooling_params=params)
    yard.scheduler.add_request(request)
    return request


# ---- pooling


def test_a_pooling_request_ends_with_its_result() -> None:
    yard = Yard(max_num_batched_tokens=8)
    request = add_pooling(yard, "a", 12)
    first = yard.schedule()
    assert list(answer(yard, first, [[]], pooler_output=[None])) == []
    second = yard.schedule()
    (news,) = answer(yard, second, [[]], pooler_output=["vector"])
    assert (news.new_token_ids, news.finish_reason, news.extras.pooling_output) == ([], FinishReason.STOP, "vector")
    assert request.status is RequestStatus.FINISHED_STOPPED
    assert yard.free == 100


def test_pooling_and_generating_requests_may_share_a_step() -> None:
    yard = Yard()
    yard.add("text", 4)
    add_pooling(yard, "vector", 4)
    yard.add("more", 4)
    output = yard.schedule()
    news = list(answer(yard, output, [[5], [], [6]], pooler_output=[None, "v", None]))
    assert [each.request_id for each in news] == ["text", "vector", "more"]
    assert [each.new_token_ids for each in news] == [[5], [], [6]]
    assert [each.extras.pooling_output for each in news] == [None, "v", None]
    assert yard.running == ["text", "more"]


def test_a_pooling_request_needs_room_for_its_prompt_alone() -> None:
    yard = Yard(num_gpu_blocks=4, max_model_len=64)
    add_pooling(yard, "fits", 12)
    with pytest.raises(RequestError):
        add_pooling(yard, "too long", 13)


def test_a_pooler_may_need_every_position() -> None:
    yard = Yard()
    yard.add("a", 8)
    yard.step()
    whole = PoolingParams(task="token_embed", skip_reading_prefix_cache=True)
    prompt = yard.requests["a"].prompt_token_ids
    yard.scheduler.add_request(Request("hits", prompt, pooling_params=EMBED))
    yard.scheduler.add_request(Request("computes", prompt, pooling_params=whole))
    output = yard.schedule()
    assert output.num_scheduled_tokens == {"a": 1, "hits": 4, "computes": 8}


def test_a_pooling_request_samples_nothing() -> None:
    with pytest.raises(RequestError, match="samples nothing"):
        Request("a", [1], SamplingParams(), pooling_params=EMBED)
    with pytest.raises(RequestError, match="task"):
        Request("a", [1], pooling_params=PoolingParams(task=""))


def test_a_result_that_a_reset_made_stale_is_not_told() -> None:
    yard = Yard(async_scheduling=True)
    add_pooling(yard, "a", 4)
    stale = yard.schedule()
    assert yard.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert list(answer(yard, stale, [[]], pooler_output=["old"])) == []
    (news,) = answer(yard, yard.schedule(), [[]], pooler_output=["new"])
    assert news.extras.pooling_output == "new"


def test_a_pooling_request_in_flight_gets_no_second_step() -> None:
    yard = Yard(async_scheduling=True)
    add_pooling(yard, "a", 4)
    first, second = yard.schedule(), yard.schedule()
    assert (first.total_num_scheduled_tokens, second.total_num_scheduled_tokens) == (4, 0)
    assert len(answer(yard, first, [[]], pooler_output=["v"])) == 1
    assert not yard.scheduler.requests


def test_an_aborted_pooling_request_tells_nothing() -> None:
    yard = Yard()
    add_pooling(yard, "a", 4)
    output = yard.schedule()
    yard.abort("a")
    assert list(answer(yard, output, [[]], pooler_output=["v"])) == []


# ---- repetition

CIRCLES = RepetitionDetectionParams(max_pattern_size=2, min_count=3)


def ends(tokens: list[int], params: RepetitionDetectionParams, **options: Any) -> tuple[int, FinishReason | None]:
    """After how many of ``tokens`` a request ended, and why."""
    yard = Yard()
    yard.add("a", [7, 7, 7, 7], max_tokens=30, repetition_detection=params, **options)
    for number, token in enumerate(tokens, 1):
        output = yard.schedule()
        (news,) = yard.update(output, {"a": [token]})
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


def test_no_pattern_is_looked_for_before_min_tokens_and_length_is_asked_first() -> None:
    assert ends([1] * 6, CIRCLES, min_tokens=5) == (5, FinishReason.REPETITION)
    yard = Yard()
    yard.add("a", max_tokens=3, repetition_detection=CIRCLES)
    output = yard.schedule()
    (news,) = yard.update(output, {"a": [1]})
    for _ in range(2):
        (news,) = yard.update(yard.schedule(), {"a": [1]})
    assert news.finish_reason is FinishReason.LENGTH


def test_a_pattern_may_reach_over_blocks_and_a_preemption() -> None:
    yard = Yard(block_size=2)
    yard.add("a", 2, max_tokens=30, repetition_detection=RepetitionDetectionParams(max_pattern_size=3, min_count=2))
    for token in (1, 2, 3, 1):
        yard.update(yard.schedule(), {"a": [token]})
    yard.scheduler.reset_prefix_cache(reset_running_requests=True)
    yard.update(yard.schedule(), {"a": [2]})
    (news,) = yard.update(yard.schedule(), {"a": [3]})
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
    yard = Yard()
    request = yard.add("a")
    yard.step()
    assert yard.scheduler.finish_requests("a", status) == [request]
    assert FinishReason.of(request.status) is reason
    assert yard.free == 100
    assert yard.schedule().finished_req_ids == {"a"}


def test_outputs_can_be_told_apart_by_client() -> None:
    yard = Yard()
    yard.add("a", client_index=1)
    yard.add("b")
    yard.add("c", client_index=1)
    result = yard.update(yard.schedule())
    assert {client: [news.request_id for news in each] for client, each in result.by_client().items()} == {
        0: ["b"],
        1: ["a", "c"],
    }


def test_not_a_number_is_told() -> None:
    yard = Yard()
    yard.add("a")
    yard.add("b")
    news = list(answer(yard, yard.schedule(), [[5], [6]], num_nans_in_logits={"b": 3}))
    assert [each.extras.num_nans_in_logits for each in news] == [0, 3]


# ---- events


def events(result: EngineOutputs) -> dict[str, list[tuple[EventType, float]]]:
    return {news.request_id: [(event.type, event.timestamp) for event in news.extras.events] for news in result}


def test_events_come_with_the_next_output() -> None:
    yard = Yard(log_stats=True, max_num_batched_tokens=4)
    yard.add("a", 6)
    yard.now = 1.0
    yard.step()  # a chunk: no output yet
    yard.now = 2.0
    assert events(yard.update(yard.schedule())) == {"a": [(EventType.QUEUED, 0.0), (EventType.SCHEDULED, 1.0)]}
    assert events(yard.update(yard.schedule())) == {"a": []}


def test_a_preemption_and_the_way_back_are_events() -> None:
    yard = Yard(log_stats=True, num_gpu_blocks=4, scheduler_reserve_full_isl=False)
    yard.add("a", 4, max_tokens=8)
    yard.add("b", 4, max_tokens=8)
    yard.update(yard.schedule())
    yard.now = 3.0
    yard.until(lambda: bool(yard.outcomes.preemptions))
    yard.now = 4.0
    told: list[tuple[EventType, float]] = []
    while yard.scheduler.has_requests():
        told += events(yard.update(yard.schedule())).get("b", [])
    assert told == [(EventType.PREEMPTED, 3.0), (EventType.SCHEDULED, 4.0)]


def test_events_are_off_by_default_and_leave_nothing_behind() -> None:
    yard = Yard()
    yard.add("a")
    assert events(yard.update(yard.schedule())) == {"a": []}
    log = Yard(log_stats=True)
    log.add("a", max_tokens=1)
    log.add("b")
    log.step()
    log.abort("b")
    recorded = log.scheduler._features.events
    assert recorded is not None
    assert len(recorded) == 0


# ---- routed experts


def experts_of(tokens: list[int]) -> Any:
    """One layer, one expert per token: a number that tells the token."""
    return np.array(tokens, np.uint16).reshape(-1, 1, 1)


def flat(experts: Any) -> list[int]:
    return [] if experts is None else experts.ravel().tolist()


def test_the_first_output_brings_the_experts_of_the_whole_prompt() -> None:
    yard = Yard(max_num_batched_tokens=4, enable_return_routed_experts=True)
    yard.add("a", 6)
    assert list(answer(yard, yard.schedule(), [[]], routed_experts=experts_of([1, 2, 3, 4]))) == []
    (news,) = answer(yard, yard.schedule(), [[9]], routed_experts=experts_of([5, 6]))
    assert flat(news.extras.routed_experts) == [1, 2, 3, 4, 5, 6]
    (news,) = answer(yard, yard.schedule(), [[9]], routed_experts=experts_of([7]))
    assert flat(news.extras.routed_experts) == [7]


def test_experts_of_a_shared_prefix_are_those_of_whoever_computed_it() -> None:
    yard = Yard(enable_return_routed_experts=True)
    yard.add("a", list(range(8)))
    answer(yard, yard.schedule(), [[9]], routed_experts=experts_of(list(range(10, 18))))
    yard.add("b", [*range(8), 50], routed_experts_prompt_start=3)
    output = yard.schedule()
    assert output.num_scheduled_tokens == {"a": 1, "b": 1}
    _, news = answer(yard, output, [[9], [9]], routed_experts=experts_of([40, 41]))
    assert flat(news.extras.routed_experts) == [13, 14, 15, 16, 17, 41]


def test_experts_of_a_preempted_request_are_kept_until_its_output_arrives() -> None:
    yard = Yard(async_scheduling=True, enable_return_routed_experts=True)
    yard.add("a", 4, max_tokens=4)
    first, second = yard.schedule(), yard.schedule()
    (news,) = answer(yard, first, [[8]], routed_experts=experts_of([1, 2, 3, 4]))
    assert flat(news.extras.routed_experts) == [1, 2, 3, 4]
    (news,) = answer(yard, second, [[9]], routed_experts=experts_of([5]))
    assert flat(news.extras.routed_experts) == [5]


def test_experts_of_rejected_drafts_are_not_told() -> None:
    yard = Yard(speculative=SpeculativeConfig(num_speculative_tokens=2), enable_return_routed_experts=True)
    yard.add("a", 4, max_tokens=20)
    output = yard.schedule()
    answer(yard, output, [[8]], routed_experts=experts_of([1, 2, 3, 4]))
    yard.scheduler.update_draft_token_ids(output, DraftTokens.from_lists([[6, 7]]))
    (news,) = answer(yard, yard.schedule(), [[6, 5]], routed_experts=experts_of([10, 11, 12]))
    assert flat(news.extras.routed_experts) == [10, 11]


def test_experts_need_a_group_that_keeps_its_blocks() -> None:
    window = KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=8)
    yard = Yard(groups=(window, KVCacheGroup()), enable_return_routed_experts=True)
    yard.add("a", 4)
    (news,) = answer(yard, yard.schedule(), [[8]], routed_experts=experts_of([1, 2, 3, 4]))
    assert flat(news.extras.routed_experts) == [1, 2, 3, 4]
    with pytest.raises(ConfigError, match="full attention"):
        Yard(groups=(window,), enable_return_routed_experts=True)
