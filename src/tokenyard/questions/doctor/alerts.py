"""Alert rules for a Prometheus: what the verdicts look at, as expressions over vLLM's metrics."""

from __future__ import annotations

from collections.abc import Iterator

from tokenyard.deploy.deployment import Deployment

_WAITING, _RUNNING = "vllm:num_requests_waiting", "vllm:num_requests_running"
_TOKENS = "rate(vllm:generation_tokens_total[1m]) + rate(vllm:prompt_tokens_total[1m])"


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
    yield (
        "VllmStuck",
        f"({_WAITING} + {_RUNNING} > 0) and ({_TOKENS} == 0)",
        "2m",
        "critical",
        "requests are there and no token is computed",
    )
    yield (
        "VllmWaitsForKvBlocks",
        f"({_WAITING} > 0) and (vllm:kv_cache_usage_perc >= 0.95)",
        "5m",
        "warning",
        "requests wait while the KV pool is full",
    )
    if deployment is not None:
        seats = deployment.resolve().settled.scheduling.max_num_seqs
        yield (
            "VllmWaitsForSeats",
            f"({_WAITING} > 0) and ({_RUNNING} >= {seats}) and (vllm:kv_cache_usage_perc < 0.95)",
            "5m",
            "warning",
            f"as many run as max_num_seqs ({seats}) allows while KV is free",
        )
    yield (
        "VllmPreemptionStorm",
        "increase(vllm:num_preemptions_total[5m]) > 10 and on(instance, engine) increase(vllm:num_preemptions_total[5m])"
        " > 0.2 * on(instance, engine) sum by(instance, engine) (increase(vllm:request_success_total[5m]))",
        "5m",
        "warning",
        "running requests lose their blocks again and again",
    )
    yield (
        "VllmQueueGrows",
        f"(deriv({_WAITING}[10m]) > 0) and ({_WAITING} > 2 * {_RUNNING})",
        "10m",
        "warning",
        "more arrives than is served",
    )
    yield (
        "VllmHotReplica",
        f"(max by(model_name) ({_WAITING}) > 0.6 * sum by(model_name) ({_WAITING}))"
        f" and (sum by(model_name) ({_WAITING}) > 5) and (count by(model_name) ({_WAITING}) > 1)",
        "5m",
        "warning",
        "most of the queue is that of one engine",
    )
    hits, asked = (f"sum by(model_name) (rate(vllm:prefix_cache_{name}_total[%s]))" for name in ("hits", "queries"))
    now, before = (f"({hits % span}) / ({asked % span})" for span in ("10m", "6h"))
    yield (
        "VllmPrefixHitsFell",
        f"({now}) < 0.5 * ({before}) and ({before}) > 0.3",
        "15m",
        "warning",
        "far fewer prompt tokens are found in the prefix cache than in the last hours",
    )
