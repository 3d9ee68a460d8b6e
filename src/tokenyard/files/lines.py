"""The lines of an input file, plain, gzipped or compressed with zstd, each within the bounds."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO, Literal, cast

from tokenyard.errors import FileError
from tokenyard.files.arrow import arrow
from tokenyard.files.bounds import Bounds
from tokenyard.files.opening import open_input

__all__ = ["DamagedFileError", "Packing", "bounded_lines", "is_gzipped", "packing_of", "read_unpacked", "unpacked"]

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
    """Every line with its line feed, blank ones included; ``packing`` None goes by the name of the file.

    Raises FileError if the file cannot be opened or read or exceeds a bound, DamagedFileError where compressed data
    end early, MissingExtraError for zstd where pyarrow is absent.
    """
    bounds = bounds or Bounds.from_env()
    number = 0
    try:
        with open_input(path) as file:
            packing = packing or packing_of(path)
            most, left = bounds.line_bytes, bounds.unpacked_bytes(os.fstat(file.fileno()).st_size)
            # Line by line from the unpacking file itself: a larger buffer in front would lose what precedes a cut.
            for number, line in enumerate(iter(partial(unpacked(file, packing).readline, most + 1), b""), 1):
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
