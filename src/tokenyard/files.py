"""Files that people name: opened safely, read in bounds, written whole, locked by one process."""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from datetime import UTC, datetime
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import IO, Any, BinaryIO, Literal, cast

from tokenyard.errors import ConfigError, FileError, MissingExtraError
from tokenyard.quick_dataclass import dataclass

# ---------------------------------------------------------------------------------------------------------------------
# What a file may ask for before it is refused, and the environment variable that raises each bound.
#
# A file must never cost more than its size warrants: a few kilobytes of compressed data can stand for gigabytes.

MIB = 1 << 20
_MOST = 1 << 40
_MOST_NESTING = 400
"""Beyond it Python's own stack ends."""
FREE_RATIO = 250
"""A file may unpack to so many times its size, whatever the bound: traces reach some fifty times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The largest of each that is read. :meth:`from_env` reads the variables that raise (or lower) them.

    An object in memory takes some 25 times the room of its JSON, so the defaults keep a command below 1 GB.
    """

    line_mb: int = 16
    """MiB of one line, unpacked. ``TOKENYARD_MAX_LINE_MB``."""
    parquet_mb: int = 1_024
    """MiB of memory that the process may take that decodes a Parquet file. ``TOKENYARD_MAX_PARQUET_MB``."""
    nesting: int = 100
    """Depth of lists and objects in a line of JSON. ``TOKENYARD_MAX_NESTING``."""
    unpacked_mb: int = 4
    """MiB that a compressed file may hold beyond 250 times its size. ``TOKENYARD_MAX_UNPACKED_MB``."""

    @classmethod
    def from_env(cls) -> Bounds:
        """The defaults, with what the environment names. Raises ConfigError for what is no whole number above 0."""
        given = {field.name: _from_env(field.name) for field in fields(cls)}
        return cls(**{name: value for name, value in given.items() if value is not None})

    @property
    def line_bytes(self) -> int:
        return self.line_mb * MIB

    def unpacked_bytes(self, packed_bytes: int) -> int:
        """Bytes that a compressed file of ``packed_bytes`` may hold."""
        return max(self.unpacked_mb * MIB, FREE_RATIO * packed_bytes)

    def too_much(self, path: object) -> FileError:
        """The error for a file that holds more than :meth:`unpacked_bytes`."""
        return self.exceeded(path, f"it unpacks to more than {FREE_RATIO} times its size, and to more", "unpacked_mb")

    def exceeded(self, path: object, what: str, bound: str) -> FileError:
        """The error for a file with something larger than ``bound``, the name of a field."""
        value, unit = getattr(self, bound), " MiB" if bound.endswith("_mb") else " levels"
        return FileError(path, f"{what} than {value}{unit}: if you trust it, set {_variable(bound)} higher")


def _variable(bound: str) -> str:
    return f"TOKENYARD_MAX_{bound.upper()}"


def _from_env(bound: str) -> int | None:
    text = os.environ.get(_variable(bound))
    if not text:
        return None
    most = _MOST_NESTING if bound == "nesting" else _MOST // MIB
    value = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    if not 1 <= value <= most:
        raise ConfigError(_variable(bound), text, f"give a whole number from 1 to {most}")
    return value


