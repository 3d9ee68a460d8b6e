# From fast_forward.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.kv.manager cimport KVCacheManager
from tokenyard.core.request cimport Request
from tokenyard.core.sched.in_flight cimport StepInFlight
from tokenyard.core.sched.step cimport OutputBuilder
from tokenyard.core.sched.step cimport StepPlanner
from tokenyard.core.sched.step_rows cimport Rows
from tokenyard.core.sched.update cimport OutputUpdate

cdef long long NO_TOKEN
cdef long long _MOST

cdef class FastForward

@cython.final
cdef class FastForward:
    cdef public KVCacheManager kv
    cdef public OutputUpdate update
    cdef public OutputBuilder builder
    cdef public bint is_async
    cdef public long long max_model_len
    cdef public object _context
    cdef public bint _is_possible
    cdef public bint _leaves_head
    cdef public bint _counts_lookups
    cdef public long long _ahead
    cdef public tuple _last
    cdef public object _counted
    cpdef note(self, StepInFlight step, outcomes)
    cpdef forget(self)
    @cython.locals(request='Request')
    cpdef long long steps_to_the_first_end(self, list requests)
    @cython.locals(request='Request')
    cpdef list blocks_taken(self, list requests, long long most)
    cpdef bint _stays_short(self, outcomes)
    cpdef bint _none_is_admitted(self, outcomes, running)
    cpdef Request _head_of(self, outcomes)
    @cython.locals(request='Request')
    cpdef take_in(self, list requests, long long[::1] tokens, long long at)
    @cython.locals(request='Request')
    cpdef decide(self, list requests, long long step, bint stays)
    cpdef StepInFlight _again(self, StepInFlight newest, long long step)
    @cython.locals(request='Request')
    cpdef expect(self, list requests)

cpdef bint _brings_token_each(StepInFlight step, StepInFlight newest)

cpdef bint _has_plain_steps(context)

cpdef bint _shares_last_block(Request head, running)
