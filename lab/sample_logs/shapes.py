"""Logs of systems that are not run for it, in the shape they are known to have; docs/logs.md says what was checked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from sample_logs.services import write_services
from sample_logs.truth import MODEL, REQUESTS, START, Truth

__all__ = ["write_shapes"]

_NANO = 1_000_000_000


def write_shapes(folder: Path) -> None:
    """All of them; those that wrap vLLM's log need that in the folder."""
    for name, record in _LINES.items():
        _write(folder / name, (json.dumps(record(each)) for each in REQUESTS))
    for name, (header, row) in _TABLES.items():
        mark = "\ufeff" if name.startswith("excel") else ""
        _write(folder / name, (mark + header, *(row(each) for each in REQUESTS)))
    for name, document in _DOCUMENTS.items():
        (folder / name).write_text(json.dumps(document(), indent=1 if "pretty" in name else None) + "\n")
    for name, text in _OTHERS.items():
        (folder / name).write_text(text)
    _wrap_vllm(folder)
    write_services(folder)


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))


def _nanoseconds(truth: Truth) -> int:
    return round(truth.start.timestamp() * 1000) * 1_000_000


def _usage(truth: Truth) -> dict[str, Any]:
    return {
        "prompt_tokens": truth.prompt,
        "completion_tokens": truth.output,
        "total_tokens": truth.prompt + truth.output,
    }


def _stated(truth: Truth) -> dict[str, Any]:
    return {
        "request_id": truth.request_id,
        "timestamp": truth.start.isoformat(),
        "prompt_tokens": truth.prompt,
        "completion_tokens": truth.output,
    }


def _envoy(truth: Truth) -> dict[str, Any]:
    return {
        "start_time": truth.start.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z",
        "method": "POST",
        "x-envoy-origin-path": "/v1/chat/completions",
        "protocol": "HTTP/1.1",
        "response_code": 200,
        "response_flags": "-",
        "bytes_received": 4 * truth.prompt,
        "bytes_sent": 5 * truth.output,
        "duration": round(truth.duration * 1000),
        "x-request-id": truth.request_id,
        "upstream_host": "10.0.3.7:8000",
        "gen_ai.request.model": MODEL,
        "gen_ai.usage.input_tokens": str(truth.prompt) if truth.number % 8 else "-",
        "gen_ai.usage.output_tokens": str(truth.output) if truth.number % 8 else "-",
    }


def _anthropic(truth: Truth) -> dict[str, Any]:
    usage = {"input_tokens": truth.prompt - truth.cached, "output_tokens": truth.output}
    usage |= {"cache_read_input_tokens": truth.cached, "cache_creation_input_tokens": 0}
    return {"id": f"msg_{truth.number}", "type": "message", "created_at": truth.start.isoformat(), "usage": usage}


def _responses(truth: Truth) -> dict[str, Any]:
    usage = {"input_tokens": truth.prompt, "input_tokens_details": {"cached_tokens": truth.cached}}
    usage |= {"output_tokens": truth.output, "total_tokens": truth.prompt + truth.output}
    return {
        "id": f"resp_{truth.number}",
        "object": "response",
        "created_at": int(truth.start.timestamp()),
        "model": MODEL,
        "usage": usage,
    }


def _kong(truth: Truth) -> dict[str, Any]:
    return {
        "started_at": round(truth.start.timestamp() * 1000),
        "latencies": {"request": round(truth.duration * 1000)},
        "request": {"id": truth.request_id, "uri": "/chat"},
        "response": {"status": 200},
        "ai": {"proxy": {"usage": _usage(truth), "meta": {"request_model": MODEL}}},
    }


def _ollama(truth: Truth) -> dict[str, Any]:
    return {
        "model": MODEL,
        "created_at": truth.end.strftime("%Y-%m-%dT%H:%M:%S.%f") + "123Z",
        "done_reason": "stop",
        "done": True,
        "total_duration": round(truth.duration * _NANO),
        "prompt_eval_count": truth.prompt,
        "eval_count": truth.output,
    }


