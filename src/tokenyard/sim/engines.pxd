# From engines.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.engine cimport EngineCore
from tokenyard.core.request cimport Request
from tokenyard.core.sched.outputs cimport EngineOutputs
from tokenyard.core.sched.scheduler cimport Scheduler
from tokenyard.sim.executor cimport SimulatedExecutor
from tokenyard.sim.executor cimport SimulatedModel
from tokenyard.sim.executor cimport SimulatedStep
from tokenyard.sim.executor cimport StepEnd
from tokenyard.steptime.pace cimport VirtualClock

cdef long long STEPS_PER_REPORT
cdef double _AT_ONCE

cdef class _Round
cdef class Lockstep
cdef class LockstepExecutor
cdef class Rank
cdef class RankInStep

cdef class _Round(StepEnd):
    cdef public double ready_at
    cdef public double waits
    cdef public list shapes
    cdef public list computing

@cython.final
cdef class Lockstep:
    cdef public long long _num_ranks
    cdef public object _latency
    cdef public object _rounds
    cdef public long long _settled
    cdef public double _ended_at
    cdef public list _begun
    cdef public long long _asked
    cdef public long long wave
    cdef public bint is_running
    cpdef start(self)
    cpdef long long steps(self, long long rank)
    cpdef bint is_held(self, long long rank)
    cpdef StepEnd join(self, LockstepExecutor executor, double ready_at, double waits, shape, double since)
    cpdef _settle(self, _Round joined)

cdef class LockstepExecutor(SimulatedExecutor):
    cdef public long long rank
    cdef public long long num_dummies
    cdef public Lockstep lockstep
    cdef public StepEnd _dummy
    cpdef run_dummy(self)
    cpdef StepEnd _join(self, shape, double waits)
    cpdef StepEnd pass_over(self, double waits)
    cpdef StepEnd _compute(self, plan, double waits)

cdef class Rank:
    cdef public long long rank
    cdef public Scheduler scheduler
    cdef public EngineCore core
    cdef public VirtualClock _clock
    cdef public object _transfers
    cdef public SimulatedExecutor _executor
    cdef public object _listener
    cdef public bint _leaps
    cdef public bint is_due
    cdef public double _slept_at
    cdef public object _inbox
    cdef public set _under_way
    cdef public list _leaving
    cdef public tuple _told
    cdef public long long _report_at
    cdef public long long _num_requests
    cdef public long long _num_finished
    cdef public long long _output_tokens
    cpdef long long num_cached_tokens(self, Request request)
    cpdef send(self, Request request)
    cpdef went_on_without(self, Request request)
    cpdef _tell_rejected(self)
    cpdef abort(self, request_ids)
    cpdef wake(self)
    cpdef take_in_kv(self, contents)
    cpdef _let_go(self, Request request, Request waiting, status)
    cpdef receive(self)
    cpdef next_moment(self)
    cpdef wakes_at(self)
    cpdef double _due_at(self)
    cpdef EngineOutputs act(self, double horizon=*)
    cpdef bint wants_report(self, EngineOutputs outputs)
    cpdef EngineOutputs _take_in(self)
    cpdef begin(self, double horizon)
    cpdef _tell_counts(self)

cdef class RankInStep(Rank):
    cdef public Lockstep _lockstep
    cdef public LockstepExecutor _in_step
    cpdef next_moment(self)
    cpdef begin(self, double horizon)
    cpdef receive(self)
