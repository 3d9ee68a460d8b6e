# From queues.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.request cimport Request

cdef class RunningList
cdef class FCFSQueue
cdef class PriorityQueue
cdef class WaitingQueues
cdef class HoldersFirstQueues

@cython.final
cdef class RunningList:
    cdef public list requests
    cdef public long long version
    cdef public tuple shown
    cdef public long long shown_version
    cpdef tuple members(self)
    cpdef append(self, Request request)
    cpdef Request pop(self, long long index)
    cpdef remove_all(self, gone)

cdef class FCFSQueue:
    cdef public object _requests
    cpdef add(self, Request request)
    cpdef prepend(self, Request request)
    cpdef prepend_all(self, requests)
    cpdef Request peek(self)
    cpdef Request pop(self)
    cpdef bint discard(self, Request request)
    cpdef Request get(self, request_id)

cdef class PriorityQueue:
    cdef public bint _by_id
    cdef public object _key
    cdef public list _heap
    cdef public dict _entries
    cdef public long long _number
    cdef public bint _is_heap
    cpdef add(self, Request request)
    cpdef prepend(self, Request request)
    cpdef prepend_all(self, requests)
    cpdef Request peek(self)
    cpdef Request pop(self)
    cpdef bint discard(self, Request request)
    cpdef bint discard_all(self, requests)
    cpdef put_in_order(self)
    cpdef Request get(self, request_id)

cdef class WaitingQueues:
    cdef public object _new_queue
    cdef public object waiting
    cdef public object skipped
    cdef public bint occupied
    cdef public long long _block_size
    cdef public list _needs
    cpdef Request get(self, request_id)
    cpdef add(self, Request request)
    cpdef _queue_of(self, Request request)
    cpdef arrived_anew(self, Request session)
    cpdef put_back(self, Request request)
    cpdef take(self, queue, into=*)
    cpdef holding_queue(self)
    cpdef take_back(self, requests)
    cpdef _return_all(self, queue, requests)
    cpdef discard_stopped(self, requests)
    cpdef discard_all(self, requests)
    cpdef next_queue(self, policy)
    cpdef long long _need(self, Request request)
    cpdef _note_need(self, Request request)
    cpdef smallest_need(self)

cdef class HoldersFirstQueues(WaitingQueues):
    cdef public bint _go_on
    cdef public set _deferred
    cpdef holding_queue(self)
    cpdef add(self, Request request)
    cpdef _queue_of(self, Request request)
    cpdef take(self, queue, into=*)
    cpdef take_back(self, requests)
    cpdef discard_stopped(self, requests)
    cpdef discard_all(self, requests)
    cpdef next_queue(self, policy)

cpdef _take_out(queue, requests)
