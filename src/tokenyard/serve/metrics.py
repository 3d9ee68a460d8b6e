"""Prometheus metrics under vLLM's own names, so that existing dashboards work, and the recorded reasons under ours.

Families, labels and buckets are those of a version of vLLM, as they were recorded from it. An observer like the trace:
attach it to a scheduler and serve its registry (``prometheus_client.start_http_server`` binds to the address you give
it; use 127.0.0.1 unless others are meant to read). Numbers are plain until they are requested.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tokenyard.core.request import FinishReason, Request
from tokenyard.core.sched.observer import SchedulerState, StepObserver
from tokenyard.core.sched.outcomes import StepOutcomes
from tokenyard.core.sched.outputs import EngineOutputs
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.deploy.vllm_serve.defaults import DEFAULT_VERSION
from tokenyard.errors import MissingExtraError
from tokenyard.record.facts import outcome_record
from tokenyard.serve.recorded_surface import MetricFamily, surface_of
from tokenyard.trace.held_back import held_by_reason

_LONGEST = 131_072
"""Tokens of the longest request, where that is not given."""
_MOST_WORDS = 64
"""Series of a policy's own words; what it says beyond them is counted as ``other``."""
_INFO = "vllm:cache_config_info"
_LORA = "vllm:lora_requests_info"
_TEXTS = {"gauge": "as it is now.", "counter": "so far.", "histogram": "of finished requests, or of steps."}


class _Histogram:
    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times


