"""Logs of further services, engines and collectors, in the shape of their source or their documentation."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from sample_logs.truth import MODEL, REQUESTS, Truth

__all__ = ["write_services"]

Records = list[dict[str, Any]]


def write_services(folder: Path) -> None:
    """All of them."""
    for name, records in _LINES.items():
        lines = (json.dumps(each) for truth in REQUESTS for each in records(truth))
        _write(folder / name, lines)
    for name, (header, rows) in _TABLES.items():
        _write_csv(folder / name, header, (row for truth in REQUESTS for row in rows(truth)))
    for name, text in _TEXTS.items():
        _write(folder / name, (line for truth in REQUESTS for line in text(truth)))
    (folder / "datadog-llm-spans.json").write_text(json.dumps({"data": [_datadog(each) for each in REQUESTS]}) + "\n")


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))


def _write_csv(path: Path, header: str, rows: Iterable[Sequence[object]]) -> None:
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows([header.split("|"), *rows])
    path.write_text(text.getvalue())


def _iso(truth: Truth) -> str:
    return truth.start.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1000) * 1_000_000


def _milliseconds(truth: Truth) -> int:
    return round(truth.duration * 1000)


def _usage(truth: Truth) -> dict[str, Any]:
    return {"model": MODEL, "usage": {"prompt_tokens": truth.prompt, "completion_tokens": truth.output}}


def _bedrock(truth: Truth) -> Records:
    """Anthropic's models there count what the cache held beside the rest."""
    counts = {"inputTokenCount": truth.prompt - truth.cached, "cacheReadInputTokenCount": truth.cached}
    record = {
        "schemaType": "ModelInvocationLog",
        "schemaVersion": "1.0",
        "timestamp": f"{truth.start:%Y-%m-%dT%H:%M:%SZ}",
        "region": "us-east-1",
        "requestId": truth.request_id,
        "operation": "InvokeModelWithResponseStream",
        "modelId": MODEL,
        "input": {"inputContentType": "application/json", **counts, "cacheWriteInputTokenCount": 0},
        "output": {"outputContentType": "application/json", "outputTokenCount": truth.output},
    }
    return [record]


def _vertex(truth: Truth) -> Records:
    counts = {"promptTokenCount": truth.prompt, "candidatesTokenCount": truth.output - 3, "thoughtsTokenCount": 3}
    usage = counts | {"totalTokenCount": truth.prompt + truth.output}
    record = {
        "logging_time": f"{truth.start:%Y-%m-%d %H:%M:%S.%f} UTC",
        "request_id": str(truth.number),
        "model": MODEL,
        "api_method": "GenerateContent",
        "full_response": {"candidates": [], "usageMetadata": usage},
    }
    return [record]


def _azure_openai(truth: Truth) -> Records:
    properties = {"apiName": "Azure OpenAI API version 2024-10-21", "streamType": "Streaming", "modelName": MODEL}
    record = {"time": _iso(truth), "category": "RequestResponse", "operationName": "ChatCompletions_Create"}
    return [record | {"durationMs": _milliseconds(truth), "properties": json.dumps(properties)}]


def _portkey(truth: Truth) -> Records:
    units = {"req_units": truth.prompt, "res_units": truth.output, "total_units": truth.prompt + truth.output}
    record = {"id": truth.request_id, "created_at": _iso(truth), "is_success": True, "ai_model": MODEL, **units}
    return [record | {"response_time": _milliseconds(truth), "response_status_code": 200, "cache_status": "MISS"}]


def _langsmith(truth: Truth) -> Records:
    """A chain says the tokens of the calls within it."""
    run = {
        "start_time": truth.start.isoformat()[:-6],
        "end_time": truth.end.isoformat()[:-6],
        "status": "success",
        "trace_id": f"chain-{truth.number}",
        "prompt_tokens": truth.prompt,
        "completion_tokens": truth.output,
        "total_tokens": truth.prompt + truth.output,
    }
    chain = {"id": f"chain-{truth.number}", "run_type": "chain", "parent_run_id": None}
    return [run | chain, run | {"id": f"llm-{truth.number}", "run_type": "llm", "parent_run_id": chain["id"]}]


def _datadog(truth: Truth) -> dict[str, Any]:
    span = {
        "start_ns": _nanoseconds(truth.start.timestamp()),
        "duration": _nanoseconds(truth.duration),
        "model_name": MODEL,
        "span_kind": "llm",
        "span_id": str(truth.number),
        "parent_id": "undefined",
        "metrics": {"input_tokens": truth.prompt, "output_tokens": truth.output},
    }
    return {"id": f"AQ{truth.number}", "type": "span", "attributes": span}