# ---------------------------------------------------------------------------------------------------------------------
# Opening a file that a user named: regular files only, never waited for, and inside what may be read.

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def open_input(path: Path | str) -> BinaryIO:
    """The file at ``path``, open for reading, unbuffered by name: what is read is what was checked.

    A pipe, socket, device or directory is refused and never waited for. Raises FileError.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - also for text with a zero byte
            raise _no_file(path)
        fd = os.open(path, _FLAGS)
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror or error}") from None
    except ValueError:  # a zero byte in the name
        raise FileError(path, "cannot be read: no such file") from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):  # it was swapped meanwhile
            raise _no_file(path)
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def opened_path(fd: int, path: Path) -> Path:
    """Where an open file is, as the system knows it; ``path`` where the system does not say."""
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


# ---------------------------------------------------------------------------------------------------------------------
# A file that is written appears under its name when it is whole, and not before.


@contextmanager
def written_whole(path: Path, failed: Callable[[str], Exception]) -> Iterator[BinaryIO]:
    """A file to write, which replaces ``path`` when the block ends, and is removed if it raises.

    An OSError is raised as what ``failed`` makes of its problem, ``cannot be written: ...``.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with unfinished.open("wb") as file:
            yield file
        unfinished.replace(path)
    except OSError as error:
        raise failed(f"cannot be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


# ---------------------------------------------------------------------------------------------------------------------
# pyarrow, imported when it is needed: it belongs to the extra ``analysis``.


def arrow() -> Any:
    """The module ``pyarrow`` with ``pyarrow.compute`` loaded; MissingExtraError without it."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        import pyarrow.compute  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("pyarrow", "analysis") from None
    return pa


def packaged(package: str, name: str) -> bytes:
    """A file that comes with a package of ours, from wherever that was loaded.

    As :func:`importlib.resources.files`, which loads modules for archives and for temporary files first.
    """
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    data: bytes = cast(Any, spec.loader).get_data(str(Path(spec.origin).parent / name))
    return data


# ---------------------------------------------------------------------------------------------------------------------
# The lines of an input file, plain, gzipped or compressed with zstd, each within the bounds.

Packing = Literal["plain", "gz", "zst"]
_GZIP_MAGIC = b"\x1f\x8b"
_BAD_DATA = (EOFError, gzip.BadGzipFile, zlib.error)


class DamagedFileError(FileError):
    """A compressed file ends early or holds nonsense from here on; the lines before were read."""


def packing_of(path: Path) -> Packing:
    """How a file is packed, by its name."""
    return {".gz": "gz", ".zst": "zst"}.get(path.suffix, "plain")  # type: ignore[return-value]  # get loses the literals


def unpacked(file: BinaryIO, packing: Packing) -> IO[bytes]:
    """What an open file holds. Its data are unpacked as they are read, so that memory holds little of them."""
    if packing == "gz":
        return cast("IO[bytes]", gzip.GzipFile(fileobj=file, mode="rb"))
    if packing == "zst":
        pa = arrow()
        return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd"))
    return file


def bounded_lines(path: Path, packing: Packing | None = None, bounds: Bounds | None = None) -> Iterator[bytes]:
    """Every line with its line feed, blank ones included; ``packing`` None is decided by the name of the file.

    Raises FileError if the file cannot be opened or read or exceeds a bound, DamagedFileError where compressed data
    end early, MissingExtraError for zstd where pyarrow is absent.
    """
    bounds = bounds or Bounds.from_env()
    number = 0
    try:
        with open_input(path) as file:
            packing = packing or packing_of(path)
            most, left = bounds.line_bytes, bounds.unpacked_bytes(os.fstat(file.fileno()).st_size)
            for number, line in enumerate(_lines_in(unpacked(file, packing), most), 1):
                if len(line) > most:
                    raise bounds.exceeded(path, f"line {number:,} is longer", "line_mb")
                left -= len(line)
                if left < 0 and packing != "plain":
                    raise bounds.too_much(path)
                yield line
    except _BAD_DATA as error:
        raise _damaged(path, number, error) from None
    except OSError as error:
        if error.errno is None:  # not from the system: the data, as zstd sees it
            raise _damaged(path, number, error) from None
        raise FileError(path, f"cannot be read: {error.strerror or error}") from None


def _lines_in(file: IO[bytes], most: int) -> Iterator[bytes]:
    """Lines with their line feeds; one of more than ``most`` bytes is cut somewhere behind them, and is the last.

    They are taken apart as many as are unpacked at a time, which is few: what precedes damage is read.
    """
    read = cast("io.BufferedReader", file).read1
    begun: list[bytes] = []
    size = 0
    while data := read(io.DEFAULT_BUFFER_SIZE):
        begun.append(data)
        size += len(data)
        if b"\n" not in data and size <= most:
            continue
        *whole, last = io.BytesIO(b"".join(begun)).readlines()
        yield from whole
        if last.endswith(b"\n") or len(last) > most:
            yield last
            last = b""
        begun, size = [last], len(last)
    if size:
        yield b"".join(begun)


def _damaged(path: Path, number: int, error: Exception) -> DamagedFileError:
    return DamagedFileError(path, f"compressed data is cut off or damaged after line {number}: {error}")


def read_unpacked(path: Path, most_bytes: int) -> bytes:
    """The whole of a file, plain or gzipped by its content. Raises FileError, also beyond ``most_bytes``."""
    with open_input(path) as file:
        try:
            zipped = file.read(2) == _GZIP_MAGIC
            file.seek(0)
            data = unpacked(file, "gz" if zipped else "plain").read(most_bytes + 1)
        except (OSError, *_BAD_DATA) as error:
            raise FileError(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > most_bytes:
        raise FileError(path, f"holds more than {most_bytes:,} bytes, which no such file does")
    return data


def is_gzipped(path: Path) -> bool:
    """Whether a file is gzipped, by its first bytes. Raises FileError if it cannot be opened."""
    with open_input(path) as file:
        return file.read(2) == _GZIP_MAGIC


# ---------------------------------------------------------------------------------------------------------------------
# How deep lists and objects lie in each other, counted before anything is decoded: code that walks them recurses.

_STRUCTURE = b'[]{}"\\'
_REST = bytes(set(range(256)) - set(_STRUCTURE))
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_STRING = re.compile(rb'"[^"]*"?')
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def is_nested_deeper(text: bytes, levels: int) -> bool:
    """Whether lists and objects in a text of JSON nest deeper than ``levels``; brackets in strings do not count."""
    if text.count(b"[") + text.count(b"{") <= levels:
        return False
    return max(accumulate(map(_STEP.__getitem__, _brackets(text))), default=0) > levels


def has_more_brackets(text: bytes, most: int) -> bool:
    """Whether a text of JSON has more lists and objects than ``most``; brackets in strings do not count."""
    if text.count(b"[") + text.count(b"{") <= most:
        return False
    brackets = _brackets(text)
    return brackets.count(b"[") + brackets.count(b"{") > most


def _brackets(text: bytes) -> bytes:
    """The brackets of a text of JSON that do not stand in strings."""
    # An escape is gone with what follows it before strings are looked for, or dropped with the letter it escapes.
    escapes = _ESCAPED.sub(b"", text) if b"\\" in text else text
    return _STRING.sub(b"", escapes.translate(None, _REST)).replace(b"\\", b"")


# ---------------------------------------------------------------------------------------------------------------------
# Locks of the operating system: one process at a time writes a file, or works in a folder.
#
# A lock belongs to the open file, so it ends when that is closed or its process dies, however it dies: none can be
# left behind. A forked child shares the open file and would keep the lock as long as it lives: so who closes a locked
# file ends its lock as well. Where the system or the file system has no such locks, every process gets one.

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # a module elsewhere


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


def close_locked(fd: int) -> None:
    """Close an open file and end its lock, also where a child process still has the file open: they share one lock."""
    if fcntl is not None:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


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
        """End the lock: other processes may work in the folder."""
        if self._fd >= 0:
            close_locked(self._fd)
            self._fd = -1

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def _locked(path: Path) -> int:
    """The file, open and locked, and still there: its owner may have removed it meanwhile."""
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
    from socket import gethostname  # noqa: PLC0415 - rarely needed, and takes time to load

    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"process {os.getpid()} on host {gethostname()} since {since}"
