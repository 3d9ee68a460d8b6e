# From engine.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.request cimport Request
from tokenyard.core.sched.outputs cimport EngineOutputs
from tokenyard.core.sched.outputs cimport ModelOutput
from tokenyard.core.sched.scheduler cimport Scheduler

cdef class DoneStep
cdef class EngineCore

cdef class DoneStep:
    cdef public ModelOutput _output
    cpdef bint done(self)
    cpdef ModelOutput result(self)

cdef class EngineCore:
    cdef public object _calls
    cdef public Scheduler scheduler
    cdef public object executor
    cdef public long long depth
    cdef public bint _fills_first
    cdef public bint _asks_for_drafts
    cdef public object _in_flight
    cdef public object _begun
    cdef public list _drained
    cdef public object _ahead
    cdef public object _inbox
    cdef public list _refused
    cpdef _add(self, Request request)
    cpdef _check_request(self, Request request)
    cpdef list _abort(self, ids)
    cpdef submit_abort(self, request_ids)
    cpdef list take_refused(self)
    cpdef _do_submitted(self)
    cpdef _run_ahead(self)
    cpdef bint _fill(self)
    cpdef bint _waits_for_tokens(self, plan)
    cpdef bint _is_due(self, bint executed)
    cpdef _sample(self, plan)
    cpdef EngineOutputs _take_in(self)
    cpdef EngineOutputs _update(self, plan, model_output)
