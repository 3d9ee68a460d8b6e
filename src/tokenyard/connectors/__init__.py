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
    "tokenyard.core.sched.connector": (
        "ConnectorContext",
        "Match",
    ),
    "tokenyard.core.sched.outputs": ("ConnectorOutput",),
    "tokenyard.core.kv.block_pool": (
        "BlockPool",
        "PoolListener",
    ),
    "tokenyard.connectors.tiered": ("TieredConnector",),
    "tokenyard.connectors.tiers": (
        "Tier",
        "LookupResult",
        "CPUTier",
        "DiskTier",
    ),
    "tokenyard.connectors.tier_worker": (
        "TierWorker",
        "BlockStore",
        "HostMemory",
        "BlockFiles",
        "BlockMemory",
        "ArrayMemory",
    ),
    "tokenyard.connectors.prefill_decode": ("PrefillDecodeConnector",),
    "tokenyard.connectors.prefill_decode_worker": (
        "PrefillDecodeWorker",
        "OfferExchange",
    ),
    "tokenyard.connectors.plan": (
        "ConnectorWorker",
        "TransferPlan",
        "Load",
        "Store",
        "Offer",
        "RemoteRequest",
    ),
}

if TYPE_CHECKING:
    from tokenyard.connectors.plan import ConnectorWorker, Load, Offer, RemoteRequest, Store, TransferPlan
    from tokenyard.connectors.prefill_decode import PrefillDecodeConnector
    from tokenyard.connectors.prefill_decode_worker import OfferExchange, PrefillDecodeWorker
    from tokenyard.connectors.tier_worker import (
        ArrayMemory,
        BlockFiles,
        BlockMemory,
        BlockStore,
        HostMemory,
        TierWorker,
    )
    from tokenyard.connectors.tiered import TieredConnector
    from tokenyard.connectors.tiers import CPUTier, DiskTier, LookupResult, Tier
    from tokenyard.core.kv.block_pool import BlockPool, PoolListener
    from tokenyard.core.sched.connector import ConnectorContext, Match
    from tokenyard.core.sched.outputs import ConnectorOutput
else:
    __getattr__, __dir__ = lazy_names(__name__, OFFERED)
