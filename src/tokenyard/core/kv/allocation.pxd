# From allocation.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.rows cimport Row

cdef class PrefixCacheStats
cdef class StepBlocks

@cython.final
cdef class PrefixCacheStats:
    cdef public long long requests
    cdef public long long queries
    cdef public long long hits
    cdef public long long preempted_requests
    cdef public long long preempted_queries
    cdef public long long preempted_hits
    cdef public bint reset

@cython.final
cdef class StepBlocks:
    cdef public long long num_groups
    cdef public long long num_rows
    cdef public Row taken
    cpdef add_row(self, long long row, Row blocks, long long start)
    cpdef add(self, long long row, blocks)
    cpdef dict by_row(self)
    cpdef deltas(self)
