"""Prefill on one engine, decode on another: times add up, each side reacts to what concerns it, nothing stalls."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.sim.test_replay import Recorder, request, run

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.errors import RequestError
from tokenyard.sim.named_routers import router_maker
from tokenyard.sim.replay import ReplayResult, replay_split
from tokenyard.sim.routers import Fleet
from tokenyard.sim.settings import KVLink, ReplaySettings
from tokenyard.steptime.model import ConstantLatency, StepShape, TransferDirection
from tokenyard.workload.load import read_workload
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import StreamTokens, seed_of

CONFIG = SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=4096, max_model_len=4096)
SECOND = ConstantLatency(seconds=1.0)
BLOCK_BYTES = 1_000_000_000
"""A block per second and GB/s."""


class PerToken:
    """A millisecond per token, and a tenth per step."""

    host_seconds = 0.0

    def step_seconds(self, shape: StepShape) -> float:
        return 0.1 + shape.num_tokens / 1000

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        raise AssertionError("nothing goes to the host")


def split(
    *requests: WorkloadRequest, gb_per_s: float = 1.0, num_gpu_blocks: int = 300, **options: Any
) -> tuple[ReplayResult, Recorder, Recorder]:
    prefill, decode = Recorder(), Recorder()
    arguments: dict[str, Any] = {"config": CONFIG, "latency": SECOND, **options}
    result = replay_split(
        Workload("w", requests),
        arguments.pop("config"),
        CacheConfig(num_gpu_blocks=num_gpu_blocks),
        arguments.pop("latency"),
        KVLink(BLOCK_BYTES, gb_per_s),
        observers=([prefill], [decode]),
        **arguments,
    )
    return result, prefill, decode


def test_times_add_up() -> None:
    """Prefill from 5 to 6, four blocks at two per second, the last prompt token from 8 to 9, two more tokens."""
    result, prefill, decode = split(request("a", 50, 3, arrival_time=5.0), gb_per_s=2.0)
    times = decode.requests["a"].times
    assert prefill.requests["a"].times.finished == 6.0
    assert (times.first_scheduled, times.first_token, times.finished) == (8.0, 9.0, 11.0)
    assert decode.requests["a"].arrival_time == 5.0, "what its client waited for the other engine counts"
    assert decode.requests["a"].num_external_computed_tokens == 49
    assert (result.num_finished, result.output_tokens, result.seconds) == (1, 3, 11.0)
    assert (result.prefill.busy_seconds, result.decode.busy_seconds, result.link_busy_seconds) == (1.0, 3.0, 2.0)
    assert result.kv_bytes == 4 * BLOCK_BYTES


def test_schedulers_of_both_sides_are_those_that_are_made() -> None:
    made: list[Scheduler] = []

    def make(*given: Any, **options: Any) -> Scheduler:
        made.append(Scheduler(*given, **options))
        return made[-1]

    result, prefill, decode = split(request("a", 50, 3), make_scheduler=make, fleet=Fleet(1))
    assert [each.step for each in made] == [result.prefill.steps, result.decode.steps]
    assert list(prefill.requests) == list(decode.requests) == ["a"]


def test_a_slower_link_costs_the_first_token_and_no_other() -> None:
    waits, gaps = [], []
    for gb_per_s in (100.0, 10.0, 1.0, 0.1):
        _, _, decode = split(request("a", 50, 5), gb_per_s=gb_per_s)
        times = decode.requests["a"].times
        assert times.first_token is not None
        assert times.finished is not None
        waits.append(times.first_token)
        gaps.append(times.finished - times.first_token)
    assert waits == sorted(waits)
    assert waits[-1] - waits[0] == pytest.approx(40 - 0.04)
    assert gaps == [pytest.approx(4.0)] * 4


def test_more_engines_on_one_side_serve_what_waits_there() -> None:
    """Eight prompts at once, one to a step: two prefill engines take half the time, two decode engines none of it."""
    requests = [request(f"r{i}", 48, 2) for i in range(8)]
    config = SchedulerConfig(max_num_seqs=1, max_num_batched_tokens=4096, max_model_len=4096)

    def prefilled(prefill: int, decode: int) -> tuple[float, float]:
        watched = [Recorder() for _ in range(prefill)], [Recorder() for _ in range(decode)]
        side = ReplaySettings(
            config, CacheConfig(num_gpu_blocks=300), SECOND, fleet=Fleet(decode), router=router_maker("round-robin")
        )
        result = replay_split(
            Workload("w", requests),
            config,
            CacheConfig(num_gpu_blocks=300),
            SECOND,
            KVLink(BLOCK_BYTES, 1e6),
            fleet=Fleet(prefill),
            router=router_maker("round-robin"),
            decode=side,
            observers=watched,
        )
        assert result.num_finished == 8
        assert (len(result.prefill.ranks), len(result.decode.ranks)) == (prefill, decode)
        ends = [max(each.times.finished or 0.0 for one in group for each in one.requests.values()) for group in watched]
        return ends[0], ends[1]

    assert prefilled(1, 1)[0] == prefilled(1, 2)[0] == 8.0
    assert prefilled(2, 1)[0] == 4.0
    assert prefilled(2, 1)[1] > prefilled(2, 2)[1]


def test_a_long_prompt_holds_up_the_answers_of_others_only_where_they_share_an_engine() -> None:
    requests = request("answers", 16, 30), request("long prompt", 4000, 1, arrival_time=1.0)
    latency, cache = PerToken(), CacheConfig(num_gpu_blocks=300)
    _, together = run(*requests, config=CONFIG, cache_config=cache, latency=latency)
    _, _, apart = split(*requests, latency=latency, gb_per_s=1e6)

    def seconds_per_token(recorder: Recorder) -> float:
        times = recorder.requests["answers"].times
        assert times.finished is not None
        assert times.first_token is not None
        return (times.finished - times.first_token) / 29

    assert seconds_per_token(together) == pytest.approx(0.101 + 4.0 / 29, abs=0.01)
    assert seconds_per_token(apart) == pytest.approx(0.101, abs=0.001)


def test_the_next_turn_follows_the_answer_and_fetches_only_what_is_new() -> None:
    history = StreamTokens.unique(seed_of("talk"), 64)
    longer = StreamTokens.unique(seed_of("talk"), 160)
    first = request("t1", output=1, source=history)
    result, prefill, decode = split(first, request("t2", output=2, source=longer, after=("t1",), gap=10.0))
    assert decode.requests["t1"].times.finished is not None
    assert decode.requests["t2"].arrival_time == decode.requests["t1"].times.finished + 10.0
    assert prefill.hits["t2"] == 64
    assert decode.hits["t2"] == 64
    assert result.kv_bytes == (4 + 6) * BLOCK_BYTES


def test_a_full_prefill_engine_waits_until_its_blocks_have_been_fetched() -> None:
    """Both engines hold one prompt of 60 blocks at a time; each takes 60 seconds to send."""
    requests = [request(name, 959, 1) for name in "ab"]
    result, prefill, decode = split(*requests, num_gpu_blocks=101)
    assert prefill.requests["a"].times.finished == 1.0
    assert prefill.requests["b"].times.first_scheduled == 61.0
    assert decode.requests["b"].times.finished == pytest.approx(62.0 + 60.0 + 1.0)
    assert result.num_finished == 2


def test_a_full_decode_engine_keeps_the_prefill_engine_waiting() -> None:
    """The answer of the first takes 200 steps and all memory; the second is fetched when it has ended."""
    requests = request("a", 959, 200), request("b", 959, 1, arrival_time=0.5)
    _, _, decode = split(*requests, num_gpu_blocks=101, gb_per_s=1e6)
    ended = decode.requests["a"].times.finished
    assert ended == pytest.approx(1.0 + 60e-6 + 200.0)  # prompt, transfer, answer
    assert decode.requests["b"].times.first_scheduled == pytest.approx(ended, abs=0.01)


def test_refused_requests_end_their_session() -> None:
    requests = request("a"), request("big", 5000, after=("a",)), request("after", after=("big",)), request("b")
    with pytest.raises(RequestError, match="max_model_len"):
        split(*requests)
    result, _, _ = split(*requests, skip_refused=True)
    assert (result.num_finished, len(result.refused), result.num_left_out) == (2, 1, 1)


def test_an_answer_that_only_the_decode_engine_refuses_frees_the_prompt_in_the_end() -> None:
    requests = request("a", 959, 3000), request("b", 16, 1)
    result, prefill, _ = split(*requests, num_gpu_blocks=101, skip_refused=True)
    assert prefill.requests["a"].times.finished == 1.0
    assert [refusal.request_id for refusal in result.refused] == ["a"]
    assert result.num_finished == 1
    assert result.seconds == 31.0, "its lease is over"


@pytest.mark.slow
def test_a_workload_is_served_whole_and_the_same_each_time() -> None:
    workload = read_workload("chat", limit=6, rate_scale=12.0)
    config = SchedulerConfig(max_num_seqs=16, max_num_batched_tokens=2048, max_model_len=16_384)
    runs = []
    for _ in range(2):
        recorder = Recorder()
        result = replay_split(
            workload,
            config,
            CacheConfig(num_gpu_blocks=2000),
            PerToken(),
            KVLink(2 << 20, 10.0),
            observers=([None], [recorder]),
        )
        assert result.num_finished == len(workload)
        runs.append((result, recorder.log))
    assert runs[0] == runs[1]
