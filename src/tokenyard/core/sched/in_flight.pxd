# From in_flight.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.request cimport Request
from tokenyard.core.sched.step_rows cimport Rows

cdef class StepInFlight
cdef class StepsInFlight

@cython.final
cdef class StepInFlight:
    cdef public object plan
    cdef public list requests
    cdef public Rows columns
    cdef public set discarded
    cdef public dict rows
    cpdef long long row_of(self, Request request)
    cpdef long long tokens_of(self, Request request)

@cython.final
cdef class StepsInFlight:
    cdef public dict _by_number
    cdef public StepInFlight _last_taken
    cpdef long long tokens_of(self, Request request)
    cpdef add(self, StepInFlight step)
    cpdef replace(self, list steps)
    cpdef StepInFlight of(self, plan)
    cpdef StepInFlight oldest(self, plan)
    cpdef remove(self, StepInFlight step)
    cpdef StepInFlight last_taken(self, plan)

cpdef _check_plan(plan)
