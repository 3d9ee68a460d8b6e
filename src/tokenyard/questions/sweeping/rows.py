"""What replays came to: settings and values, rows, and the journal that keeps them."""

from __future__ import annotations

import json
import os
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from enum import StrEnum
from math import isfinite, nan, sqrt
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.core.request import FinishReason, Request
from tokenyard.core.sched.observer import StepObserver
from tokenyard.errors import SERVES_NONE, ConfigError, MissingExtraError, TokenyardError
from tokenyard.explain.assumed_drafts import AssumedAcceptance
from tokenyard.explain.compare.comparison import figures
from tokenyard.explain.figures import percentile
from tokenyard.explain.population import FirstSent
from tokenyard.explain.report.report import Report
from tokenyard.explain.slo import OF_NO_REQUEST, SLO
from tokenyard.explain.steady import FEWEST_ARRIVALS, LoadState
from tokenyard.explain.table import RowTable, column_of
from tokenyard.files import LOCK, FolderInUseError, FolderLock
from tokenyard.questions.by_class import classes_in
from tokenyard.units import count, milliseconds
from tokenyard.workload.record import Workload

# ---------------------------------------------------------------------------------------------------------------------
# Whether both halves of what follows the first third of a replay agree, as those of a steady state do.

FloatArray = npt.NDArray[np.float64]

_DRIFT = 0.01
"""Share of the time by which requests may take longer while they arrive: as much more arrives than is served."""
_APART = 0.1
"""Share of a bound by which its figure may differ between halves that agree, if it is not by chance."""
_BATCHES, _SIGMAS = 8, 3.0
"""Parts of a half whose figures say how much is chance, and how many standard deviations that is taken to be."""


def has_pace(workload: Workload) -> bool:
    """Return whether there is a rate at which a workload could go on; a closed loop has that of its answers."""
    moments = [each.arrival_time for each in workload if not each.after]
    return workload.max_concurrency is None and len(moments) >= FEWEST_ARRIVALS and max(moments) > min(moments)


class Agreement(StrEnum):
    """Whether both halves of a replay agree."""

    WHOLE = "whole"
    NEARLY = "nearly"
    """Bounded figures differ, both within their bounds: by no more than chance makes of so many requests, or not so far
    that a third half which differs as much from the second would miss one."""
    NONE = "none"


