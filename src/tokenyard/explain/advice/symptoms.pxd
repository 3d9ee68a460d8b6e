# From symptoms.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.explain.recorded_reasons cimport RecordedReasonCounter

cdef double _LEAST_SPREAD
cdef double _MOST_MEMORY
cdef long long _STEPS_IN_FLIGHT

cdef class SymptomCounter
cdef class _Sums
cdef class StepTimes

@cython.final
cdef class SymptomCounter:
    cdef public dict _adapters
    cdef public object _askers
    cdef public long long _asked
    cdef public object _guess
    cdef public RecordedReasonCounter _guesses
    cdef public object _scheduled
    cdef public long long _tokens
    cdef public object _load
    cdef public dict _loads
    cdef public tuple _ended
    cdef public StepTimes _times
    cpdef arrived(self, request, adapter)
    cpdef finished(self, request)
    cpdef step(self, facts, verdict)
    cpdef step_ended(self, facts, long long passed)
    cpdef repeated(self, long long step)
    cpdef steps_repeated(self, steps)
    cpdef _note_load(self, long long step)
    cpdef completed(self, long long step, seconds)
    cpdef drafts_verified(self, drafts)
    cpdef settle(self)
    cpdef join(self, SymptomCounter other)

@cython.final
cdef class _Sums:
    cdef public long long steps
    cdef public long long tokens
    cdef public long long running
    cdef public long long squares
    cdef public long long prefill
    cdef public long long accepted
    cdef public double seconds
    cdef public double request_seconds
    cpdef add(self, load, seconds)
    cpdef join(self, _Sums other)
    cpdef tuple line(self)

@cython.final
cdef class StepTimes:
    cdef public _Sums decode
    cdef public _Sums prefill
    cdef public _Sums large
    cpdef add(self, load, seconds)
    cpdef join(self, StepTimes other)
    cpdef dict symptoms(self, bound_ms, budget)

cpdef _load(facts, long long tokens)

@cython.locals(worst='dict', found='dict')
cpdef dict missed_bounds(bounded)

cpdef dict _larger_part(whole)

@cython.locals(found='dict')
cpdef dict _settings(start)

cpdef dict _room_for_kv(start)
