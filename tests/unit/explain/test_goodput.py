"""Bounds on latencies, goodput, and the time between two tokens."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from tests.unit.explain.test_summary import comparable, run
from tests.unit.trace.recorded import RecordedYard

from tokenyard.errors import ConfigError
from tokenyard.explain.figures import LatencyFigures, latency_figures
from tokenyard.explain.render.report import print_report
from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.explain.report.summary import summarize
from tokenyard.explain.slo import SLO, Objective, read_slos


def queued(path: Path | None, *bounds: str) -> tuple[RecordedYard, ReportBuilder]:
    """One place, three requests of three tokens; a step takes half a second, so TTFT is 0.5, 2 and 3.5 s."""
    builder = ReportBuilder(read_slos([bounds]))
    toy = RecordedYard(path, builder, max_num_seqs=1)
    for name in "abc":
        toy.add(name, 4, max_tokens=3, arrival_time=0.0)
    toy.drain()
    toy.writer.close()
    return toy, builder


@pytest.mark.parametrize(
    ("text", "slo"),
    [
        ("ttft_p90=500ms", SLO("ttft", "p90", 500.0)),
        ("tpot:40", SLO("tpot", None, 40.0)),
        ("e2el:1e3", SLO("e2e", None, 1000.0)),
        ("E2E-MAX=2 min", SLO("e2e", "max", 120_000.0)),
        ("itl_p99=0.05s", SLO("itl", "p99", 50.0)),
        ("queue_mean=250us", SLO("queue", "mean", 0.25)),
        ("job_p90=300s", SLO("job", "p90", 300_000.0)),
    ],
)
def test_bounds_are_read(text: str, slo: SLO) -> None:
    assert read_slos([[text]]) == (slo,)


@pytest.mark.parametrize(
    ("slo", "figure"),
    [
        (SLO("ttft", "p90", 500.0), "ttft_ms.p90"),
        (SLO("e2e", "max", 9.0, of="night_jobs"), "night_jobs:e2e_ms.max"),
        (SLO("tpot", None, 40.0), None),
        (SLO("tpot", None, 40.0, of="night_jobs"), None),
    ],
)
def test_a_bound_on_a_statistic_is_on_a_figure_and_one_on_every_request_on_none(slo: SLO, figure: str | None) -> None:
    assert slo.key == figure
    assert Objective(name=slo.name, bound_ms=slo.bound_ms, value_ms=None, met=None, share=None).figure == figure


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ttft",
        "ttft_p90",
        "ttft_p91=1ms",
        "ttf_p90=1ms",
        "ttft_p90=0ms",
        "ttft=1h",
        "ttft=-1",
        "itl=5ms",
        "ttft=1.1.1",
    ],
)
def test_other_bounds_are_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_slos([[text]])
    assert refused.value.field == "slo"
    assert refused.value.value == text


@pytest.mark.parametrize(
    ("text", "fixes"),
    [
        ("ttft_max=500", "give ttft_max=500ms, or ttft_max=0.5s"),
        ("tpot_p90=40", "give tpot_p90=40ms, or tpot_p90=0.04s"),
    ],
)
def test_a_number_without_a_unit_is_refused_with_two_fixes(text: str, fixes: str) -> None:
    with pytest.raises(ConfigError, match=fixes):
        read_slos([[text]])


@pytest.mark.parametrize(("text", "time", "count"), [("ttft=1s", "1s", "ttft:1000"), ("e2el=2", "2ms", "e2el:2")])
def test_a_bound_that_does_not_say_of_what_is_refused_with_the_fix(text: str, time: str, count: str) -> None:
    """It would hold of nothing, and be measured by nothing, without a word."""
    with pytest.raises(ConfigError, match="say what of all requests is bounded") as refused:
        read_slos([[text]])
    name = count.partition(":")[0]
    for fix in (f"{name}_p90={time}", f"{name}_mean={time}", count):
        assert fix in refused.value.fix
        assert read_slos([[fix]])


@pytest.mark.parametrize("text", ["ttft:500", "tpot_p90=40ms", "e2e_max=2s"])
def test_a_bound_is_written_as_it_is_read(text: str) -> None:
    (slo,) = read_slos([[text]])
    assert read_slos([[str(slo)]]) == (slo,)


def test_several_bounds_in_every_way_and_none_twice() -> None:
    assert read_slos([["ttft:1,tpot:2"], ["e2e:3"]]) == read_slos([["ttft:1", "tpot:2", "e2e:3"]])
    with pytest.raises(ConfigError, match="ttft_p90 is bounded twice"):
        read_slos([["ttft_p90=1s", "ttft_p90=2s"]])


def test_a_bound_holds_or_does_not_and_goodput_counts_requests_within_all_of_them() -> None:
    _, builder = queued(None, "ttft_p50=2s", "ttft_max=3s", "tpot:500", "e2e:4500")
    report = builder.report()
    goodput = report.goodput
    assert goodput is not None
    assert [(each.name, each.value_ms, each.met) for each in goodput.objectives] == [
        ("ttft_p50", 2000.0, True),
        ("ttft_max", 3500.0, False),
        ("tpot", None, None),
        ("e2e", None, None),
    ]
    assert [each.share for each in goodput.objectives] == [2 / 3, 2 / 3, 1.0, 1.0]
    assert goodput.met is False
    # The widest bound on TTFT is 3 s: c is beyond it.
    assert (goodput.requests, goodput.share) == (2, 2 / 3)
    assert report.duration_s is not None
    assert goodput.requests_per_s == 2 / report.duration_s


def test_an_aborted_request_is_not_good() -> None:
    builder = ReportBuilder(read_slos([["ttft:10000"]]))
    toy = RecordedYard(None, builder)
    toy.add("a", 4, max_tokens=20)
    toy.add("b", 4, max_tokens=1)
    toy.steps(1)
    toy.abort("a")
    toy.drain()
    goodput = builder.report().goodput
    assert goodput is not None
    assert (goodput.requests, goodput.share) == (1, 0.5)
    assert goodput.met is None  # no bound on a statistic


def test_a_single_token_has_no_time_per_further_token_and_is_good() -> None:
    builder = ReportBuilder(read_slos([["tpot:1", "tpot_p90=1ms"]]))
    toy = RecordedYard(None, builder)
    toy.add("a", 4, max_tokens=1)
    toy.drain()
    goodput = builder.report().goodput
    assert goodput is not None
    assert goodput.share == 1.0
    assert goodput.met is None  # nothing was measured


def test_the_report_on_the_trace_says_the_same(tmp_path: Path) -> None:
    _, builder = queued(tmp_path, "ttft_p90=1s", "itl_p99=600ms")
    read = summarize(tmp_path, slos=read_slos([["ttft_p90=1s", "itl_p99=600ms"]]))
    assert comparable(builder.report()) == comparable(read)
    assert read.goodput is not None
    assert summarize(tmp_path).goodput is None


def test_gaps_between_tokens_are_those_between_steps() -> None:
    """Two answers beside each other; the second begins in the third step, and one step takes longer."""
    builder = ReportBuilder()
    toy = RecordedYard(None, builder)
    toy.add("a", 4, max_tokens=5)
    toy.steps(2)
    toy.add("b", 4, max_tokens=2)
    toy.steps(1)
    toy.now += 1.0
    toy.drain()
    report = builder.report()
    # a: 0.5, 0.5, 1.5, 0.5; b: 1.5
    assert (report.itl_requests, report.tpot_requests) == (2, 2)
    assert report.itl_ms.p50 == 500.0
    assert report.itl_ms.max == 1500.0
    assert report.itl_ms.mean == pytest.approx(1e3 * (0.5 * 3 + 1.5 * 2) / 5)


@pytest.mark.parametrize("seed", range(3))
def test_answers_that_paused_are_left_out_and_counted(seed: int) -> None:
    toy, builder = run(None, seed=seed, num_gpu_blocks=30)
    report = builder.report()
    several = [
        each
        for each in toy.requests.values()
        if each.num_output_tokens > 1 and not each.status.name.endswith("ABORTED")
    ]
    assert report.tpot_requests == len(several)
    assert report.preemptions
    assert report.itl_requests == sum(each.num_output_tokens > 0 for each in toy.requests.values())


def test_weighted_percentiles_are_those_of_the_list() -> None:
    rng = np.random.default_rng(7)
    values, weights = rng.random(50), rng.integers(0, 9, 50)
    one, every = latency_figures(values, weights=weights), np.repeat(values, weights) * 1e3
    assert one.mean == pytest.approx(float(every.mean()))
    for percent, name in ((50, "p50"), (90, "p90"), (95, "p95"), (99, "p99"), (100, "max")):
        assert getattr(one, name) == pytest.approx(float(np.percentile(every, percent)))
    assert latency_figures(np.empty(0)) == LatencyFigures()


def test_the_printed_report_says_what_holds() -> None:
    _, builder = queued(None, "ttft_p50=2s", "ttft_max=3s")
    out = StringIO()
    print_report(builder.report(), Console(file=out, width=80))
    text = " ".join(out.getvalue().split())
    assert "ttft_p50 2.00 s 2.00 s holds 66.7 %" in text
    assert "ttft_max 3.00 s 3.50 s missed 66.7 %" in text
    assert "2 of 3 requests that arrived, 66.7 %: served whole and within every bound" in text


def test_a_bound_on_jobs_is_held_against_whole_jobs() -> None:
    builder = ReportBuilder(read_slos([["job_max=3s", "job_p50=1ms"]]))
    toy = RecordedYard(None, builder, max_num_seqs=1)
    for name in "ab":
        toy.add(name, 4, max_tokens=3, arrival_time=0.0, job_id="agent")
    toy.drain()
    report = builder.report()
    assert report.goodput is not None
    assert [each.met for each in report.goodput.objectives] == [True, False]
    assert (report.job_ms.mean, report.e2e_ms.max) == (3000.0, 3000.0)


def test_a_bound_on_jobs_is_open_where_no_request_names_one() -> None:
    builder = ReportBuilder(read_slos([["job_p90=3s"]]))
    toy = RecordedYard(None, builder)
    toy.add("a", 4, max_tokens=3, arrival_time=0.0)
    toy.drain()
    goodput = builder.report().goodput
    assert goodput is not None
    assert [each.open_for for each in goodput.objectives] == ["no_jobs"]


def test_a_job_is_no_request() -> None:
    with pytest.raises(ConfigError, match="a job has many requests: bound job_p90"):
        read_slos([["job:300000"]])
