"""The logs of tests/samples/logs: who wrote each, how it is read, and what of the truth it cannot say."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["CATALOGUE", "Sample"]


@dataclass(frozen=True)
class Sample:
    """One file."""

    written_by: str
    kind: str = ""
    """What it has to be read as."""
    warns: frozenset[str] = frozenset()
    """Codes of the warnings that it has to raise, no others."""
    refused: str = ""
    """Part of the error, if it has to be refused."""
    resolution: float = 0.001
    """Seconds to which its times are true."""
    lacks: frozenset[str] = frozenset()
    """What it does not say truly: ``prompt``, ``output``, ``requests``, ``time``."""
    options: dict[str, object] = field(default_factory=dict)
    """Options of ``load_workload``."""
    flags: str = ""
    """The same as flags."""


def _warns(*codes: str) -> frozenset[str]:
    return frozenset(codes)


_SECOND = 1.0
_PROMPT = frozenset({"prompt"})

CATALOGUE: dict[str, Sample] = {
    "anthropic-messages.jsonl": Sample("Anthropic's Messages API, with the client's time (shape)", "openai"),
    "aiperf-profile-export.jsonl": Sample("AIPerf, records of single requests (shape)", "jsonl"),
    "azure-log-analytics.csv": Sample(
        "Azure API Management, Log Analytics' CSV (shape)", "csv", warns=frozenset({"record_times"})
    ),
    "azure-openai-diagnostics.jsonl": Sample(
        "Azure OpenAI's diagnostics (shape)", refused="is Azure OpenAI's diagnostics, which does not say"
    ),
    "azure-trace.csv": Sample("Azure's public traces (shape)", "azure"),
    "bedrock-invocations.jsonl": Sample("Bedrock's model invocation log (shape)", "jsonl", resolution=_SECOND),
    "bigquery-export.csv": Sample("BigQuery, CSV export (shape)", "csv"),
    "bigquery-export.jsonl": Sample("BigQuery, JSON export (shape)", "jsonl"),
    "burstgpt.csv": Sample("BurstGPT's public trace (shape)", "burstgpt", resolution=_SECOND),
    "cloudflare-ai-gateway.jsonl": Sample(
        "Cloudflare's AI Gateway, one answer from its cache (shape)", "jsonl", lacks=frozenset({"requests"})
    ),
    "cloudwatch-insights.json": Sample("CloudWatch Logs Insights (shape)", "jsonl"),
    "coding-agent-session.jsonl": Sample("a coding agent's session, a line a part (shape)", "openai"),
    "dashboard-minutes.csv": Sample(
        "a dashboard's export (shape)", "csv", _warns("times_rounded"), lacks=frozenset({"time"})
    ),
    "databricks-inference.csv": Sample("Databricks' inference table (shape)", "csv"),
    "datadog-llm-spans.json": Sample("Datadog's LLM spans (shape)", "jsonl"),
    "datadog-logs.csv": Sample("Datadog's logs, CSV with JSON in a cell (shape)", "csv"),
    "docker-compose-gateway.log": Sample("a gateway's JSON behind docker compose's names (shape)", "openai"),
    "dotnet-ticks.csv": Sample(".NET's ticks (shape)", "csv"),
    "elasticsearch-hits-pretty.json": Sample("Elasticsearch's answer (shape)", "openai"),
    "envoy-ai-gateway.jsonl": Sample("Envoy AI Gateway's access log (shape)", "envoy", lacks=frozenset({"requests"})),
    "equal-lengths.jsonl": Sample(
        "a log with default values for counts (shape)",
        "jsonl",
        _warns("equal_prompts", "equal_outputs"),
        lacks=frozenset({"prompt", "output"}),
    ),
    "excel-day-first.csv": Sample("Excel, British dates (shape)", "csv", resolution=_SECOND),
    "excel-german.csv": Sample("Excel, German (shape)", "csv", resolution=_SECOND),
    "excel-scientific.csv": Sample(
        "Excel, Unix times as it shows them (shape)", refused="is a time that a spreadsheet has rounded to 10,000 s"
    ),
    "excel-serial.csv": Sample("Excel, days as numbers (shape)", "csv", _warns("too_fast"), lacks=frozenset({"time"})),
    "excel-us.csv": Sample("Excel, American (shape)", "csv", resolution=_SECOND),
    "fluent-bit.jsonl": Sample("Fluent Bit around a gateway's JSON (shape)", "jsonl"),
    "gateway-request-id.jsonl": Sample("a gateway of one's own (shape)", "jsonl"),
    "google-cloud-logging-pretty.json": Sample("Google Cloud Logging (shape)", "openai"),
    "guidellm-report.json": Sample("guidellm 0.8.1, run: its requests in a report", "guidellm"),
    "helicone.csv": Sample("Helicone's export (shape)", "csv"),
    "jaeger-export-pretty.json": Sample("Jaeger's JSON around vLLM's spans (shape)", "jaeger"),
    "kong-3.8-ai-proxy.jsonl": Sample("Kong's AI proxy, as documented up to 3.10 (shape)", "jsonl"),
    "kong-ai-proxy.jsonl": Sample("Kong's AI proxy, as documented from 3.11 on (shape)", "openai"),
    "kubernetes-gateway.log": Sample("a gateway's JSON behind Kubernetes' times (shape)", "openai"),
    "langfuse-observations.json": Sample("langfuse 5.0.4, run", "langfuse"),
    "langsmith-runs.jsonl": Sample("LangSmith's runs, a chain around each call (shape)", "jsonl"),
    "litellm-spend-logs.json": Sample("litellm 1.106.2, run: rows of spend of its proxy", "litellm"),
    "litellm-with-failures.jsonl": Sample(
        "litellm 1.106.2, run, with a failed request and one from its cache", "litellm"
    ),
    "loki-query.json": Sample("Loki's answer (shape)", "openai"),
    "nginx-access.log": Sample("nginx (shape)", refused="is a web server's access log, which says nothing of tokens"),
    "nginx-with-tokens.jsonl": Sample("APISIX, or nginx with tokens, as JSON (shape)", "jsonl"),
    "ollama.jsonl": Sample("Ollama's answers (shape)", "ollama"),
    "openai-batch-output.jsonl": Sample("openai 2.54.0, run", "openai", resolution=_SECOND),
    "openai-chat.jsonl": Sample("openai 2.54.0, run", "openai", resolution=_SECOND),
    "openai-responses.jsonl": Sample("OpenAI's Responses API (shape)", "openai", resolution=_SECOND),
    "openrouter-activity.csv": Sample("OpenRouter's single generations (shape)", "csv"),
    "openai-usage.csv": Sample(
        "OpenAI's usage, sums a minute (shape)", refused="a record is the sum of several requests"
    ),
    "opentelemetry-collector.jsonl": Sample("opentelemetry-sdk 1.45.2, run; a line a batch, as collectors do", "otel"),
    "opentelemetry-spans.json": Sample("opentelemetry-sdk 1.45.2, run", "otel"),
    "overlapping-exports.jsonl": Sample("two exports that overlap (shape)", "openai"),
    "pandas-floats.csv": Sample("pandas 3.1.1, run", "csv"),
    "pandas-json-normalize.csv": Sample("pandas 3.1.1, run", "csv"),
    "pandas-records.json": Sample("pandas 3.1.1, run", "jsonl"),
    "pandas-semicolons.csv": Sample("pandas 3.1.1, run", "csv"),
    "phoenix-spans.csv": Sample("Phoenix's spans as a table (shape)", "csv"),
    "portkey.jsonl": Sample("Portkey's export (shape)", "jsonl"),
    "postgres-copy.csv": Sample("Postgres, \\copy with a bar (shape)", "csv"),
    "prometheus.txt": Sample("a scrape of vLLM's metrics (shape)", refused="is a scrape of Prometheus's metrics"),
    "sglang-log-requests.jsonl": Sample("SGLang --log-requests-format json, as its source writes it (shape)", "sglang"),
    "sglang-log-requests.log": Sample(
        "SGLang --log-requests, as its source writes it (shape)", "sglang", resolution=_SECOND
    ),
    "sglang.jsonl": Sample("SGLang's answers, with the client's time (shape)", "jsonl"),
    "sharegpt.json": Sample(
        "ShareGPT's conversations (shape)",
        "sharegpt",
        _warns("lengths_estimated"),
        lacks=frozenset({"time"}),
        options={"request_rate": 1.0},
        flags="--request-rate 1",
    ),
    "splunk.csv": Sample("Splunk's CSV with the raw JSON (shape)", "csv"),
    "structlog-mixed.jsonl": Sample("structlog 26.1.0, run, among other lines", "jsonl"),
    "tenants-priorities.csv": Sample("a gateway with tenants and priorities (shape)", "csv"),
    "tgi.jsonl": Sample("TGI's log (shape)", refused="is TGI's log, which does not say"),
    "two-models.jsonl": Sample(
        "a gateway in front of two models (shape)",
        "jsonl",
        lacks=frozenset({"requests"}),
        options={"model_name": "qwen*"},
        flags="--model-name 'qwen*'",
    ),
    "vertex-request-response.jsonl": Sample("Vertex AI's request-response table (shape)", "jsonl"),
    "vllm-0.22-info.log": Sample(
        "vllm 0.22.1's RequestLogger, run, at INFO", refused="VLLM_LOGGING_LEVEL=DEBUG logs it"
    ),
    "vllm-0.22-max-log-len.log": Sample(
        "vllm 0.22.1's RequestLogger, run, --max-log-len 100",
        "vllm-log",
        _warns("prompts_cut"),
        resolution=_SECOND,
        lacks=_PROMPT,
    ),
    "vllm-0.22.log": Sample("vllm 0.22.1's RequestLogger, run, at DEBUG", "vllm-log", resolution=_SECOND),
    "vllm-0.33-info.log": Sample(
        "vllm 0.33.0's RequestLogger, run, at INFO", refused="VLLM_LOGGING_LEVEL=DEBUG logs it"
    ),
    "vllm-0.33-max-log-len.log": Sample(
        "vllm 0.33.0's RequestLogger, run, --max-log-len 100",
        "vllm-log",
        _warns("prompts_cut"),
        resolution=_SECOND,
        lacks=_PROMPT,
    ),
    "vllm-0.33.log": Sample("vllm 0.33.0's RequestLogger, run, at DEBUG", "vllm-log", resolution=_SECOND),
    "vllm-bench-pretty.json": Sample(
        "vllm bench serve --save-detailed, as 0.33.0's source writes it (shape)", "vllm-bench"
    ),
    "vllm-docker.jsonl": Sample("the same log of 0.33.0, in Docker's json-file (shape)", "vllm-log"),
    "vllm-engine-only.log": Sample("vLLM without request logs (shape)", refused="says nothing of single requests"),
    "vllm-json.jsonl": Sample("the same log of 0.33.0, by its JSON formatter (shape)", "vllm-log", resolution=0.01),
    "vllm-kubernetes.log": Sample("the same log of 0.33.0, behind Kubernetes' times (shape)", "vllm-log"),
    "with-prompts.csv": Sample("CSV with prompts of several lines (shape)", "csv"),
    "zipkin.json": Sample("Zipkin's spans (shape)", "jsonl"),
}
"""By name. ``run``: the library wrote it; ``shape``: written here, in the shape that the system is known to have."""
