"""A connector for a replay: the scheduler half as an engine has it, the worker half as a model of its links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tokenyard.config import CacheConfig
from tokenyard.connectors.config import OFFLOADING, STORAGE, KVTransferConfig, cpu_tier
from tokenyard.connectors.disk_tier import DiskTier
from tokenyard.connectors.tiered import TieredConnector
from tokenyard.errors import ConfigError
from tokenyard.sched.connector import KVConnector
from tokenyard.sim.clock import VirtualClock
from tokenyard.sim.latency.model import LatencyModel, TransferDirection
from tokenyard.sim.latency.pricing import transfer_seconds
from tokenyard.sim.transfers.link import Link, SimulatedTransfers

__all__ = ["GIB", "KVTransfer", "SimulatedConnector"]

GIB = 1 << 30
"""Bytes."""
_READ_GB_PER_S, _WRITE_GB_PER_S = 6.0, 4.0
"""A good NVMe drive."""


class SimulatedConnector(NamedTuple):
    """The scheduler half of a connector, and what stands in the place of its worker half."""

    connector: KVConnector
    transfers: SimulatedTransfers


@dataclass(frozen=True, slots=True, kw_only=True)
class KVTransfer:
    """What is needed to make a connector: one for each replay, since it remembers."""

    config: KVTransferConfig
    bytes_per_block: int
    """Of one GPU."""
    num_gpus: int = 1
    """GPUs that share the model: ``cpu_bytes_to_use`` is for all of them, as in vLLM."""

    def make(self, cache: CacheConfig, clock: VirtualClock, latency: LatencyModel) -> SimulatedConnector:
        """Raises ConfigError if it does not go with the cache, or cannot be replayed by one engine."""
        config = self.config
        if config.kv_connector == OFFLOADING:
            tier = cpu_tier(config, self.bytes_per_block, self.num_gpus)
            inwards, outwards = _host_links(latency)
            connector = TieredConnector(
                cache, tier, store_on=config.get("store_on", "finish"), load_async=config.get("load_async", True)
            )
        elif config.kv_connector == STORAGE:
            files: set[bytes] = set()
            inwards = _wire(config.positive("read_gb_per_s", _READ_GB_PER_S))
            outwards = _wire(config.positive("write_gb_per_s", _WRITE_GB_PER_S))
            connector = TieredConnector(
                cache, DiskTier(files, on_stored=files.add), load_async=config.get("load_async", True)
            )
        else:
            fix = "it needs two engines: tokenyard split replays prefill and decode"
            raise ConfigError("kv_connector", config.kv_connector, fix)
        return SimulatedConnector(connector, SimulatedTransfers(clock.now, inwards, outwards, self.bytes_per_block))


def _host_links(latency: LatencyModel) -> tuple[Link, Link]:
    """To the GPU and away from it, at the same time: PCIe is full duplex."""
    return (
        Link(lambda num_bytes: transfer_seconds(latency, num_bytes, TransferDirection.TO_DEVICE)),
        Link(lambda num_bytes: transfer_seconds(latency, num_bytes, TransferDirection.TO_HOST)),
    )


def _wire(gb_per_s: float) -> Link:
    return Link(lambda num_bytes: num_bytes / (gb_per_s * 1e9))
