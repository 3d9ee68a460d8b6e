"""KV that moves in a replay: links take their time, the clock waits for what ends by itself, nothing stalls."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.unit.sim.test_replay import Recorder, request

from tokenyard.connectors.config import OFFLOADING, PREFILL_DECODE, STORAGE, KVTransferConfig
from tokenyard.connectors.tiers import Load, Store, TransferPlan
from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.profiles import PROFILES, DecisionProfile
from tokenyard.core.request import Request
from tokenyard.core.sched.policy import FCFS
from tokenyard.core.sched.queues import WaitingQueues
from tokenyard.errors import ConfigError
from tokenyard.sim.replay import ReplayResult, replay
from tokenyard.sim.transfers import KVTransfer, Link, SimulatedTransfers
from tokenyard.steptime.model import ConstantLatency, Transfer
from tokenyard.steptime.pace import VirtualClock
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import StreamTokens, seed_of

BLOCK_BYTES = 1000
CONFIG = SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=2048, max_model_len=2048)
SHARED = StreamTokens.unique(seed_of("shared"), 320)
"""20 blocks, of which 19 can be hit."""

LRU_OR_OWN = "use lru or arc, or a class that takes a number of blocks and has add, touch, evict, discard, clear"


def offloading(num_blocks: int = 1000, **extra: Any) -> KVTransfer:
    extra = {"cpu_bytes_to_use": num_blocks * BLOCK_BYTES, **extra}
    config = KVTransferConfig(kv_connector=OFFLOADING, kv_connector_extra_config=extra)
    return KVTransfer(config=config, bytes_per_block=BLOCK_BYTES)


def latency(blocks_per_second: float) -> ConstantLatency:
    """A second per step, and a link of that speed."""
    return ConstantLatency(seconds=1.0, transfer=Transfer(bandwidth=blocks_per_second * BLOCK_BYTES, latency=0.0))


def run(
    *requests: WorkloadRequest, blocks_per_second: float = 10.0, num_gpu_blocks: int = 101, **options: Any
) -> tuple[ReplayResult, Recorder]:
    recorder = Recorder()
    arguments: dict[str, Any] = {"kv_transfer": offloading(), **options}
    cache = CacheConfig(num_gpu_blocks=num_gpu_blocks)
    config = arguments.pop("config", CONFIG)
    workload = Workload("w", requests)
    return replay(workload, config, cache, latency(blocks_per_second), observer=recorder, **arguments), recorder


def evicted(*after: WorkloadRequest, **fields: Any) -> list[WorkloadRequest]:
    """A prefix is computed, pushed out of the GPU, and wanted again at 1,000 s."""
    first = request("first", output=1, source=SHARED)
    flush = request("flush", 1590, 1, after=("first",))
    return [first, flush, request("again", output=2, source=SHARED, arrival_time=1000.0), *after]


# ---- links


def test_a_link_sends_one_thing_after_the_other() -> None:
    link = Link(lambda num_bytes: num_bytes / 10)
    assert link.send(1.0, 20) == 3.0
    assert link.send(2.0, 10) == 4.0
    assert link.send(9.0, 10) == 10.0
    assert (link.num_bytes, link.busy_seconds) == (40, 4.0)


def test_saves_and_blocking_loads_make_the_step_wait_and_others_do_not() -> None:
    clock = VirtualClock()
    transfers = SimulatedTransfers(clock.now, Link(lambda n: n / 10), Link(lambda n: n / 10), 10)
    plan = TransferPlan(
        saves=(Store(1, None, (1, 2), (0, 1)),),
        loads=(Load(2, "waits", (3, 4, 5), (2, 3, 4), True), Load(3, "blocks", (6,), (5,), False)),
        stores=(Store(4, "ended", (7,), (6,)),),
    )
    assert transfers.begin(plan) == 4.0, "the blocking load queues behind the other one"
    assert transfers.next_moment == 2.0
    assert transfers.report() is None
    clock.advance(3.0)
    report = transfers.report()
    assert report is not None
    assert (report.finished_receiving, report.finished_sending) == (frozenset({"waits"}), frozenset({"ended"}))
    assert report.completed_jobs == {1, 2, 4}
    clock.advance(1.0)
    report = transfers.report()
    assert report is not None
    assert not report.finished_receiving
    assert report.completed_jobs == {3}
    assert transfers.next_moment is None
    assert transfers.begin(None) == 0.0


# ---- replays


@pytest.mark.parametrize("load_async", [True, False])
def test_a_lonely_load_is_waited_for(load_async: bool) -> None:
    """19 blocks at 10 per second, then a step of a second for the last block and the first token."""
    result, recorder = run(*evicted(), kv_transfer=offloading(load_async=load_async))
    again = recorder.requests["again"]
    assert again.num_external_computed_tokens == 304
    assert again.times.first_token == pytest.approx(1002.9)
    assert again.times.finished == pytest.approx(1003.9)
    assert result.num_finished == 3


def test_a_load_runs_beside_the_steps_of_others_unless_it_is_said_to_block() -> None:
    other = request("other", 10, 20, arrival_time=999.0)
    _, beside = run(*evicted(other))
    _, blocking = run(*evicted(other), kv_transfer=offloading(load_async=False))
    assert beside.requests["other"].times.finished == pytest.approx(1019.0)
    assert blocking.requests["other"].times.finished == pytest.approx(1020.9)
    assert beside.requests["again"].times.first_token == pytest.approx(1003.0)


def test_a_faster_link_is_never_worse_and_a_tier_that_is_too_small_is_no_help() -> None:
    times = []
    for blocks_per_second in (1, 5, 20, 1000):
        _, recorder = run(*evicted(), blocks_per_second=blocks_per_second)
        times.append(recorder.requests["again"].times.first_token or 0.0)
    assert times == sorted(times, reverse=True)
    assert times[0] - times[-1] == pytest.approx(19 - 0.019)
    _, none = run(*evicted(), kv_transfer=None)
    _, small = run(*evicted(), kv_transfer=offloading(num_blocks=1))
    assert small.requests["again"].num_external_computed_tokens == 0
    assert none.requests["again"].num_external_computed_tokens == 0


def test_blocks_that_are_still_sent_are_waited_for() -> None:
    """The pool holds one of them at a time; the second starts when the first one's 62 blocks are in CPU memory."""
    result, recorder = run(request("a", 1000, 1), request("b", 1000, 1), num_gpu_blocks=101)
    assert recorder.requests["a"].times.finished == 1.0
    assert recorder.requests["b"].times.first_scheduled == pytest.approx(1.0 + 6.2)
    assert result.seconds == pytest.approx(8.2 + 6.2), "the last store ends after the last token"


