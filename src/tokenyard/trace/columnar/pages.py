"""What the pages of a Parquet column say of their size, each in its header: a footer may say something else.

Readers allocate the size that a page header gives before they unpack the page.
"""

from __future__ import annotations

import os

from tokenyard.trace.columnar.thrift import I32, Keep, ThriftReader

__all__ = ["PageSizes"]

_FIRST_LOOK = 1 << 12
"""Bytes read for a header, which has a few dozen; more are read if it goes on."""
_UNPACKED_SIZE, _PACKED_SIZE = 2, 3
_SIZES: Keep = {_UNPACKED_SIZE: I32, _PACKED_SIZE: I32}
"""Fields of a page header."""
_MOST_BYTES, _PAGE_BYTES = 4 << 20, 64
"""Of headers: they may take this much, and a sixteenth of the file beside it; each takes so much at least."""


class PageSizes:
    """The sizes of the pages of an open file."""

    def __init__(self, file: int) -> None:
        """``file`` is a descriptor."""
        self._file = file
        self._left = _MOST_BYTES + os.fstat(file).st_size // 16
        """Bytes of headers that are still looked at: columns can lie on top of each other."""

    def unpacked(self, start: int, length: int, most: int) -> int:
        """Unpacked bytes of the pages that lie in ``length`` bytes from ``start`` on.

        What comes after the first page with which they are more than ``most`` is not looked at. Raises ValueError if
        there is no page header where one has to be, or the file has too many pages.
        """
        total, at, end = 0, start, start + length
        while at < end and total <= most:
            unpacked, size, header = self._page_at(at, end - at)
            self._left -= max(header, _PAGE_BYTES)
            if self._left < 0:
                raise ValueError("too many pages for its size")
            total += unpacked
            at += size
        return total

    def _page_at(self, at: int, length: int) -> tuple[int, int, int]:
        """Of the page whose header begins at ``at``: its unpacked bytes, its bytes here, and of them the header's."""
        look = min(_FIRST_LOOK, length)
        while True:
            header = ThriftReader(os.pread(self._file, look, at))
            try:
                sizes = header.struct(_SIZES)
            except IndexError:
                if look >= length:
                    raise ValueError(f"no page header at byte {at}") from None
                look = min(16 * look, length)
                continue
            unpacked, packed = sizes.get(_UNPACKED_SIZE, -1), sizes.get(_PACKED_SIZE, -1)
            if unpacked < 0 or packed < 0:
                raise ValueError(f"no page header at byte {at}")
            return unpacked, header.at + packed, header.at
