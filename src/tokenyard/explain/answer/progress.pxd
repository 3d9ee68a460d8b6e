# From progress.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.explain.answer.when cimport TimeLog

cdef long long _CHANGES_KEPT
cdef double _FELL
cdef long long _HIT_WINDOWS
cdef double _SHORTEST_S
cdef double _SIDE

cdef class ProgressCounter

@cython.final
cdef class ProgressCounter:
    cdef public object origin
    cdef public object _start
    cdef public long long _request_micros
    cdef public object _waited
    cdef public TimeLog _log
    cdef public TimeLog _hits
    cdef public TimeLog _preempted
    cdef public object _whose
    cdef public tuple _open
    cdef public tuple _stall
    cdef public object _longest
    cdef public object _stuck
    cdef public object _end
    cdef public object _total
    cdef public list _changes
    cdef public object _last_pinned
    cdef public long long _pins_from
    cdef public object _pins_since
    cdef public long long _most_pinned
    cdef public double _pinned_micros
    cdef public long long _waiting_micros
    cpdef step(self, facts, verdict)
    cpdef arrived(self, record)
    cpdef looked_up(self, record)
    cpdef computed(self, ts, scheduled)
    cpdef finished(self, record)
    cpdef _pinned(self, facts, long long blocks)
    cpdef _end_stall(self, now)
    cpdef step_ended(self, facts, long long passed)
    cpdef steps_repeated(self, facts, since, long long lasted)
    cpdef seen_until(self, end)
    cpdef result(self)
    cpdef _whose_of(self, waited)
    cpdef _span(self, TimeLog log, list names)
    cpdef _hit_fall(self)
    cpdef _pins(self)

cpdef short_of(name)

cpdef family_named(name)

@cython.locals(families='dict')
cpdef family_of(buckets)

cpdef _longer(one, other)
