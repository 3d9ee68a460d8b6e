"""Logs of records: JSON lines, CSV, one JSON document, spans of traced services."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tokenyard.core.config import MAX_COUNT
from tokenyard.errors import WorkloadError, shown
from tokenyard.workload.logs.fields import request_from
from tokenyard.workload.logs.logged import LoggedRequest, LogReading, RecordView, SentAs, normal, payload_of
from tokenyard.workload.logs.moments import TimeUnit
from tokenyard.workload.logs.source import Source, lists_in
from tokenyard.workload.record import is_seconds

# ---------------------------------------------------------------------------------------------------------------------
# Logs with a record per request: JSON objects, one a line or in a list, or the rows of a CSV file.
#
# What the fields are called is looked up among the names that services use, or named by the user:
# ``LogOptions.columns``.

_MARKS = ",;\t|"
"""What stands between the cells of CSV."""
_MOST_LINES = 1000
"""Lines of one row: a quote that never ends would take the rest of the file."""
_LARGEST_CELL = 1 << 24
_LOOKED_AT = 16
"""Records that tell which list of a document is about requests."""


def read_json_log(source: Source, reading: LogReading, default: TimeUnit | None = None) -> Iterator[LoggedRequest]:
    """JSON objects, for example OpenAI responses with their ``usage``; ``default``: unit of durations."""
    for number, record in records_in(source, reading):
        yield from _one(record, number, reading, default)


def read_envoy(source: Source, reading: LogReading) -> Iterator[LoggedRequest]:
    """Envoy's access log, whose durations are milliseconds."""
    return read_json_log(source, reading, TimeUnit.MILLISECONDS)


def read_ollama(source: Source, reading: LogReading) -> Iterator[LoggedRequest]:
    """Ollama's answers, whose durations are nanoseconds; ``created_at`` is when the last part of one was made."""
    for number, record in records_in(source, reading):
        ended = {"end_time" if key == "created_at" else key: value for key, value in record.items()}
        yield from _one(ended, number, reading, TimeUnit.NANOSECONDS)


def records_in(source: Source, reading: LogReading) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The objects that requests are read from: of a document the list that says lengths, freed of its collector's."""
    if source.is_json_lines:
        for number, record in source.records(reading.bad):
            lines = [record] if RecordView(record).has_a_length else best_list(record) or [record]
            yield from ((number, payload_of(each)) for each in lines)
        return
    document = source.require_document()
    found = best_list(document)
    for number, record in enumerate(found if found is not None else [document], 1):
        if isinstance(record, Mapping):
            yield number, payload_of(record)
        else:
            reading.bad(number, f"holds {shown(record)}, not an object with fields")


def best_list(document: object) -> list[Any] | None:
    """The list of objects of a document of which most say lengths, or the longest one; None if it has none."""
    lists = [_rows(each) for each in lists_in(document)]

    def sizes(records: list[Any]) -> tuple[int, int]:
        some = [each for each in records[:_LOOKED_AT] if isinstance(each, Mapping)]
        return sum(RecordView(payload_of(each)).has_a_length for each in some), len(records)

    return max(lists, key=sizes, default=None)


def _rows(records: list[Any]) -> list[Any]:
    """Records as objects: rows that are lists of {field, value}, and streams of [time, line], as queries answer."""
    rows: list[Any] = []
    for each in records:
        if isinstance(each, list):
            rows.append({str(cell.get("field")): cell.get("value") for cell in each if isinstance(cell, Mapping)})
        elif isinstance(each, Mapping) and isinstance(each.get("values"), list) and "stream" in each:
            lines = (line for line in each["values"] if isinstance(line, list) and len(line) > 1)
            rows += ({"time": line[0], "line": line[1]} for line in lines)
        else:
            rows.append(each)
    return rows


def csv_header(line: bytes) -> tuple[str, list[str]]:
    """What stands between the cells of a CSV's first line, and the cells; ValueError if it is none."""
    text = line.decode("utf-8", "replace")
    try:
        cells = {mark: next(csv.reader([text], delimiter=mark), []) for mark in _MARKS}
    except csv.Error as error:
        raise ValueError(str(error)) from None
    mark = max(_MARKS, key=lambda each: len(cells[each]))
    return mark, [cell.strip() for cell in cells[mark]]


