# From step_rows.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.request cimport Request

cdef class Names
cdef class Rows

@cython.final
cdef class Names:
    cdef public list requests
    cdef public tuple ids
    cpdef tuple tuple_of_ids(self)

@cython.final
cdef class Rows:
    cdef public list requests
    cdef public long long size
    cdef public long long[::1] numbers
    cdef public object memory
    cdef public long long num_chunks
    cdef public long long context
    cdef public long long num_prompts
    cdef public long long prompt_tokens
    cdef public long long prompt_context
    cdef public long long prompt_products
    cdef public long long prompt_squares
    cdef public Names names
    cpdef count_prompt(self, long long tokens, long long computed)
    cpdef long long prefill_blocks(self, long long count, long long block_size)
    cpdef column(self, long long place)
