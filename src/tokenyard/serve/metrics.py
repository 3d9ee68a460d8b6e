"""Prometheus metrics under vLLM's own names, so that existing dashboards work, and the recorded reasons under ours.

An observer like the trace: attach it to a scheduler and serve its registry (``prometheus_client.start_http_server``
binds to the address you give it; use 127.0.0.1 unless others are meant to read).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenyard.core.request import FinishReason, Request
from tokenyard.core.sched.observer import SchedulerState, StepObserver
from tokenyard.core.sched.outcomes import StepOutcomes
from tokenyard.core.sched.outputs import EngineOutputs
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import MissingExtraError
from tokenyard.record.facts import outcome_record
from tokenyard.trace.facts import held_by_reason

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["MetricsObserver"]

_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640)
_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)

_GAUGES = {
    "num_requests_running": "Requests in the running list.",
    "num_requests_waiting": "Requests that wait for admission.",
    "kv_cache_usage_perc": "Fraction of the KV blocks in use; 1 is all.",
}
_COUNTERS = {
    "prefix_cache_queries": "Tokens looked up in the prefix cache.",
    "prefix_cache_hits": "Tokens found there.",
    "external_prefix_cache_queries": "Tokens asked of the KV connector.",
    "external_prefix_cache_hits": "Tokens it could bring.",
    "num_preemptions": "Requests that lost their blocks.",
    "prompt_tokens": "Prompt tokens of requests scheduled for the first time.",
    "prompt_tokens_cached": "Of them, those that were cached.",
    "generation_tokens": "Output tokens.",
    "spec_decode_num_drafts": "Verified drafts.",
    "spec_decode_num_draft_tokens": "Tokens of verified drafts.",
    "spec_decode_num_accepted_tokens": "Of them, those accepted.",
}
_DURATIONS = {
    "time_to_first_token_seconds": "Arrival to first token.",
    "e2e_request_latency_seconds": "Arrival to end.",
    "request_queue_time_seconds": "Arrival to first scheduled.",
    "request_prefill_time_seconds": "First scheduled to first token.",
    "request_decode_time_seconds": "First token to end.",
    "request_inference_time_seconds": "First scheduled to end.",
    "request_time_per_output_token_seconds": "Decode time per token after the first.",
}
_SIZES = {
    "request_prompt_tokens": "Prompt length of finished requests.",
    "request_generation_tokens": "Output length of finished requests.",
    "iteration_tokens_total": "Tokens computed in a step.",
}


class MetricsObserver(StepObserver):
    """Keeps the metrics of one scheduler."""

    def __init__(
        self, registry: CollectorRegistry | None = None, *, model_name: str = "unknown", engine: int = 0
    ) -> None:
        """Register the metrics, in a registry of their own unless one is given. Raises MissingExtraError.

        ``engine`` is the engine's number among several of one model.
        """
        try:
            import prometheus_client as prom  # noqa: PLC0415 - an extra
        except ImportError:
            raise MissingExtraError("prometheus_client", "server") from None
        self.registry = registry or prom.CollectorRegistry()
        self._labels = {"model_name": model_name, "engine": str(engine)}
        self._gauges = self._all(prom.Gauge, _GAUGES)
        self._counters = self._all(prom.Counter, _COUNTERS)
        self._durations = self._all(prom.Histogram, _DURATIONS, buckets=_SECONDS)
        self._sizes = self._all(prom.Histogram, _SIZES, buckets=_TOKENS)
        names = list(self._labels)
        self._success = prom.Counter(
            "vllm:request_success", "Finished requests.", [*names, "finished_reason"], registry=self.registry
        )
        self._held = prom.Counter(
            "tokenyard:held_requests", "Requests held back, by step.", [*names, "reason"], registry=self.registry
        )
        for reason in FinishReason:
            self._success.labels(**self._labels, finished_reason=str(reason))

    def _all(self, kind: Any, texts: dict[str, str], **options: Any) -> dict[str, Any]:
        names = list(self._labels)
        return {
            name: kind(f"vllm:{name}", text, names, registry=self.registry, **options).labels(**self._labels)
            for name, text in texts.items()
        }

    # ---- StepObserver

    def request_arrived(self, ts: float, request: Request) -> None:
        """Counted when it is scheduled."""

    def step_started(self, ts: float, step: int, state: SchedulerState) -> None:
        """Gauges are set at the end of the step."""

    def prefix_looked_up(self, ts: float, step: int, request: Request, local: int, external: int) -> None:
        self._counters["prompt_tokens"].inc(request.num_prompt_tokens)
        self._counters["prompt_tokens_cached"].inc(local + external)

    def step_decided(self, ts: float, output: SchedulerOutput, outcomes: StepOutcomes, state: SchedulerState) -> None:
        self._sizes["iteration_tokens_total"].observe(output.total_num_scheduled_tokens)
        self._counters["num_preemptions"].inc(len(outcomes.preemptions))
        record = outcome_record(output.step, ts, None, outcomes, limit=0)
        if record is not None:
            for reason, count in held_by_reason(record).items():
                self._held.labels(**self._labels, reason=reason).inc(count)

    def step_completed(self, ts: float, output: SchedulerOutput, outputs: EngineOutputs) -> None:
        stats = outputs.scheduler_stats
        self._gauges["num_requests_running"].set(stats.num_running_reqs)
        self._gauges["num_requests_waiting"].set(stats.num_waiting_reqs + stats.num_skipped_waiting_reqs)
        self._gauges["kv_cache_usage_perc"].set(stats.kv_cache_usage)
        self._counters["generation_tokens"].inc(int(outputs.num_tokens.sum()))
        for name, cache in (
            ("prefix_cache", stats.prefix_cache_stats),
            ("external_prefix_cache", stats.connector_prefix_cache_stats),
        ):
            if cache is not None:
                self._counters[f"{name}_queries"].inc(cache.queries)
                self._counters[f"{name}_hits"].inc(cache.hits)
        if stats.spec_decoding_stats is not None:
            for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens"):
                self._counters[f"spec_decode_{name}"].inc(getattr(stats.spec_decoding_stats, name))

    def request_finished(self, ts: float, request: Request) -> None:
        reason = FinishReason.of(request.status)
        self._success.labels(**self._labels, finished_reason=str(reason)).inc()
        self._sizes["request_prompt_tokens"].observe(request.num_prompt_tokens)
        self._sizes["request_generation_tokens"].observe(request.num_output_tokens)
        for name, seconds in _durations_of(request).items():
            self._durations[name].observe(seconds)


def _durations_of(request: Request) -> dict[str, float]:
    """Spans between the moments that the request has reached."""
    arrived, times = request.arrival_time, request.times
    scheduled, first, end = times.first_scheduled, times.first_token, times.finished
    spans: dict[str, tuple[float | None, float | None]] = {
        "time_to_first_token_seconds": (arrived, first),
        "e2e_request_latency_seconds": (arrived, end),
        "request_queue_time_seconds": (arrived, scheduled),
        "request_prefill_time_seconds": (scheduled, first),
        "request_decode_time_seconds": (first, end),
        "request_inference_time_seconds": (scheduled, end),
    }
    durations = {name: stop - start for name, (start, stop) in spans.items() if start is not None and stop is not None}
    if "request_decode_time_seconds" in durations and request.num_output_tokens > 1:
        decode = durations["request_decode_time_seconds"]
        durations["request_time_per_output_token_seconds"] = decode / (request.num_output_tokens - 1)
    return durations
