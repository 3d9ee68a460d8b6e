"""The step loop: time passes, turns follow turns, nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.profiles import VLLM_0_22

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.request import Request
from tokenyard.core.sched.observer import StepObserver
from tokenyard.core.sched.outcomes import StepOutcomes
from tokenyard.core.sched.outputs import EngineOutputs
from tokenyard.core.sched.policy import Policy
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import RequestError, StuckError
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import named_model
from tokenyard.sim.replay import ReplayResult, replay, replay_parallel
from tokenyard.sim.routers import RoundRobin
from tokenyard.sim.traffic import Progress
from tokenyard.steptime.load import load_tables
from tokenyard.steptime.model import ConstantLatency, LatencyModel
from tokenyard.steptime.roofline import RooflineLatency
from tokenyard.workload.generators import AgenticOptions, agentic
from tokenyard.workload.load import read_workload
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import StreamTokens, seed_of

SECOND = ConstantLatency(seconds=1.0)
CONFIG = SchedulerConfig(profile=VLLM_0_22, max_num_seqs=8, max_num_batched_tokens=64, max_model_len=2048)
CACHE = CacheConfig(num_gpu_blocks=200)


class Recorder(StepObserver):
    """Notes everything that an observer is told."""

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}
        self.hits: dict[str, int] = {}
        self.log: list[tuple[object, ...]] = []

    def request_arrived(self, ts: float, request: Request) -> None:
        self.requests[request.request_id] = request
        self.log.append((ts, "arrived", request.request_id, request.arrival_time))

    def step_started(self, ts: float, step: int, state: object) -> None:
        self.log.append((ts, "step", step))

    def prefix_looked_up(self, ts: float, step: int, request: Request, local: int, external: int) -> None:
        self.hits[request.request_id] = local

    def step_decided(self, ts: float, output: SchedulerOutput, outcomes: StepOutcomes, state: object) -> None:
        self.log.append((ts, "decided", tuple(output.num_scheduled_tokens.items())))

    def step_completed(self, ts: float, output: SchedulerOutput, outputs: EngineOutputs) -> None:
        self.log.append((ts, "completed", tuple(map(tuple, outputs.tokens.tolist()))))

    def request_finished(self, ts: float, request: Request) -> None:
        self.log.append((ts, "finished", request.request_id))


def request(name: str, prompt: int = 10, output: int = 3, **fields: Any) -> WorkloadRequest:
    source = fields.pop("source", None) or StreamTokens.unique(seed_of(name), prompt)
    return WorkloadRequest(request_id=name, prompt=source, max_tokens=output, **fields)


def run(*requests: WorkloadRequest, **options: Any) -> tuple[ReplayResult, Recorder]:
    recorder = Recorder()
    arguments: dict[str, Any] = {"config": CONFIG, "cache_config": CACHE, "latency": SECOND, **options}
    return replay(Workload("w", requests), observer=recorder, **arguments), recorder


def test_one_request() -> None:
    """Ten prompt tokens and three outputs, a second per step: prefill and first token, two decodes, one farewell."""
    result, recorder = run(request("a", arrival_time=5.0))
    times = recorder.requests["a"].times
    assert (times.first_scheduled, times.first_token, times.finished) == (5.0, 6.0, 8.0)
    assert (result.seconds, result.busy_seconds, result.steps) == (8.0, 3.0, 4)
    assert (result.num_finished, result.output_tokens, result.refused, result.num_left_out) == (1, 3, (), 0)


def test_what_arrives_during_a_step_is_seen_by_the_next() -> None:
    _, recorder = run(request("a"), request("b", arrival_time=0.25))
    late = recorder.requests["b"]
    assert late.arrival_time == 0.25
    assert late.times.first_scheduled == 1.0


def test_turns_follow_the_end_of_the_turn_before() -> None:
    _, recorder = run(request("a"), request("b", after=("a",), gap=2.5), request("c", after=("b",), spacing=9.0))
    a, b, c = (recorder.requests[name] for name in "abc")
    assert a.times.finished == 3.0
    assert (b.arrival_time, b.times.finished) == (5.5, 8.5)
    assert c.arrival_time == 14.5


@pytest.mark.slow
def test_the_next_turn_finds_the_last_answer_in_the_cache() -> None:
    """Every full block of the previous turn's prompt and answer, but for the last sampled token."""
    workload = agentic(AgenticOptions(num_sessions=3))
    recorder = Recorder()
    config = SchedulerConfig(profile=VLLM_0_22, max_num_seqs=8, max_num_batched_tokens=2048, max_model_len=40_000)
    replay(workload, config, CacheConfig(num_gpu_blocks=10_000), SECOND, observer=recorder)
    by_id = {each.request_id: each for each in workload}
    followers = [each for each in workload if each.after]
    assert len(followers) == len(workload) - 3 == 39
    for each in followers:
        before = by_id[each.after[0]]
        known = before.num_prompt_tokens + before.max_tokens - 1
        assert recorder.hits[each.request_id] == known // 16 * 16