def read_csv_log(source: Source, reading: LogReading) -> Iterator[LoggedRequest]:
    """CSV with a header; what stands between cells (a comma, a semicolon, a tab, a bar) follows from it."""
    at = source.first_number
    try:
        mark, names = csv_header(source.first)
    except ValueError as error:
        raise WorkloadError(source.path, at, f"the header is no CSV: {error}") from None
    names, repeated = _told_apart(names)
    known = {normal(name) for name in names}
    missing = [column for column in reading.options.columns.values() if normal(column) not in known]
    if missing:
        raise WorkloadError(source.path, at, f"the header has no column {shown(missing[0])}; it has {', '.join(names)}")
    for number, cells in _cells(source, mark, reading):
        if cells is None or number <= at:
            continue
        if len(cells) != len(names):
            reading.bad(number, f"has {len(cells)} columns, the header has {len(names)}")
            continue
        yield from _one(_row(names, cells, mark), number, reading)
    for name in repeated:
        if any(name in found for found in reading.taken.values()):
            reading.note("repeated_columns", name=shown(name))


def _told_apart(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names of columns, those that occur again with their number behind them; and which these are."""
    counts: Counter[str] = Counter()
    apart = []
    for name in names:
        counts[name] += 1
        apart.append(name if counts[name] == 1 else f"{name} #{counts[name]}")
    return apart, [name for name, count in counts.items() if count > 1]


def _row(names: list[str], cells: list[str], mark: str) -> Mapping[str, Any]:
    """A row under its names, with what a cell of JSON says."""
    values = [_decimal(cell.strip()) if mark == ";" else cell.strip() for cell in cells]
    row = dict(zip(names, values, strict=True))
    return payload_of(row) if any(value[:1] == "{" for value in values) else row


def first_row(source: Source) -> Mapping[str, Any]:
    """The first row of CSV that has as many cells as the header; nothing if there is none."""
    try:
        mark, names = csv_header(source.first)
    except ValueError:
        return {}
    lines = (line.decode("utf-8", "replace") + "\n" for line in source.beginning[1:])
    rows = csv.reader(lines, delimiter=mark)
    try:
        return next((_row(names, cells, mark) for cells in rows if len(cells) == len(names)), {})
    except csv.Error:
        return {}


def _decimal(cell: str) -> str:
    """Where semicolons stand between cells, commas stand in numbers."""
    whole, comma, rest = cell.partition(",")
    return f"{whole}.{rest}" if comma and whole.lstrip("-").isdecimal() and rest.isdecimal() else cell


def _cells(source: Source, mark: str, reading: LogReading) -> Iterator[tuple[int, list[str] | None]]:
    """``(line it begins in, cells)`` of each row, which may go over several lines within quotes."""
    csv.field_size_limit(_LARGEST_CELL)
    began = 0

    def texts(lines: Iterable[tuple[int, bytes]]) -> Iterator[str]:
        nonlocal began
        for number, line in lines:
            began = began or number
            if number - began > _MOST_LINES:
                problem = f"a quote that is opened in this row is not closed within {_MOST_LINES:,} lines"
                raise WorkloadError(source.path, began, problem)
            yield line.decode("utf-8", "replace") + "\n"

    rows = csv.reader(texts(source.lines()), delimiter=mark)
    while True:
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            reading.bad(began, f"is no CSV: {error}")
            cells = None
        yield began, cells
        began = 0


def _one(
    record: Mapping[str, Any], number: int, reading: LogReading, default: TimeUnit | None = None
) -> Iterator[LoggedRequest]:
    try:
        logged = request_from(record, reading, default)
    except ValueError as error:
        reading.bad(number, str(error))
        return
    if logged is not None:
        yield logged


# ---------------------------------------------------------------------------------------------------------------------
# Logs that are one JSON document: ShareGPT, and results of ``vllm bench serve`` and of guidellm.

CHARACTERS_PER_TOKEN = 4
"""English text in the vocabularies of today, roughly; used where a log has text and no counts."""
_GUIDELLM_GROUPS = ("successful", "completed", "incomplete")


def read_sharegpt(source: Source, reading: LogReading) -> Iterator[LoggedRequest]:
    """The first question and answer of every conversation, as ``vllm bench`` takes them; lengths are estimated."""
    reading.note("lengths_estimated", characters=CHARACTERS_PER_TOKEN)
    for number, conversation in source.records(reading.bad):
        turns = conversation.get("conversations") or conversation.get("messages")
        texts = [_turn_text(turn) for turn in turns[:2]] if isinstance(turns, list) else []
        if len(texts) < 2 or not all(texts):
            reading.bad(number, "this conversation has no question with an answer")
            continue
        prompt, output = (max(1, len(text) // CHARACTERS_PER_TOKEN) for text in texts)
        try:
            yield LoggedRequest(_asked_at(conversation, reading), prompt, output)
        except ValueError as error:
            reading.bad(number, str(error))


def _asked_at(conversation: Mapping[str, Any], reading: LogReading) -> float | None:
    """When it began; None if nothing says so, as in the public collection."""
    found = RecordView(conversation).find("arrival_time")
    if found.value is None:
        return None
    reading.take("arrival_time", found.name)
    return reading.clock.moment(found.value, found.name)


def _turn_text(turn: object) -> str:
    value = (turn.get("value") or turn.get("content")) if isinstance(turn, Mapping) else None
    return value if isinstance(value, str) else ""


def read_vllm_bench(source: Source, reading: LogReading) -> Iterator[LoggedRequest]:
    """Results with ``--save-detailed``: lengths and times per request and, since vLLM 0.11, when it was sent.

    ``--append-result`` puts several into one file, one after the other: they are runs of their own. Where it does not
    say when requests were sent, it says how: at a rate, or so many at once.
    """
    results = list(source.records(reading.bad))
    if len(results) > 1:
        reading.note("first_benchmark", count=len(results), what="results")
    for number, result in results[:1]:
        inputs, outputs = result.get("input_lens"), result.get("output_lens")
        if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
            fix = "make it with vllm bench serve --save-result --save-detailed"
            raise WorkloadError(source.path, 0, f"says no lengths of single requests: {fix}")
        starts, ttfts, itls = (_beside(result, name, inputs) for name in ("start_times", "ttfts", "itls"))
        reading.load = _sent_as(result)
        for i, (prompt, output, start) in enumerate(zip(inputs, outputs, starts, strict=True)):
            if not output:
                reading.left_out["failed"] += 1
                continue
            for logged in _request(start, prompt, output, number, f"request {i}", reading):
                yield _with_times(logged, ttfts[i], _whole(ttfts[i], itls[i]))


def _beside(result: Mapping[str, Any], name: str, inputs: Sequence[object]) -> Sequence[object]:
    """A list of a result that has a value per request; else nothing for each."""
    found = result.get(name)
    return found if isinstance(found, list) and len(found) == len(inputs) else [None] * len(inputs)


def _whole(ttft: object, gaps: object) -> float | None:
    """Seconds of a whole answer: to its first token, and the gaps behind it; None if not all of that is told."""
    times = [ttft, *gaps] if isinstance(gaps, list) else [None]
    return sum(times) if all(map(is_seconds, times)) else None  # type: ignore[arg-type]  # they are numbers


def _with_times(logged: LoggedRequest, ttft: object, duration: object) -> LoggedRequest:
    """A request of a benchmark with what was measured of it, where that is a time: 0 stands for none."""
    first, whole = (float(str(each)) if each and is_seconds(each) else None for each in (ttft, duration))
    return msgspec.structs.replace(logged, ttft=first, duration=whole)


def _sent_as(result: Mapping[str, Any]) -> SentAs:
    """How a result says that its requests were sent, and how many were served a second."""

    def number(name: str) -> float | None:
        try:
            value = float(str(result.get(name)))
        except ValueError:
            return None
        return value if value > 0 else None

    most = number("max_concurrency")
    return SentAs(
        request_rate=number("request_rate"),
        burstiness=number("burstiness") or 1.0,
        max_concurrency=int(most) if most is not None and most < MAX_COUNT else None,
        served_per_s=number("request_throughput"),
    )


def read_guidellm(source: Source, reading: LogReading) -> Iterator[LoggedRequest]:
    """The requests of the report's first benchmark; failed ones are left out."""
    document = source.require_document()
    benchmarks = document.get("benchmarks") if isinstance(document, Mapping) else None
    listed = benchmarks if isinstance(benchmarks, list) else []
    groups = listed[0].get("requests") if listed and isinstance(listed[0], Mapping) else None
    if not isinstance(groups, Mapping):
        raise WorkloadError(source.path, 0, "has no benchmarks[0].requests: is it a report of guidellm?")
    if len(listed) > 1:
        reading.note("first_benchmark", count=len(listed), what="benchmarks")
    requests = [each for name in _GUIDELLM_GROUPS for each in _listed(groups.get(name))]
    for number, request in enumerate(requests, 1):
        start = _any(request, ("request_start_time", "start_time", "scheduler_info.started_at"))
        prompt = _any(request, ("prompt_tokens", "input_metrics.text_tokens", "input_metrics.total_tokens"))
        output = _any(request, ("output_tokens", "output_metrics.text_tokens", "output_metrics.total_tokens"))
        ttft = _any(request, ("time_to_first_token_ms",))
        measured = ttft / 1e3 if isinstance(ttft, int | float) else None, _any(request, ("request_latency",))
        for logged in _request(start, prompt, output, number, f"request {number}", reading):
            yield _with_times(logged, *measured)


def _request(
    start: object, prompt: object, output: object, number: int, what: str, reading: LogReading
) -> Iterator[LoggedRequest]:
    """A request of a benchmark: its start, and its lengths."""
    record = {"start_time": start, "prompt_tokens": prompt, "output_tokens": output}
    try:
        logged = request_from(record, reading)
    except ValueError as error:
        reading.bad(number, f"{what}: {error}")
        return
    if logged is not None:
        yield logged


def _any(record: Mapping[str, Any], names: Sequence[str]) -> object | None:
    """The first of these that is there, dotted where it is nested."""
    for name in names:
        value: object = record
        for key in name.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None:
            return value
    return None


def _listed(value: object) -> Iterator[Mapping[str, Any]]:
    """The objects of a list; none if it is something else."""
    return (each for each in value if isinstance(each, Mapping)) if isinstance(value, list) else iter(())


# ---------------------------------------------------------------------------------------------------------------------
# Spans of traced services: OpenTelemetry's in OTLP JSON, Jaeger's and Langfuse's.
#
# A span around others (an agent, a chain) often says the tokens of all within it. Only the innermost ones that say
# tokens are requests.

_LONGEST_WHOLE = 19
"""Digits of a 64-bit integer."""


class _Span(msgspec.Struct, frozen=True):
    number: int
    record: dict[str, Any]
    """Its attributes, with its times and its id."""
    key: object
    """Names it among all."""
    parent: object | None
    """Key of the span around it; None if there is none."""


def read_otel(source: Source, reading: LogReading) -> Iterator[LoggedRequest]:
    """Spans, or records of logs, in OTLP's JSON (a document, or one a line) with token counts as attributes."""
    spans: list[_Span] = []
    for _, document in source.records(reading.bad):
        for span in _otlp_spans(document):
            record = {
                str(each.get("key")): _attribute_value(each.get("value")) for each in _listed(span.get("attributes"))
            }
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
    return {str(each.get("key")): _attribute_value(each.get("value")) for each in _listed(fields)}


def read_jaeger(source: Source, reading: LogReading) -> Iterator[LoggedRequest]:
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


def read_langfuse(source: Source, reading: LogReading) -> Iterator[LoggedRequest]:
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


def _requests(spans: list[_Span], reading: LogReading, what: str) -> Iterator[LoggedRequest]:
    told = {each.key: each for each in spans if RecordView(each.record).has_a_length}
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


def _attribute_value(value: object) -> object:
    """An attribute's value; 64-bit integers come as text."""
    if not isinstance(value, Mapping):
        return value
    for key in ("intValue", "doubleValue", "stringValue", "boolValue"):
        if key in value:
            digits = str(value[key])
            is_whole = key == "intValue" and digits.isdecimal() and len(digits) <= _LONGEST_WHOLE
            return int(digits) if is_whole else value[key]
    return shown(value)
