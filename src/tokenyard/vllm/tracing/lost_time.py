"""Time lost by reason, as counters in the Prometheus registry of the process.

They stand in the default registry, where vLLM's own metrics are. The engine core is a process of its own, though, and
``/metrics`` is answered by the API server: it shows them where ``PROMETHEUS_MULTIPROC_DIR`` names an empty directory
when the server is started, as vLLM itself does for several API servers (``docs/vllm.md``).
"""

from __future__ import annotations

from typing import Any

from tokenyard.trace.held_back import held_by_reason
from tokenyard.trace.schema import AdmissionOutcome

_LABELS = ("model_name", "engine", "reason")
_BEHIND_SECONDS = 0.25
"""The counters are behind by no more than this while a request waits, as the trace is."""


class LostTime:
    """``tokenyard:lost_seconds_total`` and ``tokenyard:held_requests_total``, per reason."""

    def __init__(self, model_name: str, engine: str, registry: Any = None) -> None:
        """Register the counters, in the default registry unless one is given; those of an earlier engine go on."""
        import prometheus_client as prometheus

        registry = registry or prometheus.REGISTRY
        self._labels = model_name, engine
        self._seconds = _counter(
            prometheus,
            registry,
            "tokenyard:lost_seconds",
            "Request-seconds that a step held one back, by reason.",
        )
        self._requests = _counter(prometheus, registry, "tokenyard:held_requests", "Requests held back, by step.")
        self._children: dict[str, tuple[Any, Any]] = {}
        """Reason -> its two counters: the registry takes as long to find one as to count."""
        self._held: dict[str, int] = {}
        self._since = 0.0
        self._counted: dict[str, list[float]] = {}
        """Reason -> seconds and requests that the counters do not show yet: these take locks, and longer than a sum."""
        self._shown = 0.0
        """When the counters were last updated."""

    def step_decided(self, ts: float, outcome: AdmissionOutcome | None) -> None:
        """A step began at ``ts``: whom the one before it held back has lost the time until now."""
        seconds = max(ts - self._since, 0.0)
        for reason, count in self._held.items():
            self._counted[reason][0] += count * seconds
        self._held = {} if outcome is None else held_by_reason(outcome)
        self._since = ts
        for reason, count in self._held.items():
            self._counted.setdefault(reason, [0.0, 0.0])[1] += count
        if self._counted and (not self._held or not 0.0 <= ts - self._shown < _BEHIND_SECONDS):
            self._show(ts)

    def _show(self, ts: float) -> None:
        self._shown = ts
        for reason, (seconds, requests) in self._counted.items():
            counters = self._of(reason)
            counters[0].inc(seconds)
            counters[1].inc(requests)
        self._counted = {reason: [0.0, 0.0] for reason in self._held}

    def _of(self, reason: str) -> tuple[Any, Any]:
        found = self._children.get(reason)
        if found is None:
            found = self._seconds.labels(*self._labels, reason), self._requests.labels(*self._labels, reason)
            self._children[reason] = found
        return found


def _counter(prometheus: Any, registry: Any, name: str, text: str) -> Any:
    try:
        return prometheus.Counter(name, text, _LABELS, registry=registry)
    except ValueError:  # a second engine in this process
        return registry._names_to_collectors[name]  # noqa: SLF001 - the registry offers no other way to ask
