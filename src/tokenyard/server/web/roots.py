"""What may be read: trace files below the directories that were named, and the files that were named."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from tokenyard.server.web.problems import RefusedError
from tokenyard.trace.read.files import PACKINGS, TraceFiles, find_trace

__all__ = ["ANNOTATIONS_ENDING", "Roots", "siblings"]

ANNOTATIONS_ENDING = ".annotations.json"
_ENDINGS = (*PACKINGS, ANNOTATIONS_ENDING)
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class Roots:
    """The directories and files that were named, with all links resolved."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Take existing directories and files."""
        real = [Path(os.path.realpath(path)) for path in paths]
        self.directories = [path for path in real if path.is_dir()]
        named = [path for path in real if not path.is_dir()]
        self.files = {each for path in named for each in (path, *siblings(path))}

    def resolve(self, text: str | None) -> Path:
        """The file that a request names. Raises RefusedError if it is not to be read, be it there or not."""
        if not text:
            raise RefusedError(400, "path", text or "", "name a file, as /api/traces gives it")
        path = Path(text)
        if "\0" in text or not path.is_absolute() or ".." in path.parts:
            raise RefusedError(403, "path", text, "must be an absolute path without `..`, as /api/traces gives it")
        real = Path(os.path.realpath(path))
        if not self.allows(real):
            raise RefusedError(403, "path", text, "is not a trace file in the folders that this server serves")
        return real

    def allows(self, real: Path) -> bool:
        """Whether a path without links may be read."""
        if real in self.files:
            return True
        return real.name.endswith(_ENDINGS) and any(real.is_relative_to(root) for root in self.directories)

    def open(self, text: str | None) -> BinaryIO:
        """The file itself. Raises RefusedError, with 404 if it is not there."""
        real = self.resolve(text)
        try:
            fd = os.open(real, _FLAGS)
        except OSError as error:
            raise RefusedError(404, "path", text, f"cannot be opened: {error.strerror or error}") from None
        if not stat.S_ISREG(os.fstat(fd).st_mode) or not self.allows(_opened(fd, real)):
            os.close(fd)
            raise RefusedError(403, "path", text, "is no file")
        return os.fdopen(fd, "rb")

    def existing(self, text: str | None) -> Path:
        """The path of a file that is there and may be read. Raises RefusedError."""
        with self.open(text):
            return self.resolve(text)

    def trace(self, text: str | None, *, with_requests: bool) -> TraceFiles:
        """The trace file that a request names, and the requests file beside it if it is asked for.

        Raises RefusedError where one of them is not to be read, TraceError where the one named is no trace.
        """
        found = find_trace(self.existing(text))
        if found.steps is None or not with_requests:
            return found
        beside = (path for path in siblings(found.steps) if path.name.endswith(PACKINGS) and path.is_file())
        path = next(beside, None)
        return found if path is None else found._replace(requests=self.existing(str(path)))


def _opened(fd: int, real: Path) -> Path:
    """Where an open file is, as the system knows it: a folder may have been swapped for a link meanwhile."""
    try:
        return Path(f"/proc/self/fd/{fd}").readlink()
    except OSError:
        return real


def siblings(path: Path) -> list[Path]:
    """The other file of the pair, in whatever packing it is there, and the annotations."""
    found = [path.with_name(path.name + ANNOTATIONS_ENDING)]
    for mine, other in ((".steps", ".requests"), (".requests", ".steps")):
        for packing in PACKINGS:
            if path.name.endswith(mine + packing):
                stem = path.name.removesuffix(mine + packing)
                found += [path.with_name(stem + other + each) for each in PACKINGS]
    return found
