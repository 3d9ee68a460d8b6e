"""Two traces side by side: where they part, what differs, and what stands beside what."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.unit.trace.recorded import RecordedYard

from tokenyard.errors import TraceError
from tokenyard.explain.compare.comparison import SettingDifference, TraceComparison, compare_traces
from tokenyard.explain.compare.first_difference import Fate, FateKind, first_difference
from tokenyard.explain.render.comparison import print_comparison


def record(path: Path, *, extra: bool = False, seconds: float = 0.5, **settings: Any) -> Path:
    """Five requests of two jobs, and perhaps one more in the middle."""
    toy = RecordedYard(path, seconds=seconds, **({"max_num_seqs": 2} | settings))
    for number in range(5):
        toy.add(f"r{number}", 8, max_tokens=4, job_id=f"job{number % 2}", arrival_time=toy.now)
    for step in range(60):
        if step == 5 and extra:
            toy.add("late", 8, max_tokens=4, job_id="late", arrival_time=toy.now)
        if toy.scheduler.has_requests():
            toy.step()
    toy.writer.close()
    return path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("plain"))


def figures(comparison: TraceComparison) -> dict[str, tuple[float | None, float | None]]:
    return {figure.name: (figure.a, figure.b) for figure in comparison.figures}


def shown(comparison: TraceComparison, width: int = 110) -> str:
    console = Console(file=StringIO(), width=width)
    print_comparison(comparison, console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_trace_and_itself_differ_nowhere(plain: Path) -> None:
    comparison = compare_traces(plain, plain)
    assert comparison.parting is None
    assert not any(figure.differs for figure in comparison.figures)
    assert all(row.a == row.b for row in comparison.rows)
    assert "every step decides the same" in shown(comparison)


def test_a_request_more_parts_them_where_it_is_admitted(plain: Path, tmp_path: Path) -> None:
    other = record(tmp_path, extra=True)
    parting, states = first_difference(plain, other)
    assert parting is not None
    assert (parting.what, parting.detail) == ("requests admitted", "only in B: late")
    assert parting.equal_steps > 5, "it arrives before step 5 and waits"
    (request,) = parting.requests
    assert (request.request_id, request.a.kind) == ("late", FateKind.NOT_ARRIVED)
    assert request.b == Fate(kind=FateKind.ADMITTED, tokens=8)
    assert [(state.step, state.what, state.detail) for state in states] == [(5, "waiting requests", "only in B: late")]
    text = " ".join(shown(compare_traces(plain, other)).split())
    assert "late A has not arrived yet B admitted, 8 tokens" in text
    assert "Before that, since step 5: waiting requests: only in B: late." in text
    assert "No setting differs" in text


def test_a_seat_more_is_named_as_the_cause(plain: Path, tmp_path: Path) -> None:
    other = record(tmp_path, max_num_seqs=3)
    comparison = compare_traces(plain, other)
    parting = comparison.parting
    assert parting is not None
    assert parting.a is not None
    assert parting.b is not None
    assert (parting.what, parting.detail) == ("requests admitted", "only in B: r2")
    (request,) = parting.requests
    assert (request.a.kind, request.a.reason, request.a.position) == (FateKind.WAITING, "max_num_seqs", 3)
    assert request.b.kind is FateKind.ADMITTED
    assert (parting.a.max_num_running, parting.b.max_num_running) == (2, 3)
    text = " ".join(shown(comparison).split())
    assert "A waits, number 3 in the queue: max_num_seqs" in text
    assert "As many requests were running as max_num_seqs allows." in text


def test_settings_that_differ_are_named(plain: Path, tmp_path: Path) -> None:
    comparison = compare_traces(plain, record(tmp_path, max_num_seqs=3))
    assert comparison.settings == [SettingDifference("scheduler.max_num_seqs", 2, 3)]
    assert "scheduler.max_num_seqs 2 3" in " ".join(shown(comparison).split())


def test_a_trace_without_its_first_record_tells_no_settings(plain: Path, tmp_path: Path) -> None:
    (steps,) = plain.glob("*.steps.jsonl")
    (tmp_path / "bare.steps.jsonl").write_bytes(b"".join(steps.read_bytes().splitlines(keepends=True)[1:]))
    comparison = compare_traces(plain, tmp_path)
    assert (comparison.parting, comparison.settings) == (None, None)
    assert "etting" not in shown(comparison)


def test_other_free_blocks_alone_part_nothing(plain: Path, tmp_path: Path) -> None:
    comparison = compare_traces(plain, record(tmp_path, num_gpu_blocks=90))
    assert comparison.parting is None
    (state,) = comparison.states
    assert (state.step, state.what) == (0, "free blocks")
    assert "Nowhere: every step decides the same." in shown(comparison)
    assert f"Since step 0 they find other states: free blocks: {state.detail}." in shown(comparison)


@pytest.mark.parametrize("width", [60, 80])
def test_no_number_and_no_name_is_cut(plain: Path, tmp_path: Path, width: int) -> None:
    comparison = compare_traces(plain, record(tmp_path, max_num_seqs=3))
    lines = shown(comparison, width).partition("Where they part")[2].splitlines()
    assert not any("\N{HORIZONTAL ELLIPSIS}" in line for line in lines)
    words = {word for line in lines for word in line.split()}
    assert {row.a.reason for row in comparison.rows if row.a is not None} <= words


def test_a_slower_clock_parts_nothing(plain: Path, tmp_path: Path) -> None:
    comparison = compare_traces(plain, record(tmp_path, seconds=0.75), "time")
    assert comparison.parting is None
    mean_a, mean_b = figures(comparison)["e2e_ms.mean"]
    assert mean_b == pytest.approx((mean_a or 0) * 1.5)
    last = comparison.rows[-1]
    assert last.a is None
    assert last.b is not None
    assert last.at == last.b.seconds
    assert "ended" in shown(comparison)


def test_fewer_tokens_in_a_step_part_them(plain: Path, tmp_path: Path) -> None:
    parting = first_difference(plain, record(tmp_path, max_num_batched_tokens=12)).decision
    assert parting is not None
    assert (parting.equal_steps, parting.what, parting.detail) == (0, "tokens per request", "r1: 8 in A, 4 in B")


def test_the_shorter_one_ends(plain: Path, tmp_path: Path) -> None:
    (steps,) = plain.glob("*.steps.jsonl")
    lines = steps.read_bytes().splitlines(keepends=True)
    cut = next(i for i, line in enumerate(lines) if b'"step":6' in line)
    (tmp_path / "cut.steps.jsonl").write_bytes(b"".join(lines[:cut]))
    parting = first_difference(plain, tmp_path).decision
    assert parting is not None
    assert (parting.what, parting.b) == ("one ends", None)
    assert "A goes on" in parting.detail


def test_jobs_that_differ_most_come_first(plain: Path, tmp_path: Path) -> None:
    comparison = compare_traces(plain, record(tmp_path, extra=True), "job")
    assert comparison.rows == []
    first, *rest = comparison.jobs
    assert (first.job_id, first.a) == ("late", None)
    changes = [abs(pair.change_us) for pair in rest]
    assert changes == sorted(changes, reverse=True)
    assert {pair.job_id for pair in rest} == {"job0", "job1"}
    assert sum(pair.a.requests for pair in rest if pair.a is not None) == 5
    assert "not there" in shown(comparison)


def test_no_trace(plain: Path, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        compare_traces(plain, tmp_path / "missing")
