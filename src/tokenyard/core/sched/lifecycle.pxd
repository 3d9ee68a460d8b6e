# From lifecycle.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.kv.manager cimport KVCacheManager
from tokenyard.core.request cimport Request
from tokenyard.core.sched.candidate cimport StepHooks
from tokenyard.core.sched.features.ahead cimport discard_in_flight
from tokenyard.core.sched.in_flight cimport StepInFlight
from tokenyard.core.sched.in_flight cimport StepsInFlight
from tokenyard.core.sched.outputs cimport ModelOutput
from tokenyard.core.sched.queues cimport RunningList
from tokenyard.core.sched.queues cimport WaitingQueues

cdef class Lifecycle
cdef class Recovery

@cython.final
cdef class Lifecycle:
    cdef public KVCacheManager _kv
    cdef public RunningList _running
    cdef public WaitingQueues _waiting_queues
    cdef public object _policy
    cdef public object _features
    cdef public StepHooks _hooks
    cdef public StepsInFlight _in_flight
    cdef public object _on_finished
    cdef public dict requests
    cdef public object sessions
    cdef public object pins
    cdef public set finished_req_ids
    cdef public bint _names_resets
    cdef public list _started_over
    cpdef frozenset take_finished(self)
    cpdef tuple take_preempted(self)
    cpdef preempt(self, Request request)
    cpdef _reset(self, Request request)
    @cython.locals(waiting_again='dict')
    cpdef stop(self, stopped, double now)
    cpdef _drop_in_flight(self, Request session)
    cpdef bint _is_loading(self, Request request)
    cpdef transfers_are_over(self, ended, loaded)
    cpdef finish(self, ended, double now)
    cpdef preempt_by_policy(self, request_ids, double now)
    cpdef list reject(self, rejected, double now)
    cpdef _give_back(self, Request request, status, double now)
    cpdef release(self, Request request)
    cpdef _free_encoder_outputs(self, Request request)

@cython.final
cdef class Recovery:
    cdef public bint _fails
    cdef public KVCacheManager _kv
    cdef public RunningList _running
    cdef public WaitingQueues _waiting_queues
    cdef public Lifecycle _lifecycle
    cdef public object _transfers
    cdef public bint _is_async