def _sglang(truth: Truth) -> dict[str, Any]:
    meta = {"id": truth.request_id, "prompt_tokens": truth.prompt, "completion_tokens": truth.output}
    meta |= {"cached_tokens": truth.cached, "e2e_latency": truth.duration}
    return {"timestamp": truth.start.timestamp(), "text": "Yes.", "meta_info": meta}


def _two_models(truth: Truth) -> dict[str, Any]:
    return _stated(truth) | {"model": MODEL if truth.number % 3 else "llama-3.3-70b"}


_LINES: dict[str, Callable[[Truth], dict[str, Any]]] = {
    "gateway-request-id.jsonl": _stated,
    "envoy-ai-gateway.jsonl": _envoy,
    "anthropic-messages.jsonl": _anthropic,
    "openai-responses.jsonl": _responses,
    "kong-ai-proxy.jsonl": _kong,
    "ollama.jsonl": _ollama,
    "sglang.jsonl": _sglang,
    "two-models.jsonl": _two_models,
    "equal-lengths.jsonl": lambda each: _stated(each) | {"prompt_tokens": 512, "completion_tokens": 128},
    "fluent-bit.jsonl": lambda each: {"date": each.start.timestamp(), "log": json.dumps(_stated(each))},
    "bigquery-export.jsonl": lambda each: {
        "request_time": each.start.strftime("%Y-%m-%d %H:%M:%S.%f UTC"),
        "input_tokens": str(each.prompt),
        "output_tokens": str(each.output),
        "tenant_id": each.user,
    },
}
_TABLES: dict[str, tuple[str, Callable[[Truth], str]]] = {
    "bigquery-export.csv": (
        "request_time,input_tokens,output_tokens",
        lambda each: f"{each.start:%Y-%m-%d %H:%M:%S.%f} UTC,{each.prompt},{each.output}",
    ),
    "postgres-copy.csv": (
        "created_at|prompt_tokens|completion_tokens|user_id|lora",
        lambda each: f"{each.start:%Y-%m-%d %H:%M:%S.%f}+00|{each.prompt}|{each.output}|{each.user}|\\N",
    ),
    "excel-us.csv": (
        "Date,Prompt Tokens,Completion Tokens",
        lambda each: f'{each.start:%m/%d/%Y %I:%M:%S %p},"{each.prompt:,}",{each.output}',
    ),
    "excel-german.csv": (
        "Zeit;prompt_tokens;completion_tokens;Timestamp",
        lambda each: f"x;{each.prompt};{each.output},0;{each.start:%d.%m.%Y %H:%M:%S}",
    ),
    "excel-scientific.csv": (
        "timestamp,prompt_tokens,completion_tokens",
        lambda each: f"{each.start.timestamp():.5E},{each.prompt},{each.output}",
    ),
    "excel-day-first.csv": (
        "date,input tokens,output tokens",
        lambda each: f"{each.start:%d/%m/%Y %H:%M:%S},{each.prompt},{each.output}",
    ),
    "dashboard-minutes.csv": (
        "time,prompt_tokens,completion_tokens",
        lambda each: f"{each.start:%Y-%m-%d %H:%M},{each.prompt},{each.output}",
    ),
    "tenants-priorities.csv": (
        "ts_ms,prompt_tokens,completion_tokens,tenant,session_id,priority",
        lambda each: (
            f"{round(each.arrival * 1000)},{each.prompt},{each.output},{each.user},{each.session},{each.number % 3}"
        ),
    ),
    "openrouter-activity.csv": (
        "generation_id,created_at,cost_total,tokens_prompt,tokens_completion,model_permaslug,generation_time_ms",
        lambda each: (
            f"gen-{each.number},{each.start:%Y-%m-%d %H:%M:%S}.{each.start.microsecond // 1000:03d},0.1,"
            f"{each.prompt},{each.output},{MODEL},{round(each.duration * 1000)}"
        ),
    ),
    "azure-trace.csv": (
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        lambda each: f"{each.start:%Y-%m-%d %H:%M:%S.%f}0,{each.prompt},{each.output}",
    ),
    "burstgpt.csv": (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
        lambda each: (
            f"{int(each.arrival)},ChatGPT,{each.prompt},{each.output},{each.prompt + each.output},Conversation log"
        ),
    ),
    "with-prompts.csv": (
        "timestamp,prompt,prompt_tokens,completion_tokens",
        lambda each: f'{each.start.isoformat()},"Dear team,\n\nwhat is ""{each.number}""?",{each.prompt},{each.output}',
    ),
}


