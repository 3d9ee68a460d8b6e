"""A file of JSON lines that survives a crash: only whole lines ever reach it.

Records are encoded into a buffer in memory and written in one go, so a process that dies loses the last buffer and
never half a line. When a write stops in the middle (a full disk) the file is cut back to its last whole line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

__all__ = ["LineFile", "Piece", "encodable", "valid_text"]


Piece = bytes | tuple[bytes, tuple[Any, ...]]
"""Part of a line: bytes, or a format and its values, to be put together when there is time for it."""


def encodable(value: object) -> object:
    """What to write for a value that JSON has no form for: numbers of numpy as numbers, the rest as text."""
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
        self.pieces: list[Piece] = []
        """What waits, always in this very list. Whoever is in a hurry may extend it, by whole lines, ends included."""
        self.num_bytes = 0
        """Its length, about; whoever extends it adds to it."""
        self._fd = -1
        self._size = 0

    def append(self, record: msgspec.Struct, extra: Mapping[str, object] | None = None) -> None:
        """Encode ``record``, with the fields of ``extra`` behind its own."""
        line = _encoded(record, extra)
        self.pieces += (line, b"\n")
        self.num_bytes += len(line) + 1

    def take(self) -> list[Piece]:
        """What waits; nothing waits then."""
        pieces = self.pieces.copy()
        self.pieces.clear()
        self.num_bytes = 0
        return pieces

    def put_down(self, given: Sequence[Piece]) -> None:
        """Write whole lines, given in pieces. Raises OSError and leaves whole lines behind."""
        if not given:
            return
        pieces = [piece if isinstance(piece, bytes) else piece[0] % piece[1] for piece in given]
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
        self.take()
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


def _encoded(record: msgspec.Struct, extra: Mapping[str, object] | None) -> bytes:
    try:
        line = _ENCODER.encode(record)
        return line[:-1] + b"," + _ENCODER.encode(extra)[1:] if extra else line
    except UnicodeEncodeError:
        fields = msgspec.to_builtins(record, enc_hook=encodable, str_keys=True)
        return _ENCODER.encode(_without_surrogates(fields | dict(extra or {})))
