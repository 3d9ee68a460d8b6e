"""KV connectors: CPU memory, shared storage, and the way from a prefill engine to a decode engine.

Each has two halves that never meet but through a step's :class:`~tokenyard.connectors.plan.TransferPlan`: the
scheduler half decides which blocks go where, the worker half moves them. A replay puts a model of the links in the
place of the worker half.

What this package offers beyond ``KVConnector`` and ``KVTransferConfig``: the connectors there are, and what one of your
own takes and gives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenyard.lazy import lazy_names

__all__ = [
    "ArrayMemory",
    "BlockFiles",
    "BlockMemory",
    "BlockPool",
    "BlockStore",
    "CPUTier",
    "ConnectorContext",
    "ConnectorOutput",
    "ConnectorWorker",
    "DiskTier",
    "HostMemory",
    "Load",
    "LookupResult",
    "Match",
    "Offer",
    "OfferExchange",
    "PoolListener",
    "PrefillDecodeConnector",
    "PrefillDecodeWorker",
    "RemoteRequest",
    "Store",
    "Tier",
    "TierWorker",
    "TieredConnector",
    "TransferPlan",
]

OFFERED = {
    "tokenyard.sched.connector": ("ConnectorContext", "Match"),
    "tokenyard.sched.steps.model_output": ("ConnectorOutput",),
    "tokenyard.kv.blocks.pool": ("BlockPool", "PoolListener"),
    "tokenyard.connectors.tiered": ("TieredConnector",),
    "tokenyard.connectors.tier": ("Tier", "LookupResult"),
    "tokenyard.connectors.cpu_tier": ("CPUTier",),
    "tokenyard.connectors.disk_tier": ("DiskTier",),
    "tokenyard.connectors.tier_worker": ("TierWorker", "BlockStore", "HostMemory"),
    "tokenyard.connectors.block_files": ("BlockFiles",),
    "tokenyard.connectors.memory": ("BlockMemory", "ArrayMemory"),
    "tokenyard.connectors.prefill_decode": ("PrefillDecodeConnector",),
    "tokenyard.connectors.prefill_decode_worker": ("PrefillDecodeWorker", "OfferExchange"),
    "tokenyard.connectors.plan": ("ConnectorWorker", "TransferPlan", "Load", "Store", "Offer", "RemoteRequest"),
}

if TYPE_CHECKING:
    from tokenyard.connectors.block_files import BlockFiles
    from tokenyard.connectors.cpu_tier import CPUTier
    from tokenyard.connectors.disk_tier import DiskTier
    from tokenyard.connectors.memory import ArrayMemory, BlockMemory
    from tokenyard.connectors.plan import ConnectorWorker, Load, Offer, RemoteRequest, Store, TransferPlan
    from tokenyard.connectors.prefill_decode import PrefillDecodeConnector
    from tokenyard.connectors.prefill_decode_worker import OfferExchange, PrefillDecodeWorker
    from tokenyard.connectors.tier import LookupResult, Tier
    from tokenyard.connectors.tier_worker import BlockStore, HostMemory, TierWorker
    from tokenyard.connectors.tiered import TieredConnector
    from tokenyard.kv.blocks.pool import BlockPool, PoolListener
    from tokenyard.sched.connector import ConnectorContext, Match
    from tokenyard.sched.steps.model_output import ConnectorOutput
else:
    __getattr__, __dir__ = lazy_names(__name__, OFFERED)
