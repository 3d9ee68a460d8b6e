# From outputs.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.request cimport Request
from tokenyard.core.sched.candidate cimport Candidate
from tokenyard.core.sched.candidate cimport FeatureHook
from tokenyard.core.sched.step_rows cimport Names

cdef long long MAX_COUNT
cdef long long NO_TOKEN

cdef class RequestEvents
cdef class ModelOutput
cdef class EngineOutputs

cdef class RequestEvents(FeatureHook):
    cdef public object _pending
    cpdef record(self, Request request, kind, double timestamp)
    cpdef tuple take(self, Request request)
    cpdef request_added(self, double now, Request request)
    cpdef request_admitted(self, double now, Candidate candidate)
    cpdef request_preempted(self, double now, Request request)
    cpdef request_aborted(self, Request request)

@cython.final
cdef class ModelOutput:
    cdef public object sampled
    cdef public object num_sampled
    cdef public long long width
    cdef public bint one_each
    cdef public object connector
    cdef public object extras
    cpdef tokens(self)
    cpdef counts(self)
    cpdef check_chunks(self, req_ids, is_prefill_chunk)

@cython.final
cdef class EngineOutputs:
    cdef public long long step
    cdef public list requests
    cdef public Names names
    cdef public object accepted
    cdef public object counts
    cdef public long long width
    cdef public object finish_reasons
    cdef public object stop_reasons
    cdef public object extras
    cdef public object kv_transfer_params
    cdef public object errors
    cdef public object scheduler_stats
    cdef public object _tokens
    cdef public object _num_tokens
    cpdef add_failed(self, failed)
    @cython.locals(clients='dict')
    cpdef dict by_client(self)
    cpdef EngineOutputs apart(self)
    cpdef _with_more_news(self)
    cpdef _record(self, long long i, list row)

cpdef with_events(requests, extras, RequestEvents events)

cpdef tuple _padded(lists)

cpdef _check_counts(counts, long long width)

cpdef _check_ids(tokens, counts)

cpdef _looked_at(numbers)
