# From update.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.kv.manager cimport KVCacheManager
from tokenyard.core.request cimport Request
from tokenyard.core.sched.features.ahead cimport Placeholders
from tokenyard.core.sched.features.ahead cimport Speculation
from tokenyard.core.sched.in_flight cimport StepInFlight
from tokenyard.core.sched.outputs cimport EngineOutputs
from tokenyard.core.sched.outputs cimport ModelOutput
from tokenyard.core.sched.step_rows cimport Names

cdef class AuxUpdate
cdef class OutputUpdate

@cython.final
cdef class AuxUpdate:
    cdef public object _routing
    cdef public bint _resets_drop_pooled
    cpdef run(self, StepInFlight step, ModelOutput model, counts, dict endings, lost)
    cpdef dict _end_pooled(self, requests, given, dict endings, lost)

@cython.final
cdef class OutputUpdate:
    cdef public KVCacheManager kv
    cdef public long long max_model_len
    cdef public long long hash_size
    cdef public bint min_tokens_bar_stops
    cdef public bint is_async
    cdef public Placeholders placeholders
    cdef public Speculation speculation
    cdef public object encoder
    cdef public bint publishes_at_once
    cdef public bint stale_changes_nothing
    cdef public bint takes_back_rest
    cdef public object _finish
    cdef public object _grammars
    cdef public object _routing
    cdef public AuxUpdate _aux_update
    cdef public set _awaiting_first
    cpdef expect_first_token(self, Request request)
    @cython.locals(tokens='long long[::1]', counts='long long[::1]')
    cpdef EngineOutputs run(self, StepInFlight step, ModelOutput model, double now, lost)
    @cython.locals(finish_reasons='dict', stop_reasons='dict', ended='list')
    cpdef _end(self, EngineOutputs outputs, endings, list rows, double now)
    @cython.locals(has_lost='bint', request='Request')
    cpdef long long accept(self, list requests, long long[::1] tokens, long long[::1] counts, long long width, lost, endings)
    cpdef append(self, Request request, long long token)
    cpdef settle(self, Request request, long long arrived, long long taken)
    @cython.locals(drafted='list', num_invalid='list', request='Request')
    cpdef _take_back_rejected(self, StepInFlight step, long long[::1] counts, lost)
    cpdef stamp_first_tokens(self, double now)

cpdef _cut(logprobs, long long count)

@cython.locals(data='long long[::1]')
cpdef of_rows(long long[::1] numbers, list rows, long long width)
