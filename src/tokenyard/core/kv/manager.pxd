# From manager.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.kv.allocation cimport PrefixCacheStats
from tokenyard.core.kv.allocation cimport StepBlocks
from tokenyard.core.kv.block_pool cimport BlockPool
from tokenyard.core.kv.hashing cimport BlockHasher
from tokenyard.core.kv.hashing cimport LookaheadBlockHasher
from tokenyard.core.request cimport Request

cdef long long NEVER

cdef class Demand
cdef class KVCacheManager

@cython.final
cdef class Demand:
    cdef public Request request
    cdef public long long num_new_tokens
    cdef public object hit
    cdef public long long num_external_computed_tokens
    cdef public long long num_lookahead_tokens
    cdef public long long num_encoder_tokens
    cdef public bint delay_cache_blocks
    cdef public bint full_sequence_must_fit
    cdef public long long must_fit
    cdef public bint keep_watermark

cdef class KVCacheManager:
    cdef public object config
    cdef public BlockPool pool
    cdef public object hasher
    cdef public long long hash_size
    cdef public long long block_size
    cdef public long long num_groups
    cdef public long long max_model_len
    cdef public bint enable_caching
    cdef public bint hashes_look_ahead
    cdef public bint drops_last_hit
    cdef public long long watermark_blocks
    cdef public object no_hits
    cdef public long long shared_beyond_hit
    cdef public PrefixCacheStats stats
    cdef public object events
    cdef public dict kept_blocks
    cdef public dict tenants
    cdef public list free_slots
    cdef public long long num_slots
    cpdef long long reach(self, long long end, long long num_lookahead_tokens)
    cpdef new_step_starts(self)
    cpdef gather_new_blocks(self, long long row, Request request, StepBlocks step)
    cpdef tuple take_new_block_ids(self)
    cpdef list take_events(self)
    cpdef PrefixCacheStats take_stats(self)
    cpdef get_computed_blocks(self, Request request)
    cpdef long long num_cached_tokens(self, Request request)
    @cython.locals(hashes='list')
    cpdef longest_hit(self, Request request)
    cpdef count_lookup(self, Request request, hit)
    cpdef bint looks_up(self, Request request)
    @cython.locals(request='Request')
    cpdef allocate_slots(self, Demand demand)
    cpdef refusal(self, limit, long long missing, list hits, bint keep_watermark)
    cpdef give_slot(self, Request request)
    cpdef bint grow(self, Request request, long long end, long long num_lookahead_tokens)
    cpdef shortage_of(self, Request request, long long end, long long num_lookahead_tokens)
    cpdef publish_verified(self, Request request, long long end)
    cpdef publish_computed(self, Request request)
    cpdef publish(self, Request request, long long num_tokens)
    @cython.locals(hashes='list')
    cpdef make_findable(self, Request request, long long num_tokens)
    cpdef block_is_full(self, Request request)
    cpdef rewind_published(self, Request request)
    cpdef evict_blocks(self, blocks)
    cpdef forget_content_of(self, Request request)
    cpdef forget_hashes(self, Request request, long long num_tokens)
    cpdef free(self, Request request)
    cpdef release_blocks(self, Request request)
    @cython.locals(kept='list')
    cpdef free_tail(self, Request request, long long num_tokens)
    cpdef free_all_kept(self)
    cpdef free_kept_of(self, request_id)
    cpdef bint reset_prefix_cache(self)
    cpdef get_block_ids(self, Request request)
    cpdef long long num_blocks_of(self, Request request)
    cpdef long long num_skipped_blocks(self, long long group, long long num_computed)
    cpdef long long capacity(self, Request request)
    cpdef list num_common_prefix_blocks(self, Request request)
    cpdef list held_lists(self)
    cpdef check_invariants(self)
