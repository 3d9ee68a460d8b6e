"""Spans of traced services: OpenTelemetry's in OTLP JSON, Jaeger's and Langfuse's.

A span around others (an agent, a chain) often says the tokens of all within it. Only the innermost ones that say
tokens are requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tokenyard.errors import shown
from tokenyard.sim.workload.logs.fields import request_from
from tokenyard.sim.workload.logs.line_logs import records_in
from tokenyard.sim.workload.logs.logged import LoggedRequest, Reading
from tokenyard.sim.workload.logs.source import Source
from tokenyard.sim.workload.logs.view import View

__all__ = ["read_jaeger", "read_langfuse", "read_otel"]

_LONGEST_WHOLE = 19
"""Digits of a 64-bit integer."""


class _Span(NamedTuple):
    number: int
    record: dict[str, Any]
    """Its attributes, with its times and its id."""
    key: object
    """Names it among all."""
    parent: object | None
    """Key of the span around it; None if there is none."""


def read_otel(source: Source, reading: Reading) -> Iterator[LoggedRequest]:
    """Spans, or records of logs, in OTLP's JSON (a document, or one a line) with token counts as attributes."""
    spans: list[_Span] = []
    for _, document in source.records(reading.bad):
        for span in _otlp_spans(document):
            record = {str(each.get("key")): _plain(each.get("value")) for each in _listed(span.get("attributes"))}
            record |= _body(span.get("body"))
            start = span.get("startTimeUnixNano") or span.get("timeUnixNano") or span.get("observedTimeUnixNano")
            _put(record, "arrival_time", start)
            _put(record, "end_time_unix_nano", span.get("endTimeUnixNano"))
            record["request_id"] = span.get("spanId") if span.get("startTimeUnixNano") else None
            trace = span.get("traceId")
            parent = _key(trace, span["parentSpanId"]) if span.get("parentSpanId") else None
            key = _key(trace, span.get("spanId")) if span.get("spanId") else len(spans)
            spans.append(_Span(len(spans) + 1, record, key, parent))
    yield from _requests(spans, reading, "span")


def _put(record: dict[str, Any], name: str, nanoseconds: object) -> None:
    """A time, if it is one: 0 stands for none."""
    if nanoseconds not in (None, 0, "0", ""):
        record[name] = nanoseconds


def _otlp_spans(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for resource in _listed(document.get("resourceSpans")):
        for scope in _listed(resource.get("scopeSpans") or resource.get("instrumentationLibrarySpans")):
            yield from _listed(scope.get("spans"))
    for resource in _listed(document.get("resourceLogs")):
        for scope in _listed(resource.get("scopeLogs")):
            yield from _listed(scope.get("logRecords"))


def _body(body: object) -> dict[str, Any]:
    """What a record of a log holds, if that is fields."""
    values = body.get("kvlistValue") if isinstance(body, Mapping) else None
    fields = values.get("values") if isinstance(values, Mapping) else None
    return {str(each.get("key")): _plain(each.get("value")) for each in _listed(fields)}


def read_jaeger(source: Source, reading: Reading) -> Iterator[LoggedRequest]:
    """Traces as Jaeger's interface exports them: times in microseconds, attributes as tags."""
    spans: list[_Span] = []
    for _, document in source.records(reading.bad):
        for trace in _listed(document.get("data")):
            for span in _listed(trace.get("spans")):
                record = {str(tag.get("key")): tag.get("value") for tag in _listed(span.get("tags"))}
                record |= {"arrival_time": span.get("startTime"), "request_id": span.get("spanID")}
                record["duration_us"] = span.get("duration")
                parents = [
                    _key(each.get("traceID"), each.get("spanID"))
                    for each in _listed(span.get("references"))
                    if each.get("refType") == "CHILD_OF"
                ]
                key = _key(span.get("traceID"), span.get("spanID"))
                spans.append(_Span(len(spans) + 1, record, key, parents[0] if parents else None))
    yield from _requests(spans, reading, "span")


_LANGFUSE_TOTALS = ("promptTokens", "completionTokens", "inputUsage", "outputUsage")


def read_langfuse(source: Source, reading: Reading) -> Iterator[LoggedRequest]:
    """Langfuse's observations, exported or as its interface answers; usage by kind is added up."""
    spans: list[_Span] = []
    for number, record in records_in(source, reading):
        whole = dict(record)
        details = record.get("usageDetails") or record.get("usage_details")
        if isinstance(details, Mapping) and not any(name in record for name in _LANGFUSE_TOTALS):
            for side, name in (("input", "prompt_tokens"), ("output", "completion_tokens")):
                parts = [value for key, value in details.items() if side in str(key) and isinstance(value, int)]
                whole[name] = sum(parts) if parts else None
        parent = record.get("parentObservationId") or record.get("parent_observation_id")
        key = number if record.get("id") is None else _key(record["id"])
        spans.append(_Span(number, whole, key, None if parent is None else _key(parent)))
    yield from _requests(spans, reading, "observation")


def _requests(spans: list[_Span], reading: Reading, what: str) -> Iterator[LoggedRequest]:
    told = {each.key: each for each in spans if View(each.record).has_a_length}
    parents = {each.key: each.parent for each in spans}
    around = set()
    for each in told.values():
        outer = each.parent
        while outer is not None and outer not in around:
            around.add(outer)
            outer = parents.get(outer)
    for span in spans:
        if span.key in around and span.key in told:
            reading.left_out[f"{what}s around others that say tokens"] += 1
            continue
        try:
            logged = request_from(span.record, reading)
        except ValueError as error:
            reading.bad(span.number, f"{what} {span.number}: {error}")
            continue
        if logged is not None:
            yield logged


def _key(*ids: object) -> str:
    """Names a span, whatever its ids are."""
    return repr(ids)


def _listed(value: object) -> Iterator[Mapping[str, Any]]:
    """The objects of a list; none if it is something else."""
    return (each for each in value if isinstance(each, Mapping)) if isinstance(value, list) else iter(())


def _plain(value: object) -> object:
    """An attribute's value; 64-bit integers come as text."""
    if not isinstance(value, Mapping):
        return value
    for key in ("intValue", "doubleValue", "stringValue", "boolValue"):
        if key in value:
            digits = str(value[key])
            is_whole = key == "intValue" and digits.isdecimal() and len(digits) <= _LONGEST_WHOLE
            return int(digits) if is_whole else value[key]
    return shown(value)
