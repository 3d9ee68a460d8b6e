"""Several engines on one clock: requests go where the router says, ranks step alone or together, nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.sim.test_replay import CACHE, CONFIG, SECOND, Recorder, request, run

from tokenyard.core.request import Request
from tokenyard.errors import ConfigError, RequestError
from tokenyard.sim.engines import STEPS_BETWEEN_QUESTIONS
from tokenyard.sim.replay import ReplayResult, replay_parallel
from tokenyard.sim.routers import EngineState, PrefixAffinity, RoundRobin, Router
from tokenyard.steptime.model import ConstantLatency, StepShape, TransferDirection
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import StreamTokens, seed_of


class PerToken:
    """A tenth of a second per token."""

    host_seconds = 0.0

    def step_seconds(self, shape: StepShape) -> float:
        return shape.num_tokens / 10

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        raise AssertionError("nothing goes to the host")


class To(Router):
    """Sends requests where their names say: ``1x`` to engine 1."""

    def choose(self, now: float, request: Request, engines: Sequence[EngineState]) -> int:
        return int(request.request_id[0])


def parallel(
    *requests: WorkloadRequest, size: int = 2, router: Router | None = None, **options: Any
) -> tuple[ReplayResult, list[Recorder]]:
    recorders = [Recorder() for _ in range(size)]
    arguments: dict[str, Any] = {"config": CONFIG, "cache_config": CACHE, "latency": SECOND, **options}
    result = replay_parallel(
        Workload("w", requests),
        arguments.pop("config"),
        arguments.pop("cache_config"),
        arguments.pop("latency"),
        router or To(),
        data_parallel_size=size,
        observers=recorders,
        **arguments,
    )
    return result, recorders


def test_dense_ranks_step_when_they_like() -> None:
    result, (first, second) = parallel(request("0a", 10, 3), request("1a", 40, 2, arrival_time=0.5), latency=PerToken())
    assert first.requests["0a"].times.finished == pytest.approx(1.0 + 0.1 + 0.1)
    assert second.requests["1a"].times.first_scheduled == 0.5
    assert second.requests["1a"].times.first_token == pytest.approx(0.5 + 4.0)
    assert [use.num_requests for use in result.ranks] == [1, 1]
    assert [use.output_tokens for use in result.ranks] == [3, 2]
    assert [use.busy_seconds for use in result.ranks] == [pytest.approx(1.2), pytest.approx(4.1)]
    assert result.waves == 0


def test_ranks_in_step_wait_for_the_slowest() -> None:
    """Prompts of one and four seconds are one step of four; the long one's second token comes with the other's."""
    result, (first, second) = parallel(
        request("0a", 10, 3), request("1a", 40, 2), latency=PerToken(), steps_together=True
    )
    assert first.requests["0a"].times.first_token == pytest.approx(4.0)
    assert second.requests["1a"].times.first_token == pytest.approx(4.0)
    assert first.requests["0a"].times.finished == pytest.approx(4.2)
    assert [use.busy_seconds for use in result.ranks] == [pytest.approx(4.2), pytest.approx(4.1)]
    assert result.waves == 1


def test_a_latency_model_may_know_what_ranks_cost_each_other() -> None:
    class Together(PerToken):
        def ranks_seconds(self, shapes: Sequence[StepShape | None]) -> float:
            return sum(shape.num_tokens if shape is not None else 0 for shape in shapes) / 10

    _, (first, _) = parallel(request("0a", 10, 2), request("1a", 40, 1), latency=Together(), steps_together=True)
    assert first.requests["0a"].times.first_token == pytest.approx(5.0), "all fifty tokens"
    assert first.requests["0a"].times.finished == pytest.approx(5.1), "the other rank's dummy costs nothing here"


def test_who_has_nothing_takes_part_and_sees_a_request_when_the_step_ends() -> None:
    result, (_, second) = parallel(
        request("0a", 40, 3), request("1a", 10, 1, arrival_time=1.0), latency=PerToken(), steps_together=True
    )
    assert second.requests["1a"].times.first_scheduled == pytest.approx(4.0), "the step that ran was a long one"
    assert second.requests["1a"].times.finished == pytest.approx(5.0)
    assert result.ranks[1].dummy_batches >= 1


def test_alone_the_same_request_does_not_wait() -> None:
    _, (_, second) = parallel(request("0a", 40, 3), request("1a", 10, 1, arrival_time=1.0), latency=PerToken())
    assert second.requests["1a"].times.first_scheduled == 1.0


@pytest.mark.parametrize("is_async", [False, True])
def test_a_wave_goes_on_until_its_ranks_ask_each_other(*, is_async: bool) -> None:
    """Three steps with requests, then dummy batches up to 32 steps; what comes much later begins a wave of its own."""
    config = replace(CONFIG, async_scheduling=is_async)
    result, (first, _) = parallel(
        request("0a", 10, 3), request("0b", 10, 3, arrival_time=1000.5), config=config, steps_together=True
    )
    assert result.waves == 2
    assert first.requests["0b"].times.first_scheduled == 1000.5
    assert result.ranks[1].dummy_batches >= STEPS_BETWEEN_QUESTIONS
    within, (first, _) = parallel(
        request("0a", 10, 3), request("0b", 10, 3, arrival_time=10.25), config=config, steps_together=True
    )
    assert within.waves == 1
    assert first.requests["0b"].times.first_scheduled == 11.0, "the dummy batch that runs ends first"


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("steps_together", [False, True])
def test_one_engine_is_the_plain_replay(*, is_async: bool, steps_together: bool) -> None:
    requests = [request(f"0{i}", 20 + 7 * i, 5 + i, arrival_time=0.3 * i) for i in range(12)]
    requests += [request("0later", 30, 4, after=("03", "05"), gap=1.5)]
    options: dict[str, Any] = {
        "config": replace(CONFIG, max_num_seqs=3, async_scheduling=is_async),
        "latency": ConstantLatency(seconds=0.1, host_seconds=0.03),
    }
    plain, recorder = run(*requests, **options)
    result, (only,) = parallel(*requests, size=1, steps_together=steps_together, **options)
    assert only.log == recorder.log
    assert (result.seconds, result.ranks[0].steps) == (plain.seconds, plain.steps)
    assert result.ranks[0].busy_seconds == plain.busy_seconds
    assert (result.num_finished, result.output_tokens) == (plain.num_finished, plain.output_tokens)


def test_turns_find_their_prefix_where_the_router_remembers_it() -> None:
    history, longer = (StreamTokens.unique(seed_of("talk"), n) for n in (64, 160))
    requests = (
        request("0first", output=1, source=history),
        request("0other", 30, 1, arrival_time=0.1),
        request("0next", output=1, source=longer, after=("0first",), gap=5.0),
    )
    _, recorders = parallel(*requests, router=PrefixAffinity())
    homes = {name: i for i, recorder in enumerate(recorders) for name in recorder.requests}
    assert homes == {"0first": 0, "0other": 1, "0next": 0}
    assert recorders[0].hits["0next"] == 64
    _, recorders = parallel(*requests[:1], *requests[2:], router=RoundRobin())
    assert recorders[1].hits["0next"] == 0


def test_asking_for_cached_tokens_counts_as_no_lookup() -> None:
    _, plain = parallel(request("0a", 40, 2), request("0b", 40, 2), size=1)
    _, asked = parallel(request("0a", 40, 2), request("0b", 40, 2), size=1, router=PrefixAffinity())
    assert asked[0].log == plain[0].log


def test_refused_requests_are_of_no_rank() -> None:
    requests = request("0a"), request("1big", 5000, after=("0a",)), request("0after", after=("1big",)), request("1b")
    with pytest.raises(RequestError, match="max_model_len"):
        parallel(*requests)
    result, _ = parallel(*requests, skip_refused=True)
    assert (result.num_finished, len(result.refused), result.num_left_out) == (2, 1, 1)
    assert [use.num_requests for use in result.ranks] == [1, 1]


@pytest.mark.parametrize(("answer", "problem"), [(7, "from 0 to 1, not 7"), (None, "not None"), (True, "not True")])
def test_a_router_that_names_no_engine_is_told_so(answer: Any, problem: str) -> None:
    class Wrong(Router):
        def choose(self, now: float, request: Request, engines: Sequence[EngineState]) -> int:
            return answer  # type: ignore[no-any-return]

    with pytest.raises(ConfigError, match=problem):
        parallel(request("0a"), router=Wrong())


def test_a_router_that_fails_is_named() -> None:
    class Broken(Router):
        def choose(self, now: float, request: Request, engines: Sequence[EngineState]) -> int:
            raise KeyError("load")

    with pytest.raises(ConfigError, match=r"router = 'Broken': choose\(\) fails: KeyError: 'load'"):
        parallel(request("0a"), router=Broken())


def test_the_number_of_engines_is_checked() -> None:
    with pytest.raises(ConfigError, match="data_parallel_size = 0"):
        parallel(request("0a"), size=0)


def test_who_arrived_while_the_last_steps_ran_has_arrived() -> None:
    result, (first, _) = parallel(request("0a", 10, 9), request("0b", 10, 3, arrival_time=1.5), until=1.75)
    assert result.unfinished == ("0a", "0b")
    assert list(first.requests) == ["0a", "0b"]
    assert result.ranks[0].steps == 2
