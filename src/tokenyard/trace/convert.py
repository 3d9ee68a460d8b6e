"""From one packing of a trace file to another: JSON lines, plain or gzipped, and Parquet.

Whatever the way, every record keeps its fields, its place and its values, and goes through memory a piece at a time.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from tokenyard.errors import ConfigError, TraceError
from tokenyard.files import DamagedFileError, written_whole
from tokenyard.trace.columnar.reading import columnar_head
from tokenyard.trace.columnar.writing import columnar_writer
from tokenyard.trace.reader import PACKINGS, find_trace, is_columnar, raw_lines

OnProgress = Callable[[int], None]
"""Called now and then with the bytes of JSON text done so far."""
_LINES_BETWEEN_REPORTS = 2_000


class Conversion(msgspec.Struct, frozen=True, kw_only=True):
    """What a conversion did."""

    source: str
    target: str
    source_bytes: int
    target_bytes: int
    lines: int
    bad_lines: int
    """Lines that are no JSON object. They are kept as they are."""
    records: int | None = None
    """Lines that are a JSON object; None where text is passed on unread."""
    first_bad_line: int | None = None
    """Number of the first, from 1."""
    json_bytes: int
    """Length of the JSON text."""
    damage: str | None = None
    """Where the source's compressed data is cut off, if it is: what stands before was converted."""


def twin_of(source: Path) -> Path:
    """The file beside ``source`` that a conversion makes if no other is named."""
    for packing in PACKINGS:
        if source.name.endswith(packing):
            return source.with_name(
                source.name.removesuffix(packing) + (PACKINGS[0] if is_columnar(source) else ".parquet")
            )
    return source.with_name(source.name + ".parquet")


def convert(
    source: Path, target: Path, kind: str, *, compression: str = "zstd", on_progress: OnProgress | None = None
) -> Conversion:
    """Write ``target``, packed as its name says, from ``source``, a ``steps`` or ``requests`` file.

    ``target`` appears when it is whole. Raises TraceError, ConfigError for a target that cannot be, MissingExtraError
    without pyarrow.
    """
    if source.exists() and target.exists() and source.samefile(target):
        raise ConfigError("output", str(target), "is the source itself: name another file")
    if not target.name.endswith((".jsonl", ".jsonl.gz", ".parquet")):
        raise ConfigError("output", str(target), "must end in .parquet, .jsonl or .jsonl.gz")
    lines = _Lines(source, on_progress)
    if is_columnar(target):
        with columnar_writer(target, kind, compression) as writer:
            for line in lines:
                writer.add(line)
        bad, first_bad, records = writer.bad_lines, writer.first_bad, writer.records
    else:
        with _text_file(target) as file:
            for line in lines:
                file.write(line)
        bad, first_bad, records = _bad_lines(source), None, None
    return Conversion(
        source=str(source),
        target=str(target),
        source_bytes=source.stat().st_size,
        target_bytes=target.stat().st_size,
        lines=lines.count,
        bad_lines=bad,
        records=records,
        first_bad_line=first_bad,
        json_bytes=lines.num_bytes,
        damage=lines.damage,
    )


class _Lines:
    """The lines of a source, line feeds included, counted as they pass."""

    def __init__(self, source: Path, on_progress: OnProgress | None) -> None:
        self.count = 0
        self.num_bytes = 0
        self.damage: str | None = None
        self._source = source
        self._on_progress = on_progress

    def __iter__(self) -> Iterator[bytes]:
        try:
            for line in raw_lines(self._source):
                self.count += 1
                self.num_bytes += len(line)
                yield line
                if self._on_progress is not None and self.count % _LINES_BETWEEN_REPORTS == 0:
                    self._on_progress(self.num_bytes)
        except DamagedFileError as error:
            self.damage = error.problem


def _bad_lines(source: Path) -> int:
    """Bad lines that the footer of a Parquet source counts; text, which is passed on as it is, has none."""
    return columnar_head(source).bad_lines if is_columnar(source) else 0


@contextmanager
def _text_file(path: Path) -> Iterator[IO[bytes]]:
    """A file of JSON lines that appears when it is whole."""
    with written_whole(path, lambda problem: TraceError(f"{path}: {problem}")) as sink:
        if path.suffix == ".gz":
            with gzip.GzipFile(filename="", mode="wb", fileobj=sink, mtime=0) as file:
                yield file  # type: ignore[misc]  # a GzipFile writes bytes, but is no IO for mypy
        else:
            yield sink


def work_of(trace: Path, output: Path | None, *, overwrite: bool) -> list[tuple[Path, Path, str]]:
    """(source, target, kind) of each file of a trace. Raises ConfigError for a target that is there already."""
    files = find_trace(trace)
    sources = [(path, kind) for path, kind in ((files.steps, "steps"), (files.requests, "requests")) if path]
    into_directory = output is not None and (
        len(sources) > 1 or output.is_dir() or (trace.is_dir() and not output.name.endswith(PACKINGS))
    )
    work = []
    for source, kind in sources:
        target = twin_of(source)
        if output is not None:
            target = output / target.name if into_directory else output
        if target.exists() and not overwrite:
            raise ConfigError("output", str(target), "exists already: name another with --output, or give --overwrite")
        work.append((source, target, kind))
    if output is not None:
        _make_directory(output if into_directory else output.parent)
    return work


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError("output", str(path), f"cannot be made a directory: {error.strerror or error}") from None
