"""Replays in leaps are replays step by step: every figure, and blocks, hashes and queues whenever one looks."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, note, reject
from hypothesis import strategies as st
from tests.property.test_features_machine import draw_cache, draw_settings, draw_speculation

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.profiles import PROFILES
from tokenyard.core.request import Request
from tokenyard.core.sched.observer import Observers, ObserverWarning, RepeatedSteps, StepObserver
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.errors import ConfigError
from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import named_model
from tokenyard.record.recorder import TraceRecorder
from tokenyard.sim import replay as replays
from tokenyard.sim.executor import SimulatedSpeculation
from tokenyard.sim.numbering import SymbolicHasher
from tokenyard.sim.replay import ReplayResult
from tokenyard.steptime.calibrated import CalibratedLatency
from tokenyard.steptime.model import ConstantLatency, LatencyModel
from tokenyard.steptime.pace import MachineSpeed
from tokenyard.steptime.roofline import RooflineLatency
from tokenyard.vocabulary import SHIPPED
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import HashedTokens, Segment, StreamTokens, TokenSource

SEEDS = st.integers(0, 2**32 - 1)


class KeptScheduler(Scheduler):
    """Can be looked at from outside, and counts the steps that it has taken in leaps."""

    made: KeptScheduler
    num_repeated = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        type(self).made = self

    def repeat(self, tokens: Any, moments: Any) -> Any:
        self.num_repeated += len(moments)
        plans = super().repeat(tokens, moments)
        self.check_invariants()
        return plans


def memory_of(scheduler: Scheduler, *, tokens: bool) -> list[object]:
    """All that a later decision can depend on: blocks, LRU order, which blocks are equal, which request holds what.

    Without ``tokens`` the hashes are named in the order in which one meets them.
    """
    pool = scheduler.kv.pool
    names: dict[object, object] = {None: None}

    def named(key: object) -> object:
        return key if tokens else names.setdefault(key, len(names))

    found: list[object] = [pool.free_blocks(), [named(key) for key in pool.content], list(pool.holders)]
    for request in [*scheduler.running, *scheduler.waiting, *scheduler.skipped_waiting]:
        counts = (request.num_tokens, request.num_computed_tokens, request.num_preemptions, request.num_cached_tokens)
        held = scheduler.kv.get_block_ids(request)
        found.append((request.request_id, counts, [named(key) for key in request.block_hashes], held))
        found.append(request.all_token_ids if tokens else None)
        if request.slot >= 0:
            found.append((request.slot, request.publish_at, request.num_published, request.num_output_placeholders))
    for group in range(pool.num_groups):
        keys = {key for key in pool.content if key is not None}
        blocks = {key: pool.blocks_with(key, group) for key in keys}
        found.append(sorted((blocks[key], repr(named(key))) for key in blocks if blocks[key]))
    return found


class Looks(StepObserver):
    """Looks at everything when a request arrives or ends."""

    def __init__(self, *, reads_tokens: bool) -> None:
        self.reads_tokens = reads_tokens
        self.log: list[object] = []

    def request_arrived(self, ts: float, request: Request) -> None:
        self._look(ts, request)

    def request_finished(self, ts: float, request: Request) -> None:
        self._look(ts, request)
        times = request.times
        self.log.append((times.first_scheduled, times.first_token, times.finished))
        self.log.append(request.output_token_ids if self.reads_tokens else None)

    def _look(self, ts: float, request: Request) -> None:
        scheduler = KeptScheduler.made
        self.log.append((ts, request.request_id, scheduler.step, scheduler.get_request_counts()))
        self.log += memory_of(scheduler, tokens=self.reads_tokens)


class Run(NamedTuple):
    """One replay, and what could be seen of it."""

    result: ReplayResult
    log: list[object]
    report: object
    num_repeated: int


def run(monkeypatch: pytest.MonkeyPatch, workload: Workload, *, leaps: bool, reports: bool, **how: Any) -> Run:
    monkeypatch.setattr(replays, "Scheduler", KeptScheduler)
    looks, builder = Looks(reads_tokens=not reports), ReportBuilder()
    observer = Observers(looks, TraceRecorder(None, builder)) if reports else looks
    result = replays.replay(workload, observer=observer, leaps=leaps, skip_refused=True, **how)
    made = KeptScheduler.made
    return Run(
        result,
        looks.log + memory_of(made, tokens=not reports),
        builder.report() if reports else None,
        made.num_repeated,
    )


def both(monkeypatch: pytest.MonkeyPatch, workload: Workload, **how: Any) -> int:
    """Replay step by step and in leaps; both are the same. Returns how many steps were taken in leaps.

    Once with an observer that reads tokens and hashes, and once with the report, which does not, so that none are made.
    """
    num_repeated = 0
    for reports in (False, True):
        one = run(monkeypatch, workload, leaps=False, reports=reports, **how)
        other = run(monkeypatch, workload, leaps=True, reports=reports, **how)
        assert one.num_repeated == 0
        num_repeated = other.num_repeated
        assert one._replace(num_repeated=num_repeated) == other
    return num_repeated


def draw_prompt(random: Random, seed: int, *, recorded: bool) -> TokenSource:
    """A piece of a stream, or blocks by their ids, the last of which may be left out."""
    length = random.choice([1, 7, 16, 33, 60])
    if not recorded:
        return StreamTokens(Segment(seed, 0, length))
    ids = [(random.randrange(2), 1) for _ in range(random.choice([length // 48, -(-length // 48)]))]
    return HashedTokens(ids, length, block_size=48, scope=5, tail=seed)


def draw_requests(random: Random) -> list[WorkloadRequest]:
    """Some say what others ask: a prompt goes as far into a stream as another's answer comes."""
    requests: list[WorkloadRequest] = []
    moment, recorded = 0.0, random.random() < 0.4
    for i in range(random.randint(1, 12)):
        moment += random.choice([0.0, 0.01, 0.3, 3.0])
        seed = random.randrange(4)
        follows = requests and random.random() < 0.2
        requests.append(
            WorkloadRequest(
                request_id=f"r{i}",
                prompt=draw_prompt(random, seed, recorded=recorded),
                max_tokens=random.choice([1, 2, 17, 50, 90]),
                output_seed=random.choice([seed, 7]),
                arrival_time=0.0 if follows else moment,
                after=(requests[-1].request_id,) if follows else (),
                gap=random.choice([0.0, 0.5]) if follows else 0.0,
                patience=random.choice([None] * 4 + [1.0]),
                priority=random.randrange(3),
                job_id=random.choice([None, "a", "b"]),
                is_last_step=random.random() < 0.3,
                lora_name=random.choice([None] * 6 + ["x", "y"]),
                cache_salt=random.choice([None] * 6 + ["salt"]),
            )
        )
    return requests


