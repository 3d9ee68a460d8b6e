"""Hash ids of prompt blocks: how they are checked and kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec

__all__ = ["HashId", "IdRanges", "append_range", "first_ids", "id_ranges", "num_ids", "problem_with_ids"]

HashId = Annotated[int, msgspec.Meta(ge=0, le=2**62)]

IdRanges = list[tuple[int, int]]
"""Runs of consecutive ids: (first id, count)."""


def append_range(ranges: IdRanges, first: int, count: int) -> None:
    """Add a run at the end, joined to the last one where it continues it."""
    if ranges and sum(ranges[-1]) == first:
        first, before = ranges.pop()
        count += before
    ranges.append((first, count))


def id_ranges(ids: Iterable[int]) -> IdRanges:
    """A list of ids as runs."""
    ranges: IdRanges = []
    first = count = 0
    for each in ids:
        if count and each == first + count:
            count += 1
            continue
        if count:
            ranges.append((first, count))
        first, count = each, 1
    if count:
        ranges.append((first, count))
    return ranges


def first_ids(ranges: IdRanges, keep: int) -> IdRanges:
    """The runs of the first ``keep`` ids."""
    kept: IdRanges = []
    for first, count in ranges:
        if keep <= 0:
            break
        kept.append((first, min(count, keep)))
        keep -= count
    return kept


def num_ids(ranges: IdRanges) -> int:
    """How many ids the runs hold."""
    return sum(count for _, count in ranges)


def problem_with_ids(ids: int, num_tokens: int, block_size: int) -> str | None:
    """What is wrong with so many ids for a prompt of so many tokens, or None.

    The last block may be counted, left out, or (where a recorder left out more) missing with others before it.
    """
    most = -(-num_tokens // block_size)
    if ids > most:
        return f"{ids} hash ids for {num_tokens} tokens: blocks of {block_size} allow at most {most}"
    return None
