"""The traces of several engines in one directory: which of them belong together, and which do not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.trace.recorded import RecordedYard

from tokenyard.errors import TraceError
from tokenyard.explain.report.summary import summarize
from tokenyard.trace.reader import find_ranks, find_trace


def record(path: Path, rank: int | None = None, *, arrival: float = 0.0, requests: int = 2, **settings: Any) -> Path:
    """A trace of a few requests, which says of which rank it is."""
    toy = RecordedYard(path, **settings)
    toy.now = arrival
    for number in range(requests):
        toy.add(f"{rank}-{number}", 8, max_tokens=4, arrival_time=arrival)
    while toy.scheduler.has_requests():
        toy.step()
    toy.writer.close()
    file = find_trace(path, joined=True).source
    start, *rest = file.read_bytes().splitlines(keepends=True)
    first = msgspec.json.decode(start)
    if rank is not None:
        first["config"]["data_parallel_rank"] = rank
    first["ts"] = arrival
    file.write_bytes(msgspec.json.encode(first) + b"\n" + b"".join(rest))
    return path


def change(path: Path, **fields: Any) -> None:
    """Change the first record of a trace."""
    file = find_trace(path, joined=True).source
    start, *rest = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(msgspec.json.encode(msgspec.json.decode(start) | fields) + b"\n" + b"".join(rest))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for rank in (0, 1, 10):
        record(tmp_path / f"rank-{rank}", rank)
    return tmp_path


def test_all_of_them_in_the_order_of_their_ranks(run: Path) -> None:
    (run / "rank-2").mkdir()
    (run / "rank-03").mkdir()
    shutil.copytree(run / "rank-1", run / "other")
    found = find_ranks(run)
    assert [each.rank for each in found] == [0, 1, 10]
    assert {each.files.source.parent.name for each in found} == {"rank-0", "rank-1", "rank-10"}
    assert {each.run_start for each in found} == {0.0}


def test_the_first_engine_of_a_dense_model_writes_into_the_directory_itself(tmp_path: Path) -> None:
    record(tmp_path)
    record(tmp_path / "rank-1", 1, requests=3)
    assert [each.rank for each in find_ranks(tmp_path)] == [0, 1]
    report = summarize(tmp_path)
    assert (report.requests, [each.requests for each in report.ranks]) == (5, [2, 3])
    with pytest.raises(TraceError, match=r"several engines \(itself and 1 more\): name one"):
        find_trace(tmp_path)


def test_one_trace_is_no_run_of_several(tmp_path: Path) -> None:
    record(tmp_path)
    assert find_ranks(tmp_path) == find_ranks(str(tmp_path))
    assert [(each.rank, each.run_start) for each in find_ranks(tmp_path)] == [(None, None)]
    (file,) = tmp_path.glob("*.steps.jsonl")
    assert find_ranks(file)[0].files.source == file


def test_engines_that_are_not_there_are_named(run: Path) -> None:
    for rank in (0, 1, 10):
        change(run / f"rank-{rank}", config={"deployment": {"data_parallel_size": 12}})
    assert summarize(run).reading.missing_ranks == [2, 3, 4, 5, 6, 7, 8, 9, 11]


@pytest.mark.parametrize("lines", [0, 1])
def test_an_engine_that_had_nothing_to_do(run: Path, lines: int) -> None:
    file = find_trace(run / "rank-10").source
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:lines]))
    assert [each.is_idle for each in find_ranks(run)] == [False, False, True]
    report = summarize(run)
    assert [(each.rank, each.requests, each.steps) for each in report.ranks][2] == (10, 0, 0)
    assert report.requests == 4
    for rank in (0, 1):
        shutil.rmtree(run / f"rank-{rank}")
    with pytest.raises(TraceError, match="holds no step"):
        find_ranks(run)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"model": "other"}, "model is 'toy' in one and 'other' in the other"),
        ({"policy": "priority"}, "policy is 'fcfs' in one and 'priority' in the other"),
        ({"config": {"data_parallel_rank": 0}}, "the trace in rank-1 says that it is of rank 0"),
        ({"ts": 3600.0}, "rank 1 began 3,600.0 s after the first step of the other"),
        ({"event": "nothing"}, "one has a trace_start record and the other none"),
    ],
)
def test_traces_of_different_runs(run: Path, fields: dict[str, Any], problem: str) -> None:
    change(run / "rank-1", **fields)
    with pytest.raises(TraceError) as raised:
        find_ranks(run)
    assert "of different runs" in str(raised.value)
    assert problem in str(raised.value)
    assert "name one of them, for example" in str(raised.value)


def test_an_old_trace_of_a_rank_that_the_server_no_longer_has(run: Path) -> None:
    """Its engine ended an hour before the others began."""
    for rank in (0, 1):
        shutil.rmtree(run / f"rank-{rank}")
        record(run / f"rank-{rank}", rank, arrival=3600.0)
    with pytest.raises(TraceError, match=r"of different runs \(rank 10 and rank 0\)"):
        find_ranks(run)


def test_a_trace_that_cannot_be_read_is_not_taken_for_an_idle_engine(run: Path) -> None:
    find_trace(run / "rank-10").source.write_text("no JSON\n")
    with pytest.raises(TraceError, match="holds no step"):
        find_ranks(run)


def test_engines_may_differ_in_their_blocks(run: Path) -> None:
    for rank in (0, 1, 10):
        change(run / f"rank-{rank}", config={"cache": {"num_gpu_blocks": 100 + rank, "block_size": 4}})
    assert len(find_ranks(run)) == 3


def test_a_trace_beside_that_of_rank_0(run: Path) -> None:
    record(run)
    with pytest.raises(TraceError, match="a trace of its own and rank-0, which are of different runs"):
        find_ranks(run)
