"""A disk below CPU memory: what memory gives up is found there and read back, and nothing is lost on the way."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

import tokenyard as ty
from tokenyard.connectors.config import KVTransferConfig, cpu_tier
from tokenyard.connectors.secondary import TieredMemory
from tokenyard.connectors.tiers import LookupResult
from tokenyard.errors import ConfigError


class Drive:
    """A block takes a second, each way."""

    def __init__(self) -> None:
        self.time = 0.0
        self.moved: list[tuple[str, int]] = []

    def now(self) -> float:
        return self.time

    def read(self, num_blocks: int) -> float:
        self.moved.append(("read", num_blocks))
        return self.time + num_blocks

    def write(self, num_blocks: int) -> float:
        self.moved.append(("write", num_blocks))
        return self.time + num_blocks


def keys(names: str) -> list[bytes]:
    return [name.encode() for name in names]


def store(tier: TieredMemory, drive: Drive, names: str) -> None:
    """One after the other, each written to the disk before the next."""
    for key in keys(names):
        assert tier.reserve(key) is not None
        tier.complete(key)
        drive.time += 1
        tier.advance()


def test_what_is_stored_is_on_the_disk_as_well_and_comes_back_from_there() -> None:
    drive = Drive()
    tier = TieredMemory(2, 10, drive)
    store(tier, drive, "abcd")
    assert [each in tier for each in keys("abcd")] == [False, False, True, True]
    assert tier.find(keys("ab")) == LookupResult(0, undecided=True)
    assert tier.find(keys("ab")) == LookupResult(0, undecided=True), "it is read once"
    assert tier.next_moment == drive.time + 2
    drive.time += 2
    assert tier.find(keys("ab")) == LookupResult(2)
    assert drive.moved == [("write", 1)] * 4 + [("read", 2)], "what is there is not written again"
    stats = tier.take_stats()
    assert (stats["disk_hit_blocks"], stats["disk_stored_blocks"], stats["disk_evicted_blocks"]) == (2, 4, 0)
    tier.check_invariants()


def test_memory_that_is_written_from_stays() -> None:
    drive = Drive()
    tier = TieredMemory(1, 10, drive)
    assert tier.reserve(b"a") is not None
    tier.complete(b"a")
    assert tier.reserve(b"b") is None, "a is on its way to the disk"
    assert tier.find(keys("a")) == LookupResult(1), "and can be read meanwhile"
    assert not tier.reset()
    drive.time += 1
    tier.advance()
    assert tier.reserve(b"b") is not None


def test_what_was_used_longest_ago_leaves_the_disk() -> None:
    drive = Drive()
    tier = TieredMemory(1, 2, drive)
    store(tier, drive, "ab")
    tier.touch(keys("a"))
    store(tier, drive, "c")
    assert tier.find(keys("b")) == LookupResult(0)
    assert tier.find(keys("a")) == LookupResult(0, undecided=True)


def test_a_chain_longer_than_memory_is_found_as_far_as_it_has_room() -> None:
    drive = Drive()
    tier = TieredMemory(2, 10, drive)
    store(tier, drive, "abcd")
    assert tier.find(keys("abcd")).undecided
    drive.time += 9
    assert tier.find(keys("abcd")) == LookupResult(2), "what is there is not pushed out for what follows it"
    assert tier.find(keys("abcd")) == LookupResult(2)


def test_whatever_comes_nothing_is_lost() -> None:
    for seed in range(30):
        draw, drive = Random(seed), Drive()
        tier = TieredMemory(draw.randint(1, 6), draw.randint(1, 12), drive, draw.choice(("lru", "arc")))
        reserved: list[bytes] = []
        for _ in range(200):
            drive.time += draw.choice((0, 0.5, 3))
            chain = keys("abcdefghijkl"[: draw.randint(1, 12)])
            if reserved and draw.random() < 0.5:
                tier.complete(reserved.pop())
            elif draw.random() < 0.5:
                found = tier.find(chain)
                assert all(each in tier for each in chain[: found.num_blocks])
                tier.touch(chain)
            elif tier.reserve(key := draw.choice(chain)) is not None:
                reserved.append(key)
            tier.check_invariants()


# ---- in a replay

DEPLOYMENT = ty.Deployment(model="Qwen/Qwen3-8B", gpu="l40s", num_gpu_blocks_override=400, max_model_len=4096)


def conversations() -> ty.Workload:
    w = ty.WorkloadBuilder("conversations", seed=0)
    for at in w.poisson(rate=0.5, n=10):
        session = w.session(at=at)
        for _ in range(3):
            session.turn(user=800, output=50, think=20.0)
    return w.build()


def tiers(dram: float, disk: float | None, **speeds: float) -> ty.Deployment:
    extra: dict[str, Any] = {}
    if disk is not None:
        fs = {"type": "fs", "root_dir": "/kv", "bytes_to_use": disk * 2**30, **speeds}
        extra = {"spec_name": "TieringOffloadingSpec", "secondary_tiers": [fs]}
    config = {"kv_connector": "OffloadingConnector", "kv_connector_extra_config": extra}
    return DEPLOYMENT.with_(kv_offloading_size=dram, kv_transfer_config=json.dumps(config))


@pytest.mark.slow
def test_a_disk_below_little_memory_finds_what_much_memory_would() -> None:
    little, much, disk = (
        ty.run(conversations(), each, rows=False).report for each in (tiers(0.5, None), tiers(32, None), tiers(0.5, 32))
    )
    hits = [each.prefix_hit_rate.external or 0.0 for each in (little, much, disk)]
    assert hits[0] < 0.1
    assert hits[1] > 0.3
    assert hits[2] == pytest.approx(hits[1], abs=0.03)
    ttft = [each.ttft_ms.mean or 0.0 for each in (little, much, disk)]
    assert ttft[1] < ttft[2] < ttft[0]
    assert "connector_undecided" in disk.recorded_reasons, "requests wait while their blocks are read"


@pytest.mark.slow
def test_a_slow_disk_costs_time_and_no_hits() -> None:
    fast, slow = (ty.run(conversations(), tiers(0.5, 32, read_gb_per_s=each), rows=False).report for each in (12, 0.5))
    assert slow.prefix_hit_rate.external == pytest.approx(fast.prefix_hit_rate.external, abs=0.05)
    assert (slow.ttft_ms.mean or 0) > 1.2 * (fast.ttft_ms.mean or 0)


@pytest.mark.parametrize(
    ("extra", "field"),
    [
        ({"secondary_tiers": [{"type": "fs"}]}, "secondary_tiers"),
        ({"spec_name": "Mine"}, "spec_name"),
        ({"spec_name": "TieringOffloadingSpec", "secondary_tiers": {"type": "fs"}}, "secondary_tiers"),
        ({"spec_name": "TieringOffloadingSpec", "secondary_tiers": [{"type": "obj"}]}, "secondary_tiers"),
        ({"spec_name": "TieringOffloadingSpec", "secondary_tiers": [{"type": "fs"}] * 2}, "secondary_tiers"),
        ({"spec_name": "TieringOffloadingSpec", "secondary_tiers": [{"type": "fs", "x": 1}]}, "secondary_tiers.x"),
        (
            {"spec_name": "TieringOffloadingSpec", "secondary_tiers": [{"type": "fs", "bytes_to_use": 0}]},
            "secondary_tiers.bytes_to_use",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(extra: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        KVTransferConfig(kv_connector="OffloadingConnector", kv_connector_extra_config=extra)
    assert caught.value.field == field


def test_a_disk_is_replayed_and_not_driven() -> None:
    extra = {"cpu_bytes_to_use": 10**6, "spec_name": "TieringOffloadingSpec", "secondary_tiers": [{"type": "fs"}]}
    config = KVTransferConfig(kv_connector="OffloadingConnector", kv_connector_extra_config=extra)
    with pytest.raises(ConfigError, match="is replayed, and not driven"):
        cpu_tier(config, 1000)
    made = cpu_tier(config, 1000, drive=lambda read, write: Drive())
    assert isinstance(made, TieredMemory)
    assert made.num_disk_blocks > 10**9, "vLLM's tier of files has no bound"
    extra["secondary_tiers"] = [{"type": "fs", "bytes_to_use": 10}]
    with pytest.raises(ConfigError, match="a KV block has"):
        cpu_tier(config, 1000, drive=lambda read, write: Drive())
