# From pace.py, by scripts/write_pxd.py.

cimport cython

cdef class VirtualClock

@cython.final
cdef class VirtualClock:
    cdef public double _now
    cpdef double now(self)
    cpdef advance(self, double seconds)
    cpdef double advance_to(self, double moment)
