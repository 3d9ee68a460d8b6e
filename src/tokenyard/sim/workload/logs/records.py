"""Records with keys: what a JSON line or a CSV row of an unknown service may call its fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tokenyard.config import MAX_COUNT
from tokenyard.errors import shown
from tokenyard.sim.workload.logs.logged import LoggedRequest, LogOptions, TimeUnit
from tokenyard.sim.workload.logs.moments import moment_of, seconds_of, unit_in_name

__all__ = ["KNOWN_NAMES", "has_known_lengths", "lookup", "request_from"]

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
        *(f"{name}_ms" for name in ("arrival_time", "arrived_at", "timestamp", "time", "ts", "created_at")),
        *(f"{name}_ms" for name in ("start_time", "request_time")),
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
    "duration": (
        *("duration", "duration_s", "latency", "latency_s", "elapsed time", "e2e_latency"),
        *("duration_ms", "latency_ms", "response_ms", "elapsed_ms"),
    ),
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


def has_known_lengths(record: Mapping[str, object]) -> bool:
    """Whether prompt and output have names that are known."""
    return all(_first(record, field, LogOptions()) is not None for field in ("prompt_len", "max_tokens"))


class _Found(NamedTuple):
    """A value, and what the record calls it."""

    name: str = ""
    value: object | None = None


def _find(record: Mapping[str, object], field: str, options: LogOptions) -> _Found:
    if field in options.columns:
        return _Found(options.columns[field], lookup(record, options.columns[field]))
    found = (_Found(name, value) for name in KNOWN_NAMES[field] if (value := lookup(record, name)) not in (None, ""))
    return next(found, _Found())


def _first(record: Mapping[str, object], field: str, options: LogOptions) -> object | None:
    return _find(record, field, options).value


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
    moment, cached = _find(record, "arrival_time", options), _first(record, "cached_tokens", options)
    unit = unit_in_name(moment.name)
    identity, group = _first(record, "request_id", options), _first(record, "group", options)
    adapter = _first(record, "lora_name", options)
    prompt_tokens = _tokens(prompt, "prompt_len", 1)
    return LoggedRequest(
        None if moment.value is None else moment_of(moment.value, options.time_unit or unit),
        prompt_tokens,
        _tokens(output, "max_tokens", 0),
        0 if cached is None else min(_tokens(cached, "cached_tokens", 0), prompt_tokens),
        _duration(record, options),
        None if identity is None else str(identity),
        None if group is None else str(group),
        None if adapter in (None, "") else str(adapter),
        unit is not None,
    )


def _duration(record: Mapping[str, object], options: LogOptions) -> float | None:
    """In the unit that its name says; of a column that the user named also in the unit of the log's times."""
    found = _find(record, "duration", options)
    if found.value is None:
        return None
    said = options.time_unit if "duration" in options.columns else None
    return seconds_of(found.value, unit_in_name(found.name) or said or TimeUnit.SECONDS)
