"""Tells a file from another under the same name: a new run may write over the old one, or beside it and rename."""

from __future__ import annotations

import hashlib
import os
from typing import BinaryIO

__all__ = ["identity_of", "is_other"]

_FIRST_LINE = 64 * 1024


def identity_of(file: BinaryIO) -> str:
    """Where the file is and how it begins; the latter only once its first line is whole. Moves the file's position."""
    status = os.fstat(file.fileno())
    file.seek(0)
    first = file.readline(_FIRST_LINE)
    digest = hashlib.blake2s(first, digest_size=6).hexdigest() if first.endswith(b"\n") else ""
    return f"{status.st_dev:x}-{status.st_ino:x}.{digest}"


def is_other(before: str, now: str) -> bool:
    """Whether two identities are of different runs; an empty one was not known."""
    if not before:
        return False
    (place, _, line), (place_now, _, line_now) = before.partition("."), now.partition(".")
    return place != place_now or bool(line and line != line_now)
