"""Logs written by the systems themselves: each function needs the library that it names, and says its version."""

from __future__ import annotations

import io
import json
import logging
import time
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any

from sample_logs.truth import MODEL, REQUESTS, Truth

__all__ = ["WRITERS"]


def _lines(path: Path, records: list[Any]) -> None:
    path.write_text("".join(json.dumps(each, default=str) + "\n" for each in records))


def _response(truth: Truth) -> Any:
    """What the openai client makes of a server's answer."""
    from openai.types.chat import ChatCompletion

    return ChatCompletion.model_validate(
        {
            "id": f"chatcmpl-{truth.request_id}",
            "object": "chat.completion",
            "created": int(truth.start.timestamp()),
            "model": MODEL,
            "choices": [
                {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Yes."}},
            ],
            "usage": {
                "prompt_tokens": truth.prompt,
                "completion_tokens": truth.output,
                "total_tokens": truth.prompt + truth.output,
                "prompt_tokens_details": {"cached_tokens": truth.cached},
            },
        }
    )


def openai(folder: Path) -> str:
    """Chat completions as the client's objects print them, and the output file of a batch."""
    answers = [_response(each) for each in REQUESTS]
    (folder / "openai-chat.jsonl").write_text("".join(each.model_dump_json() + "\n" for each in answers))
    batch = [
        {
            "id": f"batch_req_{each.number}",
            "custom_id": each.request_id,
            "response": {"status_code": 200, "request_id": each.request_id, "body": answer.model_dump()},
            "error": None,
        }
        for each, answer in zip(REQUESTS, answers, strict=True)
    ]
    _lines(folder / "openai-batch-output.jsonl", batch)
    return f"openai {version('openai')}"


def litellm(folder: Path) -> str:
    """LiteLLM's row of spend, as its proxy writes it to its database and its interface answers it."""
    import litellm as library
    from litellm.proxy.spend_tracking.spend_tracking_utils import get_logging_payload

    rows = []
    for each in REQUESTS:
        metadata = {"user_api_key_user_id": each.user, "user_api_key_alias": each.user}
        kwargs = {
            "model": MODEL,
            "user": each.user,
            "call_type": "acompletion",
            "cache_hit": False,
            "litellm_params": {
                "api_base": "http://vllm:8000/v1",
                "metadata": metadata,
                "proxy_server_request": {"body": {"user": each.user}},
            },
            "litellm_call_id": each.request_id,
            "litellm_session_id": each.session,
            "response_cost": 0.0,
            "custom_llm_provider": "hosted_vllm",
        }
        answer = library.ModelResponse(**_response(each).model_dump())
        row = get_logging_payload(kwargs=kwargs, response_obj=answer, start_time=each.start, end_time=each.end)
        row["session_id"] = each.session
        rows.append(row)
    (folder / "litellm-spend-logs.json").write_text(json.dumps(rows, default=_plain))
    failed = dict(rows[3], status="failure", prompt_tokens=0, completion_tokens=0, total_tokens=0, request_id="f1")
    cached = dict(rows[5], cache_hit="True", request_id="c1")
    _lines(folder / "litellm-with-failures.jsonl", json.loads(json.dumps([*rows, failed, cached], default=_plain)))
    return f"litellm {version('litellm')}"


def _plain(value: object) -> object:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else str(value)


def langfuse(folder: Path) -> str:
    """Langfuse's observations, as its interface answers them, with the trace's own around each generation."""
    from langfuse.api import ObservationsV2Response

    # The library's types take their own names and print those of the interface.
    observations = []
    for each in REQUESTS:
        common = {"trace_id": f"trace-{each.number}", "project_id": "p", "start_time": each.start, "end_time": each.end}
        common |= {"user_id": each.user, "session_id": each.session, "environment": "default"}
        observations.append(common | {"id": f"span-{each.number}", "type": "SPAN", "name": "chat"})
        details = {"input": each.prompt - each.cached, "input_cached_tokens": each.cached, "output": each.output}
        observations.append(
            common
            | {
                "id": f"gen-{each.number}",
                "type": "GENERATION",
                "name": "answer",
                "parent_observation_id": f"span-{each.number}",
                "model": MODEL,
                "usage_details": details | {"total": each.prompt + each.output},
                "latency": each.duration,
            }
        )
    answer = ObservationsV2Response.model_validate({"data": observations, "meta": {"cursor": None}})
    text = answer.model_dump_json(by_alias=True, exclude_none=True)
    (folder / "langfuse-observations.json").write_text(text)
    return f"langfuse {version('langfuse')}"


def opentelemetry(folder: Path) -> str:
    """Spans of the SDK by the GenAI conventions, as OTLP's JSON: one document, and a line each as collectors write."""
    from google.protobuf.json_format import MessageToDict
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.sdk.trace.id_generator import IdGenerator

    class Ids(IdGenerator):
        random = Random(1)

        def generate_span_id(self) -> int:
            return self.random.getrandbits(64)

        def generate_trace_id(self) -> int:
            return self.random.getrandbits(128)

    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource.create({"service.name": "chat"}), id_generator=Ids())
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("sample")
    for each in REQUESTS:
        start, end = (int(moment.timestamp() * 1000) * 1_000_000 for moment in (each.start, each.end))
        agent = tracer.start_span("invoke_agent helper", start_time=start)
        agent.set_attributes({"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": each.prompt})
        agent.set_attribute("gen_ai.usage.output_tokens", each.output)
        chat = tracer.start_span(f"chat {MODEL}", start_time=start, context=trace.set_span_in_context(agent))
        chat.set_attributes(
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": MODEL,
                "gen_ai.conversation.id": each.session,
                "gen_ai.usage.input_tokens": each.prompt,
                "gen_ai.usage.output_tokens": each.output,
                "gen_ai.usage.cache_read.input_tokens": each.cached,
            }
        )
        chat.end(end)
        agent.end(end)
    spans = exporter.get_finished_spans()
    whole = MessageToDict(encode_spans(spans))
    (folder / "opentelemetry-spans.json").write_text(json.dumps(whole))
    parts = [MessageToDict(encode_spans(spans[i : i + 6])) for i in range(0, len(spans), 6)]
    _lines(folder / "opentelemetry-collector.jsonl", parts)
    return f"opentelemetry-sdk {version('opentelemetry-sdk')}"


