# What the package offers, in the order of the API page; the module beside it loads these names when they are asked for.
# isort: skip_file

from tokenyard.core.sched.connector import ConnectorContext as ConnectorContext, Match as Match
from tokenyard.core.sched.outputs import ConnectorOutput as ConnectorOutput
from tokenyard.core.kv.block_pool import BlockPool as BlockPool, PoolListener as PoolListener
from tokenyard.connectors.tiered import TieredConnector as TieredConnector
from tokenyard.connectors.tiers import (
    Tier as Tier,
    LookupResult as LookupResult,
    EvictionPolicy as EvictionPolicy,
    CPUTier as CPUTier,
    DiskTier as DiskTier,
    ConnectorWorker as ConnectorWorker,
    TransferPlan as TransferPlan,
    Load as Load,
    Store as Store,
    Offer as Offer,
    RemoteRequest as RemoteRequest,
)
from tokenyard.connectors.tier_worker import (
    TierWorker as TierWorker,
    BlockStore as BlockStore,
    HostMemory as HostMemory,
    BlockFiles as BlockFiles,
    BlockMemory as BlockMemory,
    ArrayMemory as ArrayMemory,
)
from tokenyard.connectors.prefill_decode import (
    PrefillDecodeConnector as PrefillDecodeConnector,
    PrefillDecodeWorker as PrefillDecodeWorker,
    OfferExchange as OfferExchange,
)
