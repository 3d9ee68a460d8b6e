"""Workloads that are made in Python: what the next turn contains, what requests share, what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from tokenyard import (
    CacheConfig,
    RequestError,
    SamplingParams,
    SchedulerConfig,
    StepObserver,
    Workload,
    WorkloadRequest,
    replay,
)
from tokenyard.core.request import Request
from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.policies.simple import ShortestRemaining, remaining_work
from tokenyard.steptime.model import ConstantLatency
from tokenyard.workload.builder import WorkloadBuilder
from tokenyard.workload.tokens import JoinedTokens, ListedTokens, StreamTokens


class _Seen(StepObserver):
    """Every request that has ended, as the scheduler has it."""

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}

    def request_finished(self, ts: float, request: Request) -> None:
        self.requests[request.request_id] = request


def _run(workload: Workload) -> dict[str, Request]:
    seen = _Seen()
    config = SchedulerConfig(max_model_len=4096)
    replay(workload, config, CacheConfig(num_gpu_blocks=1000), ConstantLatency(seconds=0.01), observer=seen)
    return seen.requests


def test_the_next_prompt_contains_the_answer() -> None:
    w = WorkloadBuilder("mine")
    session = w.session(at=1.0, prefix=w.text(64))
    session.turn(user=32, output=48)
    session.turn(user=[9, 8, 7], output=16, think=2.0)
    session.turn(user=w.text(20), output=8)
    first, second, third = (_run(w.build())[f"s0_t{k}"] for k in range(3))
    assert second.prompt_token_ids == [*first.all_token_ids, 9, 8, 7]
    assert third.prompt_token_ids[: second.num_tokens] == second.all_token_ids
    assert third.num_prompt_tokens == second.num_tokens + 20
    # The last of its tokens was sampled, and never computed.
    assert second.num_cached_tokens == (first.num_tokens - 1) // 16 * 16
    assert second.arrival_time == pytest.approx((first.times.finished or 0.0) + 2.0)
    assert session.text.tokens().tolist() == third.all_token_ids


def test_texts_are_shared_where_they_are_the_same_object() -> None:
    w = WorkloadBuilder("mine")
    a, b = w.text(40), w.text(40)
    assert a.tokens().tolist() != b.tokens().tolist()
    joined = a + b
    assert len(joined) == 80
    assert joined.tokens().tolist() == a.tokens().tolist() + b.tokens().tolist()
    assert w.text([1, 2]).tokens().tolist() == [1, 2]
    one, other = (WorkloadBuilder("mine", seed=seed).text(40).tokens().tolist() for seed in (0, 1))
    assert one == a.tokens().tolist() != other


def test_a_session_without_a_prefix_is_one_stream() -> None:
    w = WorkloadBuilder("mine")
    session = w.session()
    for _ in range(3):
        session.turn(user=10, output=10)
    prompts = [each.prompt for each in w.build()]
    assert [len(each.segments) for each in prompts if isinstance(each, StreamTokens)] == [1, 1, 1]


def test_equal_calls_give_equal_workloads() -> None:
    def made(seed: int) -> list[WorkloadRequest]:
        w = WorkloadBuilder("mine", seed=seed)
        for at in w.poisson(rate=2.0, n=5):
            session = w.session(at=at)
            session.turn(user=w.lognormal(3, 1), output=w.lognormal(3, 0.5))
            session.turn(user=5, output=5, think=w.exponential(4))
        return [replace(each, prompt=ListedTokens(each.prompt.tokens()[:0])) for each in w.build()]

    def told(requests: list[WorkloadRequest]) -> list[Any]:
        return [(each.request_id, each.max_tokens, each.arrival_time, each.gap) for each in requests]

    assert told(made(3)) == told(made(3)) != told(made(4))


def test_poisson_arrivals_come_at_their_rate() -> None:
    moments = WorkloadBuilder("mine").poisson(rate=4.0, n=4000)
    assert moments[0] == 0.0
    assert moments == sorted(moments)
    assert 3.8 < 4000 / moments[-1] < 4.2


def test_turns_of_a_session_are_one_job() -> None:
    w = WorkloadBuilder("mine")
    first, second = w.session(meta={"user": "ann"}), w.session(name="b", lora_name="ada", priority=3)
    first.turn(user=5, output=5, meta={"k": 0})
    second.turn(user=5, output=5, tool="search")
    first.turn(user=5, output=5, meta={"k": 1})
    a0, b0, a1 = w.build()
    assert (a0.job_id, a1.job_id, b0.job_id) == ("s0", "s0", "b")
    assert [each.is_last_step for each in (a0, b0, a1)] == [False, True, True]
    assert (a0.meta, a1.meta) == ({"user": "ann", "k": 0}, {"user": "ann", "k": 1})
    assert (b0.lora_name, b0.priority, b0.this_func_call) == ("ada", 3, "search")
    assert len(w) == 3


def test_single_requests() -> None:
    w = WorkloadBuilder("mine")
    assert w.request(at=0.0, prompt=[1, 2, 3], output=4, meta={"a": [1, None]}) == "r0"
    assert w.request(at=1, prompt=50, output=7.6, predicted_output_tokens=5.2, lora_name="ada") == "r1"
    assert w.request(at=1, prompt=w.text(3), output=0, request_id="mine", priority=1) == "mine"
    a, b, c = w.build(max_concurrency=2)
    assert a.prompt.tokens().tolist() == [1, 2, 3]
    assert (len(b.prompt), b.max_tokens, b.predicted_output_tokens, b.lora_name) == (50, 8, 5, "ada")
    assert (c.max_tokens, c.priority) == (1, 1)
    seen = _run(w.build())
    assert seen["r0"].meta == {"a": [1, None]}
    assert seen["r1"].predicted_output_tokens == 5
    assert seen["r1"].num_output_tokens == 8


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda w: w.request(at=-1, prompt=1, output=1), "at = -1: give a number of seconds from 0"),
        (lambda w: w.request(at=0, prompt=-5, output=1), "prompt = -5: give a number of tokens, not negative"),
        (lambda w: w.request(at=0, prompt="hello", output=1), "prompt = 'hello': give a number of tokens, a text"),
        (lambda w: w.request(at=0, prompt=[1, -2], output=1), r"prompt = \[1, -2\]: give a number of tokens, a text"),
        (lambda w: w.request(at=0, prompt=1, output=float("nan")), "output = nan: give a number of tokens"),
        (lambda w: w.request(at=0, prompt=1, output=True), "output = True: give a number of tokens"),
        (lambda w: w.session(at=float("inf")), "at = inf"),
        (lambda w: w.session().turn(user=1, output=1, think=-2.0), r"think = -2\.0"),
        (lambda w: w.poisson(rate=0, n=3), "rate = 0: give a number of arrivals"),
        (lambda w: w.poisson(rate="fast", n=3), "rate = 'fast': give a number of arrivals"),
        (lambda w: w.lognormal("x", 1), "mu = 'x': give a finite number"),
        (lambda w: w.lognormal(1, -1), "sigma = -1: give a finite number"),
        (lambda w: w.exponential(None), "mean = None: give a number"),
        (lambda w: w.session(meta=5), "meta = 5: give a dictionary"),
        (lambda w: w.session().turn(user=1, output=1, meta=[1]), r"meta = \[1\]: give a dictionary"),
        (lambda w: w.text([2**31]), "tokens = .2147483648.: give a number of tokens, or token ids"),
        (lambda w: w.text(-1), "tokens = -1: give a number of tokens, not negative"),
        (lambda w: w.text("ab"), "tokens = 'ab': give a number of tokens, or token ids"),
        (lambda w: w.session(prefix="ab"), "prefix = 'ab': give a number of tokens, a text"),
        (lambda w: w.session(prefix=-1), "prefix = -1: give a number of tokens, not negative"),
        (lambda w: w.session().turn(user="ab", output=1), "user = 'ab': give a number of tokens, a text"),
        (lambda w: w.session().turn(user=True, output=1), "user = True: give a number of tokens"),
        (lambda w: w.session().turn(user=1, output=1, tool=3), "tool = 3: give a text, or leave it out"),
        (lambda w: w.session().turn(user=1, output=1, patience="1s"), "patience = '1s': give a number of seconds"),
        (lambda w: w.session(name=3), "name = 3: give a text that is not empty"),
        (lambda w: w.session(cache_salt=3), "cache_salt = 3: give a text, or leave it out"),
        (lambda w: w.session(priority="high"), "priority = 'high': give a whole number"),
        (lambda w: w.request(at=0, prompt=1, output=1, priority=1.5), r"priority = 1\.5: give a whole number"),
        (lambda w: w.request(at=0, prompt=1, output=1, request_id=[]), r"request_id = \[\]: give a text that is not"),
        (lambda w: w.request(at=0, prompt=1, output=1, job_id=3), "job_id = 3: give a text, or leave it out"),
        (lambda w: w.request(at=0, prompt=1, output=1, lora_name=3), "lora_name = 3: give a text, or leave it out"),
        (lambda w: w.request(at=0, prompt=1, output=1, images=3), "images = 3: give a list of tokenyard.core.Multi"),
        (lambda w: w.request(at=0, prompt=1, output=1, images="ab"), "images = 'ab': give a list of tokenyard.core"),
        (lambda w: w.request(at=0, prompt=1, output=1, patience=-1), "patience = -1: give a number of seconds from"),
        (lambda w: w.request(at=0, prompt=1, output=1, meta=3), "meta = 3: give a dictionary"),
        (lambda w: w.poisson(rate=1, n=0), "n = 0: give a whole number from 1 to 2147483647"),
        (lambda w: w.poisson(rate=1, n=-1), "n = -1: give a whole number from 1 to"),
        (lambda w: w.poisson(rate=1, n=2.5), r"n = 2\.5: give a whole number from 1 to"),
        (lambda w: w.poisson(rate=1, n=True), "n = True: give a whole number from 1 to"),
        (lambda w: w.poisson(rate=1, n="3"), "n = '3': give a whole number from 1 to"),
        (lambda w: type(w)(3), "name = 3: give a text that is not empty"),
        (lambda w: WorkloadBuilder("x", seed=-1), "seed = -1: give a whole number"),
    ],
)
def test_what_cannot_work_is_refused_at_once(wrong: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        wrong(WorkloadBuilder("mine"))
    assert caught.value.field == told.partition(" ")[0]


def test_an_id_that_occurs_twice_is_refused() -> None:
    w = WorkloadBuilder("mine")
    w.request(at=0, prompt=1, output=1, request_id="a")
    w.request(at=0, prompt=1, output=1, request_id="a")
    with pytest.raises(WorkloadError, match="request 'a': occurs twice") as caught:
        w.build()
    error = caught.value
    assert (error.field, error.value, error.fix) == ("request_id", "a", "give each request an id of its own")


# ---- requests without a builder


def _request(**said: Any) -> WorkloadRequest:
    fields: dict[str, Any] = {"request_id": "a", "prompt": [1, 2, 3], "max_tokens": 4, **said}
    return WorkloadRequest(**fields)


@pytest.mark.parametrize("prompt", [[1, 2, 3], (1, 2, 3), np.array([1, 2, 3]), np.array([1, 2, 3], np.int32)])
def test_a_list_of_ids_is_a_prompt(prompt: Any) -> None:
    assert _run(Workload("mine", [_request(prompt=prompt)]))["a"].prompt_token_ids == [1, 2, 3]


@pytest.mark.parametrize("prompt", ["text", 12, None, {1: 2}, [1.5], [-1], [2**31], [[1], [2]], [[1], [2, 3]]])
def test_another_prompt_is_refused_at_once(prompt: Any) -> None:
    with pytest.raises(RequestError, match=r"request 'a': prompt = .*: give token ids from 0 to 2147483647 as a list"):
        _request(prompt=prompt)


def test_meta_is_what_a_file_can_hold() -> None:
    given = {"k": np.int64(3), "x": [1.5, None, {"y": "z"}]}
    request = _request(meta=given)
    given["k"] = np.int64(4)
    assert request.meta == {"k": 3, "x": [1.5, None, {"y": "z"}]}
    assert type(request.meta["k"]) is int


@pytest.mark.parametrize("meta", [{"a": {1, 2}}, {"a": float("nan")}, {"a": (1, 2)}, {3: 4}, ["a"], {"a": object()}])
def test_other_meta_is_refused_at_once(meta: Any) -> None:
    with pytest.raises(RequestError, match=r"request 'a': meta = .*: give a dictionary that JSON can say"):
        _request(meta=meta)


def test_a_prediction_is_a_number() -> None:
    with pytest.raises(WorkloadError, match="predicted_output_tokens = -1: give a whole number from 0"):
        Workload("mine", [_request(predicted_output_tokens=-1)])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("request_id", []), ("request_id", ""), ("after", ([],)), ("after", ("b",)), ("after", 3)),
        *(("arrival_time", "now"), ("patience", -1), ("max_tokens", 0), ("limit", 3), ("output_seed", 1.5)),
        ("prompt", []),
    ],
)
def test_what_is_wrong_with_a_request_is_data(field: str, value: Any) -> None:
    with pytest.raises(WorkloadError) as caught:
        Workload("mine", [_request(**{field: value})])
    error = caught.value
    assert error.field == field
    assert field == "prompt" or error.value == value
    assert error.fix
    assert error.fix.startswith(("give ", "name "))


def test_a_workload_without_requests_is_data() -> None:
    with pytest.raises(WorkloadError, match="holds no request") as caught:
        WorkloadBuilder("mine").build()
    assert (caught.value.field, caught.value.fix) == ("requests", "give one WorkloadRequest at least")


def test_shortest_remaining_believes_predictions() -> None:
    long, short, honest = (
        Request(name, [1] * 10, _run_params(100), predicted_output_tokens=predicted)
        for name, predicted in (("long", 80), ("short", 1), ("honest", None))
    )
    assert remaining_work(long) == 10 + 2 * 80
    assert remaining_work(short) == 10 + 2
    assert remaining_work(honest) == 10 + 2 * 100
    assert ShortestRemaining().key(short) < ShortestRemaining().key(long)


def _run_params(max_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens)


def test_joined_sources_are_one_prompt() -> None:
    joined = JoinedTokens(ListedTokens([5, 6]), StreamTokens.unique(1, 3))
    assert len(joined) == 5
    assert joined.tokens().tolist() == [5, 6, *StreamTokens.unique(1, 3).tokens().tolist()]


def test_a_workload_says_what_it_holds() -> None:
    w = WorkloadBuilder("mine")
    w.request(at=2.5, prompt=30, output=4)
    assert repr(w.build()) == (
        "<Workload 'mine': 1 requests in 1 jobs, 30 prompt and 4 output tokens, first arrivals from 2.5 to 2.5 s>"
    )


def test_numbers_of_numpy_are_numbers() -> None:
    seven, three, two = (cast(Any, np.int64(each)) for each in (7, 3, 2))
    first, other = WorkloadBuilder("mine", seed=7), WorkloadBuilder("mine", seed=seven)
    assert first.poisson(rate=2, n=3) == other.poisson(rate=two, n=three)
    assert first.text(3).tokens().tolist() == other.text(three).tokens().tolist()
