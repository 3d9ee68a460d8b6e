# From running.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.kv.manager cimport KVCacheManager
from tokenyard.core.request cimport Request
from tokenyard.core.sched.candidate cimport StepBudget
from tokenyard.core.sched.features.ahead cimport DecodeRound
from tokenyard.core.sched.queues cimport RunningList

cdef class RunningPass

@cython.final
cdef class RunningPass:
    cdef public KVCacheManager kv
    cdef public RunningList running
    cdef public object policy
    cdef public object preempt
    cdef public object deadlock
    cdef public object encoder
    cdef public object encoder_deadlock
    cdef public object alignment
    cdef public bint states_before_images
    cdef public DecodeRound decode_round
    cdef public bint is_async
    cdef public long long num_lookahead_tokens
    cdef public long long last_position
    cdef public bint drifts
    cdef public bint forgets
    cdef public bint ends_with_itself
    cdef public bint has_cuts
    cdef public long long prompt_asked
    cdef public long long drift
    cdef public list held
    cdef public tuple items
    @cython.locals(granted='list', idle='list', request='Request')
    cpdef list run(self, StepBudget budget, outcomes)
    cpdef end(self, long long at, list granted, StepBudget budget, list idle, outcomes)
    cpdef long long wanted(self, Request request, StepBudget budget, list idle)
    cpdef bint ends_in_flight(self, Request request)
    cpdef long long within(self, Request request, long long wanted, bounds)
    cpdef long long cut(self, Request request, long long wanted, StepBudget budget, outcomes)
    cpdef long long up_to_encoder_input(self, encoder, Request request, long long wanted, StepBudget budget, outcomes)
    cpdef long long up_to_state(self, Request request, long long wanted, StepBudget budget, outcomes)
    @cython.locals(victim='Request')
    cpdef long long make_room(self, Request request, long long end, long long at, list granted, StepBudget budget, outcomes)
    cpdef bint take_from(self, Request victim, Request request, list granted, StepBudget budget, shortage, outcomes)
    cpdef drift_past(self, long long at, StepBudget budget, list idle, outcomes)
    cpdef note_left_out(self, long long at, StepBudget budget, list idle, outcomes)

cpdef bint in_prompt(Request request)

cpdef left_out(reason, Request request, detail=*)