def _aiperf(truth: Truth) -> Records:
    start = _nanoseconds(truth.start.timestamp())
    metadata = {
        "session_num": truth.number,
        "x_request_id": truth.request_id,
        "request_start_ns": start,
        "request_ack_ns": start + 1000,
        "request_end_ns": _nanoseconds(truth.end.timestamp()),
        "benchmark_phase": "profiling",
        "was_cancelled": False,
    }
    metrics = {
        "input_sequence_length": {"value": truth.prompt, "unit": "tokens"},
        "output_sequence_length": {"value": truth.output, "unit": "tokens"},
        "request_latency": {"value": 1000 * truth.duration, "unit": "ms"},
    }
    return [{"metadata": metadata, "metrics": metrics, "error": None}]


def _kong(truth: Truth) -> Records:
    usage = {
        "prompt_token": truth.prompt,
        "completion_token": truth.output,
        "total_tokens": truth.prompt + truth.output,
    }
    proxy = {"usage": usage, "meta": {"request_model": MODEL, "provider_name": "openai", "response_model": MODEL}}
    started = round(truth.start.timestamp() * 1000)
    return [{"started_at": started, "latencies": {"request": _milliseconds(truth)}, "ai": {"ai-proxy": proxy}}]


def _nginx(truth: Truth) -> Records:
    """Written when the request ends; ``request_time`` is how long it took."""
    counts = {"llm_prompt_tokens": str(truth.prompt), "llm_completion_tokens": str(truth.output)}
    times = {"@timestamp": truth.end.isoformat(), "request_time": f"{truth.duration}"}
    return [{**times, "request_llm_model": MODEL, "llm_model": MODEL, **counts, "status": "200"}]


def _coding_agent(truth: Truth) -> Records:
    """A line for each part of an answer, all with the same usage."""
    usage = {"input_tokens": truth.prompt - truth.cached, "cache_read_input_tokens": truth.cached}
    usage |= {"cache_creation_input_tokens": 0, "output_tokens": truth.output}
    said = {"timestamp": _iso(truth), "sessionId": truth.session}
    message = {"id": f"msg_{truth.number}", "role": "assistant", "model": MODEL, "usage": usage}
    answer = {"type": "assistant", **said, "requestId": truth.request_id, "message": message}
    return [{"type": "user", **said, "message": {"role": "user"}}, answer, answer]


def _sglang_json(truth: Truth) -> Records:
    name = {"rid": f"{truth.number:032x}", "obj": {"text": "Hello"}}
    meta = {"id": name["rid"], "prompt_tokens": truth.prompt, "completion_tokens": truth.output}
    meta |= {"cached_tokens": truth.cached, "e2e_latency": truth.duration}
    received = {"timestamp": truth.start.isoformat()[:-6], "event": "request.received", **name}
    ended = {"timestamp": truth.end.isoformat()[:-6], "event": "request.finished", **name}
    return [received, ended | {"out": {"text": "Yes.", "meta_info": meta}}]


def _cloudflare(truth: Truth) -> Records:
    record = {"id": truth.request_id, "created_at": _iso(truth), "cached": truth.number == 3, "model": MODEL}
    record |= {"duration": _milliseconds(truth), "status_code": 200, "success": True}
    return [record | {"tokens_in": truth.prompt, "tokens_out": truth.output}]


def _tgi(truth: Truth) -> Records:
    span = {"total_time": f"{truth.duration}s", "queue_time": "2ms", "time_per_token": "20ms", "name": "generate"}
    record = {"timestamp": _iso(truth), "level": "INFO", "message": "Success", "span": span}
    return [record | {"target": "text_generation_router::server"}]


def _own(truth: Truth) -> dict[str, Any]:
    return {"timestamp": _iso(truth), "id": truth.request_id, **_usage(truth)}


_LINES: dict[str, Callable[[Truth], Records]] = {
    "aiperf-profile-export.jsonl": _aiperf,
    "azure-openai-diagnostics.jsonl": _azure_openai,
    "bedrock-invocations.jsonl": _bedrock,
    "cloudflare-ai-gateway.jsonl": _cloudflare,
    "coding-agent-session.jsonl": _coding_agent,
    "kong-3.8-ai-proxy.jsonl": _kong,
    "langsmith-runs.jsonl": _langsmith,
    "nginx-with-tokens.jsonl": _nginx,
    "overlapping-exports.jsonl": lambda each: [_own(each)] * (1 + each.number % 2),
    "portkey.jsonl": _portkey,
    "sglang-log-requests.jsonl": _sglang_json,
    "tgi.jsonl": _tgi,
    "vertex-request-response.jsonl": _vertex,
}


