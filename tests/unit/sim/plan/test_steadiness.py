"""A plan rests on a steady state: queues of theory, traffic that goes on, and what is said where there is none."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import msgspec
import numpy as np
import pytest

import tokenyard as ty
from tokenyard.core.request import RequestStatus, RequestTimes
from tokenyard.errors import ConfigError
from tokenyard.explain.slo import SLO, read_slos
from tokenyard.explain.steady import LoadCounter, LoadState
from tokenyard.questions.planning.answer import PRECISION, LoadSearch, Plan
from tokenyard.questions.planning.search import FEWEST_FOR_LOAD, FEWEST_OF_A_LOG, Lengths, steady_load
from tokenyard.questions.sweeping.measuring import with_state
from tokenyard.questions.sweeping.rows import Halves, Row, has_pace
from tokenyard.trace.schema import RequestArrived, RequestFinished
from tokenyard.workload.load import repeated
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import StreamTokens

ONE = ty.Deployment(
    model="llama-3.1-8b", gpu="l4", max_model_len=512, latency="constant:0.1", max_num_seqs=1, async_scheduling=False
)
"""One request at a time, a step of 0.1 s for each of its tokens: a queue with one server."""


def planned(rate: float, number: int = 400, deployment: ty.Deployment = ONE, **asked: Any) -> Plan:
    """A plan of random prompts of 16 tokens."""
    usual: dict[str, Any] = {"input_len": 16, "output_len": 1, "space": {"block_size": [16]}, "jobs": 1}
    return ty.plan("random", deployment, num_prompts=number, request_rate=rate, **{**usual, **asked})


# ---- the edge, against theory: a queue of numbers in the place of a replay


@dataclass(frozen=True)
class Queue:
    """A queue with one server and random arrivals, one a second; services of so many seconds have equal chances."""

    services: tuple[float, ...]
    slos: tuple[SLO, ...]
    seed: int = 0

    def __call__(self, times: int, load: float) -> Row:
        """Measure 400 requests, times as many, arriving ``load`` times as fast."""
        number = 400 * times
        rng, others = (np.random.default_rng(each + 1000 * self.seed) for each in (1, 2))
        arrivals = np.cumsum(rng.exponential(1 / load, number)).tolist()
        lengths = others.choice(self.services, number).tolist()
        workload = Workload("queue", [_numbered(i, came) for i, came in enumerate(arrivals)])
        halves, counter, free, waits = Halves(self.slos, workload), LoadCounter(), 0.0, []
        for i, (came, length) in enumerate(zip(arrivals, lengths, strict=True)):
            start = max(free, came)
            free = start + length
            waits.append(start - came)
            counter.arrive(RequestArrived(req_id=f"r{i}", arrival_time=came))
            counter.finish(RequestFinished(req_id=f"r{i}", first_scheduled_time=start, finished_time=free))
            halves.request_finished(free, _Ended(f"r{i}", came, start, free))  # type: ignore[arg-type]
        waited = 1e3 * float(np.mean(waits))
        met = waited <= self.slos[0].bound_ms
        row = Row(settings={}, load=load, requests=number, met=met, figures={"ttft_ms.mean": waited})
        return with_state(row, counter.result(), workload, halves)


def _numbered(i: int, came: float) -> WorkloadRequest:
    return WorkloadRequest(request_id=f"r{i}", prompt=StreamTokens.unique(i, 1), max_tokens=1, arrival_time=came)


class _Ended:
    """A request of one token, as an observer sees it."""

    status = RequestStatus.FINISHED_LENGTH_CAPPED
    num_output_tokens = 1

    def __init__(self, request_id: str, came: float, start: float, end: float) -> None:
        self.request_id, self.arrival_time = request_id, came
        self.times = RequestTimes()
        self.times.first_scheduled, self.times.first_token, self.times.finished = start, end, end


class QueueLengths(Lengths):
    """Traffic of a queue."""

    def worker(self, times: int) -> Any:
        return lambda _, *, load, stops: self.job(times, load)  # type: ignore[call-arg, arg-type]


def edge_of(services: tuple[float, ...], bound_s: float, *, most: int = 50, seed: int = 0) -> LoadSearch:
    queue: Any = Queue(services, read_slos([[f"queue_mean={bound_s}s"]]), seed)
    return steady_load(QueueLengths(job=queue, most=most), {})


@pytest.mark.parametrize(
    "services",
    [(0.5,), (0.2, 0.8), (0.1, 0.1, 0.1, 1.7)],
    ids=["M/D/1", "M/G/1 of two lengths", "M/G/1 of a few long ones"],
)
@pytest.mark.parametrize("bound", [2.0, 60.0])
def test_the_largest_load_is_the_edge_of_theory(services: tuple[float, ...], bound: float) -> None:
    """A request waits lambda E[S^2] / (2 (1 - lambda E[S])) on average; where it waits ever longer nothing is borne."""
    mean, square = (sum(each**power for each in services) / len(services) for power in (1, 2))
    edge = 2 * bound / (square + 2 * bound * mean)
    found = edge_of(services, bound)
    assert found.borne is not None
    assert found.borne.state is LoadState.STEADY
    assert found.borne.load == pytest.approx(edge, rel=0.03)
    assert found.missed is not None
    assert found.missed.load <= found.borne.load * (1 + PRECISION)


@pytest.mark.parametrize(("bound", "edge"), [(2.0, 16 / 9), (60.0, 240 / 120.5)])
def test_so_is_it_with_eight_thousand_requests_of_any_seed(bound: float, edge: float) -> None:
    """M/D/1, services of 0.5 s: but for the luck of so many arrivals, of which the rate alone has one or two percent.

    Nothing is missed that only the first few hundred requests miss, and halves that differ by chance are no trend.
    """
    found = [edge_of((0.5,), bound, most=20, seed=seed).borne for seed in range(1, 6)]
    errors = [abs(row.load / edge - 1) for row in found if row is not None]
    assert len(errors) == len(found)
    assert float(np.median(errors)) <= 0.03
    assert max(errors) <= 0.05


def test_a_few_long_requests_leave_the_edge_open_by_what_is_said() -> None:
    """M/G/1, one in twenty takes 81 times as long: 8,000 requests have 400 of them, give or take 5 %.

    Halves that differ by chance are no trend: the load that is found is the edge of the very requests replayed.
    """
    services, bound = (0.1,) * 19 + (8.1,), 2.0
    mean, square = (sum(each**power for each in services) / len(services) for power in (1, 2))
    edge = 2 * bound / (square + 2 * bound * mean)
    lengths = QueueLengths(job=Queue(services, read_slos([[f"queue_mean={bound}s"]])), most=20)  # type: ignore[arg-type]
    errors = []
    for seed in range(6):
        borne = edge_of(services, bound, most=20, seed=seed).borne
        assert borne is not None
        chance = lengths.chance(borne)
        assert chance is not None
        assert chance == pytest.approx(2 * sqrt((square / mean**2) / borne.requests), rel=0.1), (
            "gaps have 1, services more"
        )
        errors.append(abs(borne.load / edge - 1))
        assert errors[-1] <= chance
        assert borne.load is not None
        own = _mean_wait(services, borne.requests, borne.load * 1.05, seed)
        assert own > bound, "with these requests no load that is 5 % greater is within the bound"
    assert float(np.median(errors)) <= 0.03


def _mean_wait(services: tuple[float, ...], number: int, load: float, seed: int) -> float:
    """Lindley's recursion over the requests of a queue, apart from it."""
    rng, others = (np.random.default_rng(each + 1000 * seed) for each in (1, 2))
    gaps, lengths = rng.exponential(1 / load, number), others.choice(services, number)
    waits = [0.0]
    for gap, length in zip(gaps[1:], lengths[:-1], strict=True):
        waits.append(max(waits[-1] + length - gap, 0.0))
    return float(np.mean(waits))