class MetricsObserver(StepObserver):
    """Keeps the metrics of one scheduler."""

    def __init__(
        self,
        registry: Any = None,
        *,
        model_name: str = "unknown",
        engine: int = 0,
        version: str = DEFAULT_VERSION,
        max_model_len: int = _LONGEST,
        num_speculative_tokens: int = 0,
        max_loras: int = 0,
        cache_info: Mapping[str, object] | None = None,
    ) -> None:
        """Register the metrics, in a registry of their own unless one is given. Raises MissingExtraError.

        ``engine`` is the engine's number among several of one model; ``cache_info`` what is known of its cache's
        settings, by vLLM's names.
        """
        try:
            import prometheus_client as prom  # noqa: PLC0415 - an extra
        except ImportError:
            raise MissingExtraError("prometheus_client", "server") from None
        self.registry = registry or prom.CollectorRegistry()
        self._labels = {"model_name": model_name, "engine": str(engine)}
        self._version, self._max_model_len, self._positions = version, max_model_len, num_speculative_tokens
        self._max_loras, self._cache_info = max_loras, dict(cache_info or {}) | {"engine": str(engine)}
        self._created = time.time()
        is_there = {"always": True, "speculation": num_speculative_tokens > 0, "lora": max_loras > 0}
        self._families = [each for each in surface_of(version).metrics if is_there[each.when]]
        self._numbers: dict[str, float] = defaultdict(float)
        """Gauges and counters without labels of their own, by name without ``vllm:``."""
        self._labelled: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        """Gauges and counters with one label, by name and by the label's value."""
        self._histograms = {
            each.name.removeprefix("vllm:"): _Histogram(each.bounds(max_model_len))
            for each in self._families
            if each.kind == "histogram"
        }
        self._held: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        """Words of policies -> requests held back, by step; the first ``_MOST_WORDS`` have a series of their own."""
        self._last_token: dict[str, float] = {}
        """Request -> when it last had a token."""
        self._found: dict[str, tuple[int, int]] = {}
        """Request without a token -> tokens of its prompt that the caches had: the engine's own, a connector's."""
        self._ended: list[str] = []
        """Requests that have ended since the last step was completed; their last token is counted then."""
        self._adapters: tuple[tuple[str, ...], tuple[str, ...]] = (), ()
        """Adapters of waiting and of running requests."""
        self.sleep_state = "awake"
        """awake, weights_offloaded or discard_all."""
        self.more: Callable[[], Iterator[Any]] = lambda: iter(())
        """Further families, asked for with the others."""
        self.registry.register(self)

    # ---- for Prometheus

    def collect(self) -> Iterator[Any]:
        """The families, as the library takes them."""
        from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415 - an extra

        for family in self._families:
            yield self._family(family)
        held = CounterMetricFamily(
            "tokenyard:held_requests", "Requests held back, by step.", labels=self._names("reason")
        )
        for reason, count in list(self._held.items()):  # the thread that steps adds to it
            held.add_metric([*self._labels.values(), reason], count, created=self._created)
        yield held
        if self._refused:
            refused = CounterMetricFamily(
                "tokenyard:policy_refused_requests",
                "Requests that a policy or a limit held back, by step and by its own word.",
                labels=self._names("detail"),
            )
            for detail, count in list(self._refused.items()):
                refused.add_metric([*self._labels.values(), detail], count, created=self._created)
            yield refused
        yield from self.more()

    def describe(self) -> Sequence[Any]:
        """Nothing is known by heart: the library need not look at numbers when this is registered."""
        return ()

    def _names(self, *more: str) -> list[str]:
        return [*self._labels, *more]

    def _family(self, family: MetricFamily) -> Any:
        from prometheus_client import core  # noqa: PLC0415 - an extra

        kinds = {"gauge": core.GaugeMetricFamily, "counter": core.CounterMetricFamily}
        short = family.name.removeprefix("vllm:")
        text = f"{short.replace('_', ' ').capitalize()}, {_TEXTS[family.kind]}"
        if family.kind == "histogram":
            made = core.HistogramMetricFamily(family.name, text, labels=family.labels)
            known = self._histograms[short]
            total, buckets = 0, []
            for bound, count in zip((*known.bounds, float("inf")), known.counts, strict=True):
                total += count
                buckets.append(("+Inf" if bound == float("inf") else str(bound), total))
            made.add_metric(self._values(family), buckets, known.sum)
            made.add_sample(
                f"{family.name}_created", dict(zip(family.labels, self._values(family), strict=True)), self._created
            )
            return made
        made = kinds[family.kind](family.name, text, labels=family.labels)
        options = {"created": self._created} if family.kind == "counter" else {}
        own = [label for label in family.labels if label not in self._labels]
        if not own:
            made.add_metric(self._values(family), self._numbers[short], **options)
        elif family.name == _INFO:
            made.add_metric([str(self._cache_info.get(label)) for label in family.labels], 1.0)
        elif family.name == _LORA:
            waiting, running = (",".join(names) for names in self._adapters)
            values = {
                "max_lora": str(self._max_loras),
                "waiting_lora_adapters": waiting,
                "running_lora_adapters": running,
            }
            made.add_metric([values.get(label, "") for label in family.labels], time.time())
        else:
            numbers = self._by_label(short)
            positions = tuple(map(str, range(self._positions)))
            for value in positions if own == ["position"] else family.values.get(own[0], ()):
                made.add_metric([*self._values(family), value], numbers[value], **options)
        return made

    def _by_label(self, short: str) -> Mapping[str, float]:
        if short == "engine_sleep_state":
            return defaultdict(float, {self.sleep_state: 1.0})
        return self._labelled[short]

    def _values(self, family: MetricFamily) -> list[str]:
        return [self._labels[label] for label in family.labels if label in self._labels]

    def _observe(self, name: str, value: float) -> None:
        known = self._histograms.get(name)
        if known is not None:
            known.add(value)

    # ---- StepObserver

    def request_arrived(self, ts: float, request: Request) -> None:
        """Counted when it is scheduled."""

    def step_started(self, ts: float, step: int, state: SchedulerState) -> None:
        """Gauges are set at the end of the step."""

    def prefix_looked_up(self, ts: float, step: int, request: Request, local: int, external: int) -> None:
        if not request.num_preemptions:
            self._found[request.request_id] = local, external

    def step_decided(self, ts: float, output: SchedulerOutput, outcomes: StepOutcomes, state: SchedulerState) -> None:
        if output.total_num_scheduled_tokens:
            self._observe("iteration_tokens_total", output.total_num_scheduled_tokens)
        self._numbers["num_preemptions"] += len(outcomes.preemptions)
        if self._max_loras:
            waiting = dict.fromkeys(
                each.lora_name for each in (*state.waiting, *state.skipped_waiting) if each.lora_name
            )
            running = dict.fromkeys(each.lora_name for each in state.running if each.lora_name)
            self._adapters = tuple(waiting), tuple(running)
        record = outcome_record(output.step, ts, None, outcomes, limit=0)
        if record is not None:
            self._held.update(held_by_reason(record))
        for each in (outcomes.admission, *outcomes.skipped, *outcomes.not_scheduled):
            if each is not None and each.detail is not None:
                known = each.detail in self._refused or len(self._refused) < _MOST_WORDS
                self._refused[each.detail if known else "other"] += each.num_requests

    def step_completed(self, ts: float, output: SchedulerOutput, outputs: EngineOutputs) -> None:
        stats, numbers = outputs.scheduler_stats, self._numbers
        numbers["num_requests_running"] = stats.num_running_reqs
        numbers["num_requests_waiting"] = stats.num_waiting_reqs + stats.num_skipped_waiting_reqs
        reasons = self._labelled["num_requests_waiting_by_reason"]
        reasons["capacity"], reasons["deferred"] = stats.num_waiting_reqs, stats.num_skipped_waiting_reqs
        numbers["kv_cache_usage_perc"] = stats.kv_cache_usage
        numbers["generation_tokens"] += int(outputs.num_tokens.sum())
        self._add_intervals(ts, outputs)
        for name, cache in (
            ("prefix_cache", stats.prefix_cache_stats),
            ("external_prefix_cache", stats.connector_prefix_cache_stats),
        ):
            if cache is not None:
                numbers[f"{name}_queries"] += cache.queries
                numbers[f"{name}_hits"] += cache.hits
        drafts = stats.spec_decoding_stats
        if drafts is not None:
            for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens"):
                numbers[f"spec_decode_{name}"] += getattr(drafts, name)
            by_position = self._labelled["spec_decode_num_accepted_tokens_per_pos"]
            for position, count in enumerate(getattr(drafts, "num_accepted_tokens_per_pos", ())):
                by_position[str(position)] += count

    def _add_intervals(self, ts: float, outputs: EngineOutputs) -> None:
        """Time since the token before, for each request that has one now: most have the same."""
        last = self._last_token
        before = Counter(map(last.get, outputs.req_ids))
        if None in before:
            for request in outputs.requests:
                if request.request_id not in last:
                    self._add_prompt(ts, request)
        last.update(dict.fromkeys(outputs.req_ids, ts))
        for request_id in self._ended:
            last.pop(request_id, None)
            self._found.pop(request_id, None)
        self._ended.clear()
        for moment, times in before.items():
            if moment is not None:
                self._histograms["inter_token_latency_seconds"].add(ts - moment, times)

    def _add_prompt(self, ts: float, request: Request) -> None:
        """Its prompt has been computed: it has its first token now."""
        local, external = self._found.pop(request.request_id, (0, 0))
        numbers, by_source = self._numbers, self._labelled["prompt_tokens_by_source"]
        numbers["prompt_tokens"] += request.num_prompt_tokens
        numbers["prompt_tokens_cached"] += local + external
        by_source["local_cache_hit"] += local
        by_source["external_kv_transfer"] += external
        by_source["local_compute"] += request.num_prompt_tokens - local - external
        self._labelled["prompt_tokens_cached_by_source"]["device"] += local
        self._labelled["prompt_tokens_cached_by_source"]["external_unspecified"] += external
        self._observe("time_to_first_token_seconds", ts - request.arrival_time)

    def request_finished(self, ts: float, request: Request) -> None:
        self._ended.append(request.request_id)
        reason = FinishReason.of(request.status)
        self._labelled["request_success"][str(reason)] += 1
        computed = request.num_prompt_tokens - max(request.num_cached_tokens, 0)
        for name, number in (
            ("request_prompt_tokens", request.num_prompt_tokens),
            ("request_generation_tokens", request.num_output_tokens),
            ("request_max_num_generation_tokens", request.num_output_tokens),
            ("request_params_max_tokens", request.max_tokens),
            ("request_params_n", int(request.meta.get("n", 1))),
            ("request_num_preemptions", request.num_preemptions),
            ("request_prefill_kv_computed_tokens", computed),
        ):
            if name != "request_params_n" or not request.meta.get("index"):
                self._observe(name, number)
        for name, seconds in _durations_of(request).items():
            self._observe(name, seconds)


def _durations_of(request: Request) -> dict[str, float]:
    """Spans between the moments that the request has reached."""
    arrived, times = request.arrival_time, request.times
    scheduled, first, end = times.first_scheduled, times.first_token, times.finished
    spans: dict[str, tuple[float | None, float | None]] = {
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