def pandas(folder: Path) -> str:
    """A data frame as CSV, where a missing value has made floats of whole numbers, and as JSON."""
    import pandas as library

    frame = library.DataFrame(
        {
            "timestamp": [each.start for each in REQUESTS],
            "prompt_tokens": [float(each.prompt) for each in REQUESTS],
            "completion_tokens": [float(each.output) for each in REQUESTS],
            "user": [each.user for each in REQUESTS],
        }
    )
    frame.to_csv(folder / "pandas-floats.csv", index=False)
    frame.to_csv(folder / "pandas-semicolons.csv", sep=";", index=True, decimal=",")
    frame.to_json(folder / "pandas-records.json", orient="records", date_format="iso")
    nested = library.json_normalize(
        [{"created": each.start.timestamp(), "usage": _response(each).usage.model_dump()} for each in REQUESTS]
    )
    nested.to_csv(folder / "pandas-json-normalize.csv", index=False)
    return f"pandas {version('pandas')}"


def structlog(folder: Path) -> str:
    """A service's own JSON log, of which only some lines are about requests, and the rest is not."""
    import structlog as library

    out = io.StringIO()
    library.configure(
        processors=[library.processors.add_log_level, library.processors.JSONRenderer()],
        logger_factory=library.PrintLoggerFactory(out),
    )
    log = library.get_logger()
    for each in REQUESTS:
        log.info("connection opened", timestamp=each.start.isoformat(), peer="10.0.0.7")
        log.info(
            "llm_call",
            timestamp=each.start.isoformat(),
            promptTokens=each.prompt,
            completionTokens=each.output,
            sessionId=each.session,
        )
    (folder / "structlog-mixed.jsonl").write_text(out.getvalue())
    return f"structlog {version('structlog')}"


