"""Steady or not: queues of theory, real replays, traces, several engines, and the first sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tokenyard as ty
from tokenyard.deploy.spec import ReplaySpec
from tokenyard.explain.advice.rules import Relief
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.summary import summarize
from tokenyard.explain.steady import Load, LoadCounter, LoadState, Moments, load_state, rate_in_words
from tokenyard.questions.relief import MOST_TOGETHER, with_relief
from tokenyard.questions.scenario import Scenario, replay_spec, traffic_by_name
from tokenyard.trace.schema import RequestArrived, RequestFinished

STEADY, OVERLOADED, SHORT = LoadState.STEADY, LoadState.OVERLOADED, LoadState.SHORT
SMALL = ty.Deployment(model="llama-3.1-8b", gpu="l4", max_model_len=8192, latency="constant:0.02", max_num_seqs=2)
FEW: dict[str, Any] = {"input_len": 40, "output_len": 20}
"""Two seats, 20 steps of 20 ms each: some 5 requests a second."""


def queue(rho: float, number: int, service: str, rng: np.random.Generator) -> LoadState | None:
    """What is said of a queue with one server, a mean service of 1 s, and random arrivals (M/D/1, M/M/1, M/G/1)."""
    arrivals = np.cumsum(rng.exponential(1 / rho, number))
    lengths = {
        "constant": np.ones(number),
        "exponential": rng.exponential(1.0, number),
        "lognormal": rng.lognormal(-0.72, 1.2, number),
    }[service]
    starts, free = np.empty(number), 0.0
    for i, (came, length) in enumerate(zip(arrivals, lengths, strict=True)):
        starts[i] = max(free, came)
        free = starts[i] + length
    moments = Moments(arrivals=arrivals, scheduled=starts, ends=np.sort(starts + lengths))
    return load_state(moments, float(arrivals[-1]), float(lengths.mean()))


def states(rho: float, number: int, service: str, times: int = 40) -> list[LoadState | None]:
    rng = np.random.default_rng(7)
    return [queue(rho, number, service, rng) for _ in range(times)]


@pytest.mark.parametrize("service", ["constant", "exponential", "lognormal"])
@pytest.mark.parametrize("rho", [0.5, 0.8, 0.9, 0.95])
def test_a_queue_that_keeps_up_is_not_called_overloaded(rho: float, service: str) -> None:
    for number in (100, 2000):
        assert states(rho, number, service).count(OVERLOADED) <= 1, "one of forty may be bad luck"
    assert states(rho, 2000, service).count(STEADY) >= 32


@pytest.mark.parametrize(("service", "certain"), [("constant", 36), ("exponential", 20), ("lognormal", 8)])
def test_a_queue_at_ten_percent_more_than_it_serves_is_not_called_steady(service: str, certain: int) -> None:
    found = states(1.1, 5000, service)
    assert found.count(STEADY) <= 4
    assert found.count(OVERLOADED) >= certain


@pytest.mark.parametrize("service", ["constant", "exponential", "lognormal"])
def test_twice_what_is_served_is_an_overload(service: str) -> None:
    assert states(2.0, 400, service).count(OVERLOADED) >= 38


def test_few_arrivals_have_no_rate_and_short_ones_no_state() -> None:
    assert states(0.5, 19, "constant", 1) == [None]
    moments = Moments(arrivals=np.arange(100) / 10, scheduled=np.arange(100) / 10, ends=np.arange(100) / 10 + 30)
    assert load_state(moments, 9.9, 30.0) is SHORT, "the last arrives before the first ends"
    at_once = Moments(arrivals=np.zeros(50), scheduled=np.zeros(50), ends=np.ones(50))
    assert load_state(at_once, 0.0, 1.0) is None


def run(workload: Any = "random", deployment: ty.Deployment = SMALL, **arrivals: Any) -> Load:
    load = ty.run(workload, deployment, rows=False, **arrivals).report.load
    assert load is not None
    return load


def test_what_arrives_stands_beside_what_is_served() -> None:
    load = run(num_prompts=200, request_rate=3, **FEW)
    assert load.state is STEADY
    assert load.offered_requests_per_s == pytest.approx(3.0, rel=0.15)
    assert load.served_requests_per_s == pytest.approx(load.offered_requests_per_s, rel=0.05)
    assert load.offered_output_tokens_per_s == pytest.approx(20 * (load.offered_requests_per_s or 0))
    more = run(num_prompts=200, request_rate=10, **FEW)
    assert more.state is OVERLOADED
    assert more.served_requests_per_s == pytest.approx(2 / (20 * 0.02), rel=0.1)
    assert more.waiting is not None
    assert more.waiting[1] > more.waiting[0] > 0
    assert more.drain_s is not None
    assert more.drain_s > 5 * (more.answer_s or 0)


def test_a_closed_loop_and_a_batch_are_no_overload() -> None:
    assert run(num_prompts=100, max_concurrency=6, **FEW).state is STEADY
    batch = run(num_prompts=100, **FEW)
    assert (batch.state, batch.offered_requests_per_s) == (None, None)
    assert str(batch) == "100 requests at once"


def test_a_log_shorter_than_its_answers_says_so() -> None:
    load = run(num_prompts=40, request_rate=100, input_len=40, output_len=200, deployment=SMALL.with_(max_num_seqs=64))
    assert load.state is SHORT
    assert "too short to tell" in str(load)
    assert load.served_requests_per_s == 0.0


def test_sessions_that_have_not_reached_their_number_are_too_short() -> None:
    load = run("chat", SMALL.with_(max_num_seqs=64), limit=30)
    assert load.state is SHORT
    assert load.session_s is not None
    assert load.span_s is not None
    assert load.session_s > load.span_s / 3


def test_traces_and_several_engines_say_the_same(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"num_prompts": 120, "request_rate": 12, **FEW}
    live = ty.run("random", SMALL, rows=False, trace=tmp_path / "one", **asked).report.load
    assert live is not None
    read = summarize(tmp_path / "one").load
    assert read is not None
    assert (read.state, read.waiting, read.in_system) == (live.state, live.waiting, live.in_system)
    assert read.offered_requests_per_s == pytest.approx(live.offered_requests_per_s)
    both = ty.run("random", SMALL.with_(data_parallel_size=2), rows=False, trace=tmp_path / "two", **asked).report.load
    assert both is not None
    assert both.arrivals == 120
    assert both.served_requests_per_s == pytest.approx(2 * (live.served_requests_per_s or 0), rel=0.15)
    joined = summarize(tmp_path / "two").load
    assert joined is not None
    assert (joined.state, joined.waiting) == (both.state, both.waiting)


def test_requests_without_an_end_count_as_arrived() -> None:
    whole = ty.run("random", SMALL, rows=False, num_prompts=300, request_rate=10, until=25, **FEW).report.load
    assert whole is not None
    assert (whole.state, whole.drain_s, whole.waiting) == (OVERLOADED, None, None)
    assert whole.offered_output_tokens_per_s is None
    assert whole.in_system is not None
    assert whole.in_system[1] > 80


def test_an_end_that_is_told_before_its_arrival_counts_once() -> None:
    counter = LoadCounter()
    counter.finish(RequestFinished(req_id="a", arrival_time=1.0, finished_time=2.0))
    counter.arrive(RequestArrived(req_id="a", arrival_time=1.0))
    load = counter.result()
    assert (load.arrivals, load.drain_s) == (1, 1.0)


def test_clients_that_give_up_keep_the_queue_short_and_the_run_is_overloaded_all_the_same() -> None:
    given: dict[str, Any] = {**FEW, "num_prompts": 200, "request_rate": 20}
    told = ty.run("random", SMALL, advice=False, client_timeout="1s", **given).report
    assert told.load is not None
    assert told.load.is_overloaded
    assert told.load.cancelled > 50
    overload = told.answer.overload
    assert overload is not None
    assert overload.engines is None, "what is done for clients that leave says nothing of a larger fleet"
    assert "of them are cancelled" in told.answer.sentence
    patient = ty.run("random", SMALL, advice=False, client_timeout="60s", **given | {"request_rate": 2}).report.load
    assert patient is not None
    assert not patient.is_overloaded
    assert not patient.cancelled


def test_clients_that_wait_for_longer_than_requests_come_are_overloaded_if_they_leave() -> None:
    """All come within a second, and leave after three: none left while requests came."""
    given: dict[str, Any] = {**FEW, "num_prompts": 80, "request_rate": 80, "client_timeout": "3s"}
    told = ty.run("random", SMALL, rows=False, advice=True, **given).report
    assert told.load is not None
    assert told.outcomes is not None
    assert told.load.is_overloaded
    assert told.outcomes.cancelled > 40
    relief, overload = told.relief, told.answer.overload
    assert relief is not None
    assert overload is not None
    assert (relief.is_enough, relief.serves_these, relief.served, relief.arrived) == (False, True, 80, 80)
    assert (overload.flags, overload.flags_for_these, relief.gpus) == (None, relief.flags, 1)
    assert "in too short a time to tell whether that lasts" in told.answer.sentence
    assert "nothing that was tried" not in told.answer.sentence
    assert f"{relief.flags} on 1 GPU serves all 80 requests" in " ".join(str(told).split())


def test_refused_requests_are_in_the_first_sentence() -> None:
    given: dict[str, Any] = {"num_prompts": 30, "input_len": 52, "output_len": 4, "request_rate": 1}
    report = ty.run("random", SMALL.with_(max_model_len=50), advice=False, skip_refused=True, **given).report
    assert "30 of 30 requests were refused." in report.answer.sentence


def test_rates_are_short() -> None:
    assert [rate_in_words(each) for each in (12.0598, 3.867, 0.1638, 1204.2)] == ["12.1", "3.87", "0.164", "1,204"]


# ---- the first sentence, and what would serve the load


@pytest.fixture(scope="module")
def overloaded() -> Report:
    """Ten requests a second for two seats that serve five, with all that was tried."""
    return ty.run("random", SMALL, rows=False, advice="all", num_prompts=200, request_rate=10, **FEW).report


def test_an_overload_is_the_first_sentence(overloaded: Report) -> None:
    verdict = overloaded.answer
    assert verdict.code == "overloaded"
    assert verdict.overload is not None
    rates = verdict.overload.offered_requests_per_s, verdict.overload.served_requests_per_s
    offered, served = map(rate_in_words, rates)
    assert verdict.sentence.startswith(f"Overloaded: {offered} requests/s arrive, {served} are served; with --max-num-")
    assert str(overloaded).replace("\n", " ").startswith(verdict.sentence[:60])
    assert verdict.lever is None, "a single change that helps a little is no answer"


def test_the_relief_is_enough_and_takes_no_more_gpus_than_it_must(overloaded: Report) -> None:
    relief = overloaded.relief
    assert relief is not None
    assert relief.is_enough
    assert list(relief.settings) == ["max_num_seqs"]
    assert (relief.gpus, relief.gpus_now) == (1, 1)
    served = SMALL.with_(max_num_seqs=relief.settings["max_num_seqs"])
    assert run(deployment=served, num_prompts=200, request_rate=10, **FEW).state is STEADY
    assert f"The queue does not grow with {relief.flags}" in " ".join(str(overloaded).split())


def test_where_nothing_was_tried_it_says_how_many_alike_would_serve_it(overloaded: Report) -> None:
    untried = msgspec.structs.replace(overloaded, relief=None, advice=[])
    verdict = untried.answer
    assert verdict.overload is not None
    assert verdict.overload.engines == 2
    assert "about 2 GPUs (2 deployments like this one) would." in verdict.sentence


class _Capacity:
    """Replays that serve as many requests as the GPUs of each engine, and the engines, let them."""

    def __init__(self, report: Report, per_gpu: float, *, most_gpus: int = 8, helps: tuple[str, ...] = ()) -> None:
        """``helps``: flags with all of which twice as much is served."""
        self.report, self.per_gpu, self.most_gpus, self.asked = report, per_gpu, most_gpus, list[str]()
        self.helps = helps

    def __call__(self, setup: ReplaySpec, scenario: Scenario, what: str) -> Report:
        self.asked.append(what)
        size = setup.settled.hardware.tensor_parallel_size
        engines = int(scenario.parallel.replicas or 1)
        served = self.per_gpu * min(size, self.most_gpus) * engines
        if self.helps and all(each in what for each in self.helps):
            served *= 2
        load, header = self.report.load, self.report.header
        assert load is not None
        state = STEADY if served >= (load.offered_requests_per_s or 0) else OVERLOADED
        return msgspec.structs.replace(
            self.report,
            load=msgspec.structs.replace(load, state=state, served_requests_per_s=served),
            header=msgspec.structs.replace(header, tensor_parallel_size=size, data_parallel_size=engines),
            e2e_ms=msgspec.structs.replace(self.report.e2e_ms, mean=1e6 / served),
            advice=[],
        )


@pytest.mark.parametrize(
    ("per_gpu", "most_gpus", "settings"),
    [
        (6.0, 8, {"tensor_parallel_size": 2}),
        (3.0, 8, {"replicas": 3}),
        (2.5, 8, {"tensor_parallel_size": 4}),
        (6.0, 1, {"replicas": 2}),
        (0.5, 1, {"replicas": 18}),
    ],
)
def test_more_gpus_are_the_answer_where_settings_are_none(
    overloaded: Report, per_gpu: float, most_gpus: int, settings: dict[str, Any]
) -> None:
    """As few as will do: in one engine as long as that helps, else in several."""
    scenario = Scenario.of(SMALL.settings, "random", arrivals=traffic_by_name({"num_prompts": 40, "request_rate": 10}))
    replay = _Capacity(msgspec.structs.replace(overloaded, relief=None, advice=[]), per_gpu, most_gpus=most_gpus)
    setup = replay_spec(scenario)
    report = replay(setup, scenario, "as it is")
    found = with_relief(scenario, setup, report, replay)
    assert found.relief is not None
    offered = report.load.offered_requests_per_s if report.load is not None else None
    assert found.relief.is_enough, offered
    assert found.relief.settings == settings
    assert len(replay.asked) <= 1 + MOST_TOGETHER
    assert found.answer.sentence.startswith("Overloaded: ")
    assert f"with {found.relief.flags} all are, on {found.relief.gpus} GPUs (replayed)" in found.answer.sentence


def relieved(overloaded: Report, start: dict[str, Any], share: float, **capacity: Any) -> Relief:
    """What is found where ``start`` serves a share of what arrives."""
    scenario = Scenario.of(
        SMALL.with_(**start).settings, "random", arrivals=traffic_by_name({"num_prompts": 40, "request_rate": 10})
    )
    assert overloaded.load is not None
    offered = overloaded.load.offered_requests_per_s
    assert offered is not None
    engines = start.get("replicas", 1) * start.get("tensor_parallel_size", 1)
    replay = _Capacity(
        msgspec.structs.replace(overloaded, relief=None, advice=[]), share * offered / engines, **capacity
    )
    setup = replay_spec(scenario)
    relief = with_relief(scenario, setup, replay(setup, scenario, "as it is"), replay).relief
    assert relief is not None
    return relief


STARTS: list[dict[str, Any]] = [{}, {"replicas": 4}, {"replicas": 2, "tensor_parallel_size": 2}]


def test_where_nobody_is_served_twice_as_many_replicas_are_tried(overloaded: Report) -> None:
    """What is served to none says nothing of how many would: it takes eight."""
    scenario = Scenario.of(SMALL.settings, "random", arrivals=traffic_by_name({"num_prompts": 40, "request_rate": 10}))
    begun, load = msgspec.structs.replace(overloaded, relief=None, advice=[]), overloaded.load
    assert load is not None

    def replay(setup: ReplaySpec, scenario: Scenario, _: str) -> Report:
        engines = int(scenario.parallel.replicas or 1)
        told: dict[str, Any] = {"state": OVERLOADED, "served_requests_per_s": 0.0}
        if engines >= 8:
            told = {"state": STEADY, "served_requests_per_s": load.offered_requests_per_s}
        header = msgspec.structs.replace(
            begun.header,
            tensor_parallel_size=setup.settled.hardware.tensor_parallel_size,
            data_parallel_size=engines,
        )
        return msgspec.structs.replace(begun, load=msgspec.structs.replace(load, **told), header=header)

    setup = replay_spec(scenario)
    relief = with_relief(scenario, setup, replay(setup, scenario, ""), replay).relief
    assert relief is not None
    assert (relief.is_enough, relief.settings, relief.gpus) == (True, {"replicas": 8}, 8)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(
    ("helps", "settings"),
    [
        (("--quantization fp8",), {"quantization": "fp8"}),
        (("--kv-cache-dtype fp8",), {"kv_cache_dtype": "fp8"}),
        (("--kv-cache-dtype fp8", "--quantization fp8"), {"kv_cache_dtype": "fp8", "quantization": "fp8"}),
    ],
)
def test_settings_come_before_gpus_wherever_one_starts(
    overloaded: Report, start: dict[str, Any], helps: tuple[str, ...], settings: dict[str, Any]
) -> None:
    """Also those that no report proposes, and those of which only both together are enough."""
    relief = relieved(overloaded, start, 0.6, helps=helps)
    assert (relief.is_enough, relief.settings) == (True, settings)
    assert relief.gpus == relief.gpus_now == start.get("replicas", 1) * start.get("tensor_parallel_size", 1)


def test_a_replica_more_is_cheaper_than_twice_the_gpus(overloaded: Report) -> None:
    relief = relieved(overloaded, {"replicas": 4}, 0.85)
    assert (relief.is_enough, relief.settings) == (True, {"replicas": 5})
    assert (relief.gpus, relief.gpus_now) == (5, 4)


def test_where_nothing_is_enough_it_says_so_and_names_the_nearest(overloaded: Report) -> None:
    scenario = Scenario.of(
        SMALL.with_(data_parallel_size=2).settings, "random", arrivals=traffic_by_name({"num_prompts": 40})
    )
    replay = _Capacity(msgspec.structs.replace(overloaded, relief=None, advice=[]), 0.5, most_gpus=4)
    setup = replay_spec(scenario)
    found = with_relief(scenario, setup, replay(setup, scenario, "as it is"), replay)
    assert found.relief is not None
    assert (found.relief.is_enough, found.relief.settings) == (False, {"tensor_parallel_size": 4})
    assert "nothing that was tried serves it, about " in found.answer.sentence
    assert "Nothing that was tried is enough. Nearest comes --tensor-parallel-size 4" in " ".join(str(found).split())


def test_a_steady_run_has_no_relief() -> None:
    report = ty.run("random", SMALL, rows=False, advice="all", num_prompts=60, request_rate=2, **FEW).report
    assert report.relief is None
    assert report.answer.code != "overloaded"