def _jaeger() -> dict[str, Any]:
    traces = []
    for each in REQUESTS:
        tags = [
            {"key": "gen_ai.usage.prompt_tokens", "type": "int64", "value": each.prompt},
            {"key": "gen_ai.usage.completion_tokens", "type": "int64", "value": each.output},
            {"key": "gen_ai.latency.e2e", "type": "float64", "value": each.duration},
        ]
        outer = {"traceID": f"t{each.number}", "spanID": f"a{each.number}", "operationName": "POST /chat", "tags": []}
        times = {"startTime": _nanoseconds(each) // 1000, "duration": round(each.duration * 1e6), "processID": "p1"}
        parent = [{"refType": "CHILD_OF", "traceID": f"t{each.number}", "spanID": f"a{each.number}"}]
        inner = {"traceID": f"t{each.number}", "spanID": f"b{each.number}", "operationName": "llm_request"}
        spans = [outer | times, {**inner, "references": parent, "tags": tags, **times}]
        traces.append({"traceID": f"t{each.number}", "spans": spans, "processes": {"p1": {"serviceName": "vllm"}}})
    return {"data": traces, "total": 0, "limit": 0, "offset": 0, "errors": None}


def _vllm_bench() -> dict[str, Any]:
    return {
        "date": "20261120-140000",
        "endpoint_type": "vllm",
        "backend": "vllm",
        "label": None,
        "model_id": MODEL,
        "tokenizer_id": MODEL,
        "num_prompts": len(REQUESTS),
        "request_rate": 0.4,
        "burstiness": 1.0,
        "max_concurrency": None,
        "duration": 74.2,
        "completed": len(REQUESTS),
        "failed": 0,
        "total_input_tokens": sum(each.prompt for each in REQUESTS),
        "total_output_tokens": sum(each.output for each in REQUESTS),
        "request_throughput": 0.4,
        "request_goodput": None,
        "input_lens": [each.prompt for each in REQUESTS],
        "output_lens": [each.output for each in REQUESTS],
        "ttfts": [0.05] * len(REQUESTS),
        "itls": [[0.02] * (each.output - 1) for each in REQUESTS],
        "latencies": [each.duration for each in REQUESTS],
        "start_times": [81234.5 + each.arrival for each in REQUESTS],
        "errors": [""] * len(REQUESTS),
    }


def _elastic() -> dict[str, Any]:
    hits = [
        {
            "_index": "llm",
            "_id": str(each.number),
            "_source": {"@timestamp": each.start.isoformat(), "llm": "x"} | {"usage": _usage(each)},
        }
        for each in REQUESTS
    ]
    return {"took": 3, "hits": {"total": {"value": len(hits)}, "hits": hits}}


def _insights() -> dict[str, Any]:
    rows = [
        [
            {"field": "@timestamp", "value": f"{each.start:%Y-%m-%d %H:%M:%S}.{each.start.microsecond // 1000:03d}"},
            {"field": "usage.prompt_tokens", "value": str(each.prompt)},
            {"field": "usage.completion_tokens", "value": str(each.output)},
        ]
        for each in REQUESTS
    ]
    return {"status": "Complete", "results": rows}


def _loki() -> dict[str, Any]:
    values = [[str(_nanoseconds(each)), json.dumps({"usage": _usage(each), "level": "info"})] for each in REQUESTS]
    result = [{"stream": {"app": "gateway"}, "values": values}]
    return {"status": "success", "data": {"resultType": "streams", "result": result}}


def _sharegpt() -> list[dict[str, Any]]:
    return [
        {
            "id": str(each.number),
            "conversations": [
                {"from": "human", "value": "a" * 4 * each.prompt},
                {"from": "gpt", "value": "b" * 4 * each.output},
            ],
        }
        for each in REQUESTS
    ]


_DOCUMENTS: dict[str, Callable[[], Any]] = {
    "jaeger-export-pretty.json": _jaeger,
    "vllm-bench-pretty.json": _vllm_bench,
    "elasticsearch-hits-pretty.json": _elastic,
    "cloudwatch-insights.json": _insights,
    "loki-query.json": _loki,
    "google-cloud-logging-pretty.json": lambda: [
        {"insertId": str(each.number), "timestamp": each.start.isoformat(), "jsonPayload": {"usage": _usage(each)}}
        for each in REQUESTS
    ],
    "zipkin.json": lambda: [
        {
            "traceId": f"{each.number:032x}",
            "id": f"{each.number:016x}",
            "timestamp": _nanoseconds(each) // 1000,
            "duration": round(each.duration * 1e6),
            "tags": {"gen_ai.usage.input_tokens": str(each.prompt), "gen_ai.usage.output_tokens": str(each.output)},
        }
        for each in REQUESTS
    ],
    "sharegpt.json": _sharegpt,
}
_ENGINE = "INFO 11-20 14:00:{:02d} [loggers.py:248] Engine 000: Avg prompt throughput: 31.5 tokens/s, Running: 3 reqs\n"
_OTHERS = {
    "prometheus.txt": "# HELP vllm:prompt_tokens_total Number of prefill tokens.\n"
    "# TYPE vllm:prompt_tokens_total counter\n"
    f'vllm:prompt_tokens_total{{engine="0",model_name="{MODEL}"}} 51234.0\n'
    f'vllm:generation_tokens_total{{engine="0",model_name="{MODEL}"}} 9123.0\n',
    "nginx-access.log": "".join(
        f'10.0.0.7 - - [{each.start:%d/%b/%Y:%H:%M:%S} +0000] "POST /v1/chat/completions HTTP/1.1" 200 {each.output} '
        '"-" "python-httpx/0.28"\n'
        for each in REQUESTS
    ),
    "vllm-engine-only.log": "".join(_ENGINE.format(i) for i in range(0, 60, 10)),
}


def _wrap_vllm(folder: Path) -> None:
    """vLLM's log as containers keep it: in Docker's JSON, behind Kubernetes' time, and by its own JSON formatter."""
    lines = (folder / "vllm-0.33.log").read_text().splitlines()
    received = {f"{each.number:08x}": each.start for each in REQUESTS}

    def moment(line: str) -> str:
        number = line.partition("cmpl-")[2][:8]
        when = received[number] if ("Received" in line or "Request " in line) else START
        return when.strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"

    docker = (json.dumps({"log": f"{line}\n", "stream": "stderr", "time": moment(line)}) for line in lines)
    _write(folder / "vllm-docker.jsonl", docker)
    _write(folder / "vllm-kubernetes.log", (f"{moment(line)} stderr F {line}" for line in lines))
    _write(
        folder / "vllm-json.jsonl",
        (
            json.dumps(
                {
                    "asctime": moment(line)[:-8].replace("T", " ").replace(".", ","),
                    "levelname": "INFO",
                    "name": "vllm",
                    "message": line.partition("] ")[2],
                }
            )
            for line in lines
        ),
    )