def guidellm(folder: Path) -> str:
    """guidellm's statistics of each request, in the place where its report keeps them."""
    from guidellm import schemas

    stats = []
    for each in REQUESTS:
        start, end = each.start.timestamp(), each.end.timestamp()
        timings = schemas.RequestTimings(resolve_start=start, request_start=start, request_end=end, resolve_end=end)
        info = schemas.RequestInfo(request_id=each.request_id, status="completed", timings=timings)
        request = schemas.GenerativeRequestStats(
            request_id=each.request_id,
            info=info,
            input_metrics=schemas.UsageMetrics(text_tokens=each.prompt),
            output_metrics=schemas.UsageMetrics(text_tokens=each.output),
        )
        stats.append(request.model_dump(mode="json"))
    groups = {"successful": stats, "incomplete": [], "errored": []}
    (folder / "guidellm-report.json").write_text(json.dumps({"metadata": {}, "benchmarks": [{"requests": groups}]}))
    return f"guidellm {version('guidellm')}"


def vllm(folder: Path) -> str:
    """vLLM's own RequestLogger and formatter, at DEBUG, with its clock set to the traffic's times."""
    import vllm.logger
    from vllm.logging_utils import NewLineFormatter
    from vllm.sampling_params import SamplingParams
    from vllm.version import __version__

    try:
        from vllm.entrypoints.serve.utils import request_logger as module
    except ImportError:
        from vllm.entrypoints import logger as module
    name = ".".join(__version__.split("+")[0].split(".")[:2])
    name = "0.33" if name == "0.32" else name
    for suffix, most, level in (("", None, "DEBUG"), ("-max-log-len", 100, "DEBUG"), ("-info", None, "INFO")):
        out = io.StringIO()
        handler = logging.StreamHandler(out)
        formatter = NewLineFormatter(vllm.logger._FORMAT, datefmt="%m-%d %H:%M:%S")  # noqa: SLF001 - as vLLM sets it
        formatter.converter = time.gmtime
        handler.setFormatter(formatter)
        log: Any = logging.Logger("vllm.sample", level)
        log.addHandler(handler)
        log.info_once = log.warning_once = lambda *_: None  # vLLM adds these to its own loggers
        module.logger = log
        _vllm_lines(module.RequestLogger(max_log_len=most), handler, SamplingParams)
        (folder / f"vllm-{name}{suffix}.log").write_text(out.getvalue())
    return f"vllm {__version__}"


def _vllm_lines(requests: Any, handler: logging.Handler, params: Any) -> None:
    """What the server logs as requests come and go: completions, whose prompts are numbered, and streamed chats."""
    random, clock = Random(3), [0.0]

    def stamped(record: Any) -> bool:
        record.created, record.msecs = clock[0], 0
        record.vllm_process_name, record.process = "APIServer", 17
        return True

    handler.addFilter(stamped)
    events = [(each.start.timestamp(), 0, each) for each in REQUESTS] + [
        (each.end.timestamp(), 1, each) for each in REQUESTS
    ]
    for moment, is_end, each in sorted(events, key=lambda event: event[:2]):
        clock[0] = moment
        is_chat = each.number % 2 == 0
        name = f"chatcmpl-{each.number:08x}" if is_chat else f"cmpl-{each.number:08x}"
        if not is_end:
            ids = [random.randrange(150_000) for _ in range(each.prompt)]
            text = "[" * 101 if each.number == 4 else "What is it? prompt_token_ids: [1, 2]"
            asked = params(max_tokens=4096, temperature=0.7)
            requests.log_inputs(name if is_chat else f"{name}-0", text, ids, None, asked, None)
        elif is_chat:
            said = f"<streaming_complete: {each.output} tokens>"
            requests.log_outputs(name, said, None, "streaming_complete", is_streaming=True, delta=False)
        else:
            ids = [random.randrange(150_000) for _ in range(each.output)]
            requests.log_outputs(name, "Yes, it is.", ids, "stop", is_streaming=False, delta=False)


WRITERS = {
    each.__name__: each for each in (openai, litellm, langfuse, opentelemetry, pandas, structlog, guidellm, vllm)
}
"""By the library that is needed."""
