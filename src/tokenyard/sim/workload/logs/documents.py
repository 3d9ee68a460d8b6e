"""Logs that are one JSON document: ShareGPT, and results of ``vllm bench serve`` and of guidellm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tokenyard.errors import WorkloadError
from tokenyard.sim.workload.logs.fields import request_from
from tokenyard.sim.workload.logs.logged import LoggedRequest, Reading
from tokenyard.sim.workload.logs.source import Source
from tokenyard.sim.workload.logs.view import View

__all__ = ["CHARACTERS_PER_TOKEN", "read_guidellm", "read_sharegpt", "read_vllm_bench"]

CHARACTERS_PER_TOKEN = 4
"""English text in the vocabularies of today, roughly; used where a log has text and no counts."""
_GUIDELLM_GROUPS = ("successful", "completed", "incomplete")


def read_sharegpt(source: Source, reading: Reading) -> Iterator[LoggedRequest]:
    """The first question and answer of every conversation, as ``vllm bench`` takes them; lengths are estimated."""
    reading.note(
        "lengths_estimated", f"a token is {CHARACTERS_PER_TOKEN} characters: lengths are estimates", warning=True
    )
    for number, conversation in source.records(reading.bad):
        turns = conversation.get("conversations") or conversation.get("messages")
        texts = [_text(turn) for turn in turns[:2]] if isinstance(turns, list) else []
        if len(texts) < 2 or not all(texts):
            reading.bad(number, "this conversation has no question with an answer")
            continue
        prompt, output = (max(1, len(text) // CHARACTERS_PER_TOKEN) for text in texts)
        try:
            yield LoggedRequest(_asked_at(conversation, reading), prompt, output)
        except ValueError as error:
            reading.bad(number, str(error))


def _asked_at(conversation: Mapping[str, Any], reading: Reading) -> float | None:
    """When it began; None if nothing says so, as in the public collection."""
    found = View(conversation).find("arrival_time")
    if found.value is None:
        return None
    reading.take("arrival_time", found.name)
    return reading.clock.moment(found.value, found.name)


def _text(turn: object) -> str:
    value = (turn.get("value") or turn.get("content")) if isinstance(turn, Mapping) else None
    return value if isinstance(value, str) else ""


def read_vllm_bench(source: Source, reading: Reading) -> Iterator[LoggedRequest]:
    """Results with ``--save-detailed``: a length per request and, since vLLM 0.11, when it was sent.

    ``--append-result`` puts several into one file, one after the other: they are runs of their own.
    """
    results = list(source.records(reading.bad))
    if len(results) > 1:
        reading.note("first_benchmark", f"only the first of {len(results)} results was read")
    for number, result in results[:1]:
        inputs, outputs = result.get("input_lens"), result.get("output_lens")
        if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
            fix = "make it with vllm bench serve --save-result --save-detailed"
            raise WorkloadError(source.path, 0, f"says no lengths of single requests: {fix}")
        starts = result.get("start_times")
        starts = starts if isinstance(starts, list) and len(starts) == len(inputs) else [None] * len(inputs)
        for i, (prompt, output, start) in enumerate(zip(inputs, outputs, starts, strict=True)):
            if not output:
                reading.left_out["failed"] += 1
                continue
            yield from _request(start, prompt, output, number, f"request {i}", reading)


def read_guidellm(source: Source, reading: Reading) -> Iterator[LoggedRequest]:
    """The requests of the report's first benchmark; failed ones are left out."""
    document = source.require_document()
    benchmarks = document.get("benchmarks") if isinstance(document, Mapping) else None
    listed = benchmarks if isinstance(benchmarks, list) else []
    groups = listed[0].get("requests") if listed and isinstance(listed[0], Mapping) else None
    if not isinstance(groups, Mapping):
        raise WorkloadError(source.path, 0, "has no benchmarks[0].requests: is it a report of guidellm?")
    if len(listed) > 1:
        reading.note("first_benchmark", f"only the first of {len(listed)} benchmarks was read")
    requests = [each for name in _GUIDELLM_GROUPS for each in _listed(groups.get(name))]
    for number, request in enumerate(requests, 1):
        start = _any(request, ("request_start_time", "start_time", "scheduler_info.started_at"))
        prompt = _any(request, ("prompt_tokens", "input_metrics.text_tokens", "input_metrics.total_tokens"))
        output = _any(request, ("output_tokens", "output_metrics.text_tokens", "output_metrics.total_tokens"))
        yield from _request(start, prompt, output, number, f"request {number}", reading)


def _request(
    start: object, prompt: object, output: object, number: int, what: str, reading: Reading
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