def draw_latency(random: Random) -> LatencyModel:
    kind = random.randrange(3)
    if kind == 0:
        return ConstantLatency(seconds=0.1, host_seconds=random.choice([0.0, 0.03]))
    spec, gpu = named_model(random.choice(["llama-3.1-8b", "gpt-oss-20b"])), named_gpu("h100")
    return CalibratedLatency(spec, gpu) if kind == 1 else RooflineLatency(spec, gpu)


def draw_config(random: Random) -> SchedulerConfig:
    settings = draw_settings(random)
    settings |= {
        "max_model_len": random.choice([60, 200]),
        "max_num_batched_tokens": random.choice([8, 64, 256]),
        "enable_chunked_prefill": True,
        "max_num_encoder_input_tokens": 0,
        "encoder_cache_size": 0,
        "profile": random.choice(list(PROFILES.values())),
        "policy": random.choice(["fcfs", "priority"] * 8 + [*SHIPPED]),
        "pipeline_parallel_size": random.choice([1] * 9 + [2]),
    }
    return SchedulerConfig(**settings)


def cache_of(random: Random, cache: CacheConfig, config: SchedulerConfig) -> CacheConfig:
    """Mostly of one group, now and then just large enough for one request."""
    if random.random() < 0.7:
        cache = CacheConfig(
            num_gpu_blocks=1, watermark=cache.watermark, enable_prefix_caching=cache.enable_prefix_caching
        )
    size = random.choice([1, 3, 4, 16])
    longest = len(cache.groups) * (3 - (-config.max_model_len // size))
    return replace(cache, block_size=size, num_gpu_blocks=longest + random.choice([0, 20, 100]))


@given(seed=SEEDS)
@example(seed=14)  # an answer goes on where its prompt, which no id covers, ends; another prompt says the same
def test_leaps_change_nothing(seed: int) -> None:
    random = Random(seed)
    with pytest.MonkeyPatch.context() as monkeypatch:
        try:
            config = draw_config(random)
            speculative = draw_speculation(random) if random.random() < 0.2 else None
            guesses = config.async_scheduling and speculative is not None
            cache = draw_cache(random, config, guesses=guesses, eagle=speculative is not None and speculative.use_eagle)
            cache = cache_of(random, cache, config)
            note(f"{config}\n{cache}")
            workload = Workload("w", draw_requests(random), max_concurrency=random.choice([None, None, 3]))
            how: dict[str, Any] = {"config": config, "cache_config": cache, "latency": draw_latency(random)}
            if random.random() < 0.2:
                how["pace"] = MachineSpeed(np.array([0.0, 1.0, 4.0]), np.array([1.0, 2.5, 0.5]))
            how["speculation"] = None if speculative is None else SimulatedSpeculation(config=speculative)
            both(monkeypatch, workload, **how)
        except ConfigError:
            reject()


class Grumbler(StepObserver):
    """Raises when it is told of a leap."""

    def steps_repeated(self, steps: RepeatedSteps) -> None:
        raise RuntimeError("no")


def test_an_observer_that_raises_in_a_leap_is_left_out() -> None:
    request = WorkloadRequest(request_id="r", prompt=StreamTokens.unique(1, 60), max_tokens=90)
    how: dict[str, Any] = {"config": PLAIN, "cache_config": CacheConfig(num_gpu_blocks=50)}
    workload, latency = Workload("w", [request]), ConstantLatency()
    with pytest.warns(ObserverWarning, match="Grumbler raised RuntimeError in steps_repeated"):
        result = replays.replay(workload, latency=latency, observer=Grumbler(), **how)
    assert result == replays.replay(workload, latency=latency, leaps=False, **how)


PLAIN = SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=64, max_model_len=400)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("version", PROFILES)
@pytest.mark.parametrize(("most", "blocks"), [(4, 200), (2, 200), (4, 13)], ids=["all run", "seats", "memory"])
def test_most_steps_are_taken_in_leaps(
    monkeypatch: pytest.MonkeyPatch, most: int, blocks: int, version: str, *, is_async: bool
) -> None:
    """Whether no request waits, or one for a seat or for memory, and whether tokens are in flight or not."""
    config = replace(PLAIN, max_num_seqs=most, async_scheduling=is_async, profile=PROFILES[version])
    requests = [
        WorkloadRequest(request_id=f"r{i}", prompt=StreamTokens.unique(i, 60), max_tokens=60, output_seed=i)
        for i in range(4)
    ]
    cache = CacheConfig(num_gpu_blocks=blocks)
    repeated = both(monkeypatch, Workload("w", requests), config=config, cache_config=cache, latency=ConstantLatency())
    steps = KeptScheduler.made.step
    assert isinstance(KeptScheduler.made.kv.hasher, SymbolicHasher), "the report reads no hashes"
    # Such versions count a lookup in every step, which a leap cannot.
    waits_for_memory = blocks < 200 and not PROFILES[version].lookups_count_at_admission
    assert repeated > steps * (0.1 if waits_for_memory else 0.8)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_leap_begins_with_the_first_decode_after_an_arrival_or_an_end(
    monkeypatch: pytest.MonkeyPatch, *, is_async: bool
) -> None:
    """Prompts of one step that come apart cost two steps in full, and ends apart two more: the rest is leaps."""
    requests = [
        WorkloadRequest(request_id=f"r{i}", prompt=StreamTokens.unique(i, 20), max_tokens=90, arrival_time=3.0 * i)
        for i in range(4)
    ]
    how: dict[str, Any] = {"config": replace(PLAIN, async_scheduling=is_async), "latency": ConstantLatency(seconds=0.1)}
    repeated = both(monkeypatch, Workload("w", requests), cache_config=CacheConfig(num_gpu_blocks=200), **how)
    assert KeptScheduler.made.step - repeated <= 4 * len(requests)


def test_a_leap_ends_where_a_block_fills_that_the_head_of_the_queue_looks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``b`` asks for what ``a`` is saying: it lacks one block until ``a`` has filled its second one."""
    requests = [
        WorkloadRequest(request_id="a", prompt=StreamTokens(Segment(1, 0, 20)), max_tokens=60, output_seed=1),
        WorkloadRequest(request_id="b", prompt=StreamTokens(Segment(1, 0, 159)), max_tokens=1, arrival_time=0.05),
    ]
    config = replace(PLAIN, max_num_batched_tokens=256, profile=PROFILES["0.33"])
    how: dict[str, Any] = {"config": config, "cache_config": CacheConfig(num_gpu_blocks=11)}
    both(monkeypatch, Workload("w", requests), latency=ConstantLatency(seconds=0.1), **how)
    looks = Looks(reads_tokens=False)
    replays.replay(Workload("w", requests), observer=looks, latency=ConstantLatency(seconds=0.1), **how)
    ends = [entry[1] for entry in looks.log if isinstance(entry, tuple) and len(entry) == 4 and entry[1] in ("a", "b")]
    assert ends == ["a", "b", "b", "a"], "b comes after a and ends before it"
