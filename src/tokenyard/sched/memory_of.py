"""The memory of a scheduler: request table and KV-cache manager, as its configuration wants them."""

from __future__ import annotations

from tokenyard.config import CacheConfig, SchedulerConfig, SpeculativeConfig
from tokenyard.kv.hashing import RequestHasher
from tokenyard.kv.hybrid_coordinator import GroupLimits, hash_block_size
from tokenyard.kv.manager import KVCacheManager
from tokenyard.sched.steps.in_flight import StepsInFlight
from tokenyard.table import RequestTable

__all__ = ["make_kv_manager"]


def make_kv_manager(
    config: SchedulerConfig,
    cache_config: CacheConfig,
    speculative: SpeculativeConfig | None,
    in_flight: StepsInFlight,
    *,
    has_connector: bool,
    hasher: RequestHasher | None = None,
) -> KVCacheManager:
    """The manager, over a table of its own."""
    profile = config.profile
    num_drafts = speculative.num_speculative_tokens if speculative else 0
    ahead = speculative.num_lookahead_tokens if speculative else 0
    table = RequestTable(config.max_num_seqs, hash_block_size(cache_config), num_drafts, len(cache_config.groups))
    most = config.max_steps_in_flight
    counts_in_flight = profile.windows_free_processed_only and most > 1
    limits = GroupLimits(
        config.max_num_batched_tokens, config.max_model_len, num_drafts, ahead, most if counts_in_flight else 1
    )
    use_eagle = speculative is not None and speculative.use_eagle
    # Connectors know blocks by the hashes of what is in them.
    look_ahead = use_eagle and profile.hashes_look_ahead and not has_connector
    return KVCacheManager(
        cache_config,
        table,
        limits,
        use_eagle=use_eagle and not look_ahead,
        profile=profile,
        hashes_look_ahead=look_ahead,
        in_flight=in_flight.tokens_of if counts_in_flight else None,
        hasher=hasher,
    )
