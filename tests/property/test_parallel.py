"""Any requests, any number of engines, any router: none is lost, each is served once, time goes forward."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sim.test_replay import CONFIG, Recorder, request

from tokenyard.core.config import CacheConfig
from tokenyard.core.profiles import decision_profile
from tokenyard.sim.named_routers import ROUTERS, router_maker
from tokenyard.sim.replay import replay, replay_parallel
from tokenyard.sim.routers import Fleet
from tokenyard.steptime.model import ConstantLatency
from tokenyard.workload.record import Workload

VERSIONS = st.sampled_from(["0.22", "0.33"])
REQUESTS = st.lists(
    st.tuples(st.integers(1, 120), st.integers(1, 12), st.floats(0, 8), st.booleans()), min_size=1, max_size=14
)


def workload_of(drawn: list[tuple[int, int, float, bool]], most: int | None) -> Workload:
    requests = []
    for i, (prompt, output, moment, follows) in enumerate(drawn):
        when: dict[str, Any] = {"after": (f"r{i - 1}",), "gap": moment} if follows and i else {"arrival_time": moment}
        requests.append(request(f"r{i}", prompt, output, **when))
    return Workload("w", requests, max_concurrency=most)


@given(
    drawn=REQUESTS,
    most=st.none() | st.integers(1, 4),
    size=st.integers(1, 4),
    name=st.sampled_from(list(ROUTERS)),
    version=VERSIONS,
    front_ends=st.integers(1, 4),
    together=st.booleans(),
    is_async=st.booleans(),
    host=st.sampled_from([0.0, 0.02]),
)
def test_every_request_is_served_on_one_engine(
    drawn: list[tuple[int, int, float, bool]], most: int | None, size: int, name: str, version: str, **how: Any
) -> None:
    recorders = [Recorder() for _ in range(size)]
    workload = workload_of(drawn, most)
    result = replay_parallel(
        workload,
        replace(CONFIG, max_num_seqs=3, async_scheduling=how["is_async"], profile=decision_profile(version)),
        CacheConfig(num_gpu_blocks=24),
        ConstantLatency(seconds=0.1, host_seconds=how["host"]),
        router_maker(name)(Fleet(size, how["together"], version, how["front_ends"])),
        data_parallel_size=size,
        steps_together=how["together"],
        observers=recorders,
    )
    served = Counter(request_id for recorder in recorders for request_id in recorder.requests)
    assert served == Counter(each.request_id for each in workload)
    assert result.num_finished == len(workload)
    assert result.output_tokens == sum(each.max_tokens for each in workload)
    assert [use.num_finished for use in result.ranks] == [len(recorder.requests) for recorder in recorders]
    for recorder in recorders:
        moments = [entry[0] for entry in recorder.log]
        assert moments == sorted(moments)  # type: ignore[type-var]
        for each in recorder.requests.values():
            assert each.times.first_scheduled is not None
            assert each.times.first_scheduled >= each.arrival_time
    assert all(use.busy_seconds <= result.seconds + 1e-9 for use in result.ranks)


@given(
    drawn=REQUESTS,
    most=st.none() | st.integers(1, 4),
    is_async=st.booleans(),
    blocks=st.integers(12, 60),
    version=VERSIONS,
)
def test_one_engine_is_the_plain_replay(
    drawn: list[tuple[int, int, float, bool]], most: int | None, *, is_async: bool, blocks: int, version: str
) -> None:
    config = replace(CONFIG, max_num_seqs=3, async_scheduling=is_async, profile=decision_profile(version))
    latency = ConstantLatency(seconds=0.1, host_seconds=0.02)
    cache, workload = CacheConfig(num_gpu_blocks=blocks), workload_of(drawn, most)
    plain, only = Recorder(), Recorder()
    expected = replay(workload, config, cache, latency, observer=plain)
    result = replay_parallel(
        workload, config, cache, latency, router_maker("vllm")(Fleet(1)), data_parallel_size=1, observers=[only]
    )
    assert only.log == plain.log
    assert (result.seconds, result.ranks[0].busy_seconds) == (expected.seconds, expected.busy_seconds)