def test_a_log_that_is_repeated_says_no_more_of_others_than_it_does_once() -> None:
    job: Any = None
    row = Row(settings={}, requests=8000, times=20, variation=1.5)
    assert Lengths(job=job, most=20).chance(row) == pytest.approx(3 / sqrt(8000))
    assert Lengths(job=job, most=20, fewest=FEWEST_OF_A_LOG).chance(row) == pytest.approx(3 / sqrt(400))
    assert Lengths(job=job, most=20).chance(msgspec.structs.replace(row, variation=None)) is None


@pytest.mark.parametrize(("rho", "state"), [(0.5, "steady"), (0.8, "steady"), (0.9, "steady"), (1.1, "overloaded")])
def test_what_is_not_steady_at_first_is_settled_by_more(rho: float, state: str) -> None:
    queue: Any = Queue((0.5,), read_slos([["queue_mean=1000s"]]))
    lengths = QueueLengths(job=queue, most=50)
    row, replays = lengths.settled(lambda job: job({}, load=rho / 0.5, stops=True))
    assert row.state == state
    assert replays >= 1
    assert row.requests >= FEWEST_FOR_LOAD or state == "overloaded"


# ---- the same with replays


@pytest.mark.slow
def test_a_bound_is_held_below_what_is_served_and_by_no_shorter_log_above() -> None:
    """A hundred requests keep the bound at either rate: the queue does not get long enough."""
    below, above = (planned(rate, 100, slo={"queue_p90": "10s"}, largest_load=False) for rate in (6.0, 13.0))
    assert (below.holds, below.state) == (True, LoadState.STEADY)
    once = ty.run("random", ONE, num_prompts=100, request_rate=13.0, input_len=16, output_len=1, slo="queue_p90=10s")
    assert once.report.goodput is not None
    assert once.report.goodput.met, "the transient keeps it"
    assert not above.holds
    assert above.recommended is not None
    assert above.recommended.met is False or above.recommended.state is LoadState.OVERLOADED


