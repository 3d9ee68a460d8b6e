"""Where a request's token ids come from, without storing them.

Recorded traces say which prompts share a prefix, not what the tokens were. One function of a 64-bit seed and a
position, :func:`output_tokens`, stands for all of them: a recorded block is the stream of its (scope, hash id), a
generated session is one stream by absolute position, and what the simulated model says at a position of a session
is the same stream, so that the next turn's prompt contains it. Equal seeds give equal tokens; different seeds give
streams that share no prefix worth mentioning (a seed becomes a 32-bit offset and a 31-bit stride).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import xxhash

from tokenyard.core.request import TokenIds
from tokenyard.splitmix import GOLDEN, mixed

Int64s = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]

_LARGEST_ID = 2**31 - 1
_CHUNK = 1 << 15
"""Tokens expanded at once: the working set stays in the second-level cache."""


class TokenSource(Protocol):
    """A prompt that is not in memory yet: what a ``WorkloadRequest`` has in place of token ids.

    Ours are :class:`StreamTokens`, :class:`ListedTokens`, :class:`HashedTokens` and :class:`JoinedTokens`. A source of
    your own works as well; a replay then hashes its tokens, which costs some processor time.
    """

    def __len__(self) -> int:
        """Number of tokens."""

    def tokens(self) -> TokenIds:
        """The token ids, shape ``[n]``, int32; the same at each call."""


def seed_of(*parts: object) -> int:
    """A signed 64-bit seed for a tuple of names and numbers, for a :class:`Segment`; the same on every machine."""
    return xxhash.xxh3_64_intdigest(repr(parts).encode()) - (1 << 63)


def stream_words(seeds: Int64s) -> tuple[Words, Words]:
    """Offset and (odd) stride of each seed's stream; the executor keeps them per request slot."""
    words = mixed(seeds.view(np.uint64) + GOLDEN)
    return words.astype(np.uint32), (words >> np.uint64(32)).astype(np.uint32) | np.uint32(1)


def tokens_at(offsets: Words, strides: Words, positions: Words) -> TokenIds:
    """Tokens of streams at positions, the three arrays broadcast together; int32 from 0 to 2**31 - 1.

    Offset and stride alone tell streams apart; one round of mixing makes the ids look drawn at random.
    """
    x = positions * strides
    x += offsets
    shifted = x >> np.uint32(16)
    x ^= shifted
    x *= np.uint32(0x7FEB352D)
    np.right_shift(x, np.uint32(15), out=shifted)
    x ^= shifted
    x >>= np.uint32(1)
    return x.view(np.int32)


def output_tokens(seeds: Int64s, positions: Int64s) -> Int64s:
    """Tokens that the simulated model produces: element ``i`` at ``positions[i]`` of the stream of ``seeds[i]``."""
    offsets, strides = stream_words(np.ascontiguousarray(seeds))
    return tokens_at(offsets, strides, positions.astype(np.uint32)).astype(np.int64)


class ListedTokens:
    """Token ids that are there in full. Raises ValueError for what is no list of ids from 0 to 2147483647."""

    __slots__ = ("_ids",)

    def __init__(self, ids: TokenIds | Sequence[int]) -> None:
        if not isinstance(ids, np.ndarray) or ids.dtype != np.int32:
            ids = _id_array(ids)
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    def __repr__(self) -> str:
        return f"ListedTokens({_some(self._ids.tolist())})"

    def tokens(self) -> TokenIds:
        """The ids, shape ``[n]``; not to be changed."""
        return self._ids


def _id_array(ids: object) -> TokenIds:
    """Any sequence of whole numbers as int32."""
    try:
        array = np.asarray(ids)
    except ValueError:
        array = np.empty((1, 1))
    is_whole = array.ndim == 1 and (array.dtype.kind in "iu" or not array.size)
    if not is_whole or (array.size and not 0 <= int(array.min()) <= int(array.max()) <= _LARGEST_ID):
        raise ValueError(f"give a list of whole numbers from 0 to {_LARGEST_ID}")
    return array.astype(np.int32)


def _some(values: Sequence[object]) -> str:
    shown = ", ".join(map(str, values[:3]))
    return f"[{shown}]" if len(values) <= 3 else f"[{shown}, ... {len(values):,} in all]"


class Segment(NamedTuple):
    """Positions ``start..stop-1`` of the stream of ``seed``."""

    seed: int
    """Names the stream (:func:`seed_of`): equal seeds and positions are equal tokens."""
    start: int
    """First position, from 0."""
    stop: int
    """Position behind the last one, at most 2**32 - 1."""


