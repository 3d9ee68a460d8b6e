"""What SGLang's ``--log-requests`` writes, as text or as JSON (``--log-requests-format json``).

    [2026-11-22 03:17:52] Receive: obj=GenerateReqInput(rid='1f', ...)
    [2026-11-22 03:17:53] Finish: obj=GenerateReqInput(rid='1f', ...), out={..., 'meta_info': {'id': '1f', ...,
        'prompt_tokens': 12, 'completion_tokens': 64, 'cached_tokens': 0, 'e2e_latency': 1.02}}
    {"timestamp": "2026-11-22T03:17:53.125", "event": "request.finished", "rid": "1f", "out": {"meta_info": {...}}}

A request arrives when it is received; of one that is only finished in the log, its latency is subtracted. The server's
clock has no time zone and is taken as UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from tokenyard.sim.workload.logs.fields import request_from
from tokenyard.sim.workload.logs.logged import LoggedRequest, Reading
from tokenyard.sim.workload.logs.source import BAD_JSON, Source

__all__ = ["SAYS_SGLANG", "read_sglang_log"]

SAYS_SGLANG = re.compile(
    r"(?:Receive|Finish): obj=\w*Generate\w*\(|\"event\": ?\"request\.(?:received|finished)\", ?\"rid\":"
)
_LINE = re.compile(
    r"\[(?P<when>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?)[^\]]*\] (?P<what>Receive|Finish): (?P<said>.*)", re.DOTALL
)
_RID = re.compile(r"\brid='(?P<id>[^']+)'")
_COUNT = re.compile(r"'(?P<name>id|prompt_tokens|completion_tokens|cached_tokens|e2e_latency)': '?(?P<value>[\w.-]+)'?")
_META = "'meta_info': {"


def read_sglang_log(source: Source, reading: Reading) -> Iterator[LoggedRequest]:
    """The requests that ended, in the order in which they did; other lines are passed over."""
    received: dict[str, object] = {}
    for number, raw in source.lines():
        told = _told(raw.decode("utf-8", "replace"))
        if told is None:
            continue
        when, request_id, meta = told
        if meta is None:
            received.setdefault(request_id, when)
            continue
        record = {**meta, "request_id": request_id}
        latency = meta.get("e2e_latency")
        start = received.get(request_id)
        record |= {"start_time": start} if start is not None else {"end_time": when}
        try:
            logged = request_from({**record, "duration": latency}, reading)
        except ValueError as error:
            reading.bad(number, str(error))
            continue
        if logged is not None:
            yield logged


def _told(text: str) -> tuple[object, str, Mapping[str, Any] | None] | None:
    """When, of which request, and what its end says (None: it was received); None for any other line."""
    at = text.find("{")
    if at >= 0 and SAYS_SGLANG.search(text[at:]) and "obj=" not in text[:at]:
        return _told_in_json(text[at:])
    found = _LINE.search(text)
    if found is None:
        return None
    said = found["said"]
    # A client's text stands in front of what SGLang counts: the last one is SGLang's.
    if found["what"] == "Receive":
        ids = _RID.findall(said)
        return (found["when"], ids[-1], None) if ids else None
    meta = {each["name"]: each["value"] for each in _COUNT.finditer(said, max(0, said.rfind(_META)))}
    return (found["when"], meta.pop("id"), meta) if "id" in meta else None


def _told_in_json(text: str) -> tuple[object, str, Mapping[str, Any] | None] | None:
    try:
        record = msgspec.json.decode(text)
    except BAD_JSON:
        return None
    if not isinstance(record, Mapping) or not isinstance(record.get("rid"), str):
        return None
    out = record.get("out")
    meta = out.get("meta_info") if isinstance(out, Mapping) else None
    if record.get("event") == "request.received":
        return record.get("timestamp"), record["rid"], None
    return (record.get("timestamp"), record["rid"], meta) if isinstance(meta, Mapping) else None
