# From ahead.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.request cimport Request
from tokenyard.core.sched.candidate cimport FeatureHook
from tokenyard.core.sched.in_flight cimport StepInFlight
from tokenyard.core.sched.in_flight cimport StepsInFlight

cdef long long NO_TOKEN

cdef class Speculation
cdef class Placeholders
cdef class DecodeRound
cdef class ResetOutputs
cdef class LateOutputs

@cython.final
cdef class Speculation:
    cdef public long long max_drafts
    cdef public list unknown
    cdef public long long[::1] drafted
    cdef public long long[::1] accepted
    cdef public object _grammars
    cdef public bint _has_news
    @cython.locals(drafts='long long[::1]', covered='long long[::1]', has_drafts='bint', request='Request', waiting='list')
    cpdef schedule(self, list requests)
    cpdef propose(self, Request request, list drafts)
    cpdef pad(self, Request request)
    @cython.locals(counts='list', tokens='list', request='Request')
    cpdef update(self, StepInFlight step, drafts)
    cpdef drafts_known(self, StepInFlight step, drafts)
    @cython.locals(request='Request')
    cpdef _allowed(self, list requests, drafts)
    cpdef long long rejected(self, long long drafted, long long sampled, long long num_invalid)
    cpdef take_stats(self)

cdef class Placeholders(FeatureHook):
    cdef public bint end_with_preemption
    cdef public Speculation _speculation
    @cython.locals(drafts='list', request='Request')
    cpdef step_planned(self, StepInFlight step)
    cpdef replace_detached(self, Request request, long long num_arrived)
    cpdef request_preempted(self, double now, Request request)
    cpdef request_reset(self, Request request, in_flight)

cdef class DecodeRound(FeatureHook):
    cdef public object _held
    cpdef step_planned(self, StepInFlight step)
    cpdef bint holds(self, Request request)

cdef class ResetOutputs(FeatureHook):
    cpdef request_reset(self, Request request, in_flight)

cdef class LateOutputs(FeatureHook):
    cdef public StepsInFlight _in_flight
    cdef public dict _expecting
    cpdef bint expects(self, Request request)
    cpdef request_preempted(self, double now, Request request)
    cpdef request_reset(self, Request request, in_flight)
    cpdef step_planned(self, StepInFlight step)

cpdef discard_in_flight(Request request, in_flight)

cpdef bint _samples(StepInFlight step, Request request)

cpdef _frozen(column)