@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
def test_a_loop_that_works_ahead_waits_for_them_too(profile: DecisionProfile) -> None:
    """Filling the queue first it has always an empty step in flight, which must not be what it waits for."""
    config = replace(CONFIG, async_scheduling=True, profile=profile)
    result, _ = run(*evicted(), blocks_per_second=0.1, config=config)
    assert result.num_finished == 3
    assert result.steps < 50


def test_blocks_saved_on_eviction_make_the_step_wait_that_evicts_them() -> None:
    """The flush takes all 100 blocks, 20 of them with content: two seconds until they are saved."""
    _, recorder = run(*evicted(), kv_transfer=offloading(store_on="eviction"))
    assert recorder.requests["first"].times.finished == 1.0
    assert recorder.requests["flush"].times.first_scheduled == 1.0
    assert recorder.requests["flush"].times.finished == pytest.approx(4.0)
    assert recorder.requests["again"].num_external_computed_tokens == 304


def test_storage_reads_and_writes_at_its_own_speed() -> None:
    extra = {"read_gb_per_s": 1e-5, "write_gb_per_s": 1e-6}  # 10 blocks and one block per second
    config = KVTransferConfig(kv_connector="ExampleConnector", kv_connector_extra_config=extra)
    assert config.kv_connector == STORAGE
    result, recorder = run(*evicted(), kv_transfer=KVTransfer(config=config, bytes_per_block=BLOCK_BYTES))
    assert recorder.requests["again"].times.first_token == pytest.approx(1002.9)
    assert recorder.requests["flush"].times.first_scheduled == pytest.approx(21.0), "20 blocks were being written"
    assert result.num_finished == 3


