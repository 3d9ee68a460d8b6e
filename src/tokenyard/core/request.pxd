# From request.py, by scripts/write_pxd.py.

cimport cython
from tokenyard.core.rows cimport Row
from tokenyard.core.rows cimport TokenRow

cdef long long NEVER
cdef long long NO_TOKEN
cdef bint TYPE_CHECKING

cdef class RequestTimes
cdef class Request

@cython.final
cdef class RequestTimes:
    cdef public object first_scheduled
    cdef public object first_token
    cdef public object finished

cdef class Request:
    cdef public object request_id
    cdef public object sampling_params
    cdef public object pooling_params
    cdef public double arrival_time
    cdef public bint arrives_when_added
    cdef public long long priority
    cdef public tuple mm_features
    cdef public object prompt_embeds
    cdef public object lora_name
    cdef public object cache_salt
    cdef public object job_id
    cdef public object this_func_call
    cdef public bint resumable
    cdef public bint is_last_step
    cdef public object ends_after
    cdef public object predicted_output_tokens
    cdef public long long output_seed
    cdef public long long client_index
    cdef public object trace_headers
    cdef public object kv_transfer_params
    cdef public object meta
    cdef public object structured_output
    cdef public bint has_extra_keys
    cdef public object status
    cdef public object stop_reason
    cdef public RequestTimes times
    cdef public long long num_prompt_tokens
    cdef public long long num_tokens
    cdef public long long num_computed_tokens
    cdef public long long num_output_placeholders
    cdef public list spec_token_ids
    cdef public long long num_cached_tokens
    cdef public long long num_hit_tokens
    cdef public long long num_external_computed_tokens
    cdef public long long num_preemptions
    cdef public long long shared_prefix_boundary
    cdef public long long async_steps_to_discard
    cdef public bint is_prefill_chunk
    cdef public long long last_step
    cdef public long long num_scheduled
    cdef public long long stop_at
    cdef public long long max_total
    cdef public long long eos
    cdef public bint looks_closer
    cdef public long long slot
    cdef public Row blocks
    cdef public long long first_new_block
    cdef public long long num_published
    cdef public long long publish_at
    cdef public long long skip_at
    cdef public long long encoder_at
    cdef public list block_hashes
    cdef public object prefix_hash
    cdef public object given
    cdef public long long num_given
    cdef public TokenRow appended
    cpdef _begin(self, prompt)
    cpdef replace_tokens(self, tokens)
    cpdef note_limits(self)
    cpdef append_token(self, long long token)
    cpdef token_slice(self, long long start, long long stop)
    cpdef bytes token_bytes(self, long long start, long long stop)

cpdef RequestTimes _times(first_scheduled, first_token, finished)

cpdef tuple _params_of(request_id, sampling, pooling)

cpdef _never_written(tokens)
