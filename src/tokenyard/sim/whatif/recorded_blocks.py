"""Prompts of a trace: numbered blocks, made into tokens that share what the recorded prompts shared.

A trace numbers every full block; equal numbers mean that the block and all before it are equal. So a number stands at
one place of a prompt, and its tokens can be that place in the stream of the request that brought it first:

    request a, prompt       0 1 2 | tail               all of a's stream
    request a, output              3 4                 goes on in a's stream, the tail included
    request b, prompt       0 1 2   3 4   5 | tail     a's stream up to 4, then b's
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tokenyard.sim.workload.tokens import Segment, StreamTokens

__all__ = ["Origin", "RecordedBlocks"]


class Origin(NamedTuple):
    """Who brought a block first."""

    request_id: str
    seed: int
    """Of the request's stream."""
    is_output: bool
    """It was put out, not asked."""


class _Stretch(NamedTuple):
    """Blocks ``first..end-1``, which one request brought."""

    first: int
    end: int
    origin: Origin


class RecordedBlocks:
    """Where every numbered block comes from; blocks are noted in the order of the trace."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._known: list[_Stretch] = []
        """Ascending, without overlap."""

    def prompt(self, runs: Sequence[int], num_tokens: int, own: Origin) -> StreamTokens:
        """The prompt of ``num_tokens`` tokens whose full blocks are ``runs`` (first, count, first, count ...).

        ValueError if the runs cannot be those of such a prompt.
        """
        _check(runs, num_tokens // self._block_size)
        pieces: list[Segment] = []
        at = 0
        for origin, count in self._origins(runs, own):
            end = at + count * self._block_size
            _append(pieces, Segment(origin.seed, at, end))
            at = end
        if at < num_tokens:
            _append(pieces, Segment(own.seed, at, num_tokens))
        return StreamTokens(*pieces)

    def origin_of(self, number: int) -> Origin | None:
        """Who brought a block; None if nobody has."""
        found = self._stretch_at(number)
        return None if found is None else found.origin

    def note_output(self, runs: Sequence[int], num_tokens: int, own: Origin) -> None:
        """Note blocks that hold output of a request of ``num_tokens`` tokens in all. ValueError as above."""
        _check(runs, num_tokens // self._block_size)
        for _ in self._origins(runs, own):
            pass

    def _origins(self, runs: Sequence[int], own: Origin) -> Iterator[tuple[Origin, int]]:
        """Stretches of the runs by origin, each with its number of blocks; unknown ones are ``own`` from now on."""
        for first, count in zip(runs[::2], runs[1::2], strict=True):
            at, end = first, first + count
            while at < end:
                known = self._stretch_at(at)
                if known is None:
                    known = _Stretch(at, min(end, self._next_known(at)), own)
                    insort(self._known, known)
                yield known.origin, min(known.end, end) - at
                at = min(known.end, end)

    def _stretch_at(self, number: int) -> _Stretch | None:
        place = bisect_right(self._known, number, key=_first) - 1
        found = self._known[place] if place >= 0 else None
        return found if found is not None and number < found.end else None

    def _next_known(self, number: int) -> int:
        """The first number above ``number`` that is known; a large one if none is."""
        place = bisect_right(self._known, number, key=_first)
        return self._known[place].first if place < len(self._known) else 1 << 62


def _first(stretch: _Stretch) -> int:
    return stretch.first


def _append(pieces: list[Segment], piece: Segment) -> None:
    """Add a piece; one that goes on where the last one ends becomes part of it."""
    if pieces and (pieces[-1].seed, pieces[-1].stop) == (piece.seed, piece.start):
        pieces[-1] = pieces[-1]._replace(stop=piece.stop)
    else:
        pieces.append(piece)


def _check(runs: Sequence[int], most: int) -> None:
    """ValueError unless these can be runs of at most ``most`` blocks."""
    counts = runs[1::2]
    if len(runs) % 2 or any(first < 0 for first in runs[::2]) or any(count < 1 for count in counts):
        raise ValueError(f"{len(runs)} numbers are no runs of blocks")
    if sum(counts) > most:
        raise ValueError(f"{sum(counts)} blocks are more than the {most} that the tokens fill")
