"""The Parquet files of a trace: its own, or made for the moment."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenyard.errors import TraceError
from tokenyard.trace.columnar.convert import convert, twin_of
from tokenyard.trace.columnar.reading import columnar_reader
from tokenyard.trace.read.files import TraceFiles, is_columnar

__all__ = ["as_parquet", "needed"]

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

    ``on_damage`` is told of a file that is cut off. Raises TraceError for one without any record, or beyond a bound.
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
        with columnar_reader(path) as reader:
            reader.check()
        return path
    twin = twin_of(path)
    try:
        if twin.stat().st_mtime_ns < path.stat().st_mtime_ns:
            return None
        with columnar_reader(twin) as reader:
            reader.check()
            return twin if reader.kind == kind else None
    except (OSError, TraceError):
        return None
