# From builder.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.explain.advice.symptoms cimport SymptomCounter
from tokenyard.explain.advice.symptoms cimport missed_bounds
from tokenyard.explain.answer.progress cimport ProgressCounter
from tokenyard.explain.figures cimport ArrivalsCounter
from tokenyard.explain.figures cimport Series
from tokenyard.explain.recorded_reasons cimport RecordedReasonCounter

cdef long long STEPS_KEPT
cdef long long _ADDED_AT_ONCE

cdef class _Totals
cdef class _Peaks
cdef class ReportBuilder

@cython.final
cdef class _Totals:
    cdef public long long steps
    cdef public long long omitted_ids
    cdef public object buckets
    cdef public object reasons
    cdef public long long lookups
    cdef public long long prompt_tokens
    cdef public long long local_hits
    cdef public long long external_hits
    cdef public object preemptions
    cdef public object recomputed
    cdef public object sampled
    cpdef join(self, _Totals other)

@cython.final
cdef class _Peaks:
    cdef public object kv_use
    cdef public object dram_use
    cpdef join(self, _Peaks other)

@cython.final
cdef class ReportBuilder:
    cdef public object slos
    cdef public object start
    cdef public set jobs
    cdef public object _told
    cdef public object _first
    cdef public object _last
    cdef public long long _repeats
    cdef public tuple _last_repeat
    cdef public long long _least_free
    cdef public object _apart
    cdef public object _bucket
    cdef public _Totals _totals
    cdef public _Peaks _peaks
    cdef public object _agreement
    cdef public RecordedReasonCounter _recorded
    cdef public object _open
    cdef public SymptomCounter _symptoms
    cdef public ProgressCounter _progress
    cdef public ArrivalsCounter _arrivals
    cdef public object _load
    cdef public object _latencies
    cdef public object _job_times
    cdef public object _pins
    cdef public object _speculation
    cdef public Series _budget_use
    cdef public Series _running
    cdef public Series _waiting
    cdef public double _busy_seconds
    cdef public double _longest_idle
    cdef public object _end
    cdef public bint _is_ended
    cdef public bint _is_joined
    cpdef _join(self, ReportBuilder other)
    cpdef trace_started(self, start)
    cpdef request_arrived(self, record)
    cpdef prefix_looked_up(self, record)
    cpdef step_decided(self, facts)
    cpdef step_repeated(self, long long step, double ts, long long free_blocks)
    cpdef steps_repeated(self, steps)
    cpdef step_completed(self, long long step, ts, seconds, sampled, streams)
    cpdef drafts_verified(self, drafts)
    cpdef request_finished(self, record)
    cpdef pin_ended(self, record)
    cpdef _catch_up(self)
    cpdef _add_arrival(self, record)
    cpdef _add_hits(self, record)
    cpdef _add_step(self, facts)
    cpdef _count(self, verdict, outcome, long long times=*)
    cpdef _add_repeated(self, long long step, double ts, long long free_blocks)
    cpdef _add_steps(self, steps)
    cpdef _add_run(self, steps)
    cpdef _count_verdicts(self, steps, long long first, long long last)
    cpdef _add_repeats(self)
    cpdef _add_gauges(self, facts, long long times=*)
    cpdef _note_free(self, free, total)
    cpdef _add_completed(self, long long step, ts, seconds, sampled, streams)
    cpdef _add_drafts(self, drafts)
    cpdef computed(self, ts, scheduled)
    cpdef begin_at(self, origin)
    cpdef run_ended(self, double ts)
    cpdef request_unfinished(self, record)
    cpdef _add_finished(self, record)
    cpdef _note_moment(self, ts)
    cpdef _end_step(self, now)
    cpdef _close(self)
    cpdef list advice(self, report, of_classes=*)
    cpdef _symptoms_of(self, report, of_classes)
    cpdef _duration(self)
    cpdef _output_tokens(self, bint reconstructed)
    cpdef _hit_rate(self, long long hits)
    cpdef _reading_gaps(self, notes)

cpdef _sum(mine, theirs)

cpdef _larger(mine, theirs)

cpdef _per(count, seconds)
