"""Two traces side by side: where they part, what differs, and what stands beside what."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.unit.trace.recorded import RecordedYard

from tokenyard.errors import TraceError
from tokenyard.explain.compare.comparison import TraceComparison, compare_traces
from tokenyard.explain.compare.first_difference import first_difference
from tokenyard.explain.render.comparison import print_comparison
from tokenyard.trace.format.held_back import held_by_reason


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


def shown(comparison: TraceComparison) -> str:
    console = Console(file=StringIO(), width=110)
    print_comparison(comparison, console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_trace_and_itself_differ_nowhere(plain: Path) -> None:
    comparison = compare_traces(plain, plain)
    assert comparison.parting is None
    assert not any(figure.differs for figure in comparison.figures)
    assert all(row.a == row.b for row in comparison.rows)
    assert "every step decides the same" in shown(comparison)


def test_a_request_more_parts_them_where_it_arrives(plain: Path, tmp_path: Path) -> None:
    other = record(tmp_path, extra=True)
    parting = first_difference(plain, other)
    assert parting is not None
    assert (parting.equal_steps, parting.what, parting.detail) == (5, "waiting requests", "only in B: late")
    assert parting.a is not None
    assert parting.b is not None
    assert (parting.a.step, parting.a.num_waiting, parting.b.num_waiting) == (5, 1, 2)
    assert parting.a.outcome is not None
    assert parting.a.decision is not None
    (reason, number), *_ = held_by_reason(parting.a.outcome).items()
    assert f"then {reason} held back {number}" in " ".join(shown(compare_traces(plain, other)).split())


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
    parting = first_difference(plain, record(tmp_path, max_num_batched_tokens=12))
    assert parting is not None
    assert (parting.equal_steps, parting.what, parting.detail) == (0, "tokens per request", "r1: 8 in A, 4 in B")


def test_the_shorter_one_ends(plain: Path, tmp_path: Path) -> None:
    (steps,) = plain.glob("*.steps.jsonl")
    lines = steps.read_bytes().splitlines(keepends=True)
    cut = next(i for i, line in enumerate(lines) if b'"step":6' in line)
    (tmp_path / "cut.steps.jsonl").write_bytes(b"".join(lines[:cut]))
    parting = first_difference(plain, tmp_path)
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