class Halves(StepObserver):
    """Notes how long requests take, by when they came."""

    reads_tokens = False

    def __init__(self, slos: Sequence[SLO], workload: Workload, by: str | None = None) -> None:
        """``by``: the column that bounds of a class go by."""
        self._slos = [slo for slo in slos if slo.statistic is not None and slo.figure not in OF_NO_REQUEST]
        self._class_of = {} if by is None else classes_in(workload, by)
        self._last = max(each.arrival_time for each in workload if not each.after)
        self._first = FirstSent()
        self._columns = {name: array("d") for name in ("arrival", "queue", "ttft", "tpot", "e2e", "tokens")}
        self._classes: list[str] = []

    def request_finished(self, ts: float, request: Request) -> None:
        """Note one that has its whole answer."""
        times, reason = request.times, FinishReason.of(request.status)
        is_left = reason is FinishReason.ABORT
        user, came = self._first.user(request.request_id, request.arrival_time, is_cancelled=is_left)
        if is_left or reason is FinishReason.ERROR:
            return
        end = ts if times.finished is None else times.finished
        first = end if times.first_token is None else times.first_token
        started = first if times.first_scheduled is None else times.first_scheduled
        tokens = request.num_output_tokens
        pace = (end - first) / (tokens - 1) if tokens > 1 else nan
        told = (came, started - came, first - came, pace, end - came, tokens)
        for column, value in zip(self._columns.values(), told, strict=True):
            column.append(value)
        self._classes.append(self._class_of.get(user, ""))

    def agreement(self) -> Agreement:
        """Return whether requests do not take longer and longer, and bounded figures are alike in both halves."""
        found = Agreement.WHOLE
        columns = {name: np.array(column) for name, column in self._columns.items()}
        arrival, classes = columns["arrival"], np.array(self._classes)
        if not len(arrival):
            return Agreement.NONE
        # Those that come last have an engine that empties to themselves: they are not of the same state.
        first, last = float(arrival.min()), self._last - float(columns["e2e"].mean())
        start, middle = first + (last - first) / 3, first + (last - first) * 2 / 3
        halves = [(arrival > start) & (arrival <= middle), (arrival > middle) & (arrival <= last)]
        if not all(half.any() for half in halves):
            return Agreement.NONE
        before, after = (_takes(columns, half) for half in halves)
        if after - before > _DRIFT * (middle - start):
            return Agreement.NONE
        for slo in self._slos:
            own = np.full(len(arrival), True) if not slo.of else classes == slo.of
            parts = [columns[slo.figure][half & own] for half in halves]
            values = [_statistic(part, slo.statistic or "mean") for part in parts]
            apart = abs(values[1] - values[0])
            if not isfinite(apart) or apart <= _APART * slo.bound_ms / 1e3:
                continue
            bound, following = slo.bound_ms / 1e3, 2 * values[1] - values[0]
            says_other = min(values) <= bound < max(values)
            if (says_other or following > bound) and apart > _SIGMAS * _chance(parts, slo.statistic or "mean"):
                return Agreement.NONE
            found = Agreement.NEARLY
        return found

    def variation(self) -> float | None:
        """Return how unlike requests are: the standard deviation of the work that one brings, its gap to the one before
        it included, over the mean; None where there are too few.
        """
        arrival, stay = (np.array(self._columns[name]) for name in ("arrival", "e2e"))
        works = (stay - np.array(self._columns["queue"]), np.diff(np.sort(arrival)))
        if len(arrival) < FEWEST_ARRIVALS or not all(float(each.mean()) for each in works):
            return None
        return sqrt(sum((float(each.std(ddof=1)) / float(each.mean())) ** 2 for each in works))


def _takes(columns: Mapping[str, FloatArray], chosen: npt.NDArray[np.bool_]) -> float:
    """Seconds that a request of the mean length takes, which other lengths do not blur."""
    pace = columns["tpot"][chosen]
    pace = pace[~np.isnan(pace)]
    further = float(columns["tokens"].mean()) - 1
    return float(columns["ttft"][chosen].mean()) + (float(pace.mean()) * further if len(pace) else 0.0)


def _chance(halves: Sequence[FloatArray], statistic: str) -> float:
    """Standard deviation of the difference of a statistic between halves: by what it is in parts of them."""
    variance = 0.0
    for half in halves:
        found = np.array([_statistic(part, statistic) for part in np.array_split(half, _BATCHES)])
        found = found[~np.isnan(found)]
        variance += float(found.var(ddof=1)) / len(found) if len(found) > 1 else 0.0
    return sqrt(variance)


def _statistic(values: FloatArray, statistic: str) -> float:
    known = np.sort(values[~np.isnan(values)])
    if not len(known):
        return nan
    if statistic == "mean":
        return float(known.mean())
    return percentile(known, 100.0 if statistic == "max" else float(statistic[1:]))


# ---------------------------------------------------------------------------------------------------------------------

# ---------------------------------------------------------------------------------------------------------------------
# The one way in which commands write settings and their values: ``max_num_seqs=64,128``.
#
# Commas stand between values. A comma that belongs to a value stands in brackets or quotes, as JSON has it:
# ``speculative_config={"method":"eagle3","num_speculative_tokens":3},none``, or ``acceptance_rates="0.8,0.6"``.
# Several settings may stand in one text: ``max_num_seqs=64,128,rate_scale=2``.

_NAME = re.compile(r"\s*((?:--)?[A-Za-z][\w-]*)\s*=(.*)", re.DOTALL)
_EXAMPLE = "give NAME=VALUE, or several values with commas between them, for example max_num_seqs=64,128"
_OPEN, _CLOSED = "[{", "]}"


