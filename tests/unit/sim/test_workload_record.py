"""The workload's own checks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tokenyard.core.request import RequestStatus
from tokenyard.errors import ConfigError, RequestError, WorkloadError
from tokenyard.workload.record import Clients, Workload, WorkloadRequest
from tokenyard.workload.tokens import StreamTokens


def request(name: str = "a", **changes: Any) -> WorkloadRequest:
    fields: dict[str, Any] = {"request_id": name, "prompt": StreamTokens.unique(1, 5), "max_tokens": 3}
    return WorkloadRequest(**{**fields, **changes})


def test_totals() -> None:
    workload = Workload("w", [request("a", job_id="j"), request("b", job_id="j"), request("c"), request("d")])
    assert (len(workload), workload.num_prompt_tokens, workload.num_output_tokens, workload.num_jobs) == (4, 20, 12, 3)
    assert [each.request_id for each in workload] == ["a", "b", "c", "d"]


def test_arrival_makes_the_schedulers_request() -> None:
    made = request(job_id="j", priority=2, output_seed=9, is_last_step=True, this_func_call="shell").arrive(4.5, 100)
    assert made.status is RequestStatus.WAITING
    assert (made.arrival_time, made.priority, made.output_seed, made.job_id) == (4.5, 2, 9, "j")
    assert (made.num_prompt_tokens, made.max_tokens, made.is_last_step, made.this_func_call) == (5, 3, True, "shell")
    assert made.prompt_token_ids == StreamTokens.unique(1, 5).tokens().tolist()


def test_arrival_passes_on_what_the_request_refuses() -> None:
    with pytest.raises(RequestError, match="max_tokens"):
        replace(request(), max_tokens=0).arrive(0.0, 100)


def test_a_prompt_too_long_is_refused_before_it_is_made() -> None:
    """Two billion tokens would take eight gigabytes."""
    huge = request(prompt=StreamTokens.unique(1, 2**31 - 1))
    with pytest.raises(
        RequestError, match=r"'2147483647 tokens': the prompt must be shorter than max_model_len \(10\)"
    ):
        huge.arrive(0.0, 10)
    with pytest.raises(RequestError, match="5 tokens"):
        request().arrive(0.0, 5)


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([], "holds no request"),
        ([request(), request()], "'a': occurs twice"),
        ([request("b", after=("a",)), request("a")], "'b': comes after 'a', which no earlier request is called"),
        ([request(after=("a",))], "comes after 'a'"),
        ([request(arrival_time=-1.0)], "arrival_time = -1.0: give a number of seconds from 0 to 1e+09; of Unix times"),
        ([request(arrival_time=1e305)], "arrival_time = 1e+305: give a number of seconds"),
        ([request(arrival_time="x")], "arrival_time = 'x': give a number of seconds"),
        ([request(delay=-5.0)], "delay = -5.0: give a number of seconds"),
        ([request(delay=float("nan"))], "delay = nan: give a number of seconds"),
        ([request(patience="soon")], "patience = 'soon': give a number of seconds from 0 to 1e+09, or leave it out"),
        ([request(after="first")], "after = 'first': give the ids of earlier requests as a tuple"),
        ([request(after=None)], "after = None: give the ids"),
        ([request(max_tokens="3")], "max_tokens = '3': give a whole number from 1"),
        ([request(max_tokens=3, limit=2)], "limit = 2: give a whole number from max_tokens (3)"),
        ([request(output_seed=2**63)], "output_seed = 9223372036854775808: give a whole number of 64 bits"),
        ([5], "holds 5: give WorkloadRequest objects"),
        (5, "requests = 5: give a list of WorkloadRequest"),
        ([request(arrival_time=float("nan"))], "arrival_time = nan"),
        ([request(), request("b", after=("a",), gap=float("inf"))], "gap = inf"),
        ([request(), request("b", after=("a",), spacing=-0.5)], "spacing = -0.5"),
        ([request(max_tokens=0)], "max_tokens = 0: give a whole number from 1"),
        ([request(prompt=StreamTokens())], "has an empty prompt"),
    ],
)
def test_what_cannot_be_replayed_is_refused(requests: Any, message: str) -> None:
    with pytest.raises(WorkloadError, match="w: ") as caught:
        Workload("w", requests)
    assert message in str(caught.value)


@pytest.mark.parametrize("delays", [[], [1.0, 2.0], [-1.0], ["x"], [float("nan")]])
def test_delays_are_one_for_each_request(delays: list[Any]) -> None:
    with pytest.raises(ConfigError, match=r"delays = .* for each of 1 requests"):
        Workload("w", [request()]).with_delays(delays)


@pytest.mark.parametrize("given", [{"timeout": "5"}, {"timeout": 0}, {"timeout": 5, "wait": "x"}, {"timeout": 1e10}])
def test_clients_wait_for_some_seconds(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"(client_timeout|retry_wait) = .*: give a number of seconds"):
        Clients(**given)


def test_an_answer_of_one_token_ends_by_its_limit() -> None:
    made = [
        WorkloadRequest(request_id=name, prompt=StreamTokens.unique(1, 2), max_tokens=most, limit=limit)
        for name, most, limit in (("a", 9, 100), ("b", 1, 50), ("c", 7, None))
    ]
    assert [(each.max_tokens, each.limit) for each in Workload("w", made).with_one_token_each()] == [(1, None)] * 3


def test_rate_scale_moves_arrivals_and_keeps_gaps() -> None:
    workload = Workload("w", [request("a", arrival_time=10.0), request("b", after=("a",), gap=3.0)])
    faster = workload.with_rate(4)
    assert [(each.arrival_time, each.gap) for each in faster] == [(2.5, 0.0), (0.0, 3.0)]
    assert workload.with_rate(1.0) is workload


@pytest.mark.parametrize("scale", [0, -1, float("inf"), float("nan"), True, "2"])
def test_rate_scale_that_cannot_work(scale: Any) -> None:
    with pytest.raises(ConfigError, match="rate_scale"):
        Workload("w", [request()]).with_rate(scale)
