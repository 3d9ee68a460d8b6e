# From facts.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.sched.step_rows cimport Rows

cdef long long RECORD_BYTES

cdef class StepEffects
cdef class FactEmitter

@cython.final
cdef class StepEffects:
    cdef public object _policy
    cdef public object _limit
    cdef public object _step
    cdef public tuple _found
    cdef public dict _lost
    cdef public dict _recomputed
    cdef public object min_need
    cdef public set _loading
    cpdef tuple of(self, double ts, output, outcomes)
    cpdef long long _count_recomputed(self, output, outcomes)
    cpdef bint is_loaded(self, request_id)
    cpdef long long forget(self, request_id)

@cython.final
cdef class FactEmitter:
    cdef public object _sinks
    cdef public object _policy
    cdef public StepEffects _effects
    cdef public object _before
    cdef public object _pinned
    cdef public object _last
    cdef public object _last_quiet
    cdef public dict _started
    cdef public object _last_end
    cdef public object step
    cpdef step_started(self, double ts, long long step, state)
    @cython.locals(rows='Rows')
    cpdef step_decided(self, double ts, output, outcomes, state)
    cpdef steps_repeated(self, steps, streams)
    cpdef step_completed(self, double ts, output, outputs, streams)
    cpdef _complete(self, long long step, double ts, long long sampled, streams)

cpdef outcome_record(long long step, double ts, policy, outcomes, limit)

cpdef _outcome_record(long long step, double ts, policy, outcomes, limit)

cpdef bint _refuses(outcomes)

cpdef _still_running(outcomes)

@cython.locals(counts='dict')
cpdef dict _counts(refused)

cpdef _beyond(refused, limit)

cpdef list _refusals(refused, limit)

cpdef _preemption(each)

cpdef _numbers(kv)

cpdef verified_drafts(stats)