def test_the_same_run_twice_gives_the_same_times() -> None:
    first, second = run(*evicted())[1].log, run(*evicted())[1].log
    assert first == second


class Stubborn(FCFS):
    """Pins every turn for 50 seconds and gives nothing up before."""

    def __init__(self) -> None:
        self.until: dict[str, float] = {}

    def keeps_blocks(self, now: float, request: Request) -> bool:
        assert request.job_id is not None
        self.until[request.job_id] = now + 50.0
        return not request.is_last_step

    def step_begins(self, now: float, queues: WaitingQueues) -> None:
        for pinned in self.pins:
            if pinned.job_id is not None and now >= self.until[pinned.job_id]:
                self.pins.unpin(pinned.job_id)

    def next_moment(self, now: float) -> float | None:
        return min((until for until in self.until.values() if until > now), default=None)


@pytest.mark.parametrize("transfer", [None, offloading()])
def test_the_end_of_a_pin_is_waited_for(transfer: KVTransfer | None) -> None:
    requests = request("pins", 1000, 1, job_id="job"), request("waits", 1000, 1, arrival_time=2.0)
    result, recorder = run(*requests, policy=Stubborn(), kv_transfer=transfer)
    assert recorder.requests["waits"].times.first_scheduled == 51.0
    assert result.num_finished == 2


# ---- settings


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"kv_connector": "Nobody"}, "use OffloadingConnector or SharedStorageConnector"),
        ({"kv_connector": OFFLOADING, "kv_role": "boss"}, "kv_producer, kv_consumer, kv_both"),
        ({"kv_connector": OFFLOADING, "kv_load_failure_policy": "shrug"}, "recompute or fail"),
        ({"kv_connector": OFFLOADING, "kv_connector_extra_config": {"cpu": 1}}, "OffloadingConnector knows: cpu_bytes"),
        ({"kv_connector": OFFLOADING, "kv_connector_extra_config": {"store_on": "x"}}, "finish, eviction"),
        ({"kv_connector": OFFLOADING, "kv_connector_extra_config": {"load_async": 1}}, "true or false"),
        ({"kv_connector": OFFLOADING, "kv_connector_extra_config": {"cpu_bytes_to_use": -1}}, "a number above 0"),
        ({"kv_connector": OFFLOADING, "kv_connector_extra_config": 3}, "an object of settings"),
        ({"kv_connector": ["x"]}, r"kv_connector = \['x'\]: give a text"),
        ({"kv_connector": PREFILL_DECODE, "engine_id": 7}, "engine_id = 7: give a text"),
    ],
)
def test_settings_that_cannot_work_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        KVTransferConfig(**config)