@pytest.mark.slow
@pytest.mark.parametrize("number", [60, 400])
def test_the_length_of_the_log_does_not_decide_how_many_gpus(number: int) -> None:
    replicas: dict[str, Any] = {"space": {"replicas": ["1", "2"]}, "minimize": "gpus", "largest_load": False}
    plan = planned(14.0, number, slo={"queue_p90": "8s"}, **replicas)
    assert (plan.holds, plan.value) == (True, 2)


# ---- more of the same


def log(number: int = 30, *, together: int = 1) -> Workload:
    """Prompts that share their beginnings, in turns of two."""
    requests = []
    for i in range(number):
        first = WorkloadRequest(
            request_id=f"r{i}",
            prompt=StreamTokens.unique(i % 3, 64),
            max_tokens=4,
            arrival_time=float(i // together),
            job_id=f"user/{i}",
        )
        then = WorkloadRequest(
            request_id=f"r{i}b",
            prompt=StreamTokens.unique(i % 3, 96),
            max_tokens=4,
            after=(f"r{i}",),
            job_id=f"user/{i}",
        )
        requests += [first, then]
    return Workload("log", requests)


def test_a_log_goes_on_at_its_own_rate_with_ids_and_prompts_of_its_own() -> None:
    once, thrice = log(), repeated(log(), 3)
    assert len(thrice) == 3 * len(once)
    assert len({each.request_id for each in thrice}) == len(thrice)
    moments = [each.arrival_time for each in thrice if not each.after]
    assert moments == [float(i) for i in range(90)]
    assert thrice.requests[-1].after == ("r29#3",)
    assert [thrice.requests[i].job_id for i in (0, 60, 120)] == ["user/0", "user/0#2", "user/0#3"]
    rates = [
        ty.run(each, ONE.with_(max_num_seqs=8), rows=False).report.prefix_hit_rate.local for each in (once, thrice)
    ]
    assert rates[1] == pytest.approx(rates[0]), "the cache does not know the prompts from before"


def test_what_has_no_pace_does_not_go_on() -> None:
    assert has_pace(log())
    assert not has_pace(log(10))
    assert not has_pace(log(30, together=30))
    assert not has_pace(log().with_max_concurrency(2))
    with pytest.raises(ConfigError, match="arrives all at once"):
        repeated(log(30, together=30), 2)
    assert len(repeated(log(30, together=30), 1)) == 60


def test_few_requests_are_planned_as_they_are_and_it_is_said() -> None:
    plan = planned(5.0, 10, slo={"queue_p90": "10s"})
    assert (plan.holds, plan.state, plan.times, plan.largest_load) == (True, None, 1, None)
    text = " ".join(str(plan).split())
    assert text.startswith("block_size=16 holds every bound for these 10 requests and reaches")
    assert "no rate that could go on, and no largest load" in text
    with pytest.raises(ConfigError, match="have no rate that could be raised"):
        planned(5.0, 10, slo={"queue_p90": "10s"}, maximize="load")


def test_it_is_said_how_traffic_was_made_longer() -> None:
    drawn = planned(14.0, 40, slo={"queue_p90": "20s"}, largest_load=False, deployment=ONE.with_(max_num_seqs=2))
    assert drawn.times > 1
    assert drawn.traffic is not None
    assert "times as many as given, drawn at the same rate" in drawn.traffic
    given = ty.plan(log(), ONE.with_(max_num_seqs=2), space={"block_size": [16]}, slo="queue_p90=9s", jobs=1)
    assert given.traffic is None or "the same again and again at the same rate" in given.traffic
    assert drawn.requests == 40
    assert drawn.to_dict()["times"] == drawn.times


def test_a_bound_that_holds_at_less_than_the_load_alone_is_not_said_to_hold() -> None:
    slow = planned(20.0, 40, slo={"queue_p90": "500ms"}, maximize="load", deployment=ONE.with_(max_num_seqs=2))
    assert slow.value is not None
    assert slow.value < 1
    said = " ".join(str(slow).split())
    assert f"only up to {slow.value:.3g} times the load; at the whole load it does not" in said
