"""A file of JSON lines that survives a crash, and that one process writes.

Records are gathered in memory and written as whole lines in one go, so a process that dies loses what it had gathered.
When a write stops in the middle (a full disk) the file is cut back to its last whole line; only a kill in the very
middle of a write can leave half a line, which readers leave out and count.
"""

from __future__ import annotations

import errno
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np

from tokenyard.files.locks import try_lock
from tokenyard.printable import with_valid_text

__all__ = ["Deferred", "LineFile", "Lines", "claim", "encodable"]

_FLAGS = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)

_GAP = b"\0"
_LINE = _GAP + b"\n"
_RECORD_BYTES = 300
"""Length of a small record's line, about."""


class Lines:
    """Lines that wait, in three lists: templates, numbers for them, and pieces of JSON for them.

    A template is one or more whole lines in which ``%b`` stands for a number and a zero byte for a piece. A step has to
    pay for keeping numbers only; the lines are put together when they are written.

    Whoever extends the lists sets ``is_open`` while it does, adds the template last, and calls ``drop_unfinished``
    first if it finds it set: so an interrupt in between costs this line, and not the others.
    """

    __slots__ = ("is_open", "num_bytes", "numbers", "pieces", "templates")

    def __init__(self) -> None:
        self.templates: list[bytes] = []
        self.numbers: list[float | None] = []
        self.pieces: list[bytes | msgspec.Struct] = []
        """JSON, or a record that becomes JSON when it is written; nobody changes it before."""
        self.num_bytes = 0
        """Length of the lines, about; whoever extends the lists adds to it."""
        self.is_open = False
        """A line is being added, or the adding was interrupted."""

    def append(self, line: bytes | msgspec.Struct) -> None:
        """Add a line, without its end."""
        if self.is_open:
            self.drop_unfinished()
        self.is_open = True
        self.num_bytes += len(line) + 1 if isinstance(line, bytes) else _RECORD_BYTES
        self.pieces.append(line)
        self.templates.append(_LINE)
        self.is_open = False

    def drop_unfinished(self) -> None:
        """Drop the numbers and pieces of a line whose adding was interrupted."""
        del self.numbers[sum(template.replace(b"%%", b"").count(b"%b") for template in self.templates) :]
        del self.pieces[sum(template.count(_GAP) for template in self.templates) :]
        self.is_open = False

    def take(self) -> Lines:
        """All of them; none are left here."""
        if self.is_open:
            self.drop_unfinished()
        taken = Lines()
        taken.templates, taken.numbers, taken.pieces = self.templates, self.numbers, self.pieces
        taken.num_bytes = self.num_bytes
        self.templates, self.numbers, self.pieces, self.num_bytes = [], [], [], 0
        return taken

    def render(self) -> list[bytes]:
        """The text of all lines, in parts."""
        text = b"".join(self.templates)
        if self.numbers:
            text %= tuple(_ENCODER.encode(self.numbers)[1:-1].split(b","))
        parts = [b""] * (2 * len(self.pieces) + 1)
        parts[::2] = text.split(_GAP)
        parts[1::2] = [piece if isinstance(piece, bytes) else _encoded(piece) for piece in self.pieces]
        return parts


class Deferred(ABC):
    """A value of a record that is made when the record is written, by the thread that writes."""

    @abstractmethod
    def made(self) -> object:
        """What to write. It may be asked for twice."""


def encodable(value: object) -> object:
    """What to write for a value that JSON has no notation for: numbers of numpy as numbers, the rest as text."""
    if isinstance(value, Deferred):
        return value.made()
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return str(value)


_ENCODER = msgspec.json.Encoder(enc_hook=encodable)


def claim(path: Path) -> int:
    """A file that this process alone writes, empty; its directory is made.

    The lock belongs to the open file: it ends when that is closed or the process dies. Raises OSError, also if another
    writer has the file, or if it is a pipe or a device, for which nobody waits.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, _FLAGS, 0o644)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "is no file on a disk", str(path))
        if not try_lock(fd):
            raise OSError(errno.EBUSY, "is being written by another run", str(path))
        os.ftruncate(fd, 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


class LineFile:
    """Gathers the lines of one file in memory, and puts them down.

    Not created, not even its directory made, before there is something to put down, unless it was claimed. An existing
    file is replaced: a trace file holds one run.
    """

    def __init__(self, path: Path, claimed: int = -1) -> None:
        """``claimed``: what :func:`claim` gave for ``path``, if it was asked."""
        self.path = path
        self.waiting = Lines()
        self._fd = claimed
        self._size = 0

    def append(self, record: msgspec.Struct, extra: Mapping[str, object] | None = None) -> None:
        """Encode ``record``, with the fields of ``extra`` behind its own."""
        self.waiting.append(_encoded(record, extra))

    def append_small(self, record: msgspec.Struct) -> None:
        """Add a record that is encoded when it is written; it must not change any more."""
        self.waiting.append(record)

    def put_down(self, lines: Lines) -> None:
        """Write lines. Raises OSError and leaves whole lines behind."""
        text = b"".join(lines.render())
        if self._fd < 0:
            self._fd = claim(self.path)
        self.check()
        done = 0
        try:
            while done < len(text):
                done += os.write(self._fd, memoryview(text)[done:])
        except OSError:
            os.ftruncate(self._fd, self._size + text.rfind(b"\n", 0, done) + 1)
            raise
        self._size += done

    def check(self) -> None:
        """Raise OSError if the file is not in its place any more: what is written to it would be lost."""
        if self._fd >= 0 and not (self.path.exists() and os.path.samestat(self.path.stat(), os.fstat(self._fd))):
            raise OSError(errno.ENOENT, "was removed or replaced while it was written", str(self.path))

    def discard(self) -> None:
        """Forget what waits and close the file."""
        self.waiting.take()
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def _encoded(record: msgspec.Struct, extra: Mapping[str, object] | None = None) -> bytes:
    try:
        line = _ENCODER.encode(record)
        return line[:-1] + b"," + _ENCODER.encode(extra)[1:] if extra else line
    except UnicodeEncodeError:
        fields = msgspec.to_builtins(record, enc_hook=encodable, str_keys=True)
        return _ENCODER.encode(with_valid_text(fields | dict(extra or {})))
