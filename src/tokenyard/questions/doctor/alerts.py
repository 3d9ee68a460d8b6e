"""Alert rules for a Prometheus: what the verdicts look at, as expressions over vLLM's metrics."""

from __future__ import annotations

from collections.abc import Iterator

from tokenyard.deploy.deployment import Deployment
from tokenyard.questions.doctor.verdict import FULL

_WAITING, _RUNNING = "vllm:num_requests_waiting", "vllm:num_requests_running"
_WAITS, _FULL = f"({_WAITING} > 0)", f"(vllm:kv_cache_usage_perc >= {FULL})"
_TOKENS = "rate(vllm:generation_tokens_total[1m]) + rate(vllm:prompt_tokens_total[1m])"
_STUCK = f"({_WAITING} + {_RUNNING} > 0) and ({_TOKENS} == 0)"
_LOST, _ENDED = "increase(vllm:num_preemptions_total[5m])", "increase(vllm:request_success_total[5m])"
_STORM = f"({_LOST} > 10) and ({_LOST} > 0.2 * sum without(finished_reason) ({_ENDED}))"
_GROWS = f"(deriv({_WAITING}[10m]) > 0) and ({_WAITING} > 2 * {_RUNNING})"
_OF_ALL = f"sum by(model_name) ({_WAITING})"
_MOST, _ENGINES = f"max by(model_name) ({_WAITING})", f"count by(model_name) ({_WAITING})"
_HOT = f"({_MOST} > 0.6 * {_OF_ALL}) and ({_OF_ALL} > 5) and ({_ENGINES} > 1)"
_HITS, _ASKED = (f"sum by(model_name) (rate(vllm:prefix_cache_{name}_total[%s]))" for name in ("hits", "queries"))
_NOW, _BEFORE = (f"({_HITS % span} / {_ASKED % span})" for span in ("10m", "6h"))
_FELL = f"({_NOW} < 0.5 * {_BEFORE}) and ({_BEFORE} > 0.3)"


def alert_rules(deployment: Deployment | None = None) -> str:
    """Return a file of rules; the seats of a ``deployment`` are those of its rule."""
    lines = ["groups:", "  - name: tokenyard-doctor", "    rules:"]
    for name, expression, lasts, severity, text in _rules(deployment):
        lines += [
            f"      - alert: {name}",
            f"        expr: {expression}",
            f"        for: {lasts}",
            f"        labels: {{severity: {severity}}}",
            f"        annotations: {{summary: {text}}}",
        ]
    return "\n".join(lines) + "\n"


def _rules(deployment: Deployment | None) -> Iterator[tuple[str, str, str, str, str]]:
    """Name, expression, how long it lasts, severity and text of each."""
    yield "VllmStuck", _STUCK, "2m", "critical", "requests are there and no token is computed"
    yield "VllmWaitsForKvBlocks", f"{_WAITS} and {_FULL}", "5m", "warning", "requests wait while the KV pool is full"
    if deployment is not None:
        seats = deployment.resolve().settled.scheduling.max_num_seqs
        text = f"as many run as max_num_seqs ({seats}) allows while KV is free"
        yield "VllmWaitsForSeats", f"{_WAITS} and ({_RUNNING} >= {seats}) unless {_FULL}", "5m", "warning", text
    yield "VllmPreemptionStorm", _STORM, "5m", "warning", "running requests lose their blocks again and again"
    yield "VllmQueueGrows", _GROWS, "10m", "warning", "more arrives than is served"
    yield "VllmHotReplica", _HOT, "5m", "warning", "most of the queue is that of one engine"
    yield (
        "VllmPrefixHitsFell",
        _FELL,
        "15m",
        "warning",
        "far fewer prompt tokens are in the prefix cache than for hours",
    )
