"""The Parquet files of a trace: its own, or made for the moment."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenyard.trace.columnar.convert import OnProgress, convert
from tokenyard.trace.files import TraceFiles, is_columnar

__all__ = ["as_parquet"]


@contextmanager
def as_parquet(files: TraceFiles, on_progress: OnProgress | None = None) -> Iterator[TraceFiles]:
    """``files`` as Parquet; what is JSON lines is converted into a directory that goes away in the end."""
    with tempfile.TemporaryDirectory(prefix="tokenyard-") as directory:
        twins: list[Path | None] = []
        for kind, path in (("steps", files.steps), ("requests", files.requests)):
            twin = path
            if path is not None and not is_columnar(path):
                twin = Path(directory) / f"{kind}.parquet"
                convert(path, twin, kind, compression="snappy", on_progress=on_progress)
            twins.append(twin)
        yield TraceFiles(*twins)
