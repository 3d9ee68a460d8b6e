"""Which files a workload is read from: one, several, or those that fit a pattern."""

from __future__ import annotations

from collections.abc import Sequence
from glob import glob, has_magic
from pathlib import Path

from tokenyard.errors import WorkloadError

__all__ = ["workload_files"]


def workload_files(spec: str | Path | Sequence[str | Path], otherwise: str) -> list[Path]:
    """The files. WorkloadError if a name is no file; ``otherwise`` says what else it could have been."""
    names = [spec] if isinstance(spec, str | Path) else list(spec)
    if len(names) > 1:
        otherwise = "a pattern of files: only logs are merged, by time"
    return [path for name in names for path in _paths(name, otherwise)]


def _paths(name: str | Path, otherwise: str) -> list[Path]:
    path = Path(name)
    if path.exists():
        return [path]
    if isinstance(name, str) and has_magic(name):
        found = sorted(glob(name))  # noqa: PTH207 - the pattern may be an absolute one
        if found:
            return [Path(each) for each in found]
        raise WorkloadError(name, 0, "is a pattern that no file fits")
    raise WorkloadError(name, 0, f"is neither a file nor {otherwise}")
