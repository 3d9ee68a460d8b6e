"""Where requests begin and end in the bytes of a connection. What two programs could read in two ways is refused.

httptools has no bound on a head and does not tell how large a chunk is to be; h11 takes folded lines, lines that end
with LF alone, and a Content-Length beside chunks, of which a proxy in front may believe the other one. So that all
servers keep to the same rules, with either parser of any version, bytes pass here before they come to a parser.
"""

from __future__ import annotations

import re
from collections.abc import Callable

MOST_HEAD_BYTES = 64 * 2**10
"""Longest head of a request: its line and its headers."""
MOST_HEADERS = 256
MOST_CHUNK_BYTES = 2**31
"""What a chunk may say that it has; what a whole body may have is bounded by its server."""
_MOST_DIGITS = 18
"""Digits of a length: parsers count in 64 bits."""
_LONGEST_CHUNK_LINE = 1024
_MOST_TRAILER_BYTES = 8 * 2**10

_FRAMES = re.compile(rb"\r\n(content-length|transfer-encoding)([ \t]*):[ \t]*([^\r]*)", re.IGNORECASE)
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,20})[ \t]*(;.*)?", re.DOTALL)


class FramingError(Exception):
    """Bytes that are refused, with the status that says so."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.taken = 0
        """Bytes of what was given that came before, and are sound."""
        self.is_of_body = False
        """It is the body of a request whose head was sound."""


class Framing:
    """Follows one connection: head, body, head, body."""

    __slots__ = ("_held", "_left", "_state")

    def __init__(self) -> None:
        self._state: Callable[[Framing, bytes, int], int] = Framing._head
        self._held = bytearray()
        """The beginning of a head, of a chunk's line or of trailers."""
        self._left = 0
        """Bytes of the body, or of the chunk, that are still to come."""

    def feed(self, data: bytes) -> None:
        """Follow further bytes. Raises FramingError."""
        at = 0
        try:
            while at < len(data):
                at = self._state(self, data, at)
        except FramingError as error:
            error.taken = at
            error.is_of_body = self._state != Framing._head
            raise

    def _line(self, data: bytes, at: int, end: bytes, most: int, problem: FramingError) -> tuple[bytes | None, int]:
        """What is there up to and with ``end``, if it is, and where it ends; at most so many bytes."""
        held = self._held
        before = len(held)
        held += data[at : at + most + len(end)]
        found = held.find(end, max(0, before + 1 - len(end)))
        size = len(held) if found < 0 else found + len(end)
        if size > most:
            raise problem
        if found < 0:
            return None, len(data)
        line = bytes(held[:size])
        held.clear()
        return line, at + size - before

    def _head(self, data: bytes, at: int) -> int:
        if not self._held and data[at] in b"\r\n":  # blank lines before a request
            return len(data) - len(data[at:].lstrip(b"\r\n"))
        before = len(self._held)
        problem = FramingError(431, f"the head of a request must not be longer than {MOST_HEAD_BYTES} bytes")
        head, end = self._line(data, at, b"\r\n\r\n", MOST_HEAD_BYTES, problem)
        if head is None:
            _check_lines(self._held[max(0, before - 1) :], is_whole=False)
        else:
            self._begin_body(head)
        return end

    def _begin_body(self, head: bytes) -> None:
        name, value = _said_of_body(head)
        if name == b"transfer-encoding":
            if value.lower() != b"chunked":
                raise FramingError(501, "the only Transfer-Encoding is chunked")
            if head.partition(b"\r\n")[0].endswith(b"HTTP/1.0"):
                raise FramingError(400, "HTTP/1.0 has no Transfer-Encoding")
            self._state = Framing._chunk_line
        elif name:
            if not value.isdigit():
                raise FramingError(400, "Content-Length must be a whole number")
            if len(value) > _MOST_DIGITS:
                raise FramingError(413, "a body must not be longer than can be counted")
            self._left = int(value)
            if self._left:
                self._state = Framing._sized_body

    def _sized_body(self, data: bytes, at: int) -> int:
        here = min(self._left, len(data) - at)
        self._left -= here
        if not self._left:
            self._state = Framing._head
        return at + here

    def _chunk_line(self, data: bytes, at: int) -> int:
        problem = FramingError(400, f"the line of a chunk must not be longer than {_LONGEST_CHUNK_LINE} bytes")
        line, end = self._line(data, at, b"\n", _LONGEST_CHUNK_LINE, problem)
        if line is None:
            return end
        matched = _CHUNK_LINE.fullmatch(line[:-2]) if line.endswith(b"\r\n") else None
        if matched is None:
            raise FramingError(400, "a chunk begins with its size in hexadecimal digits, and CR LF")
        self._left = int(matched[1], 16)
        if self._left > MOST_CHUNK_BYTES:
            raise FramingError(413, f"a chunk must not be longer than {MOST_CHUNK_BYTES} bytes")
        self._state = Framing._chunk if self._left else Framing._trailers
        return end

    def _chunk(self, data: bytes, at: int) -> int:
        here = min(self._left, len(data) - at)
        self._left -= here
        if not self._left:
            self._state = Framing._chunk_end
        return at + here

    def _chunk_end(self, data: bytes, at: int) -> int:
        line, end = self._line(data, at, b"\n", 2, FramingError(400, "a chunk ends with CR LF"))
        if line is not None:
            if line != b"\r\n":
                raise FramingError(400, "a chunk ends with CR LF")
            self._state = Framing._chunk_line
        return end

    def _trailers(self, data: bytes, at: int) -> int:
        problem = FramingError(431, f"trailers must not be longer than {_MOST_TRAILER_BYTES} bytes")
        line, end = self._line(data, at, b"\n", _MOST_TRAILER_BYTES - self._left, problem)
        if line is not None:
            _check_lines(line, is_whole=True)
            self._left += len(line)  # what trailers have taken so far
            if line == b"\r\n":
                self._left, self._state = 0, Framing._head
        return end


def _said_of_body(head: bytes) -> tuple[bytes, bytes]:
    """The name in lower case and the value of the header that tells how long the body is; empty: there is none."""
    _check_lines(head, is_whole=True)
    if head.count(b"\r\n") - 2 > MOST_HEADERS:
        raise FramingError(431, f"a request must not have more than {MOST_HEADERS} headers")
    if b"\r\n " in head or b"\r\n\t" in head:
        raise FramingError(400, "a header must not go on in a second line")
    found = _FRAMES.findall(head)
    if not found:
        return b"", b""
    if len(found) > 1:
        raise FramingError(400, "give one Content-Length, or one Transfer-Encoding, and not both")
    ((name, space, value),) = found
    if space:
        raise FramingError(400, "no space may stand before the colon of a header")
    return name.lower(), value.rstrip(b" \t")


def _check_lines(lines: bytes | bytearray, *, is_whole: bool) -> None:
    """Raise unless each line ends with CR LF; the last byte of what is not whole may be the CR of one."""
    ends = lines.count(b"\r\n")
    returns = lines.count(b"\r") - (not is_whole and lines.endswith(b"\r"))
    feeds = lines.count(b"\n") - (not is_whole and lines.startswith(b"\n"))
    if feeds != ends or returns != ends:
        raise FramingError(400, "a line of a request ends with CR LF")
