"""Time lost by reason, as Prometheus shows it: whole, and at most a quarter of a second behind."""

from __future__ import annotations

import pytest

pytest.importorskip("prometheus_client", reason="prometheus_client is not installed (extra: server)")

from prometheus_client import CollectorRegistry

from tokenyard.trace.schema import AdmissionOutcome
from tokenyard.vllm.tracing.lost_time import LostTime


def outcome(step: int, ts: float, reason: str, requests: int) -> AdmissionOutcome:
    return AdmissionOutcome(step=step, ts=ts, policy="fcfs", kind="stopped", reason=reason, num_requests=requests)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def shown(registry: CollectorRegistry, reason: str) -> tuple[float | None, float | None]:
    """Seconds lost and requests held."""
    labels = {"model_name": "m", "engine": "0", "reason": reason}
    seconds = registry.get_sample_value("tokenyard:lost_seconds_total", labels)
    return seconds, registry.get_sample_value("tokenyard:held_requests_total", labels)


def test_counts_until_nobody_is_held(registry: CollectorRegistry) -> None:
    lost = LostTime("m", "0", registry)
    for step, (ts, held) in enumerate([(100.0, 3), (100.1, 3), (100.15, 2)]):
        lost.step_decided(ts, outcome(step, ts, "max_num_seqs", held))
    lost.step_decided(100.2, None)
    seconds, requests = shown(registry, "max_num_seqs")
    assert seconds == pytest.approx(3 * 0.1 + 3 * 0.05 + 2 * 0.05)
    assert requests == 8
    lost.step_decided(109.0, None)
    assert shown(registry, "max_num_seqs")[1] == 8, "no request was held meanwhile"


def test_is_never_far_behind(registry: CollectorRegistry) -> None:
    lost = LostTime("m", "0", registry)
    reasons = ("max_num_seqs", "kv_blocks")
    behind = []
    for step in range(200):
        ts = 100 + step * 0.01
        lost.step_decided(ts, outcome(step, ts, reasons[step // 100], 1))
        behind.append(step * 0.01 - sum(shown(registry, each)[0] or 0.0 for each in reasons))
    assert 0.1 < max(behind) < 0.26


def test_a_clock_that_goes_back_loses_nothing(registry: CollectorRegistry) -> None:
    lost = LostTime("m", "0", registry)
    for step, ts in enumerate([100.0, 100.1, 50.0, 50.1]):
        lost.step_decided(ts, outcome(step, ts, "kv_blocks", 1))
    lost.step_decided(50.2, None)
    seconds, requests = shown(registry, "kv_blocks")
    assert seconds == pytest.approx(0.3)
    assert requests == 4