def read_values(text: str, flag: str = "--set") -> dict[str, list[str]]:
    """Names of settings, as they are written, and the texts of their values. Raises ConfigError naming ``flag``."""
    found: dict[str, list[str]] = {}
    values: list[str] | None = None
    for part in _between_commas(text, flag):
        named = _NAME.fullmatch(part)
        value = part.strip() if named is None else named[2].strip()
        if named is not None:
            name = named[1]
            if name in found:
                raise ConfigError(flag, text, f"{name} is given twice: give it once")
            values = found[name] = []
        if values is None or not value:
            raise ConfigError(flag, text, _EXAMPLE)
        values.append(_unquoted(value))
    return found


def quoted(value: str) -> str:
    """A value as :func:`read_values` takes it for one."""
    try:
        is_whole = value == value.strip() and list(_between_commas(value, "")) == [value]
        plain = is_whole and _unquoted(value) == value and _NAME.fullmatch(value) is None
    except ConfigError:
        plain = False
    return value if plain else json.dumps(value)


def _between_commas(text: str, flag: str) -> Iterator[str]:
    """What stands between commas that are in no brackets and in no quotes."""
    depth, start, is_quoted, is_escaped = 0, 0, False, False
    for at, letter in enumerate(text):
        if is_quoted:
            is_quoted = letter != '"' or is_escaped
            is_escaped = letter == "\\" and not is_escaped
        elif letter == '"':
            is_quoted = True
        elif letter in _OPEN:
            depth += 1
        elif letter in _CLOSED:
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    if is_quoted or depth:
        what = "a quote" if is_quoted else "a bracket"
        raise ConfigError(flag, text, f"{what} has no counterpart: JSON stands in single quotes on a command line")
    yield text[start:]


def _unquoted(value: str) -> str:
    """A text in quotes is what stands in them; the rest is as it is, JSON too."""
    if value.startswith('"'):
        try:
            read = json.loads(value)
        except ValueError:
            return value
        return read if isinstance(read, str) else value
    return value


# ---------------------------------------------------------------------------------------------------------------------
# What one replay of many came to: a record without clocks of ours, so that the same variant gives the same bytes.

Setting = bool | int | float | str | None
Settings = Mapping[str, Setting]
"""A variant's settings, by name."""

