# From candidate.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.request cimport Request
from tokenyard.core.sched.in_flight cimport StepInFlight
from tokenyard.core.sched.queues cimport WaitingQueues

cdef class StepBudget
cdef class Candidate
cdef class FeatureHook
cdef class StepHooks

@cython.final
cdef class StepBudget:
    cdef public long long max_tokens
    cdef public long long encoder
    cdef public long long longest_prefill
    cdef public long long slots_per_request
    cdef public long long tokens
    cdef public long long tokens_used
    cdef public bint has_run
    cdef public bint has_run_prefill
    cdef public dict encoder_items
    cdef public set loras
    cdef public long long overdrawn
    cdef public object bounds
    cdef public long long decode_tokens
    cpdef spend(self, long long tokens)
    cpdef prefill_left(self)
    cpdef refund(self, long long tokens)

@cython.final
cdef class Candidate:
    cdef public Request request
    cdef public object computed
    cdef public long long num_external_computed_tokens
    cdef public long long num_computed_tokens
    cdef public long long num_new_tokens
    cdef public bint is_padded
    cdef public long long must_fit
    cdef public bint loads_async
    cdef public tuple encoder_items
    cdef public long long num_encoder_tokens
    cpdef drop_cut_padding(self, long long wanted)
    cpdef skipped(self, reason, StepBudget budget)
    cpdef refused(self, answer, StepBudget budget, WaitingQueues queues)
    cpdef stopped(self, reason, long long budget_left, WaitingQueues queues, long long wanted_tokens)

cdef class FeatureHook:
    cpdef check_request(self, Request request)
    cpdef request_added(self, double now, Request request)
    cpdef request_admitted(self, double now, Candidate candidate)
    cpdef request_preempted(self, double now, Request request)
    cpdef request_aborted(self, Request request)
    cpdef request_reset(self, Request request, in_flight)
    cpdef step_planned(self, StepInFlight step)

@cython.final
cdef class StepHooks:
    cdef public object check_request
    cdef public object request_added
    cdef public object request_admitted
    cdef public object request_preempted
    cdef public object request_aborted
    cdef public object request_reset
    cdef public object step_planned
