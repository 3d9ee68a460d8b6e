# From step.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.kv.allocation cimport StepBlocks
from tokenyard.core.kv.manager cimport KVCacheManager
from tokenyard.core.request cimport Request
from tokenyard.core.sched.admission cimport AdmissionPass
from tokenyard.core.sched.candidate cimport Candidate
from tokenyard.core.sched.candidate cimport StepBudget
from tokenyard.core.sched.candidate cimport StepHooks
from tokenyard.core.sched.features.ahead cimport Speculation
from tokenyard.core.sched.in_flight cimport StepInFlight
from tokenyard.core.sched.lifecycle cimport Lifecycle
from tokenyard.core.sched.queues cimport RunningList
from tokenyard.core.sched.queues cimport WaitingQueues
from tokenyard.core.sched.running cimport RunningPass
from tokenyard.core.sched.step_rows cimport Names
from tokenyard.core.sched.step_rows cimport Rows

cdef long long COMPUTED
cdef long long IN_FLIGHT
cdef long long KNOWN
cdef long long NEW
cdef long long PROMPT
cdef long long SAMPLES

cdef class StepPlanner
cdef class OutputBuilder

@cython.final
cdef class StepPlanner:
    cdef public object _config
    cdef public object _features
    cdef public StepHooks _hooks
    cdef public object _policy
    cdef public Lifecycle _lifecycle
    cdef public object _expect_first_token
    cdef public WaitingQueues _waiting_queues
    cdef public RunningList _running
    cdef public object _encoder_deadlock
    cdef public RunningPass _running_pass
    cdef public AdmissionPass _admission_pass
    cdef public OutputBuilder builder
    cdef public bint _notes_run
    cdef public long long _most_tokens
    cdef public long long _longest_prefill
    cdef public long long _encoder_budget
    cdef public long long _draft_slots
    @cython.locals(candidate='Candidate')
    cpdef StepInFlight plan(self, long long step, double now, outcomes, pause_state, observer, bounds=*)
    cpdef StepBudget _new_budget(self, pause_state, bounds)
    cpdef list _admit(self, long long step, StepBudget budget, outcomes, double now, pause_state, observer)
    cpdef _start(self, long long step, Candidate candidate, double now, observer)

@cython.final
cdef class OutputBuilder:
    cdef public KVCacheManager kv
    cdef public Speculation speculation
    cdef public bint is_async
    cdef public long long last_step
    cdef public Names names
    cdef public RunningList _running
    cdef public object _encoder
    cdef public bint _zeroes_blocks
    cdef public bint _counts_common_prefix
    cdef public bint _says_more
    @cython.locals(candidate='Candidate')
    cpdef StepInFlight build(self, long long step, list granted, list admitted, StepBudget budget, outcomes, frozenset finished, tuple preempted_before=*)
    cpdef _say_more(self, plan, list granted, StepBudget budget)
    @cython.locals(left_out_before='list', has_grammar='bint', waits='bint', request='Request', samples='bint')
    cpdef list fill(self, long long step, Rows rows, long long num_running, plan)
    cpdef _note_admitted(self, plan, list requests)
    cpdef _note_encoder_inputs(self, encoder, plan, list requests, StepBudget budget)
    cpdef tuple _num_common_prefix_blocks(self)

cpdef _not_entered(reason, long long num_waiting, long long budget_left=*)

cpdef _new_request(Request request)