_STATISTICS = ("mean", "p50", "p90", "p95", "p99", "max")
FIGURES = (
    *(f"{name}_ms.{statistic}" for name in ("ttft", "tpot", "itl", "e2e", "queue", "job") for statistic in _STATISTICS),
    *("goodput.requests_per_s", "goodput.share", "throughput.requests_per_s", "throughput.output_tokens_per_s"),
    *("load.offered_requests_per_s", "load.served_requests_per_s"),
    *(
        "prefix_hit_rate.local",
        "prefix_hit_rate.external",
        "pins.made",
        "preemptions",
        "recomputed_tokens",
        "peak_kv_use",
        "running.mean",
        "waiting.mean",
    ),
    *("output_tokens", "duration_s", "steps"),
    *("clients.given_up", "clients.retried", "clients.answered_late", "clients.unanswered", "clients.answer_ms.p90"),
    *("replicas.mean_held", "replicas.max_held", "replicas.started"),
    *("split.prefill", "split.decode", "split.link"),
)
"""Figures that are kept, by the names that they have in a report's JSON; those of ``split`` are how busy its prefill
engines, its decode engines and its links are, each on average, as shares of the run."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One variant, and what its replay came to."""

    settings: dict[str, Setting]
    load: float = 1.0
    """Arrivals were so many times as fast as the workload's."""
    problem: str | None = None
    """Why it could not be replayed: vLLM would not start with it, or refuse a request."""
    stopped: str | None = None
    """Why its replay was ended early; figures are then missing. None: it ran to its end."""
    requests: int = 0
    refused: int = 0
    """Requests that were refused, and turns left out after them."""
    cancelled: int = 0
    unfinished: int = 0
    censored: list[str] = []
    """Figures that are lower bounds: they rest on requests that were not served."""
    parts: dict[str, tuple[int, int]] = {}
    """Metric of a caller's own that leaves requests out -> of how many it is, and how many came."""
    is_open: bool = False
    """A bound is neither met nor missed: its figure rests on such requests, or there is none."""
    open_for: dict[str, str] = {}
    """Bound that is open -> why, a code of :data:`tokenyard.explain.slo.OPEN_FOR`."""
    met: bool | None = None
    """Whether every bound on a statistic holds, and goes on to: what is overloaded meets none. None where there is no
    bound, or one is open and none is missed."""
    tightness: float | None = None
    """The figure nearest to its bound, as a share of it: above 1 it is missed. None without bounds, and where the
    replay was ended early: it is not known what it would have come to."""
    tightness_above: float | None = None
    """Where it was ended early because a bound is missed for certain: its ``tightness`` would be more than this."""
    tightest: str | None = None
    """Name of that bound; where the replay was ended early, of one that is missed for certain."""
    figures: dict[str, float | None] = {}
    held_by: str | None = None
    """What most waiting time was lost to; None: no request was held back."""
    held_s: float = 0.0
    """Request-seconds lost to it."""
    held_at: str | None = None
    """The side of a split on which requests wait: ``prefill`` or ``decode``."""
    gpu: str | None = None
    gpus: int | None = None
    """How many, at most where replicas come and go; None where a trace does not record it."""
    cost_per_hour: float | None = None
    """Cost of all GPUs, on average where replicas come and go; None without prices."""
    cost_per_million_tokens: float | None = None
    """Cost of a million tokens of output, over the whole run; None without prices."""
    drafts: AssumedAcceptance | None = None
    """What its TPOT rests on, where the acceptance of drafts was assumed."""
    state: LoadState | None = None
    """What it says of the load: the queue grows, or not, or arrivals were too few or too short to tell; None where they
    have no rate, or its replay was ended early."""
    nearly_steady: bool = False
    """It is ``short`` only since bounded figures of both halves differ, by chance or too little to miss a bound: the
    longest traffic then counts as steady."""
    answers_long: float | None = None
    """Arrivals went on for so many times the mean answer, or session."""
    times: int = 1
    """The traffic was made so many times as long."""
    variation: float | None = None
    """How unlike its requests are: the standard deviation of the work of one, in how long it is served and in how long
    after the one before it comes, over the mean. None where that was not looked at."""
    replays: int = 1
    """It took: none where it was known beforehand, several where a load was searched for."""
    taken: dict[str, Setting] = {}
    """Settings that were not given and are not vLLM's own, since vLLM would not start with those: a shorter
    ``max_model_len``."""
    traces: list[str] = []
    """Steps files of its engines, those that decode first, as seen from the folder of the sweep's traces."""

    def in_words(self, figure: str) -> str:
        """A latency, with a sign before it where it is a lower bound."""
        return milliseconds(self.figures.get(figure), at_least=figure in self.censored)

    @property
    def is_measured(self) -> bool:
        """Whether there are figures."""
        return self.problem is None and self.stopped is None

    @property
    def only_grows(self) -> bool:
        """Whether all figures are within their bounds, and are not met since a queue grows: it is the load."""
        is_within = self.tightness is not None and self.tightness <= 1
        return self.state is LoadState.OVERLOADED and is_within and not self.is_open

    @property
    def met_in_words(self) -> str:
        """Whether bounds hold: ``hold``, ``missed``, ``open``, ``overloaded``; empty where that is not known."""
        if self.is_open and self.met is None:
            return "open"
        return "" if self.met is None else "hold" if self.met else "overloaded" if self.only_grows else "missed"


class NotAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """One of several that were asked about, which cannot run; the others are answered."""

    name: str
    """The settings or the policy, as they were given."""
    code: str
    """``no_start``: vLLM would not start with them; ``serves_none``: none of the requests could be served; else the
    error's own."""
    problem: str
    """The reason, for people."""

    @classmethod
    def by(cls, name: str, error: TokenyardError) -> NotAnswered:
        """For the error that says why."""
        is_beside = error.code == SERVES_NONE and error.fix is not None
        return cls(name=name, code=error.code, problem=error.fix or "" if is_beside else str(error))


