# From executor.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.sched.outputs cimport ModelOutput
from tokenyard.core.sched.step_rows cimport Rows
from tokenyard.steptime.pace cimport VirtualClock

cdef long long SAMPLES
cdef long long UNKNOWN_DRAFT
cdef long long _MOST_KEPT
cdef long long _PRESENCE
cdef long long _WINDOW
cdef long long _WINDOW_BITS

cdef class Drafting
cdef class SimulatedModel
cdef class SilentModel
cdef class StepEnd
cdef class SimulatedStep
cdef class SimulatedExecutor
cdef class PipelinedExecutor

@cython.final
cdef class Drafting:
    cdef public object _rates
    cdef public object _presence
    cdef public object _recorded
    cdef public object _shift
    cdef public object width
    cdef public object is_everywhere
    cpdef offered(self, req_ids, seeds, positions)
    cpdef accepted(self, req_ids, seeds, positions, offered)
    cpdef _cells(self, seeds, positions)

cdef class SimulatedModel:
    cdef public object _drafting
    cdef public object _offsets
    cdef public object _strides
    cdef public object _drawn
    cdef public object _flat
    cdef public object _shift
    cdef public object _window
    cdef public object _ones
    cdef public dict _seeds
    cpdef ModelOutput execute(self, output)
    cpdef decode(self, slots, first, long long steps)
    cpdef ModelOutput one_each(self, tokens)
    cpdef ModelOutput _verify(self, output, drafts)
    cpdef drafts(self, output, ModelOutput sampled)
    cpdef list _seeds_of(self, output)
    cpdef _tokens(self, slots, positions)
    cpdef _draw(self, slots, windows)
    cpdef _one_each(self, long long n)
    cpdef _remember(self, output)

cdef class SilentModel(SimulatedModel):
    cdef public dict _outputs
    @cython.locals(rows='Rows')
    cpdef ModelOutput execute(self, output)
    cpdef ModelOutput one_each(self, tokens)
    cpdef ModelOutput _silence(self, long long count)
    cpdef ModelOutput _kept(self, key, num_sampled)
    cpdef decode(self, slots, first, long long steps)

cdef class StepEnd:
    cdef public double moment

@cython.final
cdef class SimulatedStep:
    cdef public VirtualClock _clock
    cdef public ModelOutput _output
    cdef public object _transfers
    cdef public StepEnd _end
    cpdef bint done(self)
    cpdef ModelOutput result(self)

cdef class SimulatedExecutor:
    cdef public VirtualClock _clock
    cdef public object _latency
    cdef public object _transfers
    cdef public SimulatedModel _model
    cdef public bint _speculates
    cdef public tuple _newest
    cdef public double _host_free_at
    cdef public double _device_free_at
    cdef public StepEnd _end
    cdef public double busy_seconds
    cdef public double runs_until
    cdef public long long num_empty_steps
    cdef public long long most_empty
    cpdef double busy_before(self, double moment)
    cpdef taken_in(self, step, long long depth)
    cpdef execute_model(self, plan)
    cpdef double _begin_transfers(self, plan)
    cpdef StepEnd pass_over(self, double waits)
    cpdef StepEnd _compute(self, plan, double waits)
    cpdef double _lasting(self, double now, double seconds, double host, double waits)
    @cython.locals(moments='list')
    cpdef run_ahead(self, futures, newest, long long most)
    cpdef SimulatedStep sample_tokens(self, plan, grammar)
    cpdef take_draft_token_ids(self)
    cpdef shutdown(self)

cdef class PipelinedExecutor(SimulatedExecutor):
    cdef public long long _waits_for
    cdef public list _stages_free_at
    cdef public double _tokens_at
    cdef public object _sampling
    cpdef run_ahead(self, futures, newest, long long most)
    cpdef StepEnd _compute(self, plan, double waits)
