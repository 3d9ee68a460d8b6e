"""Output that repeats itself ends with the very token at which the rule, written word for word, says so."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.toy_engine import ToyEngine, make_request

from tokenyard.core.params import RepetitionDetectionParams, SamplingParams
from tokenyard.core.request import FinishReason

MANY_STOPS = tuple(range(200, 209))


def goes_in_circles(output: list[int], params: RepetitionDetectionParams) -> bool:
    """As the rule has it, word for word."""
    for size in range(max(params.min_pattern_size, 1), params.max_pattern_size + 1):
        end = output[-size * params.min_count :]
        if len(end) == size * params.min_count and end == end[:size] * params.min_count:
            return True
    return False


def reason_to_end(output: list[int], params: SamplingParams) -> FinishReason | None:
    if len(output) < params.min_tokens:
        return None
    if output[-1] in params.stop_token_ids:
        return FinishReason.STOP
    looked_for = params.repetition_detection
    return FinishReason.REPETITION if looked_for is not None and goes_in_circles(output, looked_for) else None


@st.composite
def looked_for(draw: st.DrawFn) -> RepetitionDetectionParams | None:
    longest = draw(st.integers(0, 5))
    if not longest:
        return draw(st.sampled_from([None, RepetitionDetectionParams()]))
    shortest, count = draw(st.integers(0, longest)), draw(st.integers(2, 4))
    return RepetitionDetectionParams(max_pattern_size=longest, min_pattern_size=shortest, min_count=count)


EVENTS = st.sampled_from(["step"] * 12 + ["reset", "leave", "come"])
NOISE = st.sampled_from([0] * 9 + [100, 199])


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(looked_for(), st.booleans(), st.integers(0, 9)), min_size=1, max_size=4),
    st.lists(st.tuples(EVENTS, st.lists(NOISE, min_size=4, max_size=4)), min_size=20, max_size=90),
)
def test_outputs_end_where_each_by_itself_would(
    kinds: list[tuple[RepetitionDetectionParams | None, bool, int]], events: list[tuple[str, list[int]]]
) -> None:
    """Requests come, start over and leave; each says the same few tokens in turns, and another one now and then."""
    toy = ToyEngine(max_num_seqs=4, max_model_len=200, max_num_batched_tokens=400)
    periods: dict[str, int] = {}
    for number, (event, noise) in enumerate(events):
        if event == "come" or not toy.scheduler.requests:
            params, many, min_tokens = kinds[number % len(kinds)]
            more: dict[str, Any] = {"min_tokens": min_tokens, "stop_token_ids": MANY_STOPS if many else ()}
            toy.add(f"r{number}", [1] * 5, repetition_detection=params, max_tokens=150, **more)
            periods[f"r{number}"] = len(periods) % 5 + 1
        elif event == "leave":
            toy.abort(next(iter(toy.scheduler.requests)))
        elif event == "reset":
            toy.scheduler.reset_prefix_cache(reset_running_requests=True)
        plan = toy.schedule()
        said = [toy.requests[name].num_output_tokens % periods[name] + 1 for name in plan.req_ids]
        tokens = {name: [token + more] for name, token, more in zip(plan.req_ids, said, noise, strict=False)}
        for row in toy.update(plan, tokens):
            request = toy.requests[row.request_id]
            assert row.finish_reason == reason_to_end(request.output_token_ids, request.sampling_params)


def test_drafts_are_counted_one_by_one() -> None:
    """Several tokens may come at once, and the pattern may end among them."""
    toy = ToyEngine()
    params = RepetitionDetectionParams(max_pattern_size=2, min_count=3)
    toy.add("a", max_tokens=50, repetition_detection=params)
    toy.add("b", max_tokens=50)
    plan = toy.schedule()
    (a, b) = toy.update(plan, {"a": [5, 6, 5, 6, 5, 6, 5, 6], "b": [5] * 8})
    assert (a.new_token_ids, a.finish_reason) == ([5, 6, 5, 6, 5, 6], FinishReason.REPETITION)
    assert (b.new_token_ids, b.finish_reason) == ([5] * 8, None)


def test_a_session_begins_anew_with_each_answer() -> None:
    toy = ToyEngine()
    params = RepetitionDetectionParams(max_pattern_size=1, min_count=3)
    options: dict[str, Any] = {"resumable": True, "max_tokens": 2, "repetition_detection": params}
    session = toy.add("s", 5, **options)
    for _ in range(4):
        for _ in range(2):
            toy.update(toy.schedule(), {"s": [8]})
        assert not session.status.is_finished
        toy.scheduler.add_request(make_request("s", [8, 8], **options))
    assert np.array_equal(session.token_slice(5, 8), [8, 8, 8])
