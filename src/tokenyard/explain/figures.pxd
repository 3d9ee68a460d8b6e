# From figures.py, by scripts/write_pxd.py.

cimport cython

cdef class Series
cdef class _Ranked
cdef class TokenGaps
cdef class ArrivalsCounter

@cython.final
cdef class Series:
    cdef public object _values
    cpdef add(self, double value, long long times=*)
    cpdef join(self, Series other)
    cpdef spread(self)

@cython.final
cdef class _Ranked:
    cdef public object _values
    cdef public object _ends
    cpdef double percentile(self, double percent)

@cython.final
cdef class TokenGaps:
    cdef public object _moments
    cdef public bint _is_known
    cdef public object _begins
    cdef public object _lasts
    cdef public dict _flowing
    cdef public dict _paused
    cdef public list _ending
    cdef public object _pauses
    cdef public object _cut_pauses
    cdef public list _untold
    cdef public long long _num_told
    cdef public object _engines
    cpdef step_completed(self, ts, sampled, streams)
    cpdef steps_completed(self, moments, long long sampled)
    cpdef join(self, TokenGaps other)
    cpdef bint _is_old(self, record)
    cpdef _end_run(self, request_id, long long last)
    cpdef _end_ended(self)
    cpdef tuple parts(self, now)
    cpdef tuple _runs(self)

@cython.final
cdef class ArrivalsCounter:
    cdef public long long arrived
    cdef public long long unseen_micros
    cdef public dict _unseen
    cdef public dict _gone
    cdef public long long _since
    cdef public object _prompt_tokens
    cdef public object _most_running
    cdef public object _last_step
    cdef public list _rows
    cpdef arrive(self, record)
    cpdef finish(self, record)
    cpdef step(self, facts, unadmitted)
    cpdef join(self, ArrivalsCounter other)
    cpdef result(self)
    cpdef bint _fits_one_step(self, long long token_budget)
    cpdef _explanation(self, long long missing)

cpdef double percentile(ascending, double percent)

cpdef _nearest(moments, times)
