# From admission_limits.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.kv.manager cimport Demand
from tokenyard.core.kv.manager cimport KVCacheManager
from tokenyard.core.request cimport Request
from tokenyard.core.sched.candidate cimport Candidate
from tokenyard.core.sched.candidate cimport StepBudget
from tokenyard.core.sched.features.ahead cimport LateOutputs
from tokenyard.core.sched.queues cimport RunningList
from tokenyard.core.sched.queues cimport WaitingQueues

cdef class Limit
cdef class ReadyLimit
cdef class LateOutputLimit
cdef class LoraLimit
cdef class PrefixLookup
cdef class ConnectorLookup
cdef class PrefillLimit
cdef class PaddedPrefillLimit
cdef class EncoderLimit
cdef class AlignmentLimit
cdef class MemoryLimit
cdef class CheckedLimit
cdef class PrefillShareLimit
cdef class PolicyLimit

cdef class Limit:
    cpdef ask(self, Candidate candidate, StepBudget budget, WaitingQueues queues)

cdef class ReadyLimit(Limit):
    cdef public object _transfers
    cdef public object _grammars
    cpdef ask(self, Candidate candidate, StepBudget budget, WaitingQueues queues)
    cpdef bint _has_become_ready(self, Request request)

cdef class LateOutputLimit(Limit):
    cdef public LateOutputs _outputs
    cpdef ask(self, Candidate candidate, StepBudget budget, WaitingQueues queues)

cdef class LoraLimit(Limit):
    cdef public long long _max_loras
    cpdef ask(self, Candidate candidate, StepBudget budget, WaitingQueues queues)

cdef class PrefixLookup(Limit):
    cdef public KVCacheManager _kv
    cdef public bint _counts
    cpdef ask(self, Candidate candidate, StepBudget budget, WaitingQueues queues)

cdef class ConnectorLookup(Limit):
    cdef public object _transfers
    cpdef ask(self, Candidate candidate, StepBudget budget, WaitingQueues queues)

cdef class PrefillLimit(Limit):
    cdef public bint _chunked
    cdef public bint _skips
    cpdef ask(self, Candidate candidate, StepBudget budget, WaitingQueues queues)

cdef class PaddedPrefillLimit(PrefillLimit):
    cdef public long long _padded
    cdef public bint _while_idle
    cdef public bint _leaves_room
    cdef public long long _last_start
    cpdef ask(self, Candidate candidate, StepBudget budget, WaitingQueues queues)
    cpdef bint _pads(self, Candidate candidate, StepBudget budget)

cdef class EncoderLimit(Limit):
    cdef public object _encoder
    cdef public bint _ends_pass
    cpdef ask(self, Candidate candidate, StepBudget budget, WaitingQueues queues)

cdef class AlignmentLimit(Limit):
    cdef public object _alignment
    cpdef ask(self, Candidate candidate, StepBudget budget, WaitingQueues queues)

cdef class MemoryLimit(Limit):
    cdef public bint _reserve_full
    cdef public bint _counts_lookups
    cdef public KVCacheManager _kv
    cdef public RunningList _running
    cdef public object _encoder
    cdef public object _transfers
    cdef public long long _num_lookahead_tokens
    cdef public bint _reserves_lookahead
    cdef public object _pins
    cpdef ask(self, Candidate candidate, StepBudget budget, WaitingQueues queues)
    cpdef bint _looks_ahead(self, Candidate candidate)
    cpdef _shortage(self, answer)
    cpdef _after_alloc(self, Candidate candidate, StepBudget budget)
    cpdef _took_encoder_items(self, Candidate candidate, StepBudget budget)

cdef class CheckedLimit(Limit):
    cdef public object _limit
    cpdef ask(self, Candidate candidate, StepBudget budget, WaitingQueues queues)

@cython.final
cdef class PrefillShareLimit:
    cdef public bint _chunked
    cpdef ask(self, Candidate candidate, StepBudget budget, WaitingQueues queues)

cdef class PolicyLimit(Limit):
    cdef public object _policy
    cdef public KVCacheManager _kv
    cdef public RunningList _running
    cdef public object _clock
    cpdef ask(self, Candidate candidate, StepBudget budget, WaitingQueues queues)

@cython.locals(limits='list', chunk='list')
cpdef list limits_in_order(context, pins)