@pytest.mark.parametrize(
    ("late", "problem"),
    [
        (request("big", 3000, arrival_time=5.0), "'big': prompt_token_ids = '3000 tokens': .*max_model_len"),
        (request("big", 500, 1000, arrival_time=5.0), "'big': max_tokens = 1000: .* blocks and the pool has"),
        (request("big", 3000, after=("a",)), "'big'.*max_model_len"),
    ],
)
def test_a_request_that_can_never_run_is_refused_before_the_first_step(late: WorkloadRequest, problem: str) -> None:
    """However late it comes: a user should not wait a minute for an error that is known from the start."""
    recorder = Recorder()
    with pytest.raises(RequestError, match=problem):
        replay(Workload("w", [request("a"), late]), CONFIG, CacheConfig(num_gpu_blocks=50), SECOND, observer=recorder)
    assert recorder.log == []


def test_refused_requests_are_counted_and_end_their_session() -> None:
    result, recorder = run(
        request("a"),
        request("big", 3000, after=("a",)),
        request("after big", after=("big",)),
        request("never fits", 1000, 1000),
        request("b", arrival_time=20.0),
        cache_config=CacheConfig(num_gpu_blocks=100),
        skip_refused=True,
    )
    assert [each.request_id for each in result.refused] == ["never fits", "big"]
    assert "max_model_len" in result.refused[1].problem
    assert (result.num_finished, result.num_left_out) == (2, 1)
    assert set(recorder.requests) == {"a", "b"}


def test_everything_refused() -> None:
    result, _ = run(request("big", 3000), skip_refused=True)
    assert (result.steps, result.num_finished, len(result.refused)) == (0, 0, 1)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run() -> None:
    def once() -> list[tuple[object, ...]]:
        recorder = Recorder()
        workload = agentic(AgenticOptions(num_sessions=6, seed=3, max_context=4000, system_tokens=500))
        config = SchedulerConfig(profile=VLLM_0_22, max_num_seqs=4, max_num_batched_tokens=512, max_model_len=4096)
        latency = RooflineLatency(named_model("llama-3.1-8b"), named_gpu("a100-40gb"))
        replay(workload, config, CacheConfig(num_gpu_blocks=600), latency, observer=recorder)
        return recorder.log

    first = once()
    assert len(first) == 6746
    assert first == once()


def test_progress_ends_with_everything_done() -> None:
    seen: list[Progress] = []
    result, _ = run(*(request(f"r{i}", output=400, arrival_time=i) for i in range(5)), on_progress=seen.append)
    assert [each.num_done for each in seen] == sorted(each.num_done for each in seen)
    assert len(seen) == result.steps // 256 + 2
    last = seen[-1]
    assert (last.num_done, last.num_running, last.num_waiting, last.now) == (5, 0, 0, result.seconds)


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(st.data())
def test_nothing_is_lost_under_pressure(data: st.DataObject) -> None:
    """Small pools, chains and preemptions: the replay's own checks hold (no block held, all accounted for)."""
    requests = []
    for i in range(data.draw(st.integers(1, 12))):
        parent = data.draw(st.integers(-1, i - 1))
        timing: dict[str, Any] = (
            {"arrival_time": data.draw(st.floats(0, 10))} if parent < 0 else {"after": (f"r{parent}",), "gap": 0.5}
        )
        sizes = data.draw(st.tuples(st.integers(1, 150), st.integers(1, 60)))
        requests.append(request(f"r{i}", *sizes, priority=data.draw(st.integers(0, 2)), **timing))
    result, _ = run(
        *requests,
        config=SchedulerConfig(
            profile=VLLM_0_22,
            max_num_seqs=data.draw(st.integers(1, 6)),
            max_num_batched_tokens=data.draw(st.integers(8, 64)),
            max_model_len=256,
            policy=data.draw(st.sampled_from(["fcfs", "priority"])),
            scheduler_reserve_full_isl=data.draw(st.booleans()),
        ),
        cache_config=CacheConfig(num_gpu_blocks=data.draw(st.integers(8, 20)), block_size=16),
        skip_refused=True,
    )
    assert result.num_finished + len(result.refused) + result.num_left_out == len(requests)


def test_a_step_without_tokens_does_not_stall_the_clock() -> None:
    """A pool so small that requests preempt themselves: the run still ends."""
    result, _ = run(
        *(request(f"r{i}", 40, 30) for i in range(3)),
        config=SchedulerConfig(profile=VLLM_0_22, max_num_seqs=3, max_num_batched_tokens=64, max_model_len=80),
        cache_config=CacheConfig(num_gpu_blocks=6),
    )
    assert result.num_finished == 3


# ---- against reality


