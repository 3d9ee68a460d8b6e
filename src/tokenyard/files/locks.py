"""Locks of the operating system: one process at a time writes a file, or works in a folder.

A lock belongs to the open file, so it ends when that is closed or its process dies, however it dies: none can be left
behind. Where the system or the file system has no such locks, everybody gets one.
"""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # a module elsewhere

__all__ = ["LOCK", "FolderInUseError", "FolderLock", "try_lock"]

LOCK = "lock"
"""Name of the file by which a folder is locked; it stays, and says who locked the folder last."""
_LONGEST = 200
"""Characters that are read of who has a folder."""


def try_lock(fd: int) -> bool:
    """Lock an open file until it is closed; False if another process, or another open file of this one, has it."""
    if fcntl is not None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass  # a file system without locks
    return True


class FolderInUseError(Exception):
    """Another process works in the folder."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"is in use by {holder}")
        self.holder = holder
        """``process 4711 on host gpu-3 since 2026-05-04 10:11:12``."""


class FolderLock:
    """A folder that this process alone works in, until ``release``."""

    def __init__(self, folder: Path) -> None:
        """Raises FolderInUseError if another process has it, OSError if it cannot be written."""
        self._fd = _locked(folder / LOCK)
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{_who()}\n".encode(), 0)

    def release(self) -> None:
        """Others may work there."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def _locked(path: Path) -> int:
    """The file, open and locked, and still there: whoever had it may have removed it meanwhile."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        try:
            if not try_lock(fd):
                raise FolderInUseError(os.pread(fd, _LONGEST, 0).decode(errors="replace").strip() or "another process")
            if path.exists() and os.path.samestat(os.fstat(fd), path.stat()):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _who() -> str:
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"process {os.getpid()} on host {socket.gethostname()} since {since}"
