"""Both halves of a KV connector for an engine's own blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tokenyard.config import CacheConfig
from tokenyard.connectors.block_files import BlockFiles
from tokenyard.connectors.config import OFFLOADING, STORAGE, KVTransferConfig, cpu_tier
from tokenyard.connectors.disk_tier import DiskTier
from tokenyard.connectors.memory import BlockMemory
from tokenyard.connectors.plan import ConnectorWorker
from tokenyard.connectors.prefill_decode import PrefillDecodeConnector
from tokenyard.connectors.prefill_decode_worker import OfferExchange, PrefillDecodeWorker
from tokenyard.connectors.tier_worker import HostMemory, TierWorker
from tokenyard.connectors.tiered import TieredConnector
from tokenyard.errors import ConfigError
from tokenyard.sched.connector import KVConnector

__all__ = ["Transfers", "make_transfers"]


class Transfers(NamedTuple):
    """A connector."""

    scheduler: KVConnector
    worker: ConnectorWorker


def make_transfers(
    config: KVTransferConfig,
    cache: CacheConfig,
    memory: BlockMemory,
    bytes_per_block: int,
    clock: Callable[[], float],
    exchange: OfferExchange | None,
) -> Transfers:
    """The connector that ``config`` names, over ``memory``. ConfigError if it does not go with the cache."""
    if config.kv_connector == OFFLOADING:
        tier = cpu_tier(config, bytes_per_block)
        store_on, load_async = config.get("store_on", "finish"), config.get("load_async", True)
        connector = TieredConnector(cache, tier, store_on=store_on, load_async=load_async)
        return Transfers(connector, TierWorker(memory, HostMemory(tier.num_blocks)))
    if config.kv_connector == STORAGE:
        if "shared_storage_path" not in config.kv_connector_extra_config:
            raise ConfigError("shared_storage_path", None, "say in which folder the blocks are kept")
        files = BlockFiles(config.get("shared_storage_path", ""), config.get("namespace", "default"))
        connector = TieredConnector(cache, DiskTier(files), load_async=config.get("load_async", True))
        return Transfers(connector, TierWorker(memory, files))
    if exchange is None:
        fix = "prefill and decode need an exchange= that both engines are loaded with"
        raise ConfigError("kv_connector", config.kv_connector, fix)
    handing_over = PrefillDecodeConnector(cache, config.engine_id, clock)
    return Transfers(handing_over, PrefillDecodeWorker(memory, exchange, config.engine_id, clock))
