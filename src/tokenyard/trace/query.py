"""SQL over a Parquet trace, in a process of its own with bounds on time and memory."""

from __future__ import annotations

import pickle
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tokenyard.core.config import require_int
from tokenyard.errors import ConfigError, MissingExtraError, TraceError
from tokenyard.trace.columnar.child import OutOfMemoryError, OutOfTimeError, in_child_process, keep_memory_within
from tokenyard.trace.columnar.reading import columnar_head
from tokenyard.trace.columnar.rows import EXTRA, columns_of
from tokenyard.trace.convert import convert, twin_of
from tokenyard.trace.reader import TraceFiles, is_columnar
from tokenyard.trace.schema import STEP_EVENTS, json_value

if TYPE_CHECKING:
    import duckdb


# ---------------------------------------------------------------------------------------------------------------------
# The Parquet files of a trace: its own, or made for the moment.

_NAMES_REQUESTS = re.compile(r"\brequests\b", re.IGNORECASE)
"""Not ``num_requests``."""


def needed(files: TraceFiles, sql: str) -> TraceFiles:
    """``files`` without a requests file that a question does not name: it is large."""
    if files.steps is not None and not _NAMES_REQUESTS.search(sql):
        return TraceFiles(files.steps, None)
    return files


@contextmanager
def as_parquet(files: TraceFiles, on_damage: Callable[[str], object]) -> Iterator[TraceFiles]:
    """``files`` as Parquet; what has no twin is converted into a directory that goes away in the end.

    ``on_damage`` is notified of a file that is cut off. TraceError for one without any record, or beyond a bound.
    """
    with tempfile.TemporaryDirectory(prefix="tokenyard-") as directory:
        twins: list[Path | None] = []
        for kind, path in (("steps", files.steps), ("requests", files.requests)):
            twin = _ready_twin(path, kind) if path is not None else None
            if path is not None and twin is None:
                twin = Path(directory) / f"{kind}.parquet"
                done = convert(path, twin, kind, compression="snappy")
                if done.records == 0:
                    raise TraceError(f"{path}: holds no record that can be read ({done.damage or 'no line is one'})")
                if done.damage is not None:
                    on_damage(f"{path}: {done.damage}; the answer is from what stands before")
            twins.append(twin)
        yield TraceFiles(*twins)


def _ready_twin(path: Path, kind: str) -> Path | None:
    """The file itself if it is Parquet, else the twin beside it, if one is there that is not older."""
    if is_columnar(path):
        columnar_head(path)
        return path
    twin = twin_of(path)
    try:
        if twin.stat().st_mtime_ns < path.stat().st_mtime_ns:
            return None
        return twin if columnar_head(twin).kind == kind else None
    except (OSError, TraceError):
        return None


# ---------------------------------------------------------------------------------------------------------------------
# SQL over a Parquet trace, by DuckDB, with nothing else in reach.
#
# A question may be any one SELECT. It can read the trace and nothing else on the machine, write nothing, load nothing
# and change no setting, and it has limits of time, memory and rows, which a process of its own keeps: questions may
# come from people who did not write the trace, and the other way round.

EVENT_VIEWS = {
    "trace_start": "start",
    "step_snapshot": "snapshots",
    "step_decision": "decisions",
    "prefix_cache_lookup": "lookups",
    "admission_outcome": "outcomes",
    "step_completed": "completions",
    "request_arrived": "arrivals",
    "request_finished": "finishes",
    "pause_changed": "pauses",
    "cache_reset": "resets",
    "pin_ended": "pins",
    "trace_end": "ends",
}
"""Event -> the view that has its records and their fields alone."""
_SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "python_enable_replacements": "false",
    "preserve_insertion_order": "true",
    "temp_directory": "",
}


class QueryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one question may cost."""

    seconds: float = 10.0
    memory_mb: int = 1_024
    """Beyond what an empty database takes."""
    answer_mb: int = 64
    rows: int = 10_000
    threads: int = 2

    def __post_init__(self) -> None:
        require_int("limit", self.rows, 1)


INTERRUPTIBLE = QueryLimits(seconds=600.0, memory_mb=4_096)
"""For a question in a terminal, whose user can interrupt it."""


class AnswerColumn(msgspec.Struct, frozen=True):
    """One column of an answer."""

    name: str
    type: str
    """DuckDB's name of it."""


class QueryAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a question."""

    columns: list[AnswerColumn]
    rows: list[tuple[Any, ...]]
    truncated: bool
    """There were more rows than the limit."""
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        found: dict[str, Any] = msgspec.to_builtins(self, enc_hook=json_value)
        return found


class TraceAnswer(NamedTuple):
    """The answer to a question, and how its trace was read."""

    answer: QueryAnswer
    damage: list[str]
    """A sentence for each file that is cut off."""
    is_converted: bool
    """A file was converted to Parquet for this question alone."""


class _Refusal(msgspec.Struct, frozen=True):
    """A ConfigError on its way from one process to the other."""

    field: str
    value: object
    fix: str


def query_trace(files: TraceFiles, sql: str, limits: QueryLimits) -> TraceAnswer:
    """Put one SELECT to a trace, whatever its files are packed in. Raises as :func:`ask`, and TraceError."""
    damage: list[str] = []
    with as_parquet(needed(files, sql), damage.append) as twins:
        answer = ask(sql, twins.steps, twins.requests, limits)
    return TraceAnswer(answer, damage, any(twin is not None and not twin.exists() for twin in twins))


def ask(sql: str, steps: Path | None, requests: Path | None, limits: QueryLimits | None = None) -> QueryAnswer:
    """Put one SELECT to a trace, whose files are Parquet.

    The tables are ``steps`` and ``requests``, one row per line, and a view per event (:data:`EVENT_VIEWS`). Raises
    ConfigError for a question that is wrong, not a SELECT, or beyond a limit; MissingExtraError without DuckDB.
    """
    limits = limits or QueryLimits()
    _duckdb()  # a missing extra raises at once
    began = time.perf_counter()
    try:
        answer: QueryAnswer | _Refusal = in_child_process(_asked, sql, steps, requests, limits, seconds=limits.seconds)
    except OutOfTimeError:
        raise ConfigError(
            "sql", sql, f"took longer than {limits.seconds:g} s: ask for less, or of fewer steps"
        ) from None
    except OutOfMemoryError:
        raise ConfigError("sql", sql, f"needs more than {limits.memory_mb:,} MB: ask for less at once") from None
    if isinstance(answer, _Refusal):
        raise ConfigError(answer.field, answer.value, answer.fix)
    return msgspec.structs.replace(answer, seconds=round(time.perf_counter() - began, 6))


def _asked(sql: str, steps: Path | None, requests: Path | None, limits: QueryLimits) -> QueryAnswer | _Refusal:
    """The answer, in a process that ends with it."""
    try:
        with _database(steps, requests, limits) as database:
            answer = _answer(database, sql, limits)
    except ConfigError as error:
        return _Refusal(error.field, error.value, error.fix)
    if len(pickle.dumps(answer)) > limits.answer_mb << 20:
        return _Refusal("sql", sql, f"has an answer of more than {limits.answer_mb} MB: ask for less at once")
    return answer


def _answer(database: duckdb.DuckDBPyConnection, sql: str, limits: QueryLimits) -> QueryAnswer:
    duckdb = _duckdb()
    try:
        database.execute(_one_select(sql))
        columns = [AnswerColumn(name, str(kind)) for name, kind, *_ in database.description or ()]
        rows = database.fetchmany(limits.rows + 1)
    except duckdb.OutOfMemoryException:
        raise OutOfMemoryError from None
    except duckdb.Error as error:
        raise ConfigError("sql", sql, _first_lines(error)) from None
    except (ValueError, OverflowError, TypeError) as error:  # Python has no such value: an interval, a map by lists
        fix = f"a value cannot be given back ({error}): cast its column to VARCHAR"
        raise ConfigError("sql", sql, fix) from None
    kept = [tuple(map(_with_text_keys, row)) for row in rows[: limits.rows]]
    return QueryAnswer(columns=columns, rows=kept, truncated=len(rows) > limits.rows, seconds=0.0)


def _with_text_keys(value: Any) -> Any:
    """A value with the keys of every map in it as text, as JSON wants them."""
    if isinstance(value, list | tuple):
        return [_with_text_keys(each) for each in value]
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): _with_text_keys(held) for key, held in value.items()}
    return value


def _one_select(sql: str) -> Any:
    """The statement. EXPLAIN is not one: with ANALYZE it runs whatever it explains."""
    duckdb = _duckdb()
    statements = duckdb.extract_statements(sql)
    if len(statements) != 1:
        raise ConfigError("sql", sql, f"holds {len(statements)} statements: give one")
    if statements[0].type != duckdb.StatementType.SELECT:
        raise ConfigError("sql", sql, "a query cannot change a trace: give one SELECT statement")
    return statements[0]


@contextmanager
def _database(steps: Path | None, requests: Path | None, limits: QueryLimits) -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty database in memory that sees the files of one trace."""
    duckdb = _duckdb()
    settings = {**_SETTINGS, "threads": str(limits.threads), "memory_limit": f"{limits.memory_mb * 4 // 5}MB"}
    database = duckdb.connect(":memory:", config=settings)
    keep_memory_within(limits.memory_mb)
    try:
        try:
            paths = {table: path for table, path in (("steps", steps), ("requests", requests)) if path is not None}
            for table, path in paths.items():
                _make_views(database, table, path)
            for statement in _closing(paths.values()):
                database.execute(statement)
        except duckdb.Error as error:
            raise ConfigError("trace", str(steps or requests), f"cannot be read: {_first_lines(error)}") from None
        yield database
    finally:
        database.close()


def _make_views(database: duckdb.DuckDBPyConnection, table: str, path: Path) -> None:
    """Name the columns that a file has: one that another program wrote may lack some."""
    source = f"read_parquet({_sql_text(str(path.resolve()))})"
    there = {name for name, *_ in database.execute(f"SELECT * FROM {source} LIMIT 0").description or ()}

    def listed(names: Iterable[str]) -> str:
        return ", ".join(f'"{name}"' for name in names if name in there)

    database.execute(f"CREATE VIEW {table} AS SELECT {listed((*columns_of(table), EXTRA))} FROM {source}")
    if table == "steps" and "event" in there:
        for event, view in EVENT_VIEWS.items():
            fields = [field.name for field in msgspec.structs.fields(STEP_EVENTS[event])]
            database.execute(
                f"CREATE VIEW {view} AS SELECT {listed((*fields, EXTRA))} FROM steps WHERE event = {_sql_text(event)}"
            )


def _closing(paths: Iterable[Path]) -> Iterator[str]:
    """What closes every door but the one to the trace."""
    yield f"SET allowed_paths = [{', '.join(_sql_text(str(path.resolve())) for path in paths)}]"
    yield "SET enable_external_access = false"
    yield "SET lock_configuration = true"


def _sql_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _first_lines(error: Exception) -> str:
    """DuckDB's message without the picture of where in the SQL it is."""
    if "pytz" in str(error):
        return "moments with a time zone cannot be given back: cast them to VARCHAR"
    return " ".join(str(error).split("\n\nLINE ")[0].split())


def _duckdb() -> Any:
    try:
        import duckdb  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtraError("duckdb", "analysis") from None
    return duckdb
