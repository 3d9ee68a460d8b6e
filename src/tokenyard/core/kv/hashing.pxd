# From hashing.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.request cimport Request

cdef long long TOKEN_BYTES
cdef long long _COUNT_BYTES
cdef long long _MARK_EVERY
cdef long long _MOST_BYTES
cdef long long _NUM_AHEAD
cdef long long _WORTH_KEEPING

cdef class PrefixHash
cdef class HashedPrompts
cdef class BlockHasher
cdef class LookaheadBlockHasher

@cython.final
cdef class PrefixHash:
    cdef public object state
    cdef public dict extra_keys
    cpdef bytes digest_with(self, bytes data)
    cpdef PrefixHash fork(self)
    cpdef add_keys(self, long long block, bytes keys)

@cython.final
cdef class HashedPrompts:
    cdef public long long _most_bytes
    cdef public long long _num_bytes
    cdef public object _kept
    cpdef like(self, job_id, first)
    cpdef keep(self, job_id, first, prompt)
    cpdef _put(self, key, prompt)

cdef class BlockHasher:
    cdef public long long block_size
    cdef public bytes root
    cdef public bint _output_keeps_last
    cdef public object _state
    cdef public long long _stride
    cdef public HashedPrompts _prompts
    cpdef list extend(self, Request request)
    @cython.locals(prefix='PrefixHash')
    cpdef PrefixHash _hash(self, Request request, long long stop)
    @cython.locals(marks='list')
    cpdef _hash_prompt(self, Request request, long long stop)
    cpdef truncate(self, Request request, long long num_blocks)
    cpdef PrefixHash _begin(self, Request request)
    cpdef bytes _digest(self, bytes data)
    cpdef forget_beyond(self, Request request, long long num_tokens)
    cpdef bytes extra_keys(self, Request request, long long block, long long num_ahead=*)

cdef class LookaheadBlockHasher(BlockHasher):
    @cython.locals(prefix='PrefixHash')
    cpdef list extend(self, Request request)
    cpdef forget_beyond(self, Request request, long long num_tokens)

cpdef bytes framed(bytes keys)

cpdef list digests(hashes)
