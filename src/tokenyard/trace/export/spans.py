"""A trace as OpenTelemetry spans: one trace per job, one span per turn, below it one per segment.

Ids come from the names alone, so the same trace gives the same spans. Spans are sent over OTLP/HTTP in batches. Needs
``opentelemetry-sdk`` and ``opentelemetry-exporter-otlp-proto-http``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

from xxhash import xxh3_64_intdigest, xxh3_128_intdigest

from tokenyard.errors import ConfigError, MissingExtraError
from tokenyard.trace.export.timeline import TimelineSegment, numbers_of, segments_of
from tokenyard.trace.facts import RequestTimeline

_BATCH = 512
"""Spans sent at once."""
_PATH = "/v1/traces"
_TIMEOUT_S = 10.0


def send_spans(
    timelines: Iterable[RequestTimeline], url: str, name: str, *, offset_us: int = 0, rank: int | None = None
) -> int:
    """Send the requests of a trace to an OTLP/HTTP endpoint; returns the number of spans.

    ``url`` may leave out the path ``/v1/traces``; ``name`` names the run; ``offset_us`` is added to all moments;
    ``rank`` is the engine, where there are several: the spans of one job are in one trace whichever engine served it.
    Raises ConfigError for a URL that is none or that does not take the spans, MissingExtraError without OpenTelemetry.
    """
    sender = SpanSender(url, name, offset_us, rank)
    try:
        for timeline in timelines:
            sender.add(timeline)
        sender.flush()
    finally:
        sender.close()
    return sender.sent


class SpanSender:
    """Turns timelines into spans and sends them in batches."""

    def __init__(self, url: str, name: str, offset_us: int = 0, rank: int | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigError(
                "otlp", url, "give the address of an OTLP/HTTP endpoint, for example http://localhost:4318"
            )
        self._url = url if parts.path not in ("", "/") else url.rstrip("/") + _PATH
        self._api, self._sdk, resources, scope, exporter = _modules()
        self._exporter = exporter.OTLPSpanExporter(endpoint=self._url, timeout=_TIMEOUT_S)
        engine = {} if rank is None else {"tokenyard.rank": rank}
        self._resource = resources.Resource({"service.name": "tokenyard", "tokenyard.run": name, **engine})
        self._scope = scope.InstrumentationScope("tokenyard")
        self._run = name
        self._offset_us = offset_us
        self._spans: list[Any] = []
        self._turns: dict[str, Any] = {}
        """Job -> context of its last turn."""
        self.sent = 0

    def add(self, timeline: RequestTimeline) -> None:
        """Make the spans of one request."""
        trace_id = _number(
            xxh3_128_intdigest, self._run, timeline.job_id or timeline.request_id, str(timeline.job_id is None)
        )
        context = self._context(trace_id, timeline.request_id)
        previous = self._turns.get(timeline.job_id) if timeline.job_id is not None else None
        links = [self._api.Link(previous, {"tokenyard.link": "previous turn"})] if previous is not None else []
        start = timeline.arrived_us if timeline.arrived_us is not None else timeline.until_us
        self._span(
            "turn" if timeline.job_id is not None else "request",
            context,
            None,
            (start, timeline.until_us),
            {f"tokenyard.{name}": value for name, value in numbers_of(timeline).items()},
            links=links,
            events=[
                self._sdk.Event(
                    "preempted",
                    {"tokenyard.step": each.step, "tokenyard.lost_tokens": each.lost_tokens or 0},
                    self._ns(each.us),
                )
                for each in timeline.preemptions
            ],
        )
        for number, segment in enumerate(segments_of(timeline)):
            child = self._context(trace_id, f"{timeline.request_id}\0{number}")
            self._span(segment.name, child, context, (segment.start_us, segment.end_us), _waited_for(segment))
        if timeline.job_id is not None:
            self._turns[timeline.job_id] = context
        if len(self._spans) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Send what waits."""
        if self._spans:
            result = self._exporter.export(self._spans)
            if result.name != "SUCCESS":
                raise ConfigError("otlp", self._url, "the endpoint does not take spans: is a collector running there?")
            self.sent += len(self._spans)
            self._spans.clear()

    def close(self) -> None:
        """Let go of the connection."""
        self._exporter.shutdown()

    def _context(self, trace_id: int, name: str) -> Any:
        span_id = _number(xxh3_64_intdigest, self._run, name)
        flags = self._api.TraceFlags(self._api.TraceFlags.SAMPLED)
        return self._api.SpanContext(trace_id=trace_id, span_id=span_id, is_remote=False, trace_flags=flags)

    def _span(
        self, name: str, context: Any, parent: Any, moments: tuple[int, int], attributes: dict[str, Any], **more: Any
    ) -> None:
        start, end = moments
        span = self._sdk.ReadableSpan(
            name,
            context=context,
            parent=parent,
            resource=self._resource,
            attributes=attributes,
            start_time=self._ns(start),
            end_time=self._ns(end),
            instrumentation_scope=self._scope,
            **more,
        )
        self._spans.append(span)

    def _ns(self, us: int) -> int:
        return max(us + self._offset_us, 0) * 1000


def _number(digest: Callable[[bytes], int], *names: str) -> int:
    """An id from names: never 0, which means none."""
    return digest("\0".join(names).encode(errors="surrogatepass")) or 1


def _waited_for(segment: TimelineSegment) -> dict[str, int]:
    spent: dict[str, int] = {}
    for part in segment.wait.parts if segment.wait is not None else ():
        name = f"tokenyard.waited_us.{part.reason}.{part.place.value}"
        spent[name] = spent.get(name, 0) + part.us
    return spent


def _modules() -> tuple[Any, Any, Any, Any, Any]:
    try:
        from opentelemetry import trace  # noqa: PLC0415 - an extra
        from opentelemetry.exporter.otlp.proto.http import trace_exporter  # noqa: PLC0415 - an extra
        from opentelemetry.sdk import resources  # noqa: PLC0415 - an extra
        from opentelemetry.sdk import trace as sdk_trace  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.util import instrumentation  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtraError("opentelemetry", "otel") from None
    return trace, sdk_trace, resources, instrumentation, trace_exporter