def _phoenix(truth: Truth) -> list[Sequence[object]]:
    times = (truth.start.isoformat(sep=" "), truth.end.isoformat(sep=" "))
    outer = (f"a{truth.number}", "CHAIN", "", *times, "", "", "")
    return [outer, (f"b{truth.number}", "LLM", outer[0], *times, f"{truth.prompt}.0", f"{truth.output}.0", MODEL)]


def _log_analytics(truth: Truth) -> list[Sequence[object]]:
    """Parts of a long message are rows of their own, without counts."""
    when = f"{truth.start:%m/%d/%Y, %I:%M:%S}.{truth.start.microsecond // 1000:03d} {truth.start:%p}"
    total = truth.prompt + truth.output
    rows: list[Sequence[object]] = [(when, truth.request_id, 0, MODEL, truth.prompt, truth.output, total)]
    return [*rows, (when, truth.request_id, 1, MODEL, "", "", "")]


def _bill(truth: Truth) -> list[Sequence[object]]:
    minute = int(truth.start.timestamp()) // 60 * 60
    return [(minute, minute + 60, 1 + truth.number % 7, MODEL, 9 * truth.prompt, 9 * truth.output)]


_TABLES: dict[str, tuple[str, Callable[[Truth], list[Sequence[object]]]]] = {
    "azure-log-analytics.csv": (
        "TimeGenerated [UTC]|CorrelationId|SequenceNumber|ModelName|PromptTokens|CompletionTokens|TotalTokens",
        _log_analytics,
    ),
    "databricks-inference.csv": (
        "databricks_request_id|request_date|request_time|status_code|execution_duration_ms|request|response",
        lambda each: [
            (
                each.number,
                each.start.date(),
                each.start.isoformat(),
                200,
                _milliseconds(each),
                "{}",
                json.dumps(_usage(each)),
            )
        ],
    ),
    "datadog-logs.csv": (
        "Date|Host|Service|Content",
        lambda each: [(_iso(each), "gateway-1", "gateway", json.dumps(_usage(each)))],
    ),
    "dotnet-ticks.csv": (
        "timestamp|prompt_tokens|completion_tokens",
        lambda each: [
            (
                621_355_968_000_000_000 + _nanoseconds(each.start.timestamp()) // 100,
                each.prompt,
                each.output,
            )
        ],
    ),
    "excel-serial.csv": (
        "timestamp|prompt_tokens|completion_tokens",
        lambda each: [(f"{each.start.timestamp() / 86400 + 25569:.9f}", each.prompt, each.output)],
    ),
    "helicone.csv": (
        "response_id|response_created_at|request_id|request_created_at|request_model|delay_ms|prompt_tokens|completion_tokens",
        lambda each: [
            (
                each.number,
                each.end.isoformat(),
                each.request_id,
                each.start.isoformat(),
                MODEL,
                _milliseconds(each),
                each.prompt,
                each.output,
            )
        ],
    ),
    "openai-usage.csv": ("start_time|end_time|num_model_requests|model|input_tokens|output_tokens", _bill),
    "phoenix-spans.csv": (
        (
            "context.span_id|span_kind|parent_id|start_time|end_time|attributes.llm.token_count.prompt"
            "|attributes.llm.token_count.completion|attributes.llm.model_name"
        ),
        _phoenix,
    ),
    "splunk.csv": (
        "_raw|_time|host|sourcetype",
        lambda each: [(json.dumps(_usage(each)), _iso(each)[:-1] + "+0000", "gateway-1", "_json")],
    ),
}


def _sglang_text(truth: Truth) -> list[str]:
    obj = f"obj=GenerateReqInput(rid='{truth.number:032x}', text='Hello', sampling_params={{'max_new_tokens': 512}})"
    meta = f"'meta_info': {{'id': '{truth.number:032x}', 'finish_reason': {{'type': 'stop', 'matched': 2}}, "
    meta += f"'prompt_tokens': {truth.prompt}, 'completion_tokens': {truth.output}, 'cached_tokens': {truth.cached}, "
    meta += f"'e2e_latency': {truth.duration}}}"
    return [
        f"[{truth.start:%Y-%m-%d %H:%M:%S}] Receive: {obj}",
        f"[{truth.end:%Y-%m-%d %H:%M:%S}] Finish: {obj}, out={{'text': 'Yes.', {meta}}}",
    ]


_TEXTS: dict[str, Callable[[Truth], list[str]]] = {
    "docker-compose-gateway.log": lambda each: [f"gateway-1  | {json.dumps(_own(each))}"],
    "kubernetes-gateway.log": lambda each: [
        f"{each.start:%Y-%m-%dT%H:%M:%S.%f}000Z stdout F {json.dumps(_usage(each) | {'id': each.request_id})}"
    ],
    "sglang-log-requests.log": _sglang_text,
}
