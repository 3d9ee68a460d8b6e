"""The printed report: what stands in it, that it fits, and that a trace cannot draw on the terminal."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from tests.unit.explain.test_reconstruct import as_others_write_it
from tests.unit.explain.test_summary import run
from tests.unit.trace.recorded import RecordedYard

import tokenyard as ty
from tokenyard.explain.figures import LatencyFigures
from tokenyard.explain.recorded_reasons import RecordedReason
from tokenyard.explain.render.report import print_report
from tokenyard.explain.render.why import print_waiting
from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.summary import summarize
from tokenyard.explain.why.why import waiting
from tokenyard.trace.start import DeploymentHeader


def printed(
    report: Report, width: int = 80, *, full: bool = True, buckets: bool = True, header: bool = False, **options: Any
) -> str:
    file = io.StringIO()
    print_report(report, Console(file=file, width=width, **options), full=full, buckets=buckets, header=header)
    return file.getvalue()


def words(text: str) -> str:
    """The text without its line breaks and columns."""
    return " ".join(text.split())


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    path = tmp_path_factory.mktemp("trace")
    run(path, num_gpu_blocks=40)
    return summarize(path)


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_it_fits(report: Report, width: int) -> None:
    text = printed(report, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text.replace("src …", "")


def test_large_numbers_fit_too(report: Report) -> None:
    hours = LatencyFigures(1.1e7, 1.2e7, 8.64e7, 8.65e7)
    large = msgspec.structs.replace(
        report,
        steps=20_000_000,
        buckets=dict.fromkeys(report.buckets, 2000000),
        recorded_reasons={name: RecordedReason(9_999_999, 99_999_999_999, 1e12) for name in report.recorded_reasons},
        queue_ms=hours,
        ttft_ms=hours,
        e2e_ms=hours,
    )
    text = printed(large)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text.replace("src …", "")
    assert "2,000,000" in text
    assert "99,999,999,999" in text
    assert "86,500 s" in text


def test_a_screen_of_it_names_what_cost_most_and_counts_the_rest(report: Report) -> None:
    reasons = {
        name: RecordedReason(steps=1, requests=2, seconds=seconds)
        for name, seconds in (
            ("token_budget", 9.0),
            ("no_new_tokens", 4.0),
            ("max_num_seqs", 2.0),
            ("self_preempted", 1.0),
        )
    }
    text = printed(msgspec.structs.replace(report, recorded_reasons=reasons), buckets=False, full=False)
    assert len(text.splitlines()) <= 40
    assert "and 1 more, 1.00 s in all" in text
    assert "self_preempted" not in text
    assert "no_new_tokens: they are served, a step of theirs is computed." in words(text)
    assert "--full adds each reason in words" in text
    partial = msgspec.structs.replace(report.header, ignored=["--port 8000: where the server listens"])
    assert "--port 8000" in printed(msgspec.structs.replace(report, header=partial), buckets=False, full=False)


def test_what_stands_in_it(report: Report) -> None:
    text = printed(report, 120)
    header = report.header
    first, _, rest = text.partition("\n\n")
    assert words(first) == report.answer.sentence, "the verdict comes first"
    assert rest.startswith("Latency"), "then a table of at most seven lines"
    assert text.index("What held requests back") < text.index("\nFCFS  paper  toy  KV:40blk(0.0GB)  7 jobs  steps 0")
    turned = printed(report, 120, header=True)
    assert turned.startswith("FCFS  paper"), "which run it was comes first where that is asked for"
    assert sorted(turned.splitlines()) == sorted(text.splitlines())
    assert f"maxRun:{header.max_running}" in text
    for name, steps in report.buckets.items():
        assert (f"  {name} " in text) == (steps > 0)
    for name, reason in report.recorded_reasons.items():
        assert f"{name} " in text
        assert f"{reason.requests:,}" in text
    assert f"Of {report.disagreements.steps_compared:,} steps whose reason is recorded" in text
    for name in ("queue", "TTFT", "TPOT", "E2E", "prefix hits", "preemptions", "token budget", "throughput"):
        assert f"  {name} " in text
    assert f"{report.recomputed_tokens:,} tokens computed again" in text


def test_buckets_are_printed_where_nothing_was_recorded_or_on_request(report: Report, tmp_path: Path) -> None:
    title, reasons = "Steps, by what limited admission", "What held requests back"
    assert title not in printed(report, buckets=False)
    on_request = printed(report)
    assert on_request.index(reasons) < on_request.index(title)
    run(tmp_path / "ours", num_gpu_blocks=40)
    as_others_write_it(tmp_path / "ours", tmp_path / "theirs")
    assert title in printed(summarize(tmp_path / "theirs"), buckets=False)


def test_a_refusal_is_explained_with_its_numbers(report: Report) -> None:
    kv = report.recorded_reasons["kv_full_sequence"].kv
    assert kv is not None
    text = words(printed(report))
    assert "(scheduler_reserve_full_isl)" in text
    assert f"On average it needed {kv.needed:,.0f} blocks" in text
    assert f"and {kv.free:,.0f} were free" in text
    assert f"The smallest waiting request needed {kv.smallest_need:,.0f}" in text


def test_a_calm_run_needs_no_explanation(tmp_path: Path) -> None:
    summary = ReportBuilder()
    toy = RecordedYard(None, summary)
    toy.add("a", 4)
    toy.drain()
    text = printed(summary.report())
    assert "no request was held back" in text
    assert "Note" not in text
    assert "src" not in text


def test_late_arrivals_are_noted(tmp_path: Path) -> None:
    summary = ReportBuilder()
    toy = RecordedYard(None, summary)
    toy.add("a", 4)
    toy.step()
    toy.add("b", 4)
    toy.drain()
    text = words(printed(summary.report()))
    assert "the queue was empty: the other 1 had not arrived" in text


def test_a_foreign_trace(tmp_path: Path) -> None:
    run(tmp_path / "ours", num_gpu_blocks=40)
    as_others_write_it(tmp_path / "ours", tmp_path / "theirs")
    text = printed(summarize(tmp_path / "theirs"))
    assert "5090?" in text
    assert "Latency (exact to a step)" in text
    assert "this trace records no reasons" in words(text)
    assert "computed again" not in text
    as_others_write_it(tmp_path / "ours", tmp_path / "sampled", every=2)
    assert "does not record when requests came and went" in printed(summarize(tmp_path / "sampled"))


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ({}, "KV 5 blocks"),
        ({"kv_tokens": 80, "max_num_seqs": 3}, "KV 80 tokens in 5 blocks"),
        ({"block_size": 16, "kv_gib": 1.5, "weight_gib": 2.0}, "KV 5 blocks of 16, 1.5 GiB"),
    ],
)
def test_a_deployment_of_which_little_is_told_is_printed(report: Report, told: dict[str, Any], line: str) -> None:
    nothing = msgspec.structs.asdict(DeploymentHeader()) | told
    header = msgspec.structs.replace(report.header, **nothing | {"num_gpu_blocks": 5})
    text = words(printed(msgspec.structs.replace(report, header=header)))
    assert line in text
    assert "None" not in text


def test_what_could_not_be_read_is_said(tmp_path: Path) -> None:
    records = [
        {"event": "trace_start", "every_n": 2, "max_steps": 3, "block_size": 16},
        {
            "event": "step_snapshot",
            "step": 0,
            "num_running": "many",
            "waiting_req_ids": [],
            "waiting_req_ids_omitted": 7,
        },
        {"event": "step_snapshot", "step": 0},
        {"event": "step_snapshot", "step": 2},
        {"event": "weather", "step": 0},
    ]
    lines = [msgspec.json.encode(record) for record in records]
    (tmp_path / "t.steps.jsonl").write_bytes(b"\n".join([*lines, b"{"]))
    text = words(printed(summarize(tmp_path)))
    assert "This trace is partial: its last line is cut off, and it ends at its step limit." in text
    assert "Records of unknown kinds were left out: weather (1)." in text
    assert "Values of a wrong type were taken as missing: step_snapshot.num_running (1)." in text
    assert "1 records were doubled, out of order or of no known step." in text
    assert "leaves out 7 ids" in text
    assert "holds every 2. step" in text
    assert "ends at its step limit" in text


def test_text_from_a_trace_is_never_markup_nor_an_escape(tmp_path: Path) -> None:
    hostile = "[red]x[/red][/]\x1b[2J\u202e</script>"
    start = {"event": "trace_start", "model": hostile, "host": hostile, "gpu": hostile}
    snapshot = {"event": "step_snapshot", "step": 0, "ts": 0.0, "policy": hostile, "num_waiting": 1, "free_blocks": 5}
    decision = {"event": "step_decision", "step": 0, "scheduled_new_req_ids": []}
    outcome = {"event": "admission_outcome", "step": 0, "reason": hostile, "num_requests": 1}
    finished = {"event": "request_finished", "step": 0, "req_id": "a", "finish_reason": hostile}
    records = [start, snapshot, decision, outcome, finished, {"event": hostile}]
    lines = [msgspec.json.encode(record) for record in records]
    (tmp_path / "t.steps.jsonl").write_bytes(b"\n".join(lines))
    text = printed(summarize(tmp_path), 200)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert text.count("[red]x[/red][/]") == 7


def test_colours_only_where_the_terminal_has_them(report: Report) -> None:
    assert "\x1b" not in printed(report)
    assert "\x1b[" in printed(report, force_terminal=True, color_system="standard")


def test_bars_without_block_characters(report: Report) -> None:
    class Ascii(io.StringIO):
        encoding = "ascii"

    file = Ascii()
    print_report(report, Console(file=file, width=80), buckets=True)
    assert "###" in file.getvalue()
    assert "█" not in file.getvalue()


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace in which requests wait for a seat."""
    trace = tmp_path_factory.mktemp("crowded")
    server = ty.Deployment(model="Qwen/Qwen3-8B", gpu="l40s", max_model_len=8192, max_num_seqs=2)
    ty.run("chat", server, limit=6, rate_scale=40, trace=trace)
    return trace


@pytest.mark.slow
@pytest.mark.parametrize("width", [60, 80])
def test_who_waited_longest_is_named_whole(crowded: Path, width: int) -> None:
    file = io.StringIO()
    found = waiting(crowded)
    print_waiting(found, Console(file=file, width=width))
    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    for each in found.longest:
        assert f"  {each.request_id} " in text
        assert (f" {each.job_id} " in text) == (width == 80)
