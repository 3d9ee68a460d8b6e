# From numbering.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.request cimport Request

cdef long long _AHEAD

cdef class SymbolicHasher

@cython.final
cdef class SymbolicHasher:
    cdef public long long _block_size
    cdef public object _prompts
    cdef public dict _numbers
    cdef public dict _streams
    cdef public dict _ends
    cdef public dict _outputs
    cdef public dict _outputs_after
    cdef public long long _next
    cpdef list extend(self, Request request)
    cpdef forget_beyond(self, Request request, long long num_tokens)
    @cython.locals(ids='list')
    cpdef list _prompt(self, Request request, long long num_blocks)
    cpdef tuple _chained(self, long long before, long long scope, list ids, long long size)
    cpdef _go_on(self, requests)
    cpdef _begin_output(self, Request request, known)
    cpdef list _stream(self, long long before, long long seed, long long num_blocks)
    cpdef list _stretch(self, long long before, long long seed, long long num_blocks)
    cpdef list _grown(self, list numbers, long long num_blocks)
    cpdef long long _root(self, Request request)
    cpdef long long _begin(self, key, long long num_blocks)

cpdef bint _is_known(source)

cpdef bint _is_beginning_of(long long seed, prompt)

cpdef blank_tokens(long long num_tokens)
