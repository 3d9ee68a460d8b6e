"""Opening a file that somebody named: regular files only, never waited for, and inside what may be read."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from tokenyard.errors import FileError

__all__ = ["open_input", "opened_path", "read_input"]

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)


def open_input(
    path: Path | str, *, allows: Callable[[Path], bool] | None = None, follow_links: bool = True
) -> BinaryIO:
    """The file at ``path``, open for reading, unbuffered by name: what is read is what was checked.

    A pipe, socket, device or directory is refused and never waited for. ``allows`` is asked about the place where the
    open file really is, which no link put there meanwhile can change; ``follow_links=False`` refuses a path that ends
    in one. Raises FileError.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - also for text with a zero byte
            raise _no_file(path)
        fd = os.open(path, _FLAGS if follow_links else _FLAGS | _NO_LINKS)
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror or error}") from None
    except ValueError:  # a zero byte in the name
        raise FileError(path, "cannot be read: no such file") from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):  # it was swapped meanwhile
            raise _no_file(path)
        if allows is not None and not allows(opened_path(fd, Path(path))):
            raise FileError(path, "is outside of what may be read")
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def opened_path(fd: int, path: Path) -> Path:
    """Where an open file is, as the system knows it; ``path`` where the system does not tell."""
    try:
        return Path(f"/proc/self/fd/{fd}").readlink()
    except OSError:
        return path


def read_input(path: Path | str, most_bytes: int) -> bytes:
    """The whole of a small file. Raises FileError, also if it is larger than ``most_bytes``."""
    try:
        with open_input(path) as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror or error}") from None
    if len(data) > most_bytes:
        raise FileError(path, f"is larger than {most_bytes:,} bytes, which no such file is")
    return data


def _no_file(path: Path | str) -> FileError:
    if Path(path).is_dir():
        return FileError(path, "is a directory: name a file in it")
    return FileError(path, "is no file on a disk: pipes and devices are not read; save it to a file first")
