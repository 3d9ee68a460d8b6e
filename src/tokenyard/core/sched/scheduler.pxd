# From scheduler.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.kv.manager cimport KVCacheManager
from tokenyard.core.request cimport Request
from tokenyard.core.sched.answer_checks cimport AnswerChecks
from tokenyard.core.sched.answer_checks cimport checked_drafts
from tokenyard.core.sched.answer_checks cimport checked_repeats
from tokenyard.core.sched.candidate cimport FeatureHook
from tokenyard.core.sched.candidate cimport StepHooks
from tokenyard.core.sched.fast_forward cimport FastForward
from tokenyard.core.sched.features.ahead cimport Speculation
from tokenyard.core.sched.in_flight cimport StepsInFlight
from tokenyard.core.sched.lifecycle cimport Lifecycle
from tokenyard.core.sched.lifecycle cimport Recovery
from tokenyard.core.sched.outputs cimport EngineOutputs
from tokenyard.core.sched.outputs cimport ModelOutput
from tokenyard.core.sched.outputs cimport with_events
from tokenyard.core.sched.queues cimport RunningList
from tokenyard.core.sched.queues cimport WaitingQueues
from tokenyard.core.sched.step cimport StepPlanner
from tokenyard.core.sched.update cimport OutputUpdate

cdef long long STUCK_AFTER

cdef class Scheduler

cdef class Scheduler:
    cdef public object config
    cdef public object cache_config
    cdef public object clock
    cdef public object policy
    cdef public object observer
    cdef public object state
    cdef public KVCacheManager kv
    cdef public object requests
    cdef public object pause_state
    cdef public long long step
    cdef public object _policy_gate
    cdef public list _rejected
    cdef public object _calls
    cdef public StepsInFlight _in_flight
    cdef public object _grammars
    cdef public object _features
    cdef public StepHooks _hooks
    cdef public WaitingQueues _waiting_queues
    cdef public RunningList _running
    cdef public Lifecycle _lifecycle
    cdef public Recovery _recovery
    cdef public AnswerChecks _answers
    cdef public OutputUpdate _update
    cdef public StepPlanner _planner
    cdef public FastForward _fast_forward
    cdef public object _standstill
    cpdef _feed(self, Request session, Request request)
    cpdef _note_items(self, Request request)
    cpdef _queued(self, Request request)
    cpdef _act_on(self, bounds, double now)
    cpdef _reject(self, double now)
    cpdef standstill(self, long long after=*)
    cpdef _begins(self)
    cpdef long long _count_repeats(self)
    cpdef Speculation _speculation(self)
    cpdef get_grammar_bitmask(self, output)
    cpdef _stats(self)
    cpdef _tell_pin_ended(self, pin)
    cpdef _tell_finished(self, double now, Request request)
    cpdef bint _reset_connector_cache(self)
    cpdef long long num_blocks_of(self, Request request)
    cpdef next_moment(self, double now)
    cpdef tuple get_request_counts(self)
    cpdef long long get_num_unfinished_requests(self)
    cpdef bint has_unfinished_requests(self)
    cpdef bint has_finished_requests(self)
    cpdef bint has_requests(self)
    cpdef get_kv_connector(self)
    cpdef check_invariants(self)

cpdef _gate(observer)

cpdef dict _of_ended(errors)

cpdef _check_kinds(config, cache_config, speculative_config, clock)
