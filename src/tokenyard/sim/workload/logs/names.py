"""What services call the fields of a request: the names that are known without being told.

Names are compared without regard to case, blanks, dashes and underscores, and a unit behind them does not count:
``promptTokens``, ``Prompt Tokens`` and ``prompt_tokens`` are one name, so are ``latency`` and ``Latency (ms)``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from tokenyard.sim.workload.logs.moments import without_unit

__all__ = ["KNOWN_NAMES", "Path", "normal", "normals", "path_of"]

_USAGES: tuple[str, ...] = ("usage", "response.usage", "response.body.usage", "body.usage", "usage_object", "meta_info")
_USAGES += ("response_obj.usage", "llm_response.usage", "metadata.usage_object", "metrics")


def _of_usage(*names: str) -> tuple[str, ...]:
    return tuple(f"{usage}.{name}" for usage in _USAGES for name in names)


KNOWN_NAMES: Mapping[str, Sequence[str]] = {
    "arrival_time": (
        *("request_created_at", "request_start_ns", "metadata.request_start_ns", "start_ns"),
        *("arrival_time", "arrived_at", "received_at", "request_start_time", "start_time", "started_at", "starttime"),
        *("start_time_unix", "start_time_unix_nano", "startTimeUnixNano", "request_received_at", "requested_at"),
        *("request_time", "request_timestamp", "created_at", "created", "response.body.created", "response.created_at"),
        *("body.created", "response.created", "timestamp", "timestamp_utc", "timestamp_unix", "event_timestamp"),
        *("time", "ts", "date", "datetime", "date_time", "event_time", "@timestamp", "_time"),
        *("time_generated", "asctime", "__REALTIME_TIMESTAMP", "time_unix_nano", "timeUnixNano", "logged_at"),
        *("logging_time", "log_line_time"),
    ),
    "end_time": (
        *(
            "end_time",
            "ended_at",
            "finished_at",
            "finish_time",
            "completed_at",
            "completion_time",
            "end_time_unix_nano",
        ),
        *("endTimeUnixNano", "request_end_time", "response_time_stamp", "request_end_ns", "metadata.request_end_ns"),
        *("time_iso8601", "time_local", "msec"),
    ),
    "prompt_len": (
        *_of_usage("prompt_tokens", "input_tokens", "prompt_token"),
        *("native_tokens_prompt", "prompt_tokens", "prompt_token", "llm_prompt_tokens", "req_units", "input_tokens"),
        *("prompt_len", "input_len", "input_length", "num_prefill_tokens"),
        *("request_tokens", "context_tokens", "num_prompt_tokens", "num_input_tokens", "n_prompt_tokens"),
        *("prompt_token_count", "input_token_count", "prompt_tokens_count", "input_tokens_count", "tokens_prompt"),
        *("tokens_in", "tokens_input", "usage.input", "usage_input", "input_usage", "usage_details.input"),
        *("usageMetadata.promptTokenCount", "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
        *("llm.usage.prompt_tokens", "llm.token_count.prompt", "llm_input_token", "prompt_eval_count"),
        *("timings.prompt_n", "tokens_evaluated", "total_input_tokens"),
        *("input_sequence_length.value", "metrics.input_sequence_length.value"),
    ),
    "max_tokens": (
        *_of_usage("completion_tokens", "output_tokens", "completion_token"),
        *("native_tokens_completion", "completion_tokens", "completion_token", "llm_completion_tokens", "res_units"),
        *("output_tokens", "generated_tokens", "output_len", "output_length"),
        *("num_decode_tokens", "response_tokens", "num_completion_tokens", "num_output_tokens"),
        *("num_generated_tokens", "n_completion_tokens", "completion_token_count", "output_token_count"),
        *("completion_tokens_count", "output_tokens_count", "tokens_completion", "tokens_out", "tokens_output"),
        *("usage.output", "usage_output", "output_usage", "usage_details.output"),
        *("usageMetadata.candidatesTokenCount", "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
        *("llm.usage.completion_tokens", "llm.token_count.completion", "llm_output_token", "eval_count"),
        *("timings.predicted_n", "tokens_predicted", "total_output_tokens"),
        *("output_sequence_length.value", "metrics.output_sequence_length.value"),
    ),
    "total_tokens": (
        *_of_usage("total_tokens"),
        *("total_tokens", "tokens_total", "usage.total", "total_usage", "gen_ai.usage.total_tokens"),
        *("llm.token_count.total", "llm_total_token", "usageMetadata.totalTokenCount", "total_token_count"),
        "total_units",
    ),
    "cached_tokens": (
        *_of_usage("prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens"),
        *_of_usage("cache_read_input_tokens", "prompt_cache_hit_tokens", "cached_tokens"),
        *("cached_tokens", "cache_read_input_tokens", "cached_input_tokens", "prompt_tokens_cached", "tokens_cached"),
        *("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens"),
        *("gen_ai.usage.cached_tokens", "llm.token_count.prompt_details.cache_read", "num_cached_tokens"),
        *("usage_details.input_cached_tokens", "usage_details.cache_read_input_tokens"),
        *("cache_read_input_token_count", "prompt_cache_read_tokens", "usageMetadata.cachedContentTokenCount"),
    ),
    "cache_creation": (
        *_of_usage("cache_creation_input_tokens"),
        *("cache_creation_input_tokens", "usage_details.cache_creation_input_tokens"),
        "cache_write_input_token_count",
    ),
    "thoughts": ("usageMetadata.thoughtsTokenCount",),
    "duration": (
        *("duration", "latency", "elapsed", "elapsed_time", "e2e_latency", "request_latency", "request_duration"),
        *("response_time", "total_time", "total_latency", "processing_time", "time_taken", "llm_latency"),
        *("total_duration", "e2e_duration", "gen_ai.latency.e2e", "generation_time"),
        *("metadata.e2e_latency", "delay"),
    ),
    "request_id": ("request_id", "id", "custom_id", "span_id", "generation_id", "trace_id", "x-request-id"),
    "lora_name": ("lora_name", "adapter", "lora", "lora_adapter", "adapter_name"),
    "session": (
        *("session_id", "session", "conversation_id", "conversation", "thread_id", "chat_id", "gen_ai.conversation.id"),
        *("session.id", "litellm_session_id", "metadata.session_id"),
    ),
    "user": (
        *("user", "user_id", "user.id", "tenant", "tenant_id", "end_user", "customer", "customer_id", "username"),
        *("team_id", "team", "organization_id", "organization", "org_id", "project_id", "account_id"),
        *("api_key_id", "api_key_alias", "metadata.user_id", "metadata.user_api_key_user_id", "user_hash"),
    ),
    "priority": ("priority", "request_priority", "body.priority"),
    "model": (
        *("model_group", "model", "model_name", "request_model", "body.model", "response.body.model", "response.model"),
        *("gen_ai.request.model", "gen_ai.response.model", "llm.model_name", "provided_model_name", "model_id"),
        *("served_model_name", "deployment", "model_requested", "request_llm_model", "llm_model"),
        *("model_permaslug", "request.model", "ai_model", "meta.request_model", "response_model"),
    ),
    "status": (
        *("status", "status_code", "http_status", "response_code", "response_status", "response.status_code"),
        *("http.status_code", "http.response.status_code", "level"),
    ),
    "error": ("error", "error_message", "error_str", "exception", "errors"),
    "success": ("success", "is_success", "succeeded"),
    "from_cache": ("cache_hit", "cached_response", "from_cache", "is_cached", "cached", "cache_status"),
    "requests": (
        *("num_model_requests", "num_requests", "request_count", "requests_count", "n_requests", "requests"),
        *("total_requests", "successful_requests", "api_requests"),
    ),
    "span": ("span_id", "context.span_id", "id", "run_id"),
    "parent": ("parent_run_id", "parent_span_id", "parent_id", "parent_observation_id"),
    "call_type": ("call_type", "endpoint_type", "operation", "gen_ai.operation.name", "object", "response.body.object"),
}
"""Our field -> what services call it, dotted where it is nested; the first one that is there counts."""

_OTHER = re.compile(r"[^a-z0-9]+")
_ZONE = re.compile(r"\s*[\[(](?:UTC|GMT)[\])]$", re.IGNORECASE)
"""Behind a name of times: TimeGenerated [UTC]."""


class Path(NamedTuple):
    """A name of a field."""

    text: str
    """As it is listed."""
    flat: str
    """All of it as one name: a dotted key, or a column of a table that was made of nested records."""
    parts: tuple[str, ...]
    """The keys on the way to it."""


@lru_cache(maxsize=4096)
def normal(name: str) -> str:
    """A name without what spellings differ in."""
    return _OTHER.sub("", name.casefold())


@lru_cache(maxsize=4096)
def normals(name: str) -> tuple[str, ...]:
    """The names that a key may be known by: itself, and itself without a unit."""
    bare = _ZONE.sub("", name) if _ZONE.search(name) else without_unit(name)
    return (normal(name),) if bare is None or not normal(bare) else (normal(name), normal(bare))


@lru_cache(maxsize=4096)
def path_of(name: str) -> Path:
    """The name as keys one within the other."""
    return Path(name, normal(name), tuple(map(normal, name.split("."))))