def row_in_words(row: Row) -> str:
    """The settings of a row for people, with those that were taken for it: ``gpu=l4 (with max_model_len=8192)``."""
    taken = f" (with {settings_in_words(row.taken)})" if row.taken else ""
    return f"{settings_in_words(row.settings)}{taken}"


def by_problem(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return each problem once, with the variants that have it."""
    variants: dict[str, list[Row]] = {}
    for row in rows:
        if row.problem is not None:
            variants.setdefault(row.problem, []).append(row)
    return variants


def first_in_words(rows: Sequence[Row]) -> str:
    """Return the settings of the first of some rows, and how many more there are."""
    more = f" and {count(len(rows) - 1)} more" if len(rows) > 1 else ""
    return f"{settings_in_words(rows[0].settings)}{more}"


def key_of(settings: Settings) -> str:
    """The same text for the same settings, in whatever order they stand."""
    return msgspec.json.encode(dict(sorted(settings.items()))).decode()


def settings_in_words(settings: Settings) -> str:
    """Settings for people: ``max_num_seqs=256 enable_prefix_caching=true split=none``; "as it is" for no setting."""
    return " ".join(f"{name}={word_of(value)}" for name, value in settings.items()) or "as it is"


def text_of_settings(settings: Mapping[str, Any]) -> str:
    """Settings as :func:`read_values` takes them: ``max_num_seqs=256,split=none``."""
    return ",".join(f"{name}={quoted(word_of(value))}" for name, value in settings.items())


def word_of(value: Setting) -> str:
    """A value as people write it: ``none``, ``true``, 256."""
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def figures_of(report: Report) -> dict[str, float | None]:
    """The :data:`FIGURES` that the report has."""
    known = {figure.name: figure.a for figure in figures(report, report)}
    return {name: None if (value := known.get(name)) is None else float(value) for name in FIGURES}


# ---------------------------------------------------------------------------------------------------------------------
# What a sweep or a plan has come to so far, on disk: rows as they come; a sweep has a table of all of them at the
# end.
#
#     DIR/lock             held while a process works here: a second one gets an error that names it
#     DIR/sweep.json       what is swept or planned: another sweep does not go on here
#     DIR/finished.jsonl   a line per finished variant; a last line that was cut off by a crash is written again
#     DIR/sweep.parquet    all rows, in the order of the variants, once all are there
#     DIR/traces           the traces of all variants, a folder each, if they were requested

SWEEP, FINISHED, TRACES = "sweep.json", "finished.jsonl", "traces"
_TABLE = "sweep.parquet"
_OF_A_ROW = (
    *("load", "problem", "stopped", "requests", "refused", "cancelled", "unfinished", "censored", "is_open", "met"),
    *("tightness", "tightest", "held_by", "held_s", "held_at", "gpu", "gpus"),
    *("cost_per_hour", "cost_per_million_tokens"),
)


def require_parquet() -> Any:
    """pyarrow and its Parquet module. Raises MissingExtraError."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtraError("pyarrow", "analysis") from None
    return pa, parquet


class Journal:
    """The directory of a sweep, in which no other process works meanwhile.

    Raises ConfigError if it cannot be written, belongs to another sweep, or another process works in it.
    """

    def __init__(self, directory: Path, identity: Mapping[str, Any]) -> None:
        """``identity`` is all that makes rows of one sweep comparable; JSON can hold it."""
        self.directory = directory
        self.rows: dict[str, Row] = {}
        """Finished variants, by their keys."""
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._check_ours()
            self._lock = FolderLock(directory)
        except FolderInUseError as error:
            fix = f"{error}: wait for it, end it, or name another directory"
            raise ConfigError("output", str(directory), fix) from None
        except OSError as error:
            raise _unwritable(directory, error) from None
        with ExitStack() as undo:
            undo.callback(self._lock.release)
            try:
                self._claim(msgspec.json.format(msgspec.json.encode(identity), indent=2))
                self._file = undo.enter_context((directory / FINISHED).open("ab"))
                self._read()
            except OSError as error:
                raise _unwritable(directory, error) from None
            undo.pop_all()

    @property
    def table(self) -> Path:
        """Where the table is, or will be."""
        return self.directory / _TABLE

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._lock.release()

    def __contains__(self, settings: Settings) -> bool:
        return key_of(settings) in self.rows

    def add(self, row: Row) -> None:
        """A variant is finished: it is on disk when this returns."""
        self.rows[key_of(row.settings)] = row
        self._file.write(msgspec.json.encode(row) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def write_table(self, variants: Sequence[Settings]) -> list[Row]:
        """All rows in the order of ``variants``, written as Parquet; the same rows give the same bytes."""
        rows = [self.rows[key_of(settings)] for settings in variants]
        arrow, parquet = require_parquet()
        part = self.table.with_suffix(".part")
        parquet.write_table(arrow.table(table_columns(rows)), part)
        part.replace(self.table)
        return rows

    def get(self, settings: Settings) -> Row | None:
        """The row of a variant, if it is finished."""
        return self.rows.get(key_of(settings))

    def remove(self) -> None:
        """Take all of it off the disk; whatever else lies in the directory stays."""
        self._file.close()
        for name in (FINISHED, SWEEP, LOCK):
            (self.directory / name).unlink(missing_ok=True)
        self._lock.release()
        with suppress(OSError):
            self.directory.rmdir()

    def _check_ours(self) -> None:
        """Raise ConfigError for a directory with something else in it."""
        names = {each.name for each in self.directory.iterdir()}
        if names and not names & {LOCK, SWEEP}:
            raise ConfigError("output", str(self.directory), "is not empty, and holds no sweep: name another one")

    def _claim(self, identity: bytes) -> None:
        path = self.directory / SWEEP
        if not path.exists():
            part = path.with_suffix(".part")
            part.write_bytes(identity)
            part.replace(path)
        elif path.read_bytes() != identity:
            fix = "holds another sweep or plan (sweep.json says which): name another directory, or remove it"
            raise ConfigError("output", str(self.directory), fix)

    def _read(self) -> None:
        """What is there already; the lock is ours, so nothing is appended meanwhile."""
        data = (self.directory / FINISHED).read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        try:
            self.rows.update(read_finished(whole))
        except msgspec.DecodeError as error:
            fix = f"{FINISHED} holds a line that is no row ({error}): remove it, or the whole directory"
            raise ConfigError("output", str(self.directory), fix) from None
        if len(whole) < len(data):
            self._file.truncate(len(whole))


def _unwritable(directory: Path, error: OSError) -> ConfigError:
    return ConfigError("output", str(directory), f"cannot be written: {error.strerror or error}")


def read_finished(data: bytes) -> dict[str, Row]:
    """The rows of whole lines, by their keys. Raises msgspec.DecodeError."""
    decoder = msgspec.json.Decoder(Row)
    return {key_of(row.settings): row for row in map(decoder.decode, data.splitlines())}


def table_columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Settings by their names, then what rows say of themselves, then figures as a report's JSON names them."""
    settings = dict.fromkeys(name for row in rows for name in row.settings)
    columns: dict[str, list[Any]] = {name: _alike([row.settings.get(name) for row in rows]) for name in settings}
    columns |= {name: [getattr(row, name) for row in rows] for name in _OF_A_ROW if name not in columns}
    columns["censored"] = [" ".join(row.censored) or None for row in rows]
    if any(row.taken for row in rows):
        columns["taken"] = [settings_in_words(row.taken) if row.taken else None for row in rows]
    names = dict.fromkeys((*FIGURES, *(name for row in rows for name in row.figures)))
    return columns | {name: [_float(row.figures.get(name)) for row in rows] for name in names}


def rows_table(rows: Sequence[Row]) -> RowTable:
    """The same as a table."""
    return RowTable("variants", {name: column_of(values) for name, values in table_columns(rows).items()})


def _alike(values: list[Any]) -> list[Any]:
    """Values of one type, as a column has to have: texts where they are of several."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1:
        return values
    if kinds <= {int, float}:
        return [None if value is None else float(value) for value in values]
    return [None if value is None else str(value) for value in values]


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)
