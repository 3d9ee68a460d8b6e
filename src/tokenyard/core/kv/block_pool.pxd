# From block_pool.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.kv.hashing cimport digests
from tokenyard.core.request cimport Request
from tokenyard.core.rows cimport Row
from tokenyard.core.rows cimport int32s
from tokenyard.core.rows cimport int64s

cdef class PoolListener
cdef class BlockPool

cdef class PoolListener:
    cpdef block_evicted(self, bytes block_hash, long long group_id, long long block)
    cpdef block_forgotten(self, bytes block_hash, long long group_id)
    cpdef all_forgotten(self)

@cython.final
cdef class BlockPool:
    cdef public long long num_blocks
    cdef public long long num_groups
    cdef public long long num_free
    cdef public long long num_cached
    cdef public bint unhashed_first
    cdef public object evicts_first
    cdef public object chooser
    cdef public int[::1] holders
    cdef public int[::1] after
    cdef public int[::1] before
    cdef public list content
    cdef public long long[::1] key
    cdef public int[::1] group_of
    cdef public int[::1] bucket
    cdef public int[::1] chained
    cdef public long long mask
    cdef public dict prompt_tails
    cdef public tuple listeners
    cpdef subscribe(self, PoolListener listener)
    cpdef long long take_one(self)
    cpdef bring_forward(self, long long block)
    cpdef list take(self, long long count)
    cpdef hold(self, long long block)
    cpdef touch(self, blocks)
    cpdef release_row(self, Row blocks)
    cpdef release(self, ordered, bint unhashed_first=*)
    cpdef long long give_up(self, long long block, bint unhashed_first, long long front)
    cpdef release_by_policy(self, list ordered)
    cpdef unlink(self, long long block)
    cpdef link(self, long long before, long long block)
    cpdef list free_blocks(self)
    @cython.locals(first='list')
    cpdef list first_free(self, long long count)
    cpdef long long num_evictable(self, blocks)
    cpdef long long home(self, long long key, long long group)
    cpdef long long find(self, content, long long group)
    cpdef list blocks_with(self, content, long long group)
    cpdef publish(self, long long block, content, long long group)
    cpdef unchain(self, long long block)
    cpdef tell_evicted(self, content, long long group, long long block)
    cpdef forget(self, long long block)
    cpdef forget_content(self, contents)
    cpdef note_prompt_tail(self, long long block, long long num_tokens)
    cpdef bint reset(self)
    cpdef check_invariants(self, held)
