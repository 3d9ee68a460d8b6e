# From answer_checks.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.request cimport Request
from tokenyard.core.sched.in_flight cimport StepInFlight
from tokenyard.core.sched.in_flight cimport StepsInFlight
from tokenyard.core.sched.outputs cimport ModelOutput

cdef long long MAX_COUNT
cdef long long _KNOWN_TO_WORKERS

cdef class AnswerChecks

@cython.final
cdef class AnswerChecks:
    cdef public object _transfers
    cdef public bint _verifies_drafts
    cdef public object _requests
    cdef public object _grammars
    cdef public long long _num_blocks
    cpdef check(self, StepInFlight step, model)
    cpdef _check_none_is_missing(self, StepInFlight step, ModelOutput model)
    cpdef bint _is_void(self, Request request, ModelOutput model, long long granted)
    cpdef _check_report(self, report, transfers)

cpdef bint _check_tokens(StepInFlight step, ModelOutput model, bint verifies_drafts)

cpdef _check_extras(StepInFlight step, extras)

cpdef _check_known(request_id, field, bint known)

cpdef _no_block(ids, long long blocks)

cpdef checked_drafts(StepInFlight step, drafts, long long max_drafts)

cpdef checked_repeats(StepsInFlight steps, tokens, moments, long long most)

cpdef _check_counts(counts, long long most, long long max_drafts, StepInFlight step)
