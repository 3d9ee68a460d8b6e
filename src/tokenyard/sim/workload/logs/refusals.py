"""Files that are no logs of requests, though people have them at hand: what they are, and what to log instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

__all__ = ["INSTEAD", "what_it_is", "what_it_lacks"]

INSTEAD = (
    "Log single requests instead: `vllm serve ... --enable-log-requests --enable-log-outputs` with "
    "VLLM_LOGGING_LEVEL=DEBUG; SGLang with --log-requests; a gateway that counts tokens (LiteLLM, Envoy AI Gateway, "
    "Langfuse); spans (--otlp-traces-endpoint); or any CSV or JSON with time, prompt tokens and output tokens of each "
    "request"
)
_METRIC = re.compile(r"# (?:HELP|TYPE) \w|[a-zA-Z_:][\w:]*(?:\{[^}]*\})? [-+\d.eNI]+(?: \d+)?$")
_COMMON_LOG = re.compile(r'^\S+ \S+ \S+ \[[^\]]+\] "[A-Z]+ \S+ HTTP/[\d.]+" \d{3} ')
_UVICORN = re.compile(r'INFO: +\S+:\d+ - "[A-Z]+ \S+ HTTP/[\d.]+" \d{3}')
_ENVOY_TEXT = re.compile(r'^\[\d{4}-\d\d-\d\dT[\d:.]+Z\] "[A-Z]+ \S+ HTTP/[\d.]+" \d{3} ')
_WITHOUT_TOKENS = (
    (re.compile(r'"target": ?"text_generation_router'), "is TGI's log"),
    (
        re.compile(r'"category": ?"RequestResponse".*"durationMs"|Azure OpenAI API version'),
        "is Azure OpenAI's diagnostics",
    ),
    (re.compile(r'"service_kind": ?.*"window_boundaries"|"response_timestamps": ?\['), "is genai-perf's profile"),
    (re.compile(r"prompt eval time =.* tokens|slot print_timing"), "is llama.cpp's log"),
    (re.compile(r"(?:Prefill|Decode) batch[.,].*#(?:new-seq|running-req)"), "is SGLang's log"),
)
"""Of what engines and clouds log, what has no length of a request, or no time."""
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_BINARY = {b"PAR1": "a Parquet file", b"PK\x03\x04": "a ZIP archive or a spreadsheet (.xlsx)", b"SQLite": "a database"}


def _share(test: Callable[[str], object], lines: Sequence[str]) -> float:
    return sum(bool(test(line)) for line in lines) / len(lines)


def what_it_is(lines: Sequence[bytes]) -> str | None:
    """What a file is that begins with these lines, and how to have a log of requests; None if nobody knows it."""
    for mark, name in _BINARY.items():
        if lines[0].startswith(mark):
            return f"is {name}: export it as CSV or JSON lines"
    if lines[0].startswith(_UTF_16):
        return "is UTF-16, as Excel's `Unicode Text`: save it as CSV UTF-8"
    texts = [line.decode("utf-8", "replace") for line in lines]
    if _share(_METRIC.match, texts) > 0.5:
        return f"is a scrape of Prometheus's metrics, which count and say nothing of single requests. {INSTEAD}"
    beginning = texts[0].replace(" ", "")
    if '"resultType":' in "".join(texts[:10]).replace(" ", "") and '"metric"' in "".join(texts):
        return f"is an answer of Prometheus, whose series say nothing of single requests. {INSTEAD}"
    if '"resourceMetrics":' in beginning:
        return f"holds OpenTelemetry's metrics, which say nothing of single requests. {INSTEAD}"
    for pattern in (_COMMON_LOG, _UVICORN, _ENVOY_TEXT):
        if _share(pattern.search, texts) > 0.5:
            return f"is a web server's access log, which says nothing of tokens. {INSTEAD}"
    return None


def what_it_lacks(lines: Sequence[bytes]) -> str | None:
    """Of a file in which no reader finds a request, what it is and lacks; None if nobody knows it."""
    texts = [line.decode("utf-8", "replace") for line in lines]
    for pattern, name in _WITHOUT_TOKENS:
        if any(pattern.search(text) for text in texts):
            return f"{name}, which does not say the time and the tokens of single requests. {INSTEAD}"
    return None