class StreamTokens:
    """Pieces of streams of made-up tokens, one after the other.

    What the simulated model answers is the stream of the request's ``output_seed`` from the position behind its prompt
    on: the answer of ``n`` tokens to a prompt of ``p`` is ``Segment(output_seed, p, p + n)``.
    """

    __slots__ = ("_length", "_segments")

    def __init__(self, *segments: Segment) -> None:
        self._segments = segments
        self._length = sum(piece.stop - piece.start for piece in segments)

    @classmethod
    def unique(cls, seed: int, num_tokens: int) -> StreamTokens:
        """``num_tokens`` tokens that no request of another seed shares."""
        return cls(Segment(seed, 0, num_tokens))

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"StreamTokens({self._length:,} tokens in {len(self._segments)} pieces)"

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The pieces, in order."""
        return self._segments

    def tokens(self) -> TokenIds:
        """The token ids, shape ``[n]``, made anew at each call."""
        offsets, strides = stream_words(np.array([piece.seed for piece in self._segments], np.int64))
        out = np.empty(self._length, np.int32)
        at = 0
        for i, (_, start, stop) in enumerate(self._segments):
            for first in range(start, stop, _CHUNK):
                positions = np.arange(first, min(first + _CHUNK, stop), dtype=np.uint32)
                out[at : at + len(positions)] = tokens_at(offsets[i : i + 1], strides[i : i + 1], positions)
                at += len(positions)
        return out


class HashedTokens:
    """A prompt known by the hash ids of its blocks.

    Equal ids in one scope stand for equal blocks of tokens. The ids are kept as ranges (recorded prompts are a few
    runs of consecutive ids). Ids may cover the last block in part or leave it out; what they leave out is unique.
    """

    __slots__ = ("_block_size", "_counts", "_length", "_scope", "_starts", "_tail_seed")

    def __init__(
        self, ranges: Sequence[tuple[int, int]], num_tokens: int, *, block_size: int, scope: int, tail: int
    ) -> None:
        """``ranges``: (first id, count). ``scope``: seed under which ids are equal; ``tail``: seed of the rest."""
        self._starts = np.array([first for first, _ in ranges], np.int64)
        self._counts = np.array([count for _, count in ranges], np.int64)
        self._length = num_tokens
        self._block_size = block_size
        self._scope = scope
        self._tail_seed = tail

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"HashedTokens({self._length:,} tokens in blocks of {self._block_size})"

    @property
    def block_size(self) -> int:
        """Tokens of a block."""
        return self._block_size

    @property
    def scope(self) -> int:
        """The seed under which ids are equal."""
        return self._scope

    @property
    def tail_seed(self) -> int:
        """The seed of what the ids leave out."""
        return self._tail_seed

    @property
    def is_all_tail(self) -> bool:
        """Whether the ids leave out everything."""
        return not np.count_nonzero(self._counts)

    @property
    def ranges(self) -> Iterator[tuple[int, int]]:
        """The ids as runs: the first id and the count of each."""
        return zip(self._starts.tolist(), self._counts.tolist(), strict=True)

    def hash_ids(self) -> Int64s:
        """The ids, shape ``[blocks]``."""
        ends = np.cumsum(self._counts)
        total = int(ends[-1]) if len(ends) else 0
        shifts = self._starts - (ends - self._counts)
        ids = np.arange(total, dtype=np.int64)
        ids += np.repeat(shifts, self._counts)
        return ids

    def tokens(self) -> TokenIds:
        """The token ids, shape ``[n]``, made anew at each call."""
        size, length = self._block_size, self._length
        seeds = self.hash_ids().view(np.uint64) * GOLDEN + np.array([self._scope], np.int64).view(np.uint64)
        offsets, strides = stream_words(seeds.view(np.int64))
        covered = min(length, len(offsets) * size)
        out = np.empty(length, np.int32)
        within = np.arange(size, dtype=np.uint32)
        rows = max(1, _CHUNK // size)
        for row in range(0, len(offsets), rows):
            block = tokens_at(offsets[row : row + rows, None], strides[row : row + rows, None], within).ravel()
            at = row * size
            out[at : min(at + len(block), covered)] = block[: covered - at]
        if covered < length:
            out[covered:] = StreamTokens.unique(self._tail_seed, length - covered).tokens()
        return out


class JoinedTokens:
    """Several sources, one after the other."""

    __slots__ = ("_sources",)

    def __init__(self, *sources: TokenSource) -> None:
        self._sources = sources

    def __len__(self) -> int:
        return sum(map(len, self._sources))

    def __repr__(self) -> str:
        return f"JoinedTokens({', '.join(map(repr, self._sources))})"

    def tokens(self) -> TokenIds:
        """All token ids, shape ``[n]``."""
        return np.concatenate([each.tokens() for each in self._sources], dtype=np.int32)