@pytest.mark.parametrize(
    ("connector", "name", "value", "fix"),
    [
        (STORAGE, "shared_storage_path", 7, "give the path of a folder"),
        (STORAGE, "shared_storage_path", None, "give the path of a folder"),
        (STORAGE, "shared_storage_path", "", "give the path of a folder"),
        (STORAGE, "shared_storage_path", "a\0b", "give the path of a folder"),
        (STORAGE, "namespace", 7, "give a name that is valid for a folder"),
        (STORAGE, "namespace", "a/b", "give a name that is valid for a folder"),
        (STORAGE, "read_gb_per_s", "6", "give a number above 0"),
        (STORAGE, "write_gb_per_s", 10**400, "give a number above 0"),
        (STORAGE, "load_async", "no", "give true or false"),
        (OFFLOADING, "cpu_bytes_to_use", True, "give a number above 0"),
        (OFFLOADING, "eviction_policy", "fifo", LRU_OR_OWN),
        (OFFLOADING, "eviction_policy", ["lru"], LRU_OR_OWN),
        (OFFLOADING, "store_on", {}, "use one of: finish, eviction, preemption"),
    ],
)
def test_a_setting_of_a_wrong_kind_is_named(connector: str, name: str, value: object, fix: str) -> None:
    with pytest.raises(ConfigError) as caught:
        KVTransferConfig(kv_connector=connector, kv_connector_extra_config={name: value})
    assert (caught.value.field, caught.value.value, caught.value.fix) == (name, value, fix)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"kv_connector": OFFLOADING}, "--kv-offloading-size"),
        ({"kv_connector": OFFLOADING, "kv_connector_extra_config": {"cpu_bytes_to_use": 10}}, "a KV block alone"),
        ({"kv_connector": PREFILL_DECODE}, "two engines"),
    ],
)
def test_connectors_that_cannot_be_made_are_refused(config: dict[str, Any], message: str) -> None:
    transfer = KVTransfer(config=KVTransferConfig(**config), bytes_per_block=BLOCK_BYTES)
    with pytest.raises(ConfigError, match=message):
        transfer.make(CacheConfig(num_gpu_blocks=10_318), VirtualClock(), latency(1))


@pytest.mark.parametrize("text", ["", "[]", "{", '{"kv_role": "kv_both"}', '{"kv_connector": "x", "port": 1}'])
def test_json_that_is_no_configuration_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="kv_transfer_config"):
        KVTransferConfig.from_json(text)


def test_memory_is_for_all_gpus_together() -> None:
    config = offloading(100).config
    transfer = KVTransfer(config=config, bytes_per_block=BLOCK_BYTES, num_gpus=4)
    assert transfer.make(CacheConfig(num_gpu_blocks=10_318), VirtualClock(), latency(1)).connector.cpu_blocks == (
        25,
        25,
    )


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from(["fcfs", "priority", "continuum-fixed", "bypass"]),
    st.sampled_from(["finish", "eviction"]),
    st.booleans(),
    st.integers(1, 200),
    st.sampled_from([0.5, 20.0, 1e6]),
    st.fixed_dictionaries({"profile": st.sampled_from(list(PROFILES.values())), "async_scheduling": st.booleans()}),
)
def test_whatever_the_link_and_the_tier_everything_is_served(
    seed: int,
    policy: str,
    store_on: str,
    load_async: bool,
    num_cpu_blocks: int,
    blocks_per_second: float,
    loop: dict[str, Any],
) -> None:
    """Sessions on a pool that holds two of them: no stall, no block lost (the replay checks that itself)."""
    random, requests = Random(seed), []
    for job in range(4):
        length, before = random.randint(1, 200), ""
        for turn in range(random.randint(1, 4)):
            name = f"j{job}t{turn}"
            source = StreamTokens.unique(seed_of("job", job), length)
            fields: dict[str, Any] = {"job_id": f"j{job}", "priority": job, "this_func_call": "ls"}
            fields |= {"after": (before,), "gap": random.random() * 5} if before else {"arrival_time": random.random()}
            requests.append(request(name, output=random.randint(1, 30), source=source, **fields))
            length, before = length + random.randint(1, 150), name
    config = SchedulerConfig(
        max_num_seqs=3,
        max_num_batched_tokens=64,
        max_model_len=1000,
        policy=policy,
        **loop,
    )
    transfer = offloading(num_cpu_blocks, store_on=store_on, load_async=load_async)
    result, _ = run(
        *requests, num_gpu_blocks=70, blocks_per_second=blocks_per_second, config=config, kv_transfer=transfer
    )
    assert result.num_finished == len(requests)
