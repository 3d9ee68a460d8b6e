# From recorded_reasons.py, by scripts/write_pxd.py.

cimport cython

cdef long long _MOST_WORDS

cdef class _KVSums
cdef class _ReasonSums
cdef class RecordedReasonCounter

@cython.final
cdef class _KVSums:
    cdef public long long steps
    cdef public long long needed
    cdef public long long free
    cdef public long long cached_hits
    cdef public long long reserved
    cdef public long long watermark
    cdef public long long smallest_steps
    cdef public long long smallest
    cdef public long long fits
    cpdef add(self, kv, smallest, free)
    cpdef join(self, _KVSums other)
    cpdef means(self)

@cython.final
cdef class _ReasonSums:
    cdef public long long steps
    cdef public long long requests
    cdef public long long micros
    cdef public long long free_steps
    cdef public double free
    cdef public _KVSums kv
    cdef public dict words
    cdef public object worst
    cdef public object most
    cpdef add(self, long long requests, long long micros, facts, free)
    cpdef add_words(self, words, long long micros)
    cpdef join(self, _ReasonSums other)

@cython.final
cdef class RecordedReasonCounter:
    cdef public dict _sums
    cpdef add(self, outcome, long long micros, facts)
    cpdef add_repeated(self, steps, long long micros)
    @cython.locals(sums='_ReasonSums')
    cpdef _add(self, outcome, long long micros, facts, free_before, free_after)
    cpdef join(self, RecordedReasonCounter other)
    cpdef _ReasonSums _sums_of(self, name)
