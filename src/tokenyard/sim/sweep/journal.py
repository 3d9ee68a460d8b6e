"""What a sweep or a plan has come to so far, on disk: rows as they come; a sweep has a table of all of them at the end.

DIR/lock             held while a process works here: a second one is told who does
DIR/sweep.json       what is swept or planned: another sweep does not go on here
DIR/finished.jsonl   a line per finished variant; a last line that was cut off by a crash is written again
DIR/sweep.parquet    all rows, in the order of the variants, once all are there
DIR/traces           the traces of all variants, a folder each, if they were asked for
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from tokenyard.errors import ConfigError, MissingExtraError
from tokenyard.files.locks import LOCK, FolderInUseError, FolderLock
from tokenyard.sim.sweep.row import FIGURES, Row, Settings, key_of

__all__ = ["FINISHED", "SWEEP", "TRACES", "Journal", "read_finished", "require_parquet", "table_columns"]

SWEEP, FINISHED, TRACES = "sweep.json", "finished.jsonl", "traces"
_TABLE = "sweep.parquet"
_OF_A_ROW = (
    *("load", "problem", "stopped", "requests", "refused", "met", "tightness", "tightest", "held_by", "held_s"),
    *("held_at", "gpu", "gpus", "cost_per_hour", "cost_per_million_tokens"),
)


def require_parquet() -> Any:
    """pyarrow and its Parquet module. Raises MissingExtraError."""
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise MissingExtraError("pyarrow", "analysis") from None


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
        """What is there already; the lock is ours, so nobody appends meanwhile."""
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
    return columns | {name: [_float(row.figures.get(name)) for row in rows] for name in FIGURES}


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
