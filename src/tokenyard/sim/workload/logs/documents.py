"""Logs that are one JSON document: ShareGPT, results of ``vllm bench serve`` and of guidellm, OpenTelemetry spans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tokenyard.errors import WorkloadError, shown
from tokenyard.sim.workload.logs.logged import BadLines, LoggedRequest, LogOptions
from tokenyard.sim.workload.logs.records import lookup, request_from
from tokenyard.sim.workload.readers.lines import numbered_lines
from tokenyard.sim.workload.readers.messages import describe_bad_json

__all__ = ["CHARACTERS_PER_TOKEN", "load_document", "read_guidellm", "read_otel", "read_sharegpt", "read_vllm_bench"]

CHARACTERS_PER_TOKEN = 4
"""English text in the vocabularies of today, roughly; used where a log has text and no counts."""
_GUIDELLM_GROUPS = ("successful", "completed", "incomplete")
_INPUT_KEYS = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens")
_OUTPUT_KEYS = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens")
_CACHED_KEYS = ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cached_tokens")


def load_document(path: Path) -> object:
    """The whole file as JSON; a file of several lines may also hold one document per line, which become a list."""
    lines = [line for _, line in numbered_lines(path)]
    try:
        return msgspec.json.decode(b"\n".join(lines))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as whole:
        try:
            return [msgspec.json.decode(line) for line in lines]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise WorkloadError(path, 0, describe_bad_json(whole)) from None


def _objects(value: object) -> Iterator[tuple[int, Mapping[str, Any]]]:
    items = value if isinstance(value, list) else [value]
    for number, item in enumerate(items, 1):
        if isinstance(item, Mapping):
            yield number, item


def read_sharegpt(path: Path, options: LogOptions, bad: BadLines) -> Iterator[LoggedRequest]:
    """The first question and answer of every conversation, as ``vllm bench`` takes them; lengths are estimated."""
    for number, conversation in _objects(load_document(path)):
        turns = conversation.get("conversations") or conversation.get("messages")
        texts = [_text(turn) for turn in turns[:2]] if isinstance(turns, list) else []
        if len(texts) < 2 or not all(texts):
            bad.add(number, "this conversation has no question with an answer")
            continue
        prompt, output = (max(1, len(text) // CHARACTERS_PER_TOKEN) for text in texts)
        yield LoggedRequest(None, prompt, output)


def _text(turn: object) -> str:
    value = (turn.get("value") or turn.get("content")) if isinstance(turn, Mapping) else None
    return value if isinstance(value, str) else ""


def read_vllm_bench(path: Path, options: LogOptions, bad: BadLines) -> Iterator[LoggedRequest]:
    """Results with ``--save-detailed``: a length per request and, since vLLM 0.11, when it was sent."""
    for number, result in _objects(load_document(path)):
        inputs, outputs = result.get("input_lens"), result.get("output_lens")
        if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
            fix = "make it with vllm bench serve --save-result --save-detailed"
            raise WorkloadError(path, 0, f"says no lengths of single requests: {fix}")
        starts = result.get("start_times")
        starts = starts if isinstance(starts, list) and len(starts) == len(inputs) else [None] * len(inputs)
        for i, (prompt, output, start) in enumerate(zip(inputs, outputs, starts, strict=True)):
            record = {"prompt_len": prompt, "output_len": output, "time": start}
            try:
                logged = request_from(record, LogOptions())
            except ValueError as error:
                bad.add(number, f"request {i}: {error}")
                continue
            if not output:
                bad.add(number, f"request {i}: it failed")
                continue
            yield logged


def read_guidellm(path: Path, options: LogOptions, bad: BadLines) -> Iterator[LoggedRequest]:
    """The requests of the report's first benchmark; failed ones are left out."""
    document = load_document(path)
    benchmarks = document.get("benchmarks") if isinstance(document, Mapping) else None
    first = benchmarks[0] if isinstance(benchmarks, list) and benchmarks else None
    groups = first.get("requests") if isinstance(first, Mapping) else None
    if not isinstance(groups, Mapping):
        raise WorkloadError(path, 0, "has no benchmarks[0].requests: is it a report of guidellm?")
    requests = [each for name in _GUIDELLM_GROUPS for each in _listed(groups.get(name))]
    for number, request in enumerate(requests, 1):
        try:
            record = {
                "time": _any(request, ("request_start_time", "start_time", "scheduler_info.started_at")),
                "prompt_tokens": _any(request, ("prompt_tokens", "input_metrics.text_tokens")),
                "output_tokens": _any(request, ("output_tokens", "output_metrics.text_tokens")),
            }
            yield request_from(record, LogOptions(time_unit=options.time_unit))
        except ValueError as error:
            bad.add(number, f"request {number}: {error}")


def _any(record: Mapping[str, Any], names: Sequence[str]) -> object | None:
    return next((value for name in names if (value := lookup(record, name)) is not None), None)


def read_otel(path: Path, options: LogOptions, bad: BadLines) -> Iterator[LoggedRequest]:
    """Spans in OTLP's JSON (one document, or one per line) with token counts by OpenTelemetry's GenAI conventions."""
    number = 0
    for _, document in _objects(load_document(path)):
        for span in _spans(document):
            number += 1
            attributes = {str(each.get("key")): _plain(each.get("value")) for each in _listed(span.get("attributes"))}
            prompt = next((attributes[key] for key in _INPUT_KEYS if key in attributes), None)
            if prompt is None:
                continue  # a span of something else
            output = next((attributes[key] for key in _OUTPUT_KEYS if key in attributes), None)
            cached = next((attributes[key] for key in _CACHED_KEYS if key in attributes), 0)
            try:
                start, end = (int(span.get(key) or 0) for key in ("startTimeUnixNano", "endTimeUnixNano"))
                record = {"time": start / 1e9, "prompt_len": prompt, "output_len": output, "cached_tokens": cached}
                if end >= start:
                    record["duration"] = (end - start) / 1e9
                yield request_from(record | {"request_id": span.get("spanId")}, LogOptions())
            except (TypeError, ValueError, OverflowError) as error:
                bad.add(number, f"span {number}: {error}")


def _spans(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for resource in _listed(document.get("resourceSpans")):
        for scope in _listed(resource.get("scopeSpans") or resource.get("instrumentationLibrarySpans")):
            yield from _listed(scope.get("spans"))


_LONGEST_WHOLE = 19
"""Digits of a 64-bit integer."""


def _listed(value: object) -> Iterator[Mapping[str, Any]]:
    """The objects of a list; none if it is something else."""
    return (each for each in value if isinstance(each, Mapping)) if isinstance(value, list) else iter(())


def _plain(value: object) -> object:
    """An attribute's value; 64-bit integers come as text."""
    if not isinstance(value, Mapping):
        return value
    for key in ("intValue", "doubleValue", "stringValue"):
        if key in value:
            digits = str(value[key])
            is_whole = key == "intValue" and digits.isdecimal() and len(digits) <= _LONGEST_WHOLE
            return int(digits) if is_whole else value[key]
    return shown(value)
