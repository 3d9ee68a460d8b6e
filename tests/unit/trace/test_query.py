"""SQL over a trace reaches the trace and nothing else."""

from __future__ import annotations

import datetime as dt
import decimal
import multiprocessing
import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tokenyard.errors import ConfigError
from tokenyard.trace import query
from tokenyard.trace.convert import convert
from tokenyard.trace.query import EVENT_VIEWS, QueryLimits, ask
from tokenyard.trace.schema import STEP_EVENTS

pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra: analysis)")
pytest.importorskip("duckdb", reason="duckdb is not installed (extra: analysis)")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty steps in a folder whose name wants quoting, and a file beside it that does not belong to it."""
    directory = tmp_path_factory.mktemp("o'clock")
    records = [{"event": "step_snapshot", "step": i, "ts": i / 2, "free_blocks": 20 - i} for i in range(20)]
    (directory / "t.steps.jsonl").write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    (directory / "secret.csv").write_text("password\nhunter2\n")
    twin = directory / "t.steps.parquet"
    convert(directory / "t.steps.jsonl", twin, "steps")
    return twin


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where limits do not matter, a process for each question is not worth its time."""

    def called(function: Callable[..., Any], *arguments: object, seconds: float) -> Any:
        return function(*arguments)

    monkeypatch.setattr(query, "in_child_process", called)
    monkeypatch.setattr(query, "keep_memory_within", lambda megabytes: None)


def rows(trace: Path, sql: str, **limits: Any) -> list[tuple[Any, ...]]:
    return ask(sql, trace, None, QueryLimits(**limits)).rows


def test_every_event_has_a_view() -> None:
    assert set(EVENT_VIEWS) == set(STEP_EVENTS)


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.slow
def test_every_view_can_be_asked(trace: Path) -> None:
    for view in EVENT_VIEWS.values():
        assert rows(trace, f"select count(*) from {view}") == [(20 if view == "snapshots" else 0,)]


@pytest.mark.usefixtures("in_this_process")
def test_kinds_of_select(trace: Path) -> None:
    assert rows(trace, "with s as (select step from steps) select max(step) from s;") == [(19,)]
    assert rows(trace, "from snapshots select min(free_blocks)") == [(1,)]
    assert ("step", "INTEGER") in [row[:2] for row in rows(trace, "describe steps")]


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_text('{folder}/secret.csv')",
        "select * from read_csv('{folder}/secret.csv')",
        "select * from '{folder}/secret.csv'",
        "select * from glob('{folder}/*')",
        "select * from read_blob('{folder}/*.csv')",
        "select * from sniff_csv('{folder}/secret.csv')",
        "select * from read_text('/etc/passwd')",
        "select * from read_parquet('https://example.com/x.parquet')",
        "attach '{folder}/new.db' as other",
        "copy (select 1) to '{folder}/new.csv'",
        "copy (select 1) to '{folder}/t.steps.parquet'",
        "explain analyze copy (select 1) to '{folder}/t.steps.parquet'",
        "select * from query('copy (select 1) to ''{folder}/t.steps.parquet''')",
        "export database '{folder}/all'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "set lock_configuration = false",
        "pragma enable_external_access = true",
        "reset allowed_paths",
        "call pragma_version()",
        "create table mine as select 1",
        "create or replace view steps as select 1",
        "insert into steps select 1",
        "drop view steps",
        "select 1; copy (select 1) to '{folder}/new.csv'",
        "prepare p as select 1",
        "select getenv('HOME')",
        "import database '{folder}'",
        "",
        ";",
    ],
)
def test_nothing_else_is_reached(trace: Path, sql: str) -> None:
    before = {path.name: path.read_bytes() for path in trace.parent.iterdir()}
    with pytest.raises(ConfigError) as refused:
        rows(trace, sql.format(folder=str(trace.parent).replace("'", "''")))
    assert "hunter2" not in str(refused.value)
    assert {path.name: path.read_bytes() for path in trace.parent.iterdir()} == before


@pytest.mark.usefixtures("in_this_process")
def test_names_of_this_process_are_not_tables(trace: Path) -> None:
    with pytest.raises(ConfigError, match="trace"):
        rows(trace, "select * from trace")


@pytest.mark.usefixtures("in_this_process")
def test_rows_are_bounded(trace: Path) -> None:
    answer = ask("select step from steps order by step", trace, None, QueryLimits(rows=3))
    assert (answer.rows, answer.truncated) == ([(0,), (1,), (2,)], True)
    assert not ask("select step from steps", trace, None, QueryLimits(rows=20)).truncated


@pytest.mark.slow
def test_a_process_of_its_own_answers_alike(trace: Path) -> None:
    sql = "select step, ts, [step], {'a': step}, date '2026-01-01', 1.5::decimal(3,1) from steps order by step limit 2"
    answer = ask(sql, trace, None)
    date, number = dt.date(2026, 1, 1), decimal.Decimal("1.5")
    assert answer.rows == [(0, 0.0, [0], {"a": 0}, date, number), (1, 0.5, [1], {"a": 1}, date, number)]
    assert [column.name for column in answer.columns[:2]] == ["step", "ts"]
    assert answer.seconds > 0
    with pytest.raises(ConfigError, match="a query cannot change a trace"):
        rows(trace, "create table mine as select 1")


ENDLESS = "select sum(a.i * b.i) from range(10000000) a(i), range(10000000) b(i)"
ONE_STEP = "select list_sum(list_transform(range(200000000), lambda x: x * x % 7))"
"""DuckDB does not look at the clock, nor at interrupts, before it is over."""


@pytest.mark.parametrize("sql", [ENDLESS, ONE_STEP])
def test_time_is_bounded(trace: Path, sql: str) -> None:
    began = time.monotonic()
    with pytest.raises(ConfigError, match=r"took longer than 0\.5 s"):
        rows(trace, sql, seconds=0.5, memory_mb=8_000)
    assert time.monotonic() - began < 20


@pytest.mark.slow
@pytest.mark.parametrize(
    "sql",
    [
        "select max(len(s)) from (select string_agg(i::varchar, '-') s from range(50000000) t(i))",
        "select list_sort(range(200000000))[1]",
        "select repeat('x', 4000000000)",
        "select list(i) from range(300000000) t(i)",
    ],
)
def test_memory_is_bounded(trace: Path, sql: str) -> None:
    """What the process that answered has had, whatever DuckDB counts: beside the question, an interpreter's 100 MB."""
    with multiprocessing.get_context("spawn").Pool(1) as asker:  # the peak is that of all children so far
        assert asker.apply(_peak_of_the_refused, (trace, sql)) < 600_000


def _peak_of_the_refused(trace: Path, sql: str) -> int:
    """Kilobytes."""
    with pytest.raises(ConfigError, match="needs more than 64 MB"):
        rows(trace, sql, memory_mb=64, seconds=60)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


def test_an_answer_is_bounded(trace: Path) -> None:
    with pytest.raises(ConfigError, match="answer of more than 2 MB"):
        rows(trace, "select repeat('x', 1000000) from range(4)", answer_mb=2)


def test_a_question_ends_with_an_interrupt(trace: Path) -> None:
    """Its process too, and at once."""
    main = threading.main_thread().ident
    assert main is not None
    began = time.monotonic()
    threading.Timer(1.0, signal.pthread_kill, (main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        rows(trace, ENDLESS, seconds=60)
    assert time.monotonic() - began < 20
