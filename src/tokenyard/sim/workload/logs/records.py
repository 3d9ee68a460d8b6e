"""Records with keys: what a JSON line or a CSV row of an unknown service may call its fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenyard.config import MAX_COUNT
from tokenyard.errors import shown
from tokenyard.sim.workload.logs.logged import LoggedRequest, LogOptions, TimeUnit
from tokenyard.sim.workload.logs.moments import moment_of, seconds_of

__all__ = ["KNOWN_NAMES", "lookup", "request_from"]

KNOWN_NAMES: Mapping[str, Sequence[str]] = {
    "arrival_time": (
        "arrival_time",
        "arrived_at",
        "timestamp",
        "time",
        "ts",
        "created_at",
        "created",
        "start_time",
        "starttime",
        "request_time",
        "date",
    ),
    "prompt_len": (
        "usage.prompt_tokens",
        "usage.input_tokens",
        "response.usage.prompt_tokens",
        "response.usage.input_tokens",
        "response.body.usage.prompt_tokens",
        "response.body.usage.input_tokens",
        "prompt_tokens",
        "input_tokens",
        "prompt_len",
        "input_len",
        "input_length",
        "num_prefill_tokens",
        "request tokens",
    ),
    "max_tokens": (
        "usage.completion_tokens",
        "usage.output_tokens",
        "response.usage.completion_tokens",
        "response.usage.output_tokens",
        "response.body.usage.completion_tokens",
        "response.body.usage.output_tokens",
        "completion_tokens",
        "output_tokens",
        "generated_tokens",
        "output_len",
        "output_length",
        "num_decode_tokens",
        "response tokens",
    ),
    "cached_tokens": (
        "usage.prompt_tokens_details.cached_tokens",
        "usage.input_tokens_details.cached_tokens",
        "response.usage.prompt_tokens_details.cached_tokens",
        "response.usage.input_tokens_details.cached_tokens",
        "response.body.usage.prompt_tokens_details.cached_tokens",
        "usage.cache_read_input_tokens",
        "cached_tokens",
        "cache_read_input_tokens",
    ),
    "duration": ("duration", "duration_s", "latency", "latency_s", "elapsed time", "e2e_latency"),
    "duration_ms": ("duration_ms", "latency_ms", "response_ms", "elapsed_ms"),
    "request_id": ("request_id", "id", "custom_id"),
    "lora_name": ("lora_name", "adapter", "lora"),
    "group": ("session_id", "session id", "conversation_id", "user", "user_id", "api_key_id"),
}
"""Our field -> what services call it, dotted where it is nested; the first one that is there counts."""


def lookup(record: Mapping[str, object], name: str) -> object | None:
    """The value under a key, or under a dotted path of keys; None if there is none."""
    if name in record:
        return record[name]
    value: object = record
    for key in name.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return value


def _first(record: Mapping[str, object], field: str, options: LogOptions) -> object | None:
    if field in options.columns:
        return lookup(record, options.columns[field])
    return next((value for name in KNOWN_NAMES[field] if (value := lookup(record, name)) not in (None, "")), None)


def _tokens(value: object, field: str, least: int) -> int:
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_COUNT:
        raise ValueError(f"{field} = {shown(value)}: give a whole number of tokens from {least} on")
    return value


def request_from(record: Mapping[str, object], options: LogOptions) -> LoggedRequest:
    """The request that ``record`` is about; ValueError names the field that is missing or cannot be."""
    prompt, output = _first(record, "prompt_len", options), _first(record, "max_tokens", options)
    for field, value in (("prompt_len", prompt), ("max_tokens", output)):
        if value is None:
            where = options.columns.get(field)
            fix = f"the column {where!r} is not there" if where else f"name its column: --columns {field}=NAME"
            raise ValueError(f"says nothing of {field}: {fix}")
    moment, cached = _first(record, "arrival_time", options), _first(record, "cached_tokens", options)
    identity, group = _first(record, "request_id", options), _first(record, "group", options)
    adapter = _first(record, "lora_name", options)
    prompt_tokens = _tokens(prompt, "prompt_len", 1)
    return LoggedRequest(
        None if moment is None else moment_of(moment, options.time_unit),
        prompt_tokens,
        _tokens(output, "max_tokens", 0),
        0 if cached is None else min(_tokens(cached, "cached_tokens", 0), prompt_tokens),
        _duration(record, options),
        None if identity is None else str(identity),
        None if group is None else str(group),
        None if adapter in (None, "") else str(adapter),
    )


def _duration(record: Mapping[str, object], options: LogOptions) -> float | None:
    value = _first(record, "duration", options)
    if value is not None:
        unit = options.time_unit if "duration" in options.columns and options.time_unit else TimeUnit.SECONDS
        return seconds_of(value, unit)
    value = _first(record, "duration_ms", options)
    return None if value is None else seconds_of(value, TimeUnit.MILLISECONDS)
