"""A golden vector: one scenario recorded from real vLLM, a header line and one line per engine tick.

The format is described in ``docs/parity.md``. Records are kept as plain JSON values: the point is to compare them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Required, TypedDict

import msgspec

from tokenyard.errors import FileError, ParityError
from tokenyard.files.bounds import Bounds
from tokenyard.files.lines import bounded_lines
from tokenyard.files.nesting import is_nested_deeper

__all__ = ["GoldenVector", "Header", "Image", "Json", "RequestSpec", "Stats", "Tokens"]

Json = dict[str, Any]
_Token = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Tokens = list[tuple[str, list[_Token]]]
"""Request ids, and the tokens of each that a model sampled or drafted."""


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


class _Group(TypedDict, total=False):
    kind: Required[str]
    window: int | None
    block_size: int | None
    eagle: bool


class _Settings(TypedDict, total=False):
    """Settings that are looked into; the others are checked where they are used."""

    groups: list[_Group] | None
    pipeline_parallel_size: int | None


class Stats(msgspec.Struct, frozen=True):
    """What the recorder counted when it had finished; the rest of it is for readers."""

    ticks: int


class Header(msgspec.Struct, frozen=True):
    """First line of a vector."""

    name: str
    config: Json
    requests: list[RequestSpec]
    stats: Stats
    vllm: str = "unknown"
    format: Literal["vllm-golden-1"] = "vllm-golden-1"

    def __post_init__(self) -> None:
        msgspec.convert(self.config, _Settings)


class _Event(TypedDict, total=False):
    op: Required[str]
    id: str
    hit: bool
    status: str
    running: bool
    ok: bool
    state: Literal[0, 1, 2]
    prompt: list[int]
    last: bool


class _Decided(TypedDict, total=False):
    n: Required[int]
    known: Tokens


class _Updated(TypedDict, total=False):
    of: Required[int]
    sampled: Required[Tokens]
    drafts: Tokens
    pooled: list[str]


class _Tick(TypedDict, total=False):
    """The inputs of a tick, which a replay hands on; what was decided may be anything, and is then different."""

    t: Required[int]
    ev_pre: list[_Event]
    add: list[str]
    s: _Decided
    ev_mid: list[_Event]
    u: _Updated


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
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            raise ParityError(f"{path}:1: not the header of a golden vector: {problem}") from None

    def _read_lines(self) -> Iterator[bytes]:
        bounds = Bounds.from_env()
        try:
            for line in bounded_lines(self.path, bounds=bounds):
                if is_nested_deeper(line, bounds.nesting):
                    raise bounds.exceeded(self.path, "it is nested deeper", "nesting")
                if line.strip():
                    yield line
        except FileError as problem:
            raise ParityError(str(problem)) from None

    def ticks(self) -> Iterator[Json]:
        """The recorded ticks, once; ParityError if one is missing: they are numbered, and the header says how many."""
        expected = 0
        for number, line in enumerate(self._lines, 2):
            tick = self._decode(number, line)
            if tick["t"] != expected:
                raise ParityError(f"{self.path}:{number}: tick {tick['t']} stands where tick {expected} is due")
            yield tick
            expected += 1
        if expected != self.header.stats.ticks:
            recorded = self.header.stats.ticks
            raise ParityError(f"{self.path}: cut short: it holds {expected} of the {recorded} ticks that were recorded")

    def _decode(self, number: int, line: bytes) -> Json:
        try:
            tick: Json = msgspec.json.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            raise ParityError(f"{self.path}:{number}: not JSON: {problem}") from None
        try:
            msgspec.convert(tick, _Tick)
        except msgspec.ValidationError as problem:
            raise ParityError(f"{self.path}:{number}: not a tick of a golden vector: {problem}") from None
        return tick
