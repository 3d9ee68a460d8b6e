"""A golden vector: one scenario recorded from real vLLM, a header line and one line per engine tick.

The format is described in ``docs/parity.md``. Records are kept as plain JSON values: the point is to compare them.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tokenyard.errors import ParityError

__all__ = ["GoldenVector", "Header", "Image", "Json", "RequestSpec"]

Json = dict[str, Any]


class Image(msgspec.Struct, frozen=True, array_like=True):
    """A multi-modal item of a prompt: ``[hash, offset, length, is_embed or null]``."""

    mm_hash: str
    offset: int
    length: int
    is_embed: tuple[bool, ...] | None = None


class RequestSpec(msgspec.Struct, frozen=True):
    """A request of the scenario."""

    id: str
    prompt: list[int]
    max_tokens: int
    arrival_time: float
    min_tokens: int = 0
    eos: int | None = None
    stop_token_ids: list[int] | None = None
    priority: int = 0
    cache_salt: str | None = None
    lora: int | None = 0
    skip_reading_prefix_cache: bool | None = None
    mm: tuple[Image, ...] = ()
    repetition: tuple[int, int, int] | None = None
    """Longest and shortest pattern, and how often it has to stand in a row."""
    pooling: bool = False
    resumable: bool = False
    forbids: frozenset[int] | None = None
    """Tokens that its grammar forbids; None: it has no grammar."""


class Header(msgspec.Struct, frozen=True):
    """First line of a vector."""

    name: str
    config: Json
    requests: list[RequestSpec]
    vllm: str = "unknown"


class GoldenVector:
    """Reads one ``*.jsonl`` or ``*.jsonl.gz`` vector."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = self._read_lines()
        try:
            first = next(self._lines)
            self.header = msgspec.json.decode(first, type=Header)
        except StopIteration:
            raise ParityError(f"{path}: empty file, not a golden vector") from None
        except msgspec.MsgspecError as problem:
            raise ParityError(f"{path}:1: not the header of a golden vector: {problem}") from None

    def _read_lines(self) -> Iterator[bytes]:
        opener = gzip.open if self.path.suffix == ".gz" else open
        try:
            with opener(self.path, "rb") as file:
                for line in file:
                    if line.strip():
                        yield bytes(line)
        except (OSError, EOFError) as problem:
            raise ParityError(f"{self.path}: cannot be read: {problem}") from None

    def ticks(self) -> Iterator[Json]:
        """The recorded ticks, once."""
        for number, line in enumerate(self._lines, 2):
            try:
                tick = msgspec.json.decode(line)
            except msgspec.MsgspecError as problem:
                raise ParityError(f"{self.path}:{number}: not JSON: {problem}") from None
            if not isinstance(tick, dict) or "t" not in tick:
                raise ParityError(f"{self.path}:{number}: not a tick of a golden vector")
            yield tick
