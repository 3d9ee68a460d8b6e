"""Every figure about a reason is the same wherever it is shown: Prometheus, report, live report, exports, viewer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.headless import HeadlessViewer, TraceLines
from tests.support.workloads import WORKLOADS, TracedWorkload

from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.summary import summarize
from tokenyard.explain.why.timeline import TimelineReader
from tokenyard.trace.export.timeline import PreviousTurn, StepSlice, TimelineSegment, emit_timeline
from tokenyard.trace.facts import RequestTimeline

pytest.importorskip("prometheus_client", reason="prometheus_client is not installed (extra: server)")

from tokenyard.serve.metrics import MetricsObserver


class Slices:
    """A sink of the exporters that adds up what slices of steps say."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.total = 0

    def step(self, slice_: StepSlice) -> None:
        self.total += slice_.numbers.get("held_back", 0)
        for name, number in slice_.numbers.items():
            if name.startswith("held_back "):
                self.requests[name.removeprefix("held_back ")] += number

    def counter(self, name: str, us: int, value: int) -> None:
        """Not about reasons."""

    def request(
        self, timeline: RequestTimeline, segments: list[TimelineSegment], previous: PreviousTurn | None
    ) -> None:
        """Not about steps."""


def held(report: Report) -> Mapping[str, int]:
    return {name: reason.requests for name, reason in report.recorded_reasons.items()}


def prometheus(metrics: MetricsObserver) -> Mapping[str, int]:
    (family,) = [each for each in metrics.registry.collect() if each.name == "tokenyard:held_requests"]
    return {each.labels["reason"]: int(each.value) for each in family.samples if each.name.endswith("_total")}


@pytest.mark.parametrize("name", WORKLOADS)
def test_everybody_counts_alike(name: str, tmp_path: Path) -> None:
    metrics, summary = MetricsObserver(), ReportBuilder()
    workload = TracedWorkload(name, 7, tmp_path, summary, observers=(metrics,), trace={"max_ids_per_step": 2})
    workload.run(40)
    live, told = summary.report(), summarize(tmp_path)
    slices = Slices()
    emit_timeline(TimelineReader(tmp_path).with_timelines(), slices)
    assert held(told)
    assert prometheus(metrics) == held(told) == held(live) == slices.requests
    assert slices.total == sum(held(told).values())
    assert [reason.steps for reason in told.recorded_reasons.values()] == [
        reason.steps for reason in live.recorded_reasons.values()
    ]


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_viewer_counts_alike(name: str, tmp_path: Path, headless_viewer: HeadlessViewer) -> None:
    summary = ReportBuilder()
    TracedWorkload(name, 7, tmp_path, summary).run(40)
    statistics = headless_viewer.ask(TraceLines.of(tmp_path))["statistics"]
    assert {each["reason"]: each["requests"] for each in statistics["recorded"]} == held(summary.report())


@pytest.mark.slow
def test_the_workloads_meet_many_reasons(tmp_path: Path) -> None:
    met: set[str] = set()
    for name in WORKLOADS:
        summary = ReportBuilder()
        TracedWorkload(name, 7, tmp_path / name, summary).run(40)
        met |= set(held(summary.report()))
    assert met >= {
        *("preempted_this_step", "self_preempted", "paused", "token_budget", "max_num_seqs", "prefill_exceeds_budget"),
        *("kv_full_sequence", "kv_blocks", "kv_watermark", "encoder_budget", "waiting_remote_kv", "lora_slots"),
        *("connector_undecided", "async_kv_load_started"),
    }
