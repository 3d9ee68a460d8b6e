# From rows.py, by scripts/write_pxd.py.

cimport cython

cdef bint TYPE_CHECKING

cdef class Row
cdef class TokenRow

@cython.final
cdef class Row:
    cdef public long long[::1] data
    cdef public object memory
    cdef public long long room
    cdef public long long size
    cpdef append(self, long long number)
    cpdef make_room(self, long long size)
    cpdef extend(self, list numbers)
    cpdef extend_from(self, Row other, long long start)
    cpdef as_array(self, long long start=*)
    cpdef list as_list(self, long long start=*)

@cython.final
cdef class TokenRow:
    cdef public int[::1] data
    cdef public object memory
    cdef public long long room
    cdef public long long size
    cpdef append(self, long long token)
    cpdef part(self, long long start, long long stop)

cpdef int[::1] int32s(long long value, long long count)

cpdef long long[::1] int64s(long long value, long long count)
