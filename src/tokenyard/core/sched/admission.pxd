# From admission.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.kv.manager cimport KVCacheManager
from tokenyard.core.sched.admission_limits cimport Limit
from tokenyard.core.sched.admission_limits cimport limits_in_order
from tokenyard.core.sched.candidate cimport Candidate
from tokenyard.core.sched.candidate cimport StepBudget
from tokenyard.core.sched.lifecycle cimport Lifecycle
from tokenyard.core.sched.queues cimport RunningList
from tokenyard.core.sched.queues cimport WaitingQueues

cdef class AdmissionPass

@cython.final
cdef class AdmissionPass:
    cdef public object _sessions
    cdef public object _policy
    cdef public object _deadlock
    cdef public WaitingQueues _waiting_queues
    cdef public RunningList _running
    cdef public KVCacheManager _kv
    cdef public list _limits
    cdef public long long _max_num_seqs
    cdef public object _empty
    cpdef list run(self, StepBudget budget, outcomes, bint only_holders=*)
    @cython.locals(admitted='list')
    cpdef list _pass(self, StepBudget budget, outcomes, bint only_holders)
    cpdef _next_after(self, refusal, Candidate candidate)
    cpdef bint _tries_others(self, refusal, Candidate candidate)
    cpdef _why_ended(self, StepBudget budget)
    @cython.locals(limit='Limit')
    cpdef _ask(self, Candidate candidate, StepBudget budget)
