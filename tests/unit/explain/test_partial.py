"""A trace that ends before its run does says so, wherever it is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.unit.trace.recorded import RecordedYard

from tokenyard.explain.compare.comparison import compare_traces
from tokenyard.explain.render.comparison import print_comparison
from tokenyard.explain.render.report import print_report
from tokenyard.explain.render.why import print_waiting, print_why
from tokenyard.explain.report.summary import summarize
from tokenyard.explain.why.why import waiting, why
from tokenyard.trace.reader import Partial


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five requests, two at a time."""
    path = tmp_path_factory.mktemp("whole")
    toy = RecordedYard(path, max_num_seqs=2)
    for number in range(5):
        toy.add(f"r{number}", 8, max_tokens=4, arrival_time=toy.now)
    while toy.scheduler.has_requests():
        toy.step()
    toy.writer.close()
    return path


def cut(whole: Path, path: Path, *, to: bytes) -> Path:
    """The steps file until the first line that holds ``to``, and half of that."""
    (steps,) = whole.glob("*.steps.jsonl")
    data = steps.read_bytes()
    begin = data.rindex(b"\n", 0, data.index(to)) + 1
    (path / "cut.steps.jsonl").write_bytes(data[: begin + (data.index(b"\n", begin) - begin) // 2])
    return path


def printed(show: Callable[[Any, Console], None], answer: Any) -> str:
    file = StringIO()
    show(answer, Console(file=file, width=200))
    return file.getvalue()


def test_a_whole_trace_is_not_partial(whole: Path) -> None:
    assert summarize(whole).header.partial is None
    assert waiting(whole).partial is None
    assert "partial" not in printed(print_comparison, compare_traces(whole, whole))


def test_a_process_that_was_killed(whole: Path, tmp_path: Path) -> None:
    path = cut(whole, tmp_path, to=b'"step":6')
    partial = Partial(cut_off=True, at_step_limit=False, unfinished=3, requests=5)
    report = summarize(path)
    assert report.header.partial == waiting(path).partial == why(path, "r4").partial == partial
    assert (report.requests, report.requests_finished) == (5, 2)
    words = (
        "This trace is partial: its last line is cut off, and 3 of 5 requests had not ended when it did. "
        "What wrote it was interrupted, or still writes."
    )
    assert words in printed(print_report, report)
    assert "bad line" not in printed(print_report, report), "it is told once"
    assert words in printed(print_waiting, waiting(path))
    assert words in printed(print_why, why(path, "r4"))
    assert words in printed(print_comparison, compare_traces(whole, path))


def test_a_request_that_ended_is_explained_as_ever(whole: Path, tmp_path: Path) -> None:
    assert why(cut(whole, tmp_path, to=b'"step":6'), "r0") == why(whole, "r0")


def test_a_trace_that_ends_with_a_whole_line(whole: Path, tmp_path: Path) -> None:
    (steps,) = whole.glob("*.steps.jsonl")
    lines = steps.read_bytes().splitlines(keepends=True)
    (tmp_path / "half.steps.jsonl").write_bytes(b"".join(lines[: len(lines) // 2]))
    partial = summarize(tmp_path).header.partial
    assert partial is not None
    assert not partial.cut_off
    assert partial.unfinished > 0


def test_a_last_line_without_its_line_feed_is_whole(whole: Path, tmp_path: Path) -> None:
    (steps,) = whole.glob("*.steps.jsonl")
    (tmp_path / "t.steps.jsonl").write_bytes(steps.read_bytes().rstrip(b"\n"))
    assert summarize(tmp_path).header.partial is None


def test_a_step_limit_is_named_and_nobody_was_interrupted(tmp_path: Path) -> None:
    toy = RecordedYard(tmp_path, trace={"max_steps": 2})
    toy.add("r0", 8, max_tokens=8, arrival_time=toy.now)
    while toy.scheduler.has_requests():
        toy.step()
    toy.writer.close()
    assert str(summarize(tmp_path).header.partial) == (
        "This trace is partial: it ends at its step limit, and 1 of 1 requests had not ended when it did."
    )


def test_a_clock_that_was_set_back_is_said(whole: Path, tmp_path: Path) -> None:
    (steps,) = whole.glob("*.steps.jsonl")
    lines = [json.loads(line) for line in steps.read_bytes().splitlines()]
    for record in lines[len(lines) // 2 :]:
        if record.get("ts") is not None:
            record["ts"] -= 3600
    (tmp_path / "back.steps.jsonl").write_text("".join(json.dumps(record) + "\n" for record in lines))
    report = summarize(tmp_path)
    assert report.reading.clock_back_s == pytest.approx(3600, abs=1)
    words = "The clock of the trace was set back by 1 h 00 min during the run: times and rates that span it are wrong."
    assert words in printed(print_report, report)
    assert summarize(whole).reading.clock_back_s == 0
