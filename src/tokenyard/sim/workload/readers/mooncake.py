"""Mooncake traces: JSON lines with global hash ids of 512-token prefix blocks.

Fields read: ``timestamp`` (ms), ``input_length``, ``output_length`` (tokens), ``hash_ids``; others are ignored. The
last id may stand for a block that the prompt fills in part.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from tokenyard.errors import WorkloadError
from tokenyard.sim.workload.readers.hashes import HashId, id_ranges, problem_with_ids
from tokenyard.sim.workload.readers.lines import Count, Length, ReadOptions, Seconds, decode, numbered_lines
from tokenyard.sim.workload.record import WorkloadRequest
from tokenyard.sim.workload.tokens import HashedTokens, seed_of

__all__ = ["BLOCK_SIZE", "read_mooncake"]

BLOCK_SIZE = 512


class _Row(msgspec.Struct):
    timestamp: Seconds
    input_length: Length
    output_length: Count
    hash_ids: list[HashId]


def read_mooncake(path: Path, options: ReadOptions) -> Iterator[WorkloadRequest]:
    """One request per line; an output of 0 tokens counts as 1."""
    decoder = msgspec.json.Decoder(_Row)
    scope = seed_of("mooncake", options.seed)
    for number, line in islice(numbered_lines(path), options.limit):
        row = decode(decoder, path, number, line)
        problem = problem_with_ids(len(row.hash_ids), row.input_length, BLOCK_SIZE)
        if problem:
            raise WorkloadError(path, number, problem)
        own = seed_of("mooncake", options.seed, number)
        yield WorkloadRequest(
            request_id=f"mooncake_{number:06d}",
            prompt=HashedTokens(
                id_ranges(row.hash_ids), row.input_length, block_size=BLOCK_SIZE, scope=scope, tail=own
            ),
            max_tokens=max(1, row.output_length),
            arrival_time=row.timestamp / 1000,
            output_seed=own,
        )
