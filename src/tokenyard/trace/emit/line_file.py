"""A file of JSON lines that survives a crash: only whole lines ever reach it.

Records are encoded into a buffer in memory and written in one go, so a process that dies loses the last buffer and
never half a line. When a write stops in the middle (a full disk) the file is cut back to its last whole line.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

__all__ = ["Deferred", "LineFile", "Lines", "encodable", "valid_text"]


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


_HAS_WRITEV = hasattr(os, "writev")
_PIECES_AT_ONCE = 1024
"""As many as every system takes in one write."""
_ENCODER = msgspec.json.Encoder(enc_hook=encodable)


def valid_text(text: str) -> str:
    """``text`` as UTF-8 can hold it: a lone surrogate becomes '?'."""
    return text.encode("utf-8", "replace").decode()


def _without_surrogates(value: Any) -> Any:
    """``value`` with every text in it made valid."""
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_surrogates(item) for item in value]
    return value


class LineFile:
    """Gathers the lines of one file in memory, and puts them down.

    Not created, not even its directory made, before there is something to put down. An existing file is replaced: a
    trace file holds one run.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.waiting = Lines()
        self._fd = -1
        self._size = 0

    def append(self, record: msgspec.Struct, extra: Mapping[str, object] | None = None) -> None:
        """Encode ``record``, with the fields of ``extra`` behind its own."""
        self.waiting.append(_encoded(record, extra))

    def append_small(self, record: msgspec.Struct) -> None:
        """Add a record that is encoded when it is written; it must not change any more."""
        self.waiting.append(record)

    def put_down(self, lines: Lines) -> None:
        """Write lines. Raises OSError and leaves whole lines behind."""
        pieces = lines.render()
        if self._fd < 0:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0), 0o644)
        done = 0
        try:
            for start in range(0, len(pieces), _PIECES_AT_ONCE):
                for written in _write(self._fd, pieces[start : start + _PIECES_AT_ONCE]):
                    done += written
        except OSError:
            os.ftruncate(self._fd, self._size + b"".join(pieces).rfind(b"\n", 0, done) + 1)
            raise
        self._size += done

    def discard(self) -> None:
        """Forget what waits and close the file."""
        self.waiting.take()
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def _write(fd: int, pieces: Sequence[bytes]) -> Iterator[int]:
    """Write all pieces, without putting them together first if that can be avoided; gives the bytes of each write."""
    total = sum(map(len, pieces))
    done = os.writev(fd, pieces) if _HAS_WRITEV else 0
    yield done
    if done < total:
        rest = memoryview(b"".join(pieces))[done:]
        while rest:
            done = os.write(fd, rest)
            yield done
            rest = rest[done:]


def _encoded(record: msgspec.Struct, extra: Mapping[str, object] | None = None) -> bytes:
    try:
        line = _ENCODER.encode(record)
        return line[:-1] + b"," + _ENCODER.encode(extra)[1:] if extra else line
    except UnicodeEncodeError:
        fields = msgspec.to_builtins(record, enc_hook=encodable, str_keys=True)
        return _ENCODER.encode(_without_surrogates(fields | dict(extra or {})))
