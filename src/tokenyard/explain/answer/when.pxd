# From when.py, by scripts/write_pxd.py.

cimport cython

cdef double _CALM
cdef double _CALM_PART
cdef long long _CALM_WINDOWS
cdef long long _MOST
cdef double _WHOLE
cdef long long _WINDOWS

cdef class TimeLog

@cython.final
cdef class TimeLog:
    cdef public long long _width
    cdef public dict _bins
    cpdef long long total(self, name)
    cpdef add(self, name, long long start_us, long long end_us, long long number)
    cpdef count(self, name, long long at_us, long long number)
    cpdef _bound(self, name)
    cpdef _widen(self)
    cpdef join(self, TimeLog other)
    cpdef tuple passed(self, list names)
    cpdef span(self, list names, double start, double end)

cpdef long long _edge(calm, long long peak, long long way)

cpdef double _reached(moments, sums, double start, double end)