def measured(folder: Path) -> tuple[Workload, dict[str, float]]:
    """The requests of a measured run, and its mean TTFT and TPOT in seconds."""
    rows = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    start = min(row["arrival_time"] for row in rows)
    requests = [
        request(
            row["request_id"],
            source=StreamTokens.unique(i, row["input_toks"]),
            output=row["output_toks"],
            arrival_time=row["arrival_time"] - start,
        )
        for i, row in enumerate(rows)
    ]
    ttft = sum(row["first_token_ts"] - row["queued_ts"] for row in rows) / len(rows)
    tpot = [
        (row["last_token_ts"] - row["first_token_ts"]) / (row["output_toks"] - 1)
        for row in rows
        if row["output_toks"] > 1
    ]
    return Workload(folder.name, requests), {"ttft": ttft, "tpot": sum(tpot) / len(tpot)}


def simulated(workload: Workload, num_gpu_blocks: int, max_num_seqs: int, latency: LatencyModel) -> dict[str, float]:
    recorder = Recorder()
    config = SchedulerConfig(
        profile=VLLM_0_22, max_num_seqs=max_num_seqs, max_num_batched_tokens=2048, max_model_len=32_768
    )
    replay(workload, config, CacheConfig(num_gpu_blocks=num_gpu_blocks), latency, observer=recorder)
    ttft, tpot = [], []
    for each in recorder.requests.values():
        assert each.times.first_token is not None
        assert each.times.finished is not None
        ttft.append(each.times.first_token - each.arrival_time)
        if each.max_tokens > 1:
            tpot.append((each.times.finished - each.times.first_token) / (each.max_tokens - 1))
    return {"ttft": sum(ttft) / len(ttft), "tpot": sum(tpot) / len(tpot)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gpu", "num_gpu_blocks", "max_num_seqs", "kind", "tolerance"),
    [
        ("rtx4090", 2588, 256, "table", 0.05),
        ("rtxpro6000", 35_656, 128, "table", 0.08),
        ("rtx4090", 2588, 256, "roofline", 0.08),
        ("rtxpro6000", 35_656, 128, "roofline", 0.10),
    ],
)
def test_a_measured_run_is_met(
    shared: Path, gpu: str, num_gpu_blocks: int, max_num_seqs: int, kind: str, tolerance: float
) -> None:
    """Real vLLM 0.19 runs of 300 requests at 10/s, Llama-3.1-8B: mean TTFT and TPOT within the tolerance."""
    llama = named_model("llama-3.1-8b")
    workload, truth = measured(shared / f"data/groundtruth/vllm019_{gpu.upper()}_Llama-3.1-8B")
    latency: LatencyModel = RooflineLatency(llama, named_gpu(gpu))
    if kind == "table":
        latency = load_tables(shared / f"data/latency/lss_{gpu.upper()}_Llama-3.1-8B", llama)
    found = simulated(workload, num_gpu_blocks, max_num_seqs, latency)
    assert found["ttft"] == pytest.approx(truth["ttft"], rel=tolerance)
    assert found["tpot"] == pytest.approx(truth["tpot"], rel=tolerance)


@pytest.mark.slow
def test_a_recorded_trace_runs_to_its_end(shared: Path) -> None:
    workload = read_workload(shared / "data/traces/mooncake_conversation.jsonl.gz", limit=120)
    latency = RooflineLatency(named_model("llama-3.1-8b"), named_gpu("h100"))
    config = SchedulerConfig(profile=VLLM_0_22, max_model_len=131_072)
    result = replay(workload, config, CacheConfig(num_gpu_blocks=28_000), latency)
    assert result.num_finished == 120
    assert result.output_tokens == workload.num_output_tokens


# ---- what never ends


class Hoarder(Policy):
    """Keeps the blocks of everybody who has ended, and gives none back."""

    def keeps_blocks(self, now: float, request: Request) -> bool:
        return True


def test_a_replay_that_cannot_end_says_at_whom_and_why() -> None:
    requests = [
        WorkloadRequest(
            request_id=name,
            prompt=StreamTokens.unique(seed_of(name), 300),
            max_tokens=2,
            arrival_time=at,
            job_id=name,
        )
        for name, at in (("first", 0.0), ("second", 5.0), ("third", 9.0))
    ]
    workload, cache = Workload("three", requests), CacheConfig(num_gpu_blocks=30)
    with pytest.raises(StuckError, match=r"kv_full_sequence \(19 blocks needed, 10 free\)") as caught:
        replay(workload, CONFIG, cache, SECOND, policy=Hoarder())
    assert (caught.value.request_id, caught.value.num_requests) == ("second", 2)
    with pytest.raises(StuckError, match=r"request 'second'.*in a replay, change what .* depends on"):
        replay_parallel(workload, CONFIG, cache, SECOND, RoundRobin(), data_parallel_size=1, policies=[Hoarder()])
